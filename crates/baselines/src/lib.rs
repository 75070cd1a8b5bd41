//! Other reliable multicast protocols on Carom's [engine contract](carom_proto::engine), to compare
//! with: nothing that is delivered to users depends on them.
//!
//! | module | protocol |
//! |---|---|
//! | [`srm`] | Scalable Reliable Multicast: requests and repairs by multicast, spread by timers |
//!
//! All of them carry groups of the profile [`Guest`](carom_proto::Profile::Guest). They run in
//! the simulator, and on real sockets by `carom::Builder::guest`.

pub mod block;
mod outbox;
mod reception;
mod retained;
pub mod srm;
mod stream;

pub use reception::Owed;
