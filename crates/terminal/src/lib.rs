//! The common part of the commands `carom` and `carom-lab`.
//!
//! A subcommand returns an [`Outcome`] or a [`CliError`]. The exit code is 0 for success, 1 for a
//! finding such as data loss or a failed check, and 2 for a usage or environment error.

mod command_line;
mod counted;
mod error;
pub mod interrupt;
pub mod output;
pub mod units;

pub use clap_complete::Shell;
pub use command_line::{exit_code, parse, print_completions};
pub use counted::counted;
pub use error::{CliError, Outcome, plain};
