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

/// The path by which this node's group messages reach one member, unless
/// [`PathChoice::Multicast`](crate::PathChoice::Multicast) is set.
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
    /// Number of events not yet received by the application, including those of separate streams.
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
    /// Counters of the sockets, the connections to registries, and the queues.
    pub net: NetCounters,
}

carom_proto::counters! {
    /// Counters of the sockets, the connections to registries, and the queues.
    #[non_exhaustive]
    pub struct NetCounters {
        /// Received datagrams that loss injection dropped.
        losses_injected,
        /// Datagrams dropped at random because the node's receive buffer was full.
        inbox_dropped,
        /// Datagrams received, including this node's own, counted after the kernel's segments were
        /// split.
        datagrams_in,
        /// Bytes of received datagrams, without UDP and IP headers.
        bytes_in,
        /// Looped-back multicasts of this node, which were ignored.
        own_echo,
        /// Datagrams sent. Each unicast copy counts.
        datagrams_out,
        /// Bytes of sent datagrams, without UDP and IP headers.
        bytes_out,
        /// System calls for sending. One call can send several datagrams.
        send_calls,
        /// Datagrams that the operating system refused to send.
        send_errors,
        /// Refused datagrams that were larger than the MTU of the interface.
        send_too_large,
        /// Datagrams sent in parts, because they were larger than the path MTU.
        datagrams_divided,
        /// Datagrams received in parts and completed.
        datagrams_joined,
        /// Incomplete datagrams that were discarded after 1 s, or to make room for others.
        datagrams_unjoined,
        /// Path MTU probes sent.
        path_mtu_probes,
        /// Datagrams dropped on sending because the socket and the queue in front of it were full.
        send_dropped,
        /// Datagrams not sent because the destination's address is not known.
        unroutable,
        /// Unicast copies of group messages, including the bulk data that is sent to relays.
        unicast_copies,
        /// Datagrams dropped by the kernel because a socket's receive buffer was full.
        kernel_dropped,
        /// Events that did not fit in the event queues. Messages among them are reported as lost.
        queue_dropped,
        /// Published messages that were never sent, because their group was left or refused them.
        publish_dropped,
        /// Path packets that could not be decoded, and answers to packets of other nodes.
        path_unknown,
        /// Answers and other path packets not sent because too many were waiting.
        path_answers_dropped,
        /// Path packets that name a member but came from an address that is not the member's.
        path_elsewhere,
        /// Datagrams withheld from addresses that have not answered a probe.
        strangers_withheld,
        /// Failed attempts to join a multicast address.
        join_failures,
        /// Sockets that currently hold multicast memberships.
        joiner_sockets,
        /// Connections to registries that were established.
        links_opened,
        /// Established connections to registries that failed or that the registry closed.
        links_broken,
        /// Bytes received over connections to registries.
        link_bytes_in,
        /// Bytes sent over connections to registries.
        link_bytes_out,
    }
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
        let of_node = self.node.by_name().chain(self.net.by_name());
        of_engines.chain(of_node.map(|(name, count)| (name.to_owned(), count)))
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
