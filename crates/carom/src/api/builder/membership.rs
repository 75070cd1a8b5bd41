use std::net::SocketAddr;

use carom_proto::membership::Membership;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::membership::service::client::{Service, ServiceConfig};
use carom_proto::membership::static_list::StaticMembership;
use carom_proto::{Endpoint, NodeId, Origin};

pub(crate) struct Provider {
    pub(crate) origin: Origin,
    pub(crate) endpoint: SocketAddr,
    pub(crate) static_members: Option<Vec<(NodeId, SocketAddr)>>,
    /// If any registry is given, it replaces gossip. `static_members` has precedence.
    pub(crate) registries: Vec<SocketAddr>,
    pub(crate) cluster: String,
    pub(crate) rack: String,
    pub(crate) network: u32,
    pub(crate) seeds: Vec<SocketAddr>,
    pub(crate) has_lan: bool,
    pub(crate) seed: u64,
}

impl Provider {
    pub(crate) fn start(self) -> Box<dyn Membership> {
        if let Some(members) = self.static_members {
            let nodes = members.into_iter().map(|(node, address)| (node, Endpoint(address)));
            return Box::new(StaticMembership::new(self.origin, nodes));
        }
        if !self.registries.is_empty() {
            let config = ServiceConfig {
                addresses: self.registries.into_iter().map(Endpoint).collect(),
                cluster: self.cluster,
                rack: self.rack,
                ..ServiceConfig::default()
            };
            return Box::new(Service::new(self.origin, Endpoint(self.endpoint), config, self.seed));
        }
        let config = Config {
            seeds: self.seeds.into_iter().map(Endpoint).collect(),
            network: self.network,
            lan_hello: self.has_lan,
            max_datagram_bytes: MAX_DATAGRAM_BYTES,
            ..Config::default()
        };
        Box::new(Gossip::new(self.origin, Endpoint(self.endpoint), config, self.seed))
    }
}

/// Size that any usable path carries, including tunnels. The sockets refuse fragmentation.
const MAX_DATAGRAM_BYTES: usize = 1200;
