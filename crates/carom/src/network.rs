//! What carries a node's datagrams, as its host sees it.

use std::net::{Ipv4Addr, SocketAddr};

use carom_proto::node::Node;
use carom_proto::{Endpoint, GroupId, NodeId, Time, Wakeup};

use crate::status::{MemberPath, Stats};

/// Sockets, or a simulated network. Everything else of a host is the same over either.
pub(crate) trait Network {
    /// What is sent to `group` is heard from now on; its multicast address, if it has one.
    fn listen_to(&mut self, group: GroupId) -> Option<Ipv4Addr>;

    /// What is sent to `group`, which had this address, need not be heard any more.
    fn stop_listening(&mut self, group: GroupId, address: Option<Ipv4Addr>);

    /// `node` is reached there from now on; says whether a node can be.
    fn meet(&mut self, now: Time, node: NodeId, endpoint: Endpoint) -> bool;

    /// `node` is gone.
    fn part(&mut self, node: NodeId);

    /// A view has changed: what was derived from it is out of date.
    fn forget_views(&mut self);

    /// How what is sent to a group reaches `node`.
    fn path(&self, node: NodeId) -> MemberPath;

    /// Whether the path of every member is decided.
    fn are_paths_known(&self) -> bool;

    /// Bytes of the largest IP packet that reaches every node that was met.
    fn path_mtu(&self) -> u16;

    /// Bytes of the largest IP packet that reaches `node`; `None` if that is not known.
    fn path_mtu_to(&self, node: NodeId) -> Option<u16>;

    /// The endpoint of a group that has this multicast address.
    fn group_endpoint(&self, address: Ipv4Addr) -> Option<SocketAddr>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Time);

    /// When [`Network::handle_timeout`] should be called next, and why.
    fn poll_timeout(&self) -> Option<Wakeup>;

    /// Where this node is reached from now on, if that has changed since the last call. Default: it
    /// never does.
    fn take_move(&mut self) -> Option<SocketAddr> {
        None
    }

    /// Sends all that the node, and the network itself, have to send.
    fn transmit(&mut self, now: Time, node: &mut Node);

    /// Enters what was counted here.
    fn count(&self, stats: &mut Stats);
}
