//! The choice of the membership provider.

use std::net::SocketAddr;

use carom_proto::membership::Membership;
use carom_proto::membership::static_list::StaticMembership;
use carom_proto::{Endpoint, NodeId};

/// Who finds the other nodes.
pub(crate) struct Provider {
    pub(crate) id: NodeId,
    pub(crate) endpoint: SocketAddr,
    /// The nodes of a static membership.
    pub(crate) static_members: Option<Vec<(NodeId, SocketAddr)>>,
    /// Addresses to begin with.
    pub(crate) seeds: Vec<SocketAddr>,
    /// Whether there is a local network to say hello to by multicast.
    pub(crate) has_lan: bool,
    pub(crate) seed: u64,
}

impl Provider {
    /// The provider.
    pub(crate) fn start(self) -> Box<dyn Membership> {
        let members = self.static_members.unwrap_or_default();
        let nodes = members.into_iter().map(|(node, address)| (node, Endpoint(address)));
        Box::new(StaticMembership::new(self.id, nodes))
    }
}
