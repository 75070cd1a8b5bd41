//! The workload and the accounting of Carom's benchmarks.
//!
//! Every system is measured by the same rules. A [`Header`] identifies each message, a [`Schedule`]
//! paces the sender, and [`Latencies`] collects times by one clock ([`clock::monotonic_ns`]). The
//! command `carom bench` uses these parts only.
//!
//! The feature `lab`, on by default, adds the parts of a comparison of systems:
//!
//! | module | purpose |
//! |---|---|
//! | `node` | one node of Carom or of plain UDP multicast, run by a harness through pipes |
//! | `record` | the files that a node writes |
//! | `drops` | messages in the datagrams that a packet log shows as dropped |
//! | `account` | the results of one run, from the files of all nodes |
//! | `plan` | the rows to measure |
//! | `report` | tables and charts of the results |

#[cfg(feature = "lab")]
pub mod account;
pub mod clock;
#[cfg(feature = "lab")]
pub mod drops;
mod latencies;
mod message;
#[cfg(feature = "lab")]
pub mod node;
#[cfg(feature = "lab")]
pub mod plan;
#[cfg(feature = "lab")]
pub mod record;
#[cfg(feature = "lab")]
pub mod report;
mod schedule;

pub use latencies::{Latencies, Quantiles};
pub use message::{HEADER_BYTES, Header, Magic, MagicError};
pub use schedule::Schedule;
