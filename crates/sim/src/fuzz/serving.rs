//! The membership service of a scenario.

use core::time::Duration;

use carom_proto::membership::Membership;
use carom_proto::membership::service::{
    DetectorConfig, ServerConfig, Service as Provider, ServiceConfig,
};
use carom_proto::{Engine, NodeId, Origin, Rng};

use super::troubles::{Service, Watch};
use crate::control::{Resident, Services, ServicesConfig};
use crate::member::Member;
use crate::{HostIx, World};

/// Starts the service of a scenario with `members` hosts of members.
pub(super) fn start<E: Engine + ?Sized>(
    service: Service,
    members: u32,
    world: &mut World<Resident<Member<E>>>,
    rng: &mut Rng,
) -> Services {
    let server = ServerConfig {
        partitions: PARTITIONS,
        detection_time: service.lease,
        ring: service.watch == Watch::Ring,
        ..ServerConfig::default()
    };
    let after_processes = members + service.processes;
    let config = ServicesConfig {
        server,
        hosts: (members..after_processes).map(HostIx).collect(),
        store_at: (service.processes > 1).then_some(HostIx(after_processes)),
        store_delay: Duration::from_micros([200, 1000, 20_000][rng.below(3)]),
        lease: Duration::from_secs(2),
    };
    let mut services = Services::new(config, rng.next_u64());
    (0..services.count()).for_each(|which| services.start(world, which));
    if service.watch == Watch::Chain {
        for number in 0..2 {
            let host = HostIx(members + service.hosts() - 2 + number);
            let rack = rack_of(HostIx(number));
            let addresses = services.addresses();
            let config = DetectorConfig { addresses, rack, ..DetectorConfig::default() };
            services.start_detector(world, host, config);
        }
    }
    services
}

/// Creates the provider of a node on `host`.
pub(super) fn provider(
    services: &Services,
    host: HostIx,
    origin: Origin,
    rng: &mut Rng,
) -> Box<dyn Membership> {
    let mut addresses = services.addresses();
    if rng.chance(0.3) {
        // Any process names the others.
        addresses = vec![addresses[rng.below(addresses.len())]];
    }
    let config = ServiceConfig { addresses, rack: rack_of(host), ..ServiceConfig::default() };
    Box::new(Provider::new(origin, host.endpoint(), config, rng.next_u64()))
}

/// Returns the members that wait for the service: it has not answered, or they consider it away.
pub(super) fn unsettled<E: Engine + ?Sized>(world: &World<Resident<Member<E>>>) -> Vec<NodeId> {
    let waits = |host: &HostIx| {
        let member = world.machine(*host).and_then(Resident::member);
        let provider = member.and_then(Member::provider);
        let is_away = |it: &dyn Membership| it.stats().contains(&("is_away", 1));
        provider.is_some_and(|it| !it.is_settled() || is_away(it))
    };
    let hosts = world.topology().all_hosts().filter(waits);
    hosts.filter_map(|host| world.node_id(host)).collect()
}

fn rack_of(host: HostIx) -> String {
    format!("rack {}", host.0 % 2)
}

/// Number of partitions: enough to give each of the few groups its own.
const PARTITIONS: u16 = 4;
