//! Nodes with one kind of provider, and their true groups.

use std::collections::BTreeSet;
use std::time::Duration;

use carom_conformance::providers::{Resident, ResidentEvent, Services, ServicesConfig};
use carom_proto::loss::Loss;
use carom_proto::membership::service::ServerConfig;
use carom_proto::{
    GroupId, GroupSettings, JoinError, NodeId, Profile, RateOfFire, Rng, Time, ViewChangeKind,
};
use carom_sim::{Fault, HostIx, Jitter, Link, Topology, World, WorldConfig};

use super::probe::Probe;
use super::{HOSTS, Meets, Subject};

/// The nodes under test.
pub(crate) struct Cluster<'a> {
    pub(crate) subject: &'a dyn Subject,
    pub(crate) world: World<Resident<Probe>>,
    pub(crate) services: Option<Services>,
    /// Groups of each host's node, or `None` if it is down.
    pub(crate) truth: Vec<Option<BTreeSet<&'static str>>>,
    ids: Vec<NodeId>,
    lives: usize,
    cut_off: BTreeSet<HostIx>,
    rng: Rng,
}

pub(crate) fn node_id(number: usize) -> NodeId {
    // Scattered, so that the order of ids is not the order of hosts.
    NodeId((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

pub(crate) fn settings(name: &str) -> GroupSettings {
    GroupSettings::new(name, Profile::TimeCritical(RateOfFire::new(8, 5)))
}

impl<'a> Cluster<'a> {
    /// Creates a cluster in which all hosts are up, and in no group.
    pub(crate) fn new(subject: &'a dyn Subject, loss: f64, seed: u64) -> Self {
        let jitter = Jitter::Uniform(Duration::from_micros(300));
        let link = Link::of_delay(Duration::from_micros(50)).with_jitter(jitter);
        // The hosts of two registry processes and their store follow those of the nodes.
        let topology = Topology::lan(HOSTS as u32 + 3, link);
        let loss = Loss::Uniform(loss);
        let mut rng = Rng::new(seed ^ 0x5017e);
        let mut world = World::new(WorldConfig { loss, ..WorldConfig::new(topology, seed) });
        let services = subject.is_served().then(|| {
            let first = HOSTS as u32;
            let config = ServicesConfig {
                server: ServerConfig { partitions: 4, ..ServerConfig::default() },
                hosts: [first, first + 1].map(HostIx).to_vec(),
                store_at: Some(HostIx(first + 2)),
                store_delay: Duration::from_micros(500),
                lease: Duration::from_secs(2),
            };
            let mut services = Services::new(config, rng.next_u64());
            (0..2).for_each(|which| services.start(&mut world, which));
            services
        });
        let mut cluster = Self {
            subject,
            world,
            services,
            truth: vec![None; HOSTS],
            ids: vec![NodeId(0); HOSTS],
            lives: 0,
            cut_off: BTreeSet::new(),
            rng,
        };
        (0..HOSTS).for_each(|host| cluster.start(host));
        cluster
    }

    /// Creates a cluster in which all hosts are up, have settled, are in group "all", and agree.
    pub(crate) fn agreed(subject: &'a dyn Subject, loss: f64, seed: u64) -> Self {
        let mut cluster = Self::new(subject, loss, seed);
        cluster.run_for(Duration::from_secs(1));
        (0..HOSTS).for_each(|host| cluster.join(host, "all"));
        cluster.must_agree("at the start");
        cluster
    }

    /// Starts a new node.
    pub(crate) fn start(&mut self, host: usize) {
        let (id, seed, ix) = (node_id(self.lives), self.rng.next_u64(), HostIx(host as u32));
        self.lives += 1;
        self.ids[host] = id;
        self.truth[host] = Some(BTreeSet::new());
        let provider = self.subject.provider(ix, id, seed);
        self.world.spawn(ix, id, Resident::Member(Probe::new(id, provider)));
    }

    pub(crate) fn id(&self, host: usize) -> NodeId {
        self.ids[host]
    }

    pub(crate) fn is_paused(&self, host: usize) -> bool {
        self.world.is_paused(HostIx(host as u32))
    }

    pub(crate) fn runs(&self, host: usize) -> bool {
        self.truth[host].is_some() && !self.is_paused(host)
    }

    pub(crate) fn node(&self, host: usize) -> &Probe {
        let resident = self.world.machine(HostIx(host as u32));
        resident.and_then(Resident::member).expect("the host is up")
    }

    pub(crate) fn with<R>(&mut self, host: usize, call: impl FnOnce(&mut Probe, Time) -> R) -> R {
        let call = |resident: &mut Resident<Probe>, now| {
            call(resident.member_mut().expect("nodes run on the first hosts"), now)
        };
        self.world.with(HostIx(host as u32), call).expect("the host is up")
    }

    pub(crate) fn join(&mut self, host: usize, name: &'static str) {
        self.join_with(host, name, settings(name)).expect("all have the same settings");
        self.truth[host].as_mut().expect("the host is up").insert(name);
    }

    pub(crate) fn join_with(
        &mut self,
        host: usize,
        name: &str,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.with(host, |node, now| node.join(now, GroupId::of_name(name), settings))
    }

    pub(crate) fn leave(&mut self, host: usize, name: &'static str) {
        self.with(host, |node, now| node.leave(now, GroupId::of_name(name)));
        self.truth[host].as_mut().expect("the host is up").remove(name);
    }

    pub(crate) fn crash(&mut self, host: usize) {
        self.world.kill(HostIx(host as u32));
        self.truth[host] = None;
    }

    /// Stops the node in order.
    pub(crate) fn stop(&mut self, host: usize) {
        self.with(host, |node, now| node.shut_down(now));
        let wants = self.node(host).membership.poll_timeout();
        assert_eq!(wants, None, "{}: it wants something more", self.subject.name());
        self.crash(host);
    }

    pub(crate) fn apply(&mut self, fault: &Fault) {
        self.world.apply(fault);
    }

    /// Partitions a host, or ends its partition. Partitioned hosts hear only each other.
    pub(crate) fn set_cut_off(&mut self, host: usize, is_cut_off: bool) {
        let host = HostIx(host as u32);
        if is_cut_off {
            self.cut_off.insert(host);
        } else {
            self.cut_off.remove(&host);
        }
        self.world.apply(&Fault::Heal);
        self.world.apply(&Fault::Partition(self.cut_off.iter().copied().collect()));
    }

    /// Ends all partitions and pauses, and starts all registry processes.
    pub(crate) fn heal(&mut self) {
        self.cut_off.clear();
        self.world.apply(&Fault::Heal);
        for host in self.world.topology().all_hosts() {
            self.world.apply(&Fault::Resume(host));
        }
        if let Some(services) = &mut self.services {
            (0..services.count()).for_each(|which| services.start(&mut self.world, which));
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.world.now() + span;
        loop {
            while let Some(happening) = self.world.poll_event() {
                let (ResidentEvent::Process(event), Some(services)) =
                    (happening.event, &mut self.services)
                else {
                    continue;
                };
                services.handle_event(happening.at, happening.host, event);
                assert_eq!(services.next_unstored(), None, "acknowledged but not stored");
            }
            let has_more = match &mut self.services {
                Some(services) => services.step(&mut self.world, end, &mut |_| {}),
                None => self.world.next_at().is_some_and(|at| at <= end) && self.world.step(),
            };
            if !has_more {
                break;
            }
        }
        self.world.run_until(end, &mut |_| {});
    }

    /// Returns the view of the group that the node on `host` must have.
    pub(crate) fn expected(&self, host: usize, name: &str) -> BTreeSet<NodeId> {
        let is_in =
            |other: &usize| self.truth[*other].as_ref().is_some_and(|groups| groups.contains(name));
        let all: BTreeSet<NodeId> = if self.subject.abilities().tells_changes {
            (0..HOSTS).filter(is_in).map(|other| self.id(other)).collect()
        } else {
            (0..HOSTS).map(node_id).collect()
        };
        all.into_iter().filter(|id| *id != self.id(host)).collect()
    }

    /// Returns the nodes that the node on `host` must have met.
    fn expected_to_be_met(&self, host: usize) -> BTreeSet<NodeId> {
        let all: BTreeSet<NodeId> = match self.subject.abilities().meets {
            Meets::AllThatAreListed => (0..HOSTS).map(node_id).collect(),
            Meets::AllThatAreUp => {
                let up = (0..HOSTS).filter(|other| self.truth[*other].is_some());
                up.map(|other| self.id(other)).collect()
            }
            Meets::WhoSharesAGroup => {
                let groups = self.truth[host].iter().flatten();
                groups.flat_map(|name| self.expected(host, name)).collect()
            }
        };
        all.into_iter().filter(|id| *id != self.id(host)).collect()
    }

    /// Returns a description of the first node that has wrong views.
    fn disagreement(&self) -> Option<String> {
        for (host, groups) in self.truth.iter().enumerate() {
            let Some(groups) = groups else { continue };
            let node = self.node(host);
            for name in groups {
                let seen: BTreeSet<NodeId> = match node.views.get(&GroupId::of_name(name)) {
                    Some(view) => view.members().iter().copied().collect(),
                    None => return Some(format!("host {host} was refused by {name}")),
                };
                let expected = self.expected(host, name);
                if seen != expected {
                    return Some(format!("host {host}, {name}: {seen:?} and not {expected:?}"));
                }
            }
            let (met, expected) = (&node.met, self.expected_to_be_met(host));
            if *met != expected {
                return Some(format!("host {host} has met {met:?} and not {expected:?}"));
            }
        }
        None
    }

    pub(crate) fn must_agree(&mut self, when: &str) {
        let span = self.subject.abilities().agrees_within;
        self.must_agree_within(span, when);
    }

    pub(crate) fn must_agree_within(&mut self, span: Duration, when: &str) {
        let end = self.world.now() + span;
        while let Some(what) = self.disagreement() {
            let name = self.subject.name();
            assert!(self.world.now() < end, "{name}, {when}, {span:?} later: {what}");
            self.run_for(Duration::from_millis(20));
        }
    }

    /// Returns the changes of `node` in group "all" that `observer` was notified of, in order.
    pub(crate) fn told(&self, observer: usize, node: NodeId) -> Vec<ViewChangeKind> {
        let group = GroupId::of_name("all");
        let changes = self.node(observer).changes.iter();
        let of_node = changes.filter(|change| change.node == node && change.group == group);
        of_node.map(|change| change.kind).collect()
    }
}
