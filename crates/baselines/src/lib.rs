//! Other protocols on Carom's [engine contract](carom_proto::engine), only for comparison.
//!
//! | module | protocol |
//! |---|---|
//! | [`srm`] | Scalable Reliable Multicast: multicast requests and repairs, suppressed by timers |
//! | [`bimodal`] | Bimodal Multicast: gossip rounds in which members exchange message digests |
//! | [`fec`] | sender-based FEC: parity packets in addition to the data |
//! | [`ack`] | acknowledgments from every receiver, and retransmission timeouts |
//! | [`lbrm`] | LBRM: NAKs to the site's logging server, heartbeats at growing intervals |
//! | [`rmtp`] | RMTP: periodic acknowledgments up a hierarchy of designated receivers |
//! | [`tmtp`] | TMTP: NAKs within a domain, acknowledgments up a tree of domain managers |
//!
//! All of them carry groups of the profile [`Guest`](carom_proto::Profile::Guest). They run in the
//! simulator, and on real sockets through `carom::Builder::guest`.
//!
//! Each protocol is a policy in the same [`Shell`], which implements the engine contract. The
//! policy owns the protocol's state per group, its timers and its counters.

extern crate alloc;

pub mod ack;
pub mod bimodal;
pub mod block;
mod config;
pub mod domain;
pub mod fec;
pub mod guest;
pub mod lbrm;
mod reception;
mod retained;
pub mod rmtp;
mod round_trips;
mod shell;
pub mod srm;
mod stream;
pub mod tmtp;

pub use config::{ConfigError, Owed, StreamConfig};
pub use round_trips::Timeouts;
pub use shell::Shell;
