//! Other reliable multicast protocols on Carom's [engine contract](carom_proto::engine), to compare
//! with: nothing that is delivered to users depends on them.
//!
//! | module | protocol |
//! |---|---|
//! | [`srm`] | Scalable Reliable Multicast: requests and repairs by multicast, spread by timers |
//! | [`bimodal`] | Bimodal Multicast: rounds of gossip about what everybody has |
//! | [`fec`] | sender-based FEC: parity packets beside the data |
//! | [`ack`] | acknowledgements by every receiver, and timeouts |
//! | [`lbrm`] | LBRM: requests to the logging server of the site, heartbeats at growing pauses |
//! | [`rmtp`] | RMTP: acknowledgements of what came, up a hierarchy of designated receivers |
//! | [`tmtp`] | TMTP: requests within a domain, acknowledgements up the tree of domain managers |
//!
//! All of them carry groups of the profile [`Guest`](carom_proto::Profile::Guest). They run in
//! the simulator, and on real sockets by `carom::Builder::guest`.

extern crate alloc;

pub mod ack;
pub mod bimodal;
pub mod block;
pub mod domain;
pub mod fec;
pub mod guest;
pub mod lbrm;
mod outbox;
mod reception;
mod retained;
pub mod rmtp;
mod round_trips;
pub mod srm;
mod stream;
pub mod tmtp;

pub use reception::Owed;
pub use round_trips::Timeouts;
