//! Sans-IO core of Carom: wire formats, protocol engines and membership.
//!
//! This crate performs no input or output. Each part is a state machine. Its driver passes in the
//! time and the received datagrams, and takes out datagrams, events and the next deadline. See
//! [`engine`] for the contract. The same code runs on real sockets (crate `carom`), in the
//! simulator and in fuzzers.

extern crate alloc;

mod bounds;
pub mod codec;
mod cookie;
mod counters;
pub mod engine;
mod error;
mod event;
mod id_map;
mod ids;
pub mod inbox;
mod incarnations;
pub mod lateral;
pub mod loss;
pub mod membership;
mod multicast_pool;
pub mod node;
mod outbox;
pub mod rdcm;
mod recent;
pub mod ring;
pub mod rmp;
mod rng;
pub mod settings;
mod settings_codec;
#[cfg(test)]
mod strategies;
mod time;
mod timers;
mod transport;
mod view;
pub mod wire;

pub use engine::{
    Class, Destination, Engine, Hops, LOOK_AHEAD, ManagerNews, NetworkChange, SendOptions,
    Transmit, Wakeup,
};
pub use error::{SendError, Unserved};
pub use event::{Confirmed, Event, How, Limiting, LossCause, Lost, Message, Slow};
pub use id_map::IdMap;
pub use ids::{Endpoint, GroupId, Incarnation, NodeId, Origin, PacketId, SeqNo};
pub use multicast_pool::{MulticastPool, PoolParseError};
pub use outbox::Outbox;
pub use rng::Rng;
pub use settings::{GroupSettings, JoinError, Profile, RateOfFire};
pub use time::Time;
pub use timers::Timers;
pub use view::{View, ViewChange, ViewChangeKind};
