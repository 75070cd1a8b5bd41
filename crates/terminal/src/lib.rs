//! The common part of the commands `carom` and `carom-lab`.

mod command_line;
mod counted;
mod error;
pub mod interrupt;
pub mod output;
pub mod units;

pub use clap_complete::Shell;
pub use command_line::{check_help, exit_code, parse, print_completions};
pub use counted::counted;
pub use error::{CliError, Outcome, plain};
