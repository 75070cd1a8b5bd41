use std::net::SocketAddr;

use carom_proto::node::NodeCounters;
use carom_proto::ring::RingStatus;
use carom_proto::{GroupId, NodeId, lateral, rdcm, rmp};
use serde::{Serialize, Serializer};

use super::profile::Profile;

/// A snapshot of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Id of the node.
    pub id: NodeId,
    /// Address at which other nodes reach this one.
    pub endpoint: SocketAddr,
    /// Name of the node's network interface.
    pub interface: String,
    /// Reason why this interface was chosen.
    pub interface_reason: String,
    /// `true` if the node has settled; see [`Node::settled`](crate::Node::settled).
    pub settled: bool,
    /// `true` if the registry is unreachable; see [`Node::is_away`](crate::Node::is_away).
    pub is_away: bool,
    /// Maximum size, in bytes, of an IP packet to a group: the smallest path MTU to the other
    /// nodes.
    pub path_mtu: u16,
    /// The other nodes, in order of their ids.
    pub members: Vec<MemberStatus>,
    /// Groups that the node has joined, in order of their ids.
    pub groups: Vec<GroupStatus>,
    /// Counters since the node's start.
    pub stats: Stats,
    /// Sizes of the socket buffers.
    pub buffers: Buffers,
}

impl Status {
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

/// The status of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Id of the other node.
    pub node: NodeId,
    /// Unicast address of the other node.
    pub endpoint: SocketAddr,
    /// Path of group messages from this node to the other.
    pub path: MemberPath,
    /// Size, in bytes, of the largest IP packet that was found to pass the path, if known.
    pub path_mtu: Option<u16>,
}

/// The path by which this node's group messages reach one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemberPath {
    /// Multicast, which the member has confirmed that it receives from this node.
    Multicast,
    /// Unicast copies.
    Unicast,
    /// Not known yet. This node sends both multicast and unicast copies.
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

/// The status of a group that the node has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStatus {
    /// Name of the group.
    pub name: String,
    /// Id of the group.
    pub id: GroupId,
    /// Profile with which this node joined.
    pub profile: Profile,
    /// The other members, in order of their ids.
    pub members: Vec<NodeId>,
    /// Multicast address of the group, or `None` if the node does not use multicast.
    pub address: Option<SocketAddr>,
    /// Ring of the group, or `None` if the group is not ordered or this node is not yet in the
    /// ring.
    pub ring: Option<RingStatus>,
    /// Number of events in the event queue, which the application has not yet received.
    pub unread: usize,
    /// Number of events that did not fit in the event queue. Messages among them are reported as
    /// lost.
    pub dropped: u64,
}

/// The counters of a node since its start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Counters of the lateral engine.
    pub lateral: lateral::Counters,
    /// Counters of the engine for ordered groups.
    pub ordered: rmp::Counters,
    /// Counters of the engine for bulk groups.
    pub bulk: rdcm::Counters,
    /// Counters of the custom engine, by name. Empty without a custom engine.
    pub guest: Vec<(&'static str, u64)>,
    /// Counters of datagrams between the sockets and the engines.
    pub node: NodeCounters,
    /// Received datagrams that loss injection dropped.
    pub losses_injected: u64,
    /// Datagrams dropped at random because the node's receive buffer was full.
    pub inbox_dropped: u64,
    /// Datagrams received, including this node's own, counted after the kernel's segments were
    /// split.
    pub datagrams_in: u64,
    /// Bytes of received datagrams, without UDP and IP headers.
    pub bytes_in: u64,
    /// Looped-back multicasts of this node, which were ignored.
    pub own_echo: u64,
    /// Datagrams sent. Each unicast copy counts.
    pub datagrams_out: u64,
    /// Bytes of sent datagrams, without UDP and IP headers.
    pub bytes_out: u64,
    /// System calls for sending. One call can send several datagrams.
    pub send_calls: u64,
    /// Datagrams that the operating system refused to send.
    pub send_errors: u64,
    /// Refused datagrams that were larger than the MTU of the interface.
    pub send_too_large: u64,
    /// Datagrams sent in parts, because a path MTU decreased after they were built.
    pub datagrams_divided: u64,
    /// Datagrams received in parts.
    pub datagrams_joined: u64,
    /// Datagrams that were discarded because some of their parts never arrived.
    pub datagrams_unjoined: u64,
    /// Path MTU probes sent.
    pub path_mtu_probes: u64,
    /// Datagrams dropped on sending because the socket and the queue in front of it were full.
    pub send_dropped: u64,
    /// Datagrams not sent because the destination's address is not known.
    pub unroutable: u64,
    /// Unicast copies sent to members that multicast does not reach.
    pub unicast_copies: u64,
    /// Datagrams dropped by the kernel because a socket's receive buffer was full.
    pub kernel_dropped: u64,
    /// Events that did not fit in the event queues. Messages among them are reported as lost.
    pub queue_dropped: u64,
    /// Messages that were still queued or held back when their group was left.
    pub publish_dropped: u64,
    /// Path packets that could not be decoded.
    pub path_unknown: u64,
    /// Hellos that were not answered because too many answers were waiting.
    pub path_answers_dropped: u64,
    /// Path packets that name a member but came from an address that is not the member's.
    pub path_elsewhere: u64,
    /// Datagrams withheld from addresses that have not answered a probe.
    pub strangers_withheld: u64,
    /// Multicast addresses that could not be joined.
    pub join_failures: u64,
    /// Open joiner sockets, which hold the multicast memberships.
    pub joiner_sockets: u64,
    /// Connections to registries that were established.
    pub links_opened: u64,
    /// Established connections to registries that the registry or the network closed.
    pub links_broken: u64,
    /// Bytes received over connections to registries.
    pub link_bytes_in: u64,
    /// Bytes sent over connections to registries.
    pub link_bytes_out: u64,
}

