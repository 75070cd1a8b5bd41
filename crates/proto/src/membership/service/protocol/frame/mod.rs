//! Frames of the protocol between nodes, detectors, observers and registry processes.
//!
//! Each frame is a length (u32, of what follows: 1 to [`MAX_FRAME_BYTES`]), a kind (u8) and fields.
//! All numbers are big-endian; `settings` are the 8 bytes of [`GroupSettings`], `member` is 27 or
//! 39 bytes ([`Member`]), `endpoint` is port u16, family u8 and address, `text` is a length u8 and
//! UTF-8, and a list is a count u32 and its elements. The kind is at offset 0.
//!
//! | kind | frame | sent by | offsets of the fields |
//! |---|---|---|---|
//! | 1 | hello | node, detector, observer | 1 magic u32, 5 version u16, 7 role u8, 8 \[0\] |
//! | 2 | welcome | process | 1 version u16, 3 process u64, 11 lease in ms u32, 15 owners as in 14 |
//! | 3 | refused | process | 1 why u8, then \[2\] |
//! | 4 | join | node | 1 request u32, 5 group u32, 9 settings |
//! | 5 | joined | process | 1 request u32, 5 group u32, 9 version u64; a snapshot follows |
//! | 6 | join refused | process | 1 request u32, 5 group u32, 9 why u8, then \[1\] |
//! | 7 | leave | node | 1 request u32, 5 group u32 |
//! | 8 | left | process | 1 request u32, 5 group u32 |
//! | 9 | resync | node | 1 group u32, 5 have u64 |
//! | 10 | unchanged | process | 1 group u32, 5 version u64 |
//! | 11 | snapshot | process | 1 group u32, 5 version u64, 13 more u8, 14 settings, 22 \[3\] |
//! | 12 | update | process | 1 group u32, 5 after u64, 13 version u64, 21 \[3\] |
//! | 13 | alive | all | nothing |
//! | 14 | owners | process | 1 partitions u16, 3 list of (partition u16, endpoint), in order |
//! | 15 | expired | process | 1 incarnation u32 |
//! | 16 | goodbye | node, detector, observer | nothing |
//! | 17 | elsewhere | process | 1 request u32, 5 group u32 |
//! | 18 | report | node, detector | 1 node u64, 9 incarnation u32, 13 silent for, in ms u32 |
//! | 19 | watch | process | 1 \[3\] |
//! | 20 | successor | process | 1 within, in ms u32, 5 list of no or one member |
//! | 21 | observe | observer | 1 group u32, 0 for all |
//! | 22 | observed | process | 1 partition u16 |
//! | 23 | manage | node | 1 a [request](crate::rdcm::manager::messages) |
//! | 24 | managed | process | 1 an [answer](crate::rdcm::manager::messages) |
//!
//! \[0\] Cluster text, member, rack text.
//! \[1\] For a contradiction (why 1): 10 existing settings, 18 given settings, 26 by u64.
//! \[2\] For another version (why 1): 2 ours u16, 4 theirs u16. For another cluster (2): 2 text.
//! \[3\] A list of members in 11, of (kind u8, member) in 12, of (watched u8, member) in 19.
//!
//! The first seven bytes of a hello, and a refusal of a version, have the same meaning in every
//! version, so that a program of any version can report the version it requires. A frame that is
//! longer or shorter than its fields, or has a field with an impossible value, ends the connection:
//! TCP loses no bytes, so it is an error of the peer. Unknown settings of a group do not end the
//! connection. A join with them is refused, and a snapshot with them is skipped.

mod codec;

use core::time::Duration;

pub use super::error::{FrameError, UnknownSettings};
pub use super::fields::Member;
pub use super::limits::*;
pub use crate::error::Unserved;
use crate::{Endpoint, GroupId, GroupSettings, NodeId, ViewChangeKind};

