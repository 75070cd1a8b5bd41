//! Membership with a registry: the group registry and failure detectors of Ricochet 3.2.3, and the
//! partial views of Slingshot 3.3.
//!
//! All parts are state machines without input or output. [`frame`] is the protocol on the wire, and
//! [`PartitionState`] is the content of the store. `docs/membership.md` describes the protocol.
//!
//! # Terms
//!
//! | word | meaning |
//! |---|---|
//! | registry process | one running service; any number of them serve one cluster |
//! | partition | the groups with the same remainder of their id; see [`frame::partition_of`] |
//! | owner | the process, at most one at a time, that serves a partition |
//! | link | a TCP connection from a node, detector or observer to a process |
//! | session | a node or detector at a process: connection, incarnation, and when last heard |
//! | lease | maximum silence of a session: the detection time |
//! | incarnation | a number per node id, incremented when the node comes back |
//! | version | of a group: number of changes to its partition up to the group's last change |
//! | observer | a client that receives the members of groups without joining them |
//! | resync | a query for a group's current state, with the version that the node has |
//!
//! # Guarantees
//!
//! - A join or leave is acknowledged only after it is in the store.
//! - A group's version never decreases, and a connection receives changes in order. Each update
//!   names the previous version on its connection, so that a gap is detected.
//! - A member in the store is in every full view until it leaves or starts again, its lease ends at
//!   the partition's owner, or it is reported as silent and the owner has not heard it recently.
//! - A node that was declared dead comes back as a later incarnation. Reports about the earlier one
//!   have no effect on it.

pub mod client;
mod connections;
mod contract;
pub mod detector;
pub mod observer;
mod outbox;
mod partition_state;
mod pinger;
mod processes;
mod protocol;
pub mod server;

pub use self::client::{Service, ServiceConfig};
pub use self::contract::Client;
pub use self::detector::{Detector, DetectorConfig};
pub use self::observer::{Observed, Observer, ObserverConfig};
pub use self::partition_state::{Change, GroupState, PartitionState};
pub use self::protocol::frame;
pub use self::protocol::frame::{
    Frame, FrameError, Hello, Member, Owners, Refusal, Role, Unserved,
};
pub use self::protocol::reader::FrameReader;
pub use self::server::{
    Commit, CommitFailure, CommitId, DetectorInfo, Server, ServerConfig, SessionInfo,
};
