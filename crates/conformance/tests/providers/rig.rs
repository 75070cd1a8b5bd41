//! Nodes with membership providers in a world, and the registry processes that they may use.

use std::net::SocketAddr;
use std::time::Duration;

use carom_conformance::providers::{Resident, ResidentEvent, Services, ServicesConfig};
use carom_proto::loss::Loss;
use carom_proto::membership::Membership;
use carom_proto::membership::service::ServerConfig;
use carom_proto::{Endpoint, GroupId, GroupSettings, JoinError, NodeId, Profile, RateOfFire};
use carom_proto::{Rng, Time};
use carom_sim::{Fault, HostIx, Jitter, Link, Topology, World, WorldConfig};

use crate::probe::Probe;

pub(crate) struct Rig {
    pub(crate) world: World<Resident<Probe>>,
    pub(crate) services: Option<Services>,
    pub(crate) rng: Rng,
    pub(crate) nodes: usize,
    starts: u64,
}

pub(crate) fn ix(host: usize) -> HostIx {
    HostIx(host as u32)
}

pub(crate) fn endpoint(host: usize) -> Endpoint {
    ix(host).endpoint()
}

pub(crate) fn unknown_endpoint() -> Endpoint {
    Endpoint(SocketAddr::from(([0, 0, 0, 0], 7400)))
}

pub(crate) fn node_id(number: usize) -> NodeId {
    // Ids are scattered, so that their order is not the order of the hosts.
    NodeId((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

pub(crate) fn settings(name: &str) -> GroupSettings {
    GroupSettings::new(name, Profile::TimeCritical(RateOfFire::new(8, 5)))
}

pub(crate) const START: Time = Time(1_000_000_000);

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn counter(stats: &[(&str, u64)], name: &str) -> u64 {
    let found = stats.iter().find(|(counter, _)| *counter == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

impl Rig {
    /// Creates empty hosts on one LAN, on which a datagram takes 50 to 350 us.
    pub(crate) fn new(hosts: usize, loss: f64, seed: u64) -> Self {
        let jitter = Jitter::Uniform(Duration::from_micros(300));
        let link = Link::of_delay(Duration::from_micros(50)).with_jitter(jitter);
        let topology = Topology::lan(hosts as u32, link);
        let loss = Loss::Uniform(loss);
        // Checks of many nodes after each step take too long.
        let checks = hosts < 64;
        let world = World::new(WorldConfig { loss, checks, ..WorldConfig::new(topology, seed) });
        Self { world, services: None, rng: Rng::new(seed ^ 0x5017e), nodes: 0, starts: 0 }
    }

    /// Starts registry processes on the hosts from `first` on. If there are several, they share a
    /// store on the host after theirs.
    pub(crate) fn start_registry(&mut self, first: usize, count: usize, server: ServerConfig) {
        let config = ServicesConfig {
            server,
            hosts: (first..first + count).map(ix).collect(),
            store_at: (count > 1).then_some(ix(first + count)),
            store_delay: Duration::from_micros(500),
            lease: seconds(2),
        };
        let mut services = Services::new(config, self.rng.next_u64());
        (0..count).for_each(|which| services.start(&mut self.world, which));
        self.services = Some(services);
    }

    pub(crate) fn add(&mut self, id: NodeId, membership: impl Membership + 'static) -> usize {
        let host = self.nodes;
        self.nodes += 1;
        self.start(host, id, Box::new(membership));
        host
    }

    pub(crate) fn start(&mut self, host: usize, id: NodeId, membership: Box<dyn Membership>) {
        // Ids must be unique in the world, but a restarted node keeps its id.
        self.starts += 1;
        let mut probe = Probe::new(id, membership);
        probe.may_report_left_groups = self.services.is_some();
        self.world.spawn(ix(host), NodeId(self.starts), Resident::Member(probe));
    }

    pub(crate) fn now(&self) -> Time {
        self.world.now()
    }

    pub(crate) fn node(&self, host: usize) -> &Probe {
        let resident = self.world.machine(ix(host));
        resident.and_then(Resident::member).expect("the host is up")
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Probe> {
        (0..self.nodes).filter_map(|host| self.world.machine(ix(host))?.member())
    }

    pub(crate) fn with<R>(&mut self, host: usize, call: impl FnOnce(&mut Probe, Time) -> R) -> R {
        let call = |resident: &mut Resident<Probe>, now| {
            call(resident.member_mut().expect("nodes run on the first hosts"), now)
        };
        self.world.with(ix(host), call).expect("the host is up")
    }

    pub(crate) fn join(
        &mut self,
        host: usize,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.with(host, |node, now| node.join(now, group, settings))
    }

    pub(crate) fn leave(&mut self, host: usize, group: GroupId) {
        self.with(host, |node, now| node.leave(now, group));
    }

    pub(crate) fn shut_down(&mut self, host: usize) {
        self.with(host, |node, now| node.shut_down(now));
        let wants = self.node(host).membership.poll_timeout();
        assert_eq!(wants, None, "it has further output");
        self.crash(host);
    }

    pub(crate) fn crash(&mut self, host: usize) {
        self.world.kill(ix(host));
    }

    pub(crate) fn pause(&mut self, host: usize) {
        self.world.apply(&Fault::Pause(ix(host)));
    }

    pub(crate) fn resume(&mut self, host: usize) {
        self.world.apply(&Fault::Resume(ix(host)));
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    pub(crate) fn run_until(
        &mut self,
        span: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> bool {
        let end = self.now() + span;
        loop {
            self.take_events();
            if done(self) {
                return true;
            }
            let has_more = match &mut self.services {
                Some(services) => services.step(&mut self.world, end, &mut |_| {}),
                None => self.world.next_at().is_some_and(|at| at <= end) && self.world.step(),
            };
            if !has_more {
                self.world.run_until(end, &mut |_| {});
                return done(self);
            }
        }
    }

    pub(crate) fn check(&self) {
        use carom_sim::Machine as _;
        let hosts = self.world.topology().all_hosts();
        hosts.filter_map(|host| self.world.machine(host)).for_each(Resident::check);
        self.services.iter().for_each(|services| services.store().check());
    }

    pub(crate) fn stat(&self, host: usize, name: &str) -> u64 {
        counter(&self.node(host).membership.stats(), name)
    }

    fn take_events(&mut self) {
        while let Some(happening) = self.world.poll_event() {
            if let (ResidentEvent::Process(event), Some(services)) =
                (happening.event, &mut self.services)
            {
                services.handle_event(happening.at, happening.host, event);
                assert_eq!(services.next_unstored(), None, "acknowledged but not stored");
            }
        }
    }
}
