use std::net::IpAddr;
use std::sync::Arc;

use carom_proto::membership::Membership;
use carom_proto::{Endpoint, Incarnation, NodeId, Origin, Rng};

use super::membership::Provider;
use super::{Builder, GuestFactory};
use crate::api::handle::NodeHandle;
use crate::api::node::Node;
use crate::net::seeds;
use crate::runtime::node_runtime::{NodeRuntime, NodeSpec};
use crate::shared::addressing::DEFAULT_PORT;
use crate::shared::error::StartError;
use crate::shared::notices::NoticeLog;
use crate::shared::status::{Buffers, Status};
use crate::sim::{self, OracleProvider, Reservation, SimMachine, SimNetwork};

impl Builder {
    /// Starts the node on a host of a simulated world; see [`sim`](crate::sim).
    ///
    /// Unless they are set, the node's id and the seed of its random choices follow from the
    /// world's seed.
    ///
    /// # Errors
    /// Returns an error if the settings are invalid or not supported by a simulated world, or if
    /// the host already has a node.
    pub fn start_on(mut self, host: &sim::Host) -> Result<Node, StartError> {
        self.check()?;
        self.check_engines(|mtu| mtu)?;
        for seed in &self.seeds {
            refuse_name(seed)?;
        }
        if let Some(address) = self.registries.first() {
            let reason = "simulated worlds do not support registries".into();
            return Err(StartError::Registry { address: address.clone(), reason });
        }
        let explicit_seeds = seeds::resolve(&self.seeds, host.endpoint())?;
        let taken = StartError::AddressInUse { port: DEFAULT_PORT, multicast: false };
        let mut reservation = host.reserve().ok_or(taken)?;
        let id = self.node_id.unwrap_or(NodeId(reservation.rng.next_u64()));
        self.bulk.network.node_up(id, Endpoint(host.endpoint()));
        // Drawn from the world first, because the builder's own seed may be the same at each start.
        let origin = Origin { node: id, incarnation: Incarnation(reservation.rng.next_u64()) };
        let mut rng = Rng::new(self.seed.unwrap_or(reservation.rng.next_u64()));
        let has_explicit_seeds = !explicit_seeds.is_empty();
        let provider = Provider {
            origin,
            endpoint: host.endpoint(),
            network: 0,
            seeds: self.all_seeds(explicit_seeds, host.endpoint()),
            static_members: self.static_members,
            registries: Vec::new(),
            cluster: self.cluster,
            rack: self.rack,
            has_lan: true,
            seed: rng.next_u64(),
        };
        let spec = NodeSpec {
            lateral: self.lateral,
            ordered: self.ordered,
            bulk: self.bulk,
            guest: self.guest.map(|GuestFactory(make)| make(origin, rng.next_u64())),
            membership: membership(provider, &reservation),
            origin,
            seed: rng.next_u64(),
            seeds: if has_explicit_seeds { self.seeds } else { Vec::new() },
            registries: Vec::new(),
            notices: Arc::new(NoticeLog::default()),
            first_status: first_status(id, host),
            queue_events: self.queue_events,
        };
        let network = SimNetwork::new(self.loss, rng.next_u64());
        let (runtime, state) = NodeRuntime::new(spec, network);
        let machine = SimMachine::new(runtime, reservation.oracle.take());
        let driver = Arc::new(reservation.attach(id, machine));
        Ok(Node::new(NodeHandle { driver, state }))
    }
}

fn membership(provider: Provider, reservation: &Reservation) -> Box<dyn Membership> {
    match &reservation.oracle {
        Some(oracle) if provider.static_members.is_none() => {
            Box::new(OracleProvider::new(Arc::clone(oracle)))
        }
        _ => provider.start(),
    }
}

/// Refuses a host name, because its resolution cannot be reproduced from the world's seed.
fn refuse_name(seed: &str) -> Result<(), StartError> {
    let host = seed.rsplit_once(':').map_or(seed, |(host, _)| host);
    if seed.parse::<IpAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let reason = "simulated worlds do not support host names, only addresses".into();
    Err(StartError::Seed { seed: seed.into(), reason })
}

fn first_status(id: NodeId, host: &sim::Host) -> Status {
    Status {
        interface: "simulated".into(),
        interface_reason: "the host is simulated".into(),
        ..Status::first(id, host.endpoint(), Buffers::default())
    }
}
