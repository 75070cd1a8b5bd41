use std::net::{Ipv4Addr, SocketAddr};

use carom_proto::node::Node;
use carom_proto::{Endpoint, GroupId, NodeId, Time, Wakeup};

use crate::shared::status::{MemberPath, Stats};

/// The network of a node. The default methods describe one that carries packets of any size to
/// every node.
pub(crate) trait Network {
    fn listen_to(&mut self, group: GroupId) -> Option<Ipv4Addr>;

    fn stop_listening(&mut self, group: GroupId, address: Option<Ipv4Addr>);

    fn meet(&mut self, _now: Time, _node: NodeId, _endpoint: Endpoint) -> bool {
        true
    }

    fn part(&mut self, _node: NodeId) {}

    /// Drops state that was derived from views. Called after a view has changed.
    fn forget_views(&mut self) {}

    fn path(&self, _node: NodeId) -> MemberPath {
        MemberPath::Multicast
    }

    fn are_paths_known(&self) -> bool {
        true
    }

    fn path_mtu(&self) -> u16 {
        u16::MAX
    }

    fn path_mtu_to(&self, _node: NodeId) -> Option<u16> {
        None
    }

    fn group_endpoint(&self, _address: Ipv4Addr) -> Option<SocketAddr> {
        None
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_timeout(&self) -> Option<Wakeup> {
        None
    }

    fn take_move(&mut self) -> Option<SocketAddr> {
        None
    }

    fn transmit(&mut self, now: Time, node: &mut Node);

    fn count(&self, stats: &mut Stats);
}