/// A frame of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum Frame {
    /// First frame of a connection: the identity of its opener.
    Hello(Hello),
    /// Acceptance of a hello.
    Welcome(Welcome),
    /// Refusal of a hello. The connection is closed after it.
    Refused(Refusal),
    /// Request of a node to become a member. The first join of a group sets its settings.
    Join { request: u32, group: GroupId, settings: GroupSettings },
    /// The node is a member, and the join is in the store. The snapshot of this version follows.
    Joined { request: u32, group: GroupId, version: u64 },
    /// The join was refused, and has not changed the store.
    JoinRefused { request: u32, group: GroupId, why: JoinRefusal },
    /// Request of a node to leave.
    Leave { request: u32, group: GroupId },
    /// According to the store, this incarnation of the node is not a member.
    Left { request: u32, group: GroupId },
    /// Request of a member for the current state of a group.
    Resync {
        group: GroupId,
        /// Version that the node has, or 0 for none.
        have: u64,
    },
    /// The group has not changed since the version of the resync.
    Unchanged { group: GroupId, version: u64 },
    /// The current state of a group, in one frame or several consecutive ones.
    Snapshot(Snapshot),
    /// The changes to a group since the previous version on this connection.
    Update(Update),
    /// Sign of life. A registry process answers with the same frame.
    Alive,
    /// Current owners of the partitions.
    Owners(Owners),
    /// The node can no longer use this incarnation or an earlier one, and must come back as a later
    /// one. The connection is closed after this frame.
    Expired { incarnation: u32 },
    /// The sender stops on its own initiative. A node thereby leaves all its groups.
    Goodbye,
    /// This process does not own the group's partition. A request that was waiting for the store
    /// when the process lost the partition may have taken effect.
    Elsewhere {
        /// Number of the join or leave. 0 for a resync, and for subscribers of a lost partition.
        request: u32,
        group: GroupId,
    },
    /// A watched or pinged node does not answer.
    Report { node: NodeId, incarnation: u32, silent_ms: u32 },
    /// Changes to the set of nodes that a detector must watch.
    Watch(Vec<Watched>),
    /// The node to ping from now on: the next one in the ring of nodes or chain of detectors.
    Successor {
        next: Option<Member>,
        /// Silence after which a node reports the next one, in milliseconds. Detectors use their
        /// own detection time instead.
        within_ms: u32,
    },
    /// Request of an observer for one group, or for all groups if it is [`GroupId::NONE`].
    ///
    /// The process sends the group's current state and then its changes for as long as it owns the
    /// group's partition. This includes partitions that the process comes to own later.
    Observe { group: GroupId },
    /// End of a partition's current state for an observer. A group that the observer knew before
    /// and that was not sent again no longer exists.
    Observed { partition: u16 },
    /// A request to the multicast manager, at the owner of partition [`MANAGER_PARTITION`].
    Manage(Vec<u8>),
    /// An answer of the multicast manager.
    Managed(Vec<u8>),
}

/// Identity of the opener of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Hello {
    /// Role of the opener.
    pub role: Role,
    /// Cluster of the opener, which must be that of the registry. At most [`MAX_TEXT_BYTES`].
    pub cluster: String,
    /// Id, incarnation, start and UDP endpoint of the opener.
    pub member: Member,
    /// Rack of the opener, for the failure detectors. Empty if unknown. At most [`MAX_TEXT_BYTES`].
    pub rack: String,
}

/// Role of the opener of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub enum Role {
    /// A node, which may join groups.
    Node,
    /// The failure detector of its rack.
    Detector,
    /// A client that receives the members of groups without joining them. Its `member` is ignored.
    Observer,
}

/// Parameters for an accepted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Welcome {
    /// Random number that the registry process drew when it started.
    pub process: u64,
    /// Maximum silence of the peer before it is declared dead, in milliseconds.
    #[cfg_attr(test, proptest(strategy = "1_u32.."))]
    pub lease_ms: u32,
    /// Owners of the partitions.
    pub owners: Owners,
}

