use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use carom_proto::{Endpoint, Incarnation, NodeId, Origin, Rng};

use super::membership::Provider;
use super::{Builder, GuestFactory};
use crate::api::handle::NodeHandle;
use crate::api::node::Node;
use crate::net::interfaces::{Interface, InterfaceChoice, REQUESTED};
use crate::net::paths::COMMON_MTU;
use crate::net::seeds;
use crate::net::sockets::{Bindings, Sockets, buffer_notices};
use crate::net::udp::{UdpNetwork, UdpSettings};
use crate::runtime::driver::Driver;
use crate::runtime::node_runtime::{NodeRuntime, NodeSpec};
use crate::shared::addressing::PathChoice;
use crate::shared::error::StartError;
use crate::shared::node::NodeState;
use crate::shared::notices::{Notice, NoticeLog};
use crate::shared::status::Status;

impl Builder {
    /// Starts the node.
    ///
    /// # Errors
    /// Returns an error if the settings are invalid or do not suit the host, or if the operating
    /// system refuses an operation. In that case, nothing is left running.
    pub fn start(mut self) -> Result<Node, StartError> {
        self.check()?;
        let choice = InterfaceChoice::new(self.interface.as_deref(), Interface::list()?)?;
        // The sockets refuse datagrams that would have to be fragmented.
        let carried = choice.interface.mtu().unwrap_or(COMMON_MTU);
        self.check_engines(|mtu| mtu.min(carried))?;
        let has_multicast = self.path != PathChoice::Unicast;
        let sockets = Sockets::open(Bindings {
            interface: choice.interface.address,
            port: self.port,
            multicast_port: has_multicast.then_some(self.multicast_port),
        })?;
        let explicit_seeds = seeds::resolve(&self.seeds, sockets.endpoint)?;
        let registries = seeds::resolve_registries(&self.registries)?;
        let driver = match &self.driver {
            Some(driver) => driver.share(),
            None => Driver::new().map_err(|error| StartError::system("start a thread", error))?,
        };
        let (runtime, state) = self.runtime(&choice, sockets, explicit_seeds, registries);
        match driver.attach(runtime) {
            Some(Ok(driver)) => Ok(Node::new(NodeHandle { driver, state })),
            Some(Err(error)) => Err(StartError::system("watch the sockets", error)),
            None => Err(StartError::DriverStopped),
        }
    }

    fn runtime(
        mut self,
        choice: &InterfaceChoice,
        sockets: Sockets,
        explicit_seeds: Vec<SocketAddr>,
        registries: Vec<SocketAddr>,
    ) -> (NodeRuntime<UdpNetwork>, Arc<NodeState>) {
        let id = self.node_id.unwrap_or_else(|| NodeId(system_random()));
        let origin = Origin { node: id, incarnation: Incarnation(system_random()) };
        self.bulk.network.node_up(id, Endpoint(sockets.endpoint));
        let mut rng = Rng::new(self.seed.unwrap_or_else(system_random));
        let engines = [self.lateral.path_mtu, self.ordered.path_mtu, self.bulk.path_mtu];
        let has_explicit_seeds = !explicit_seeds.is_empty();
        let membership = Provider {
            origin,
            endpoint: sockets.endpoint,
            network: self.multicast_port.into(),
            seeds: self.all_seeds(explicit_seeds, sockets.endpoint),
            static_members: self.static_members,
            registries,
            cluster: self.cluster,
            rack: self.rack,
            has_lan: sockets.multicast_port().is_some(),
            seed: rng.next_u64(),
        };
        let first_status = first_status(id, choice, &sockets);
        let notices = Arc::new(first_notices(choice, &sockets));
        let (membership, node_seed) = (membership.start(), rng.next_u64());
        let settings = UdpSettings {
            origin,
            interface: &choice.interface,
            path: self.path,
            pool: self.pool,
            loss: self.loss,
            wanted_mtu: engines.into_iter().fold(0, u16::max),
        };
        let network = UdpNetwork::new(sockets, settings, Arc::clone(&notices), &mut rng);
        let spec = NodeSpec {
            lateral: self.lateral,
            ordered: self.ordered,
            bulk: self.bulk,
            guest: self.guest.map(|GuestFactory(make)| make(origin, rng.next_u64())),
            membership,
            origin,
            seed: node_seed,
            seeds: if has_explicit_seeds { self.seeds } else { Vec::new() },
            registries: self.registries,
            notices,
            first_status,
            queue_events: self.queue_events,
        };
        NodeRuntime::new(spec, network)
    }
}

fn first_status(id: NodeId, choice: &InterfaceChoice, sockets: &Sockets) -> Status {
    Status {
        interface: choice.interface.name.clone(),
        interface_reason: choice.reason.clone(),
        ..Status::first(id, sockets.endpoint, sockets.buffers)
    }
}

fn first_notices(choice: &InterfaceChoice, sockets: &Sockets) -> NoticeLog {
    let notices = NoticeLog::default();
    let Interface { name, address, .. } = &choice.interface;
    if choice.reason != REQUESTED {
        let text = format!("interface {name} ({address}): {}", choice.reason);
        // With loopback alone, no other host is reachable. The user must see this notice.
        let is_routine = !choice.interface.is_loopback;
        notices.add(Notice { is_routine, ..Notice::plain(text) });
    }
    buffer_notices(&sockets.buffers).into_iter().for_each(|notice| notices.add(notice));
    notices
}

/// Returns 64 random bits from the standard library's hasher keys, which the operating system
/// seeds.
fn system_random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_of_the_system_differ() {
        assert_ne!(system_random(), system_random());
    }
}
