//! Deterministic simulation of protocol engines: virtual time, and delays, losses and faults from a
//! seed.
//!
//! A [`World`] drives any [`Machine`], such as any `Box<dyn Engine>`, over a [`Topology`] of links
//! with delay, bandwidth and queues. It does not depend on any protocol. The same seed and the same
//! calls give the same history, byte for byte.

mod agenda;
pub mod bulk;
pub mod checkers;
mod clock;
mod cluster;
pub mod control;
mod counters;
mod crossing;
mod ethernet;
mod faults;
pub mod fuzz;
mod history;
mod host;
mod links;
mod machine;
mod member;
mod network;
pub mod ordered;
mod overheard;
mod packets;
mod roster;
mod topology;
mod trace;
mod tree;
mod world;

pub use agenda::Agenda;
pub use counters::{Counters, PerClass};
pub use crossing::{Background, Traffic};
pub use ethernet::Ethernet;
pub use faults::{Disturbance, Fault};
pub use host::HostIx;
pub use machine::{Command, GroupMember, Machine};
pub use member::{Member, Notice};
pub use roster::Roster;
pub use topology::{Jitter, Link, Place, Topology};
pub use world::{Happening, Lossy, Scheduled, World, WorldConfig};
