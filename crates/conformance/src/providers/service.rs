use core::time::Duration;

use carom_proto::membership::Membership;
use carom_proto::membership::service::{
    DetectorConfig, ServerConfig, Service as Provider, ServiceConfig,
};
use carom_proto::{Engine, NodeId, Origin, Rng};
use carom_sim::{HostIx, Member, World};

use super::resident::Resident;
use super::services::{Services, ServicesConfig};

/// The registry of a run.
///
/// Its hosts follow those of the members. The registry processes come first, then the store if
/// there are several processes, and then the failure detectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Number of registry processes. A single process has its store on its own host.
    pub processes: u32,
    /// Maximum time for which a node may be silent before it is removed.
    pub lease: Duration,
    /// Failure detection in addition to leases.
    pub watch: Watch,
}

/// The failure detection of a registry, in addition to leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// No failure detection except leases.
    Leases,
    /// Each node pings the next one.
    Ring,
    /// Two failure detectors in a chain, each for one rack.
    Chain,
}

/// Returns the generator for the registry's faults, and the registry of this seed, if it has one.
pub(crate) fn of_seed(seed: u64) -> (Rng, Option<Service>) {
    let mut rng = Rng::new(seed ^ 0x5e47_1ce5);
    let service = Service {
        processes: [1, 2, 3][rng.below(3)],
        lease: Duration::from_millis([3000, 3000, 1000][rng.below(3)]),
        watch: [Watch::Leases, Watch::Leases, Watch::Ring, Watch::Chain][rng.below(4)],
    };
    let is_there = rng.chance(1.0 / 3.0);
    (rng, is_there.then_some(service))
}

impl Service {
    /// Returns the number of hosts of the registry.
    pub fn hosts(self) -> u32 {
        let store = u32::from(self.processes > 1);
        let detectors = if self.watch == Watch::Chain { 2 } else { 0 };
        self.processes + store + detectors
    }
}

pub(crate) fn start<E: Engine + ?Sized>(
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

pub(crate) fn provider(
    services: &Services,
    host: HostIx,
    origin: Origin,
    rng: &mut Rng,
) -> Box<dyn Membership> {
    let mut addresses = services.addresses();
    if rng.chance(0.3) {
        // The address of any one process suffices to find the others.
        addresses = vec![addresses[rng.below(addresses.len())]];
    }
    let config = ServiceConfig { addresses, rack: rack_of(host), ..ServiceConfig::default() };
    Box::new(Provider::new(origin, host.endpoint(), config, rng.next_u64()))
}

pub(crate) fn unsettled<E: Engine + ?Sized>(world: &World<Resident<Member<E>>>) -> Vec<NodeId> {
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

/// Number of partitions, enough to give each of the few groups its own.
const PARTITIONS: u16 = 4;
