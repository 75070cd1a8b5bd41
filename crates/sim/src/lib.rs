//! Deterministic simulation of protocol engines. Time is virtual, and all randomness is drawn from
//! a seed.
//!
//! A [`World`] drives any [`Machine`], such as any `Box<dyn Engine>`, over a [`Topology`] of links
//! with delays, bandwidths and queues. It does not depend on any protocol. The same seed and the
//! same calls give the same history, byte for byte.
//!
//! Over a [`Medium`], the same machines, scenarios and checkers run in real time on real sockets.

mod clock;
mod connections;
mod counters;
mod eavesdropper;
mod ethernet;
mod event_queue;
mod faults;
mod history_hash;
mod host;
mod ids;
mod link_queue;
mod machine;
mod medium;
mod member;
mod network;
mod packets;
mod roster;
pub mod scenario;
mod topology;
mod trace;
mod tree;
mod world;

pub use counters::{Counters, PerClass};
pub use eavesdropper::Eavesdropper;
pub use ethernet::Ethernet;
pub use event_queue::EventQueue;
pub use faults::{Disturbance, Fault};
pub use ids::HostIx;
pub use link_queue::{Background, Traffic};
pub use machine::{Command, GroupMember, Happening, Machine};
pub use medium::{Arrival, Media, Medium};
pub use member::{Member, Notice};
pub use network::Network;
pub use roster::Roster;
pub use topology::{Jitter, Link, Place, Topology};
pub use tree::Goal;
pub use world::{Lossy, Scheduled, World, WorldConfig};
