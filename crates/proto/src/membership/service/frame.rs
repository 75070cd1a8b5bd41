//! The frames of the protocol between nodes, detectors and control processes.
//!
//! Each is a length (u32, of what follows: 1 to [`MAX_FRAME_BYTES`]), a kind (u8) and fields. All
//! numbers are big-endian; `settings` are the 8 bytes of [`GroupSettings`], `member` is 27 or 39
//! bytes ([`Member`]), `endpoint` is port u16, family u8 and address, `text` is a length u8 and
//! UTF-8, and a list is a count u32 and its elements. Offsets count from the kind's.
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
//! | 23 | manage | node | 1 a [request](crate::rdcm::asking) |
//! | 24 | managed | process | 1 an [answer](crate::rdcm::asking) |
//!
//! \[0\] Cluster text, member, rack text.
//! \[1\] For a contradiction (why 1): 10 existing settings, 18 given settings, 26 by u64.
//! \[2\] For another version (why 1): 2 ours u16, 4 theirs u16. For another cluster (2): 2 text.
//! \[3\] A list of members in 11, of (kind u8, member) in 12, of (watched u8, member) in 19.
//!
//! The first seven bytes of a hello and a refusal of a version mean the same in every version, so
//! that a program of any version can say which one it wanted. A frame that is longer or shorter
//! than its fields, or a field with an impossible value, ends the link: streams do not lose bytes,
//! so it is a mistake of the peer's. Unknown settings of a group are none: a join with them is
//! refused, and a snapshot with them is skipped.

mod decoding;
mod encoding;

use core::time::Duration;

pub use super::fields::{MAX_TEXT_BYTES, Member};
use crate::{Endpoint, GroupId, GroupSettings, NodeId, ViewChangeKind};

/// The first field of a hello.
pub const MAGIC: u32 = 0xCA70_6D73;
/// The version of the protocol that this program speaks.
pub const VERSION: u16 = 3;
/// Bytes of the largest frame, its kind included and its length not.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// As [`MAX_FRAME_BYTES`], of what nodes and detectors send: of thousands of links none can hold
/// much memory by a frame that it does not finish.
pub const MAX_REQUEST_BYTES: usize = 1 << 10;
/// The most partitions that a cluster's groups can be split into.
pub const MAX_PARTITIONS: u16 = 4096;
/// The owner of this partition has the multicast manager of all groups.
pub const MANAGER_PARTITION: u16 = 0;
/// Members in one frame at most; more are sent in parts.
pub const MAX_MEMBERS_PER_FRAME: usize = 26_000;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The first frame of a link: who asks.
    Hello(Hello),
    /// The answer: the link is the peer's.
    Welcome(Welcome),
    /// The other answer; the link is closed after it.
    Refused(Refusal),
    /// The node wants to be a member. The first join of a group sets its settings.
    Join {
        /// Comes back in the answer.
        request: u32,
        /// The group.
        group: GroupId,
        /// What the group must be.
        settings: GroupSettings,
    },
    /// The node is a member: the store has it. The snapshot of this version follows at once.
    Joined {
        /// Of the join.
        request: u32,
        /// The group.
        group: GroupId,
        /// The group's version.
        version: u64,
    },
    /// The node is not a member, and nothing of the join was kept.
    JoinRefused {
        /// Of the join.
        request: u32,
        /// The group.
        group: GroupId,
        /// Why.
        why: JoinRefusal,
    },
    /// The node no longer wants to be a member.
    Leave {
        /// Comes back in the answer.
        request: u32,
        /// The group.
        group: GroupId,
    },
    /// The node is not a member any more: the store has it.
    Left {
        /// Of the leave.
        request: u32,
        /// The group.
        group: GroupId,
    },
    /// The node is a member and has this version of the group, 0 for none: what has changed?
    Resync {
        /// The group.
        group: GroupId,
        /// What the node has.
        have: u64,
    },
    /// Nothing has.
    Unchanged {
        /// The group.
        group: GroupId,
        /// Its version.
        version: u64,
    },
    /// The group as it is, in one part or several that follow each other.
    Snapshot(Snapshot),
    /// The group has changed since the version that the node was told before.
    Update(Update),
    /// I am here. A control process answers with the same.
    Alive,
    /// Who owns which partition now.
    Owners(Owners),
    /// The service took this incarnation for dead and has told so: the node has to come back as a
    /// later one. The link is closed after it.
    Expired {
        /// The incarnation that is over.
        incarnation: u32,
    },
    /// The peer stops, of its own will: a node leaves all its groups.
    Goodbye,
    /// This process does not own the group's partition: the request was not looked at.
    Elsewhere {
        /// Of the join or leave; 0 for a resync.
        request: u32,
        /// The group.
        group: GroupId,
    },
    /// A node that was watched, or pinged in the ring or chain, does not answer.
    Report {
        /// Who.
        node: NodeId,
        /// In which incarnation.
        incarnation: u32,
        /// For how long nothing has been heard from it, in milliseconds.
        silent_ms: u32,
    },
    /// A detector's nodes have changed.
    Watch(Vec<Watched>),
    /// Whom to ping from now on: the next in the ring of nodes or the chain of detectors.
    Successor {
        /// Who.
        next: Option<Member>,
        /// A node reports it after so long a silence, in milliseconds. Detectors have a time of
        /// their own.
        within_ms: u32,
    },
    /// Tell me of this group, now and whenever it changes, if you own it or when you come to own
    /// it; of all groups if it is [`GroupId::NONE`].
    Observe {
        /// The group.
        group: GroupId,
    },
    /// An observer has been told all that it wants to know of this partition: what it had before
    /// and was not told again is not there any more.
    Observed {
        /// The partition, which this process owns.
        partition: u16,
    },
    /// A request to the multicast manager, which is at the owner of partition
    /// [`MANAGER_PARTITION`].
    Manage(Vec<u8>),
    /// What the multicast manager says.
    Managed(Vec<u8>),
}

