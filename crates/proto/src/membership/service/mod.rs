//! Membership with a service: the group membership service and the failure detectors of Ricochet
//! 3.2.3, the partial views of Slingshot 3.3.
//!
//! Everything here decides and does no input or output: [`frame`] is the protocol on the wire and
//! [`registry`] what is stored. `docs/membership.md` describes the whole.
//!
//! # Terms
//!
//! | word | meaning |
//! |---|---|
//! | control process | one running service; any number of them serve one cluster |
//! | partition | the groups whose id leaves the same remainder; see [`frame::partition_of`] |
//! | owner | the one process that decides about a partition; processes can take turns |
//! | link | a TCP connection between a node or a detector and a process |
//! | session | a node at a process: its link, its incarnation, and when it was last heard |
//! | lease | how long a session may be silent; it is the detection time |
//! | incarnation | how often the node came back after its lease had ended |
//! | version | how many changes the partition had seen at the last change of a group |
//! | observer | who is told of groups and is in none |
//! | resync | asking what a group is now, with the version that one has |
//!
//! # What holds
//!
//! - A join or leave is acknowledged after the store has it, never before.
//! - A group's version never goes back, and a link is told of changes in their order: each update
//!   names the version that the link was told before, so that a gap shows.
//! - Who is a member in the store is in every view, until it leaves, or its lease ends at the
//!   partition's owner, or a detector reports it and the owner has not heard from it since.
//! - A node that finds itself taken for dead comes back as a later incarnation; what is said of the
//!   earlier one changes nothing any more.

pub mod client;
pub mod detector;
pub(crate) mod fields;
pub mod frame;
pub mod observer;
mod outbox;
mod pinger;
mod reader;
pub mod registry;
pub mod server;
mod ways;

pub use self::client::{Service, ServiceConfig};
pub use self::detector::{Detector, DetectorConfig};
pub use self::frame::{Frame, FrameError, Hello, Member, Owners, Refusal, Role, Unserved};
pub use self::observer::{Observed, Observer, ObserverConfig};
pub use self::reader::FrameReader;
pub use self::registry::{Change, GroupState, PartitionState};
pub use self::server::{
    Commit, CommitFailure, CommitId, DetectorInfo, Server, ServerConfig, SessionInfo,
};
