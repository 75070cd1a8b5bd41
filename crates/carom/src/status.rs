//! What a node tells about itself.

use std::net::SocketAddr;

use carom_proto::node::NodeCounters;
use carom_proto::rmp::{self, Process, RingView};
use carom_proto::{GroupId, NodeId, lateral, rdcm};

use crate::profile::Profile;

/// A node as it is at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The node's id.
    pub id: NodeId,
    /// Where the others reach it.
    pub endpoint: SocketAddr,
    /// The name of its network interface.
    pub interface: String,
    /// Why it is this interface.
    pub interface_reason: String,
    /// Whether the node has found its place among the others.
    pub settled: bool,
    /// Whether its membership service is away, so that the members are those last known; see
    /// [`Node::is_away`](crate::Node::is_away).
    pub is_away: bool,
    /// Bytes of the largest IP packet that this node sends to groups: what the paths to all other
    /// nodes carry, as far as is known.
    pub path_mtu: u16,
    /// The other nodes, in order of their ids.
    pub members: Vec<MemberStatus>,
    /// The groups that the node is in, in order of their ids.
    pub groups: Vec<GroupStatus>,
    /// The counters.
    pub stats: Stats,
    /// The sockets' buffers.
    pub buffers: Buffers,
}

impl Status {
    /// That of a node that knows of no other one yet.
    pub(crate) fn first(id: NodeId, endpoint: SocketAddr, buffers: Buffers) -> Self {
        Self {
            id,
            endpoint,
            interface: String::new(),
            interface_reason: String::new(),
            settled: false,
            is_away: false,
            path_mtu: 0,
            members: Vec::new(),
            groups: Vec::new(),
            stats: Stats::default(),
            buffers,
        }
    }
}

/// Another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its id.
    pub node: NodeId,
    /// Where it is reached by unicast.
    pub endpoint: SocketAddr,
    /// How what is sent to a group reaches it.
    pub path: MemberPath,
    /// Bytes of the largest IP packet that the path to it was found to carry, if that is no more
    /// than this node sends; `None` before it has answered.
    pub path_mtu: Option<u16>,
}

/// How what this node sends to a group reaches one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberPath {
    /// By multicast: the member has confirmed that it hears ours.
    Multicast,
    /// By a unicast copy.
    Unicast,
    /// Not known yet: by both.
    Unknown,
}

impl std::fmt::Display for MemberPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Multicast => "multicast",
            Self::Unicast => "unicast",
            Self::Unknown => "unknown",
        })
    }
}

/// A group that the node is in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: GroupId,
    /// Its profile.
    pub profile: Profile,
    /// The other members, in order of their ids.
    pub members: Vec<NodeId>,
    /// Its multicast address; `None` where the node does without multicast.
    pub address: Option<SocketAddr>,
    /// Its ring; `None` if the group is not ordered, or this node is not in the ring yet.
    pub ring: Option<RingStatus>,
    /// Events that wait for the application.
    pub unread: usize,
    /// Events that found no room among them; messages of these are told as lost in their turn.
    pub dropped: u64,
}

/// The ring of an ordered group, as this node knows it, or as a member has
/// [told](crate::Node::look) it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingStatus {
    /// The members in the order of their turns, what they ask for, and who holds which lock.
    pub view: RingView,
    /// Whose turn it is.
    pub token: Process,
    /// Whether it works: it is not being reformed after a fault, and this part of it may go on.
    pub is_working: bool,
}

/// Counters since the node's start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The lateral engine's.
    pub lateral: lateral::Counters,
    /// Those of the engine of ordered groups.
    pub ordered: rmp::Counters,
    /// Those of the engine of bulk groups.
    pub bulk: rdcm::Counters,
    /// Those of the caller's own engine, by name; empty if there is none.
    pub guest: Vec<(&'static str, u64)>,
    /// What became of the datagrams at the engines' door.
    pub node: NodeCounters,
    /// Datagrams that loss injection dropped on receipt.
    pub losses_injected: u64,
    /// Datagrams dropped at random because too many waited for the engines.
    pub inbox_dropped: u64,
    /// Datagrams received, after segments were split; own ones included.
    pub datagrams_in: u64,
    /// Bytes of them, without UDP and IP headers.
    pub bytes_in: u64,
    /// This node's own multicasts, which the kernel gave back and which were passed over.
    pub own_echo: u64,
    /// Datagrams sent, each unicast copy counted.
    pub datagrams_out: u64,
    /// Bytes of them, without UDP and IP headers.
    pub bytes_out: u64,
    /// System calls for them: less than the datagrams where several left together.
    pub send_calls: u64,
    /// Datagrams that the system refused to send.
    pub send_errors: u64,
    /// Of these, such as are larger than the interface's MTU.
    pub send_too_large: u64,
    /// Datagrams sent in parts, as they had been made before a path became narrower.
    pub datagrams_divided: u64,
    /// Datagrams received in parts.
    pub datagrams_joined: u64,
    /// Datagrams of which some parts never came.
    pub datagrams_unjoined: u64,
    /// Probes for the path MTU that were sent.
    pub path_mtu_probes: u64,
    /// Datagrams dropped because the system was busy and too many waited already.
    pub send_dropped: u64,
    /// Datagrams for nodes whose address is not known.
    pub unroutable: u64,
    /// Datagrams to members that are not reached by multicast.
    pub unicast_copies: u64,
    /// Datagrams that the kernel dropped because a socket's buffer was full.
    pub kernel_dropped: u64,
    /// Events that the applications left no room for; messages among them are told as lost.
    pub queue_dropped: u64,
    /// Messages that were still queued or held back when their group was left.
    pub publish_dropped: u64,
    /// Packets about paths that were not understood.
    pub path_unknown: u64,
    /// Hellos that were not answered because too many answers waited.
    pub path_answers_dropped: u64,
    /// Packets about paths that name a member but came from another address.
    pub path_elsewhere: u64,
    /// Datagrams withheld from nodes outside the view, because their addresses have not answered a
    /// probe.
    pub strangers_withheld: u64,
    /// Multicast addresses that could not be joined.
    pub join_failures: u64,
    /// Sockets that hold the multicast memberships.
    pub joiner_sockets: u64,
    /// Links to membership services that stood.
    pub links_opened: u64,
    /// Of these, ended by the other side or by the network.
    pub links_broken: u64,
    /// Bytes that came over links.
    pub link_bytes_in: u64,
    /// Bytes that went over links.
    pub link_bytes_out: u64,
}

/// Sizes of the sockets' buffers in bytes; the least where sockets differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// Asked for, for receiving.
    pub receive_asked: usize,
    /// Granted, for receiving.
    pub receive_granted: usize,
    /// Asked for, for sending.
    pub send_asked: usize,
    /// Granted, for sending.
    pub send_granted: usize,
}

/// Something that the user should read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What is the case, in one line.
    pub text: String,
    /// The fix, in one line, if there is one.
    pub fix: Option<String>,
    /// Whether all is as it should be: a person may like to know, a log need not have it.
    pub is_routine: bool,
}

impl Notice {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), fix: None, is_routine: false }
    }
}