/// Who opens a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it is.
    pub role: Role,
    /// Which cluster it belongs to; another one's is refused. At most [`MAX_TEXT_BYTES`].
    pub cluster: String,
    /// Its id, incarnation and UDP endpoint.
    pub member: Member,
    /// Where it stands, for the failure detectors; empty if that is not known. At most
    /// [`MAX_TEXT_BYTES`].
    pub rack: String,
}

/// What somebody who opens a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A node, which may join groups.
    Node,
    /// The failure detector of its rack.
    Detector,
    /// Somebody who wants to know who is in which group, and is in none. Its member says nothing.
    Observer,
}

/// What somebody needs to know who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Drawn at random when the control process started.
    pub process: u64,
    /// How long the peer may be silent before it is taken for dead, in milliseconds.
    pub lease_ms: u32,
    /// Where the groups are.
    pub owners: Owners,
}

/// Why a link is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The versions of the protocol differ.
    #[error("the service speaks version {ours} of its protocol, this program version {theirs}")]
    Version {
        /// What the control process speaks.
        ours: u16,
        /// What the peer said.
        theirs: u16,
    },
    /// The control process serves another cluster.
    #[error("the service is that of cluster {ours:?}")]
    Cluster {
        /// Its name.
        ours: String,
    },
    /// There are as many links as the control process is willing to have.
    #[error("the service has no room for another link")]
    Full,
    /// What came was no frame, or not one that makes sense there.
    #[error("the service did not understand what it was sent")]
    Nonsense,
}

/// Why a join is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefusal {
    /// The group has other settings.
    Contradiction {
        /// What the group has.
        existing: GroupSettings,
        /// What the join asked for.
        given: GroupSettings,
        /// A member that has it so.
        by: NodeId,
    },
    /// The service could not take it.
    Unserved(Unserved),
}

/// Why the membership service cannot take a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// The store's disk or quota is full.
    #[error("its store is full")]
    StoreFull,
    /// The store failed in another way.
    #[error("its store failed")]
    StoreFailed,
    /// The node is in as many groups as a node may be.
    #[error("the node is in as many groups as the service allows")]
    TooManyGroups,
    /// The group has as many members as a group may have.
    #[error("the group has as many members as the service allows")]
    TooManyMembers,
    /// More is asked at once than the service has room for.
    #[error("the service has too much to do")]
    Busy,
    /// The service does not know the settings of the join, or the group has settings that this
    /// program does not know: one of the two is older than the other.
    #[error("the group's settings are of another version of Carom")]
    Settings,
}