/// Reason for the refusal of a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum Refusal {
    /// The versions of the protocol differ.
    #[error("this program uses protocol version {theirs}, but the registry uses version {ours}")]
    Version { ours: u16, theirs: u16 },
    /// The registry process serves another cluster.
    #[error("the registry belongs to cluster {ours:?}")]
    Cluster { ours: String },
    /// The registry process has the maximum number of connections.
    #[error("the registry has reached its maximum number of connections")]
    Full,
    /// The bytes were not a frame, or the frame was not allowed at this point or exceeded a limit.
    #[error("the registry received an invalid frame")]
    Nonsense,
}

/// Reason for the refusal of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum JoinRefusal {
    /// The group has other settings, according to its member `by`.
    Contradiction { existing: GroupSettings, given: GroupSettings, by: NodeId },
    /// The registry could not process the join.
    Unserved(Unserved),
}

/// State of a group, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Snapshot {
    /// Group whose state is sent.
    pub group: GroupId,
    /// Version of the group.
    pub version: u64,
    /// `true` if the next frame continues this snapshot.
    pub more: bool,
    /// Settings of the group.
    pub settings: GroupSettings,
    /// Members of the group or of the node's partial view. At most [`MAX_MEMBERS_PER_FRAME`].
    pub members: Vec<Member>,
}

/// Changes to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Update {
    /// Group that has changed.
    pub group: GroupId,
    /// Previous version on this connection. A node with another version has missed an update.
    pub after: u64,
    /// Version after these changes.
    pub version: u64,
    /// The changes, in order. At most [`MAX_MEMBERS_PER_FRAME`].
    pub changes: Vec<MemberChange>,
}

/// Change of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct MemberChange {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The member, with its current or last endpoint.
    pub member: Member,
}

/// Kind of a member's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[repr(u8)]
pub enum ChangeKind {
    /// The node became a member in this incarnation, or entered the partial view.
    Joined = 1,
    /// The member left on its own initiative.
    Left = 2,
    /// The member was declared dead, or started again.
    Failed = 3,
    /// The node is still a member, but no longer in the receiver's partial view.
    Hidden = 4,
}

impl ChangeKind {
    /// Returns the kind of view change that is reported to engines.
    pub fn view_change(self) -> ViewChangeKind {
        match self {
            Self::Joined => ViewChangeKind::Joined,
            Self::Left | Self::Hidden => ViewChangeKind::Left,
            Self::Failed => ViewChangeKind::Failed,
        }
    }
}

/// Owners of the partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Owners {
    /// Number of partitions, 1 to [`MAX_PARTITIONS`].
    #[cfg_attr(test, proptest(strategy = "proptest::strategy::Just(MAX_PARTITIONS)"))]
    pub partitions: u16,
    /// The owned partitions in order of their numbers, with the TCP address of each owner. All
    /// other partitions have no owner at present.
    #[cfg_attr(test, proptest(strategy = "tests::owned()"))]
    pub owned: Vec<(u16, Endpoint)>,
}

impl Owners {
    /// Replaces each unspecified IP address with that of `source`, the sender of the list.
    pub(crate) fn reached_from(mut self, source: Endpoint) -> Self {
        for (_, owner) in self.owned.iter_mut().filter(|(_, at)| at.0.ip().is_unspecified()) {
            owner.0.set_ip(source.0.ip());
        }
        self
    }

    /// Returns the partition of `group`.
    pub fn partition_of(&self, group: GroupId) -> u16 {
        partition_of(group, self.partitions)
    }

    /// Returns the address of the owner of `group`'s partition, if it has one.
    pub fn owner_of(&self, group: GroupId) -> Option<Endpoint> {
        let partition = self.partition_of(group);
        let place = self.owned.binary_search_by_key(&partition, |(owned, _)| *owned).ok()?;
        Some(self.owned[place].1)
    }
}

/// Returns the partition of `group` if there are `partitions` partitions, at least 1.
pub fn partition_of(group: GroupId, partitions: u16) -> u16 {
    (group.0 % u32::from(partitions)) as u16
}

/// Instruction to a detector to start or stop watching a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Watched {
    /// `true` if the node must be watched from now on, `false` if it must not.
    pub watched: bool,
    /// Node to watch, or to stop watching.
    pub member: Member,
}

/// Returns `span` in whole milliseconds, at most 49 days.
pub fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