impl Stats {
    /// Returns all counters by name. The names of an engine's counters have the prefix `lateral.`,
    /// `ordered.`, `bulk.` or `guest.`.
    pub fn iter(&self) -> impl Iterator<Item = (String, u64)> {
        let engines = [
            ("lateral", self.lateral.by_name().collect()),
            ("ordered", self.ordered.by_name().collect()),
            ("bulk", self.bulk.by_name().collect()),
            ("guest", self.guest.clone()),
        ];
        let of_engines = engines.into_iter().flat_map(|(engine, counters): (_, Vec<_>)| {
            counters.into_iter().map(move |(name, count)| (format!("{engine}.{name}"), count))
        });
        let of_node = self.of_node().into_iter().map(|(name, count)| (name.to_owned(), count));
        of_engines.chain(of_node)
    }

    fn of_node(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("datagrams_received", self.node.datagrams_received),
            ("datagrams_foreign", self.node.datagrams_foreign),
            ("datagrams_of_other_starts", self.node.datagrams_of_other_starts),
            ("datagrams_unknown", self.node.datagrams_unknown),
            ("losses_injected", self.losses_injected),
            ("inbox_dropped", self.inbox_dropped),
            ("datagrams_in", self.datagrams_in),
            ("bytes_in", self.bytes_in),
            ("own_echo", self.own_echo),
            ("datagrams_out", self.datagrams_out),
            ("bytes_out", self.bytes_out),
            ("send_calls", self.send_calls),
            ("send_errors", self.send_errors),
            ("send_too_large", self.send_too_large),
            ("datagrams_divided", self.datagrams_divided),
            ("datagrams_joined", self.datagrams_joined),
            ("datagrams_unjoined", self.datagrams_unjoined),
            ("path_mtu_probes", self.path_mtu_probes),
            ("send_dropped", self.send_dropped),
            ("unroutable", self.unroutable),
            ("unicast_copies", self.unicast_copies),
            ("kernel_dropped", self.kernel_dropped),
            ("queue_dropped", self.queue_dropped),
            ("publish_dropped", self.publish_dropped),
            ("path_unknown", self.path_unknown),
            ("path_answers_dropped", self.path_answers_dropped),
            ("path_elsewhere", self.path_elsewhere),
            ("strangers_withheld", self.strangers_withheld),
            ("join_failures", self.join_failures),
            ("joiner_sockets", self.joiner_sockets),
            ("links_opened", self.links_opened),
            ("links_broken", self.links_broken),
            ("link_bytes_in", self.link_bytes_in),
            ("link_bytes_out", self.link_bytes_out),
        ]
    }
}

impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The sizes of the socket buffers, in bytes. If sockets differ, the smallest size is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Buffers {
    /// Requested size of the receive buffer.
    pub receive_asked: usize,
    /// Granted size of the receive buffer. If it is much smaller than requested, raise
    /// `net.core.rmem_max`.
    pub receive_granted: usize,
    /// Requested size of the send buffer.
    pub send_asked: usize,
    /// Granted size of the send buffer. If it is much smaller than requested, raise
    /// `net.core.wmem_max`.
    pub send_granted: usize,
}

impl Buffers {
    /// The receive buffer that is requested: 4 MiB, enough for about 3600 datagrams of 1 KiB.
    pub const RECEIVE_REQUEST: usize = 4 << 20;
    /// The send buffer that is requested: 1 MiB. Linux doubles it, to 17 ms at 1 Gbit/s. With a
    /// larger buffer, many queueing disciplines would drop datagrams.
    pub const SEND_REQUEST: usize = 1 << 20;
}