/// A group as it is, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The group.
    pub group: GroupId,
    /// The group's version.
    pub version: u64,
    /// Whether the next frame goes on with the same snapshot.
    pub more: bool,
    /// What the group is.
    pub settings: GroupSettings,
    /// Its members, or as many of them as this node is to see. At most [`MAX_MEMBERS_PER_FRAME`].
    pub members: Vec<Member>,
}

/// What has changed in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The group.
    pub group: GroupId,
    /// The version that this link was told last: another one at the node is a gap.
    pub after: u64,
    /// The version that it has now.
    pub version: u64,
    /// What happened in between, in order. At most [`MAX_MEMBERS_PER_FRAME`].
    pub changes: Vec<MemberChange>,
}

/// What happened to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberChange {
    /// What.
    pub kind: ChangeKind,
    /// To whom; with the endpoint that it has or had.
    pub member: Member,
}

/// What happens to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChangeKind {
    /// It is a member from now on, in this incarnation; or has come into the partial view.
    Joined = 1,
    /// It left of its own will.
    Left = 2,
    /// It was taken for dead.
    Failed = 3,
    /// It is a member still, but no longer in this node's partial view.
    Hidden = 4,
}

impl ChangeKind {
    /// What engines are told.
    pub fn view_change(self) -> ViewChangeKind {
        match self {
            Self::Joined => ViewChangeKind::Joined,
            Self::Left | Self::Hidden => ViewChangeKind::Left,
            Self::Failed => ViewChangeKind::Failed,
        }
    }
}

/// Which control process owns which partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// How many partitions there are, 1 to [`MAX_PARTITIONS`].
    pub partitions: u16,
    /// The owned ones, in order, with the TCP address of their owner; those that are not here are
    /// between two owners.
    pub owned: Vec<(u16, Endpoint)>,
}

impl Owners {
    /// The partition that `group` belongs to.
    pub fn partition_of(&self, group: GroupId) -> u16 {
        partition_of(group, self.partitions)
    }

    /// The address of the owner of `group`'s partition, if it has one.
    pub fn owner_of(&self, group: GroupId) -> Option<Endpoint> {
        let partition = self.partition_of(group);
        let place = self.owned.binary_search_by_key(&partition, |(owned, _)| *owned).ok()?;
        Some(self.owned[place].1)
    }
}

/// The partition of `group` among `partitions`.
pub fn partition_of(group: GroupId, partitions: u16) -> u16 {
    (group.0 % u32::from(partitions)) as u16
}

/// A node that a detector has to watch, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Whether it is to be watched from now on.
    pub watched: bool,
    /// The node.
    pub member: Member,
}

/// Why bytes are no frame that this program understands. The link they came on cannot be used any
/// more, but for [`FrameError::Settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer or shorter than the fields need, or than a frame may be.
    #[error("wrong length")]
    Length,
    /// A hello that does not begin with [`MAGIC`].
    #[error("not the membership protocol")]
    Magic,
    /// A hello of another version.
    #[error("version {given} of the protocol, where {VERSION} is known")]
    Version {
        /// The version.
        given: u16,
    },
    /// A kind of frame that this program does not know.
    #[error("unknown kind of frame")]
    Kind,
    /// A field's value is impossible.
    #[error("impossible value")]
    Value,
    /// The frame is whole, but has settings of a group that this program does not know: those of a
    /// later version. What follows on the link can be read.
    #[error("settings of a group that this program does not know")]
    Settings(UnknownSettings),
}

/// A frame that has settings which this program does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownSettings {
    /// A [`Frame::Join`].
    Join {
        /// Comes back in the answer.
        request: u32,
        /// The group.
        group: GroupId,
    },
    /// A [`Frame::JoinRefused`], because the group has such settings.
    JoinRefused {
        /// Of the join.
        request: u32,
        /// The group.
        group: GroupId,
    },
    /// A [`Frame::Snapshot`] of a group that has them.
    Snapshot {
        /// The group.
        group: GroupId,
    },
}

/// `span` as the frames have it: whole milliseconds, at most 49 days.
pub fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
