//! The environment of a scenario: a world with its hosts, their members, and the source of their
//! views. A record of the run is kept for the checkers.

pub(crate) mod attacker;
pub mod gossip_forgery;
mod node_ids;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carom_proto::loss::Loss;
use carom_proto::membership::gossip::{self, Gossip};
use carom_proto::{Engine, Event, GroupId, GroupSettings, NodeId, Origin, Rng, Time};
use carom_sim::{
    Command, Disturbance, Fault, GroupMember as _, Happening, HostIx, Jitter, Link, Media, Member,
    Notice, Roster, Topology, World, WorldConfig,
};

use self::attacker::{Attacker, Craft};
pub(crate) use self::node_ids::{IDS_APART, NodeIds, Start};
use crate::participants::{Participants, Views};
use crate::providers::{Resident, ResidentEvent, Services, service};
use crate::step::{Forgery, Step};

/// The record of a run, for the checkers.
pub trait Record {
    /// Records the start of a node.
    fn started(&mut self, _node: NodeId) {}
    /// Records that a node was killed.
    fn died(&mut self, now: Time, node: NodeId);
    /// Records that a node joins a group.
    fn joined(&mut self, now: Time, node: NodeId, group: GroupId);
    /// Records that a node is about to leave a group.
    fn leaves(&mut self, _now: Time, _node: NodeId, _group: GroupId) {}
    /// Records that a node has left a group.
    fn left(&mut self, _now: Time, _node: NodeId, _group: GroupId) {}
    /// Records an event of a node.
    fn event(&mut self, now: Time, node: NodeId, event: Event);
    /// Records that the registry has acknowledged a join that it has not stored.
    fn acknowledged_unstored(&mut self, _group: GroupId, _node: NodeId) {}
}

pub(crate) trait Kit<E: ?Sized> {
    fn engine(&self, start: &Start, seed: u64) -> Box<E>;

    fn group(&self, name: &str) -> GroupSettings;
}

pub(crate) struct Harness<E: Engine + ?Sized, R> {
    pub(crate) world: World<Resident<Member<E>>>,
    pub(crate) services: Option<Services>,
    pub(crate) record: R,
    pub(crate) rng: Rng,
    kit: Box<dyn Kit<E>>,
    views: Views,
    roster: Roster,
    origins: BTreeMap<HostIx, Origin>,
    ids: NodeIds,
    attacker: Attacker,
    groups: BTreeMap<HostIx, BTreeSet<GroupId>>,
    groups_of_dead: BTreeMap<HostIx, BTreeSet<GroupId>>,
    suspicions: BTreeSet<(HostIx, HostIx)>,
    /// Maximum number of steps per second in a run that exceeds [`MAX_STEPS`].
    steps_per_second: u64,
    start: Time,
}

impl<E: Engine + ?Sized + 'static, R: Record> Harness<E, R> {
    /// Creates a world without nodes. The views come from a roster.
    pub(crate) fn new(
        config: WorldConfig,
        delay: Duration,
        kit: impl Kit<E> + 'static,
        ids: NodeIds,
        record: R,
        mut rng: Rng,
    ) -> Self {
        let world = World::new(config);
        let start = world.now();
        Self {
            world,
            services: None,
            record,
            kit: Box::new(kit),
            views: Views::Roster(delay),
            roster: Roster::new(delay, rng.next_u64()),
            origins: BTreeMap::new(),
            ids,
            attacker: Attacker::new(rng.clone().next_u64()),
            groups: BTreeMap::new(),
            groups_of_dead: BTreeMap::new(),
            suspicions: BTreeSet::new(),
            steps_per_second: u64::MAX,
            start,
            rng,
        }
    }

    pub(crate) fn of_participants(
        participants: &Participants,
        distinguishes_starts: bool,
        kit: impl Kit<E> + 'static,
        record: R,
        media: Option<Arc<dyn Media>>,
        mut rng: Rng,
    ) -> Self {
        let Participants { hosts, groups, views, loss, keeps_ids, distance, .. } = *participants;
        let (others, delay) = match views {
            Views::Roster(delay) => (0, delay),
            Views::Gossip(_) => (0, Duration::ZERO),
            Views::Service(service) => (service.hosts(), Duration::ZERO),
        };
        let topology = draw_topology(hosts + others, distance, &mut rng);
        let config = WorldConfig {
            loss,
            hashes_history: media.is_none(),
            media,
            receive_buffer: [1024, 64, 8][rng.below(3)],
            ..WorldConfig::new(topology, rng.next_u64())
        };
        // The seed of the roster is drawn first.
        let mut copy = rng.clone();
        let (_, seed) = (copy.next_u64(), copy.next_u64());
        let ids = NodeIds::by_default(keeps_ids && distinguishes_starts, seed);
        let mut harness = Self::new(config, delay, kit, ids, record, rng);
        harness.views = views;
        harness.steps_per_second = u64::from(groups) * STEPS_PER_SECOND_AND_GROUP;
        if let Views::Service(service) = views {
            let Self { world, rng, .. } = &mut harness;
            harness.services = Some(service::start(service, hosts, world, rng));
        }
        (0..hosts).for_each(|host| harness.start(HostIx(host)));
        harness
    }

    pub(crate) fn id(&self, host: HostIx) -> NodeId {
        self.origins[&host].node
    }

    pub(crate) fn origin(&self, host: HostIx) -> Origin {
        self.origins[&host]
    }

    pub(crate) fn lives(&self, host: HostIx) -> u32 {
        self.ids.lives(host)
    }

    pub(crate) fn member(&self, host: HostIx) -> Option<&Member<E>> {
        self.world.machine(host).and_then(Resident::member)
    }

    pub(crate) fn engines(&self) -> impl Iterator<Item = &E> {
        let hosts = self.world.topology().all_hosts();
        hosts.filter_map(|host| Some(self.member(host)?.engine()))
    }

    pub(crate) fn most_held_bytes(&self) -> usize {
        self.engines().map(E::held_bytes).max().unwrap_or(0)
    }

    pub(crate) fn with<T>(
        &mut self,
        host: HostIx,
        call: impl FnOnce(&mut Member<E>, Time) -> T,
    ) -> Option<T> {
        self.world.with(host, |resident, now| Some(call(resident.member_mut()?, now))).flatten()
    }

    pub(crate) fn members(&self) -> Vec<(HostIx, GroupId)> {
        let groups = self.groups.iter();
        groups.flat_map(|(host, all)| all.iter().map(|group| (*host, *group))).collect()
    }

    pub(crate) fn is_alive(&self, host: HostIx) -> bool {
        self.world.node_id(host).is_some()
    }

    pub(crate) fn is_in(&self, host: HostIx, group: GroupId) -> bool {
        self.groups.get(&host).is_some_and(|groups| groups.contains(&group))
    }

    pub(crate) fn can_use(&self, host: HostIx, group: GroupId) -> bool {
        self.is_in(host, group) && !self.world.is_paused(host)
    }

    pub(crate) fn execute<A>(&mut self, step: &Step<A>) {
        match step {
            Step::Join(host, group) => _ = self.join(*host, *group),
            Step::Leave(host, group) => _ = self.leave(*host, *group),
            Step::Crash(host) => self.crash(*host),
            Step::Stop(host) => self.stop(*host),
            Step::Restart(host) => self.restart(*host),
            Step::Bounce(host) => self.bounce(*host),
            Step::Suspect(host, other) => self.suspect(*host, *other),
            Step::Trust(host, other) => self.trust(*host, *other),
            Step::Fault(fault) => self.world.apply(fault),
            Step::KillProcess(_) | Step::StartProcess(_) | Step::Store(..) => {
                self.execute_on_service(step);
            }
            Step::Act(_) | Step::Forge(..) => {}
        }
    }

    fn execute_on_service<A>(&mut self, step: &Step<A>) {
        let Some(services) = &mut self.services else { return };
        match step {
            Step::KillProcess(which) => services.kill(&mut self.world, *which as usize),
            Step::StartProcess(which) => services.start(&mut self.world, *which as usize),
            Step::Store(failing, lost_answers) => {
                let store = services.store_mut();
                (store.failing, store.lost_answers) = (*failing, *lost_answers);
            }
            _ => {}
        }
    }

    pub(crate) fn start(&mut self, host: HostIx) {
        let start = self.ids.next(host);
        let origin = start.origin;
        let engine = self.kit.engine(&start, self.rng.next_u64());
        let provider = match (self.views, &self.services) {
            (Views::Roster(_), _) | (Views::Service(_), None) => None,
            (Views::Service(_), Some(services)) => {
                Some(service::provider(services, host, origin, &mut self.rng))
            }
            (Views::Gossip(detection_time), _) => {
                let seed = self.rng.next_u64();
                let config = gossip::Config { detection_time, ..gossip::Config::default() };
                Some(Box::new(Gossip::new(origin, host.endpoint(), config, seed)) as Box<_>)
            }
        };
        self.origins.insert(host, origin);
        self.record.started(origin.node);
        self.world.spawn(host, origin.node, Resident::Member(Member::new(engine, provider)));
    }

    /// Makes a running host join the group unless it is a member. Returns `true` if it has joined.
    pub(crate) fn join(&mut self, host: HostIx, group: GroupId) -> bool {
        if !self.is_alive(host) || self.is_in(host, group) || self.world.is_paused(host) {
            return false;
        }
        self.take_events();
        self.record.joined(self.world.now(), self.id(host), group);
        let settings = self.kit.group(&format!("group {}", group.0));
        let joined = match self.views.is_roster() {
            true => self.roster.join(&mut self.world, host, group, settings),
            false => {
                self.world.subscribe(host, group);
                let join = |member: &mut Member<E>, now| member.join_group(now, group, settings);
                self.with(host, join).unwrap_or(Ok(()))
            }
        };
        joined.expect("all members have the same settings");
        self.groups.entry(host).or_default().insert(group)
    }

    pub(crate) fn leave(&mut self, host: HostIx, group: GroupId) -> bool {
        if !self.can_use(host, group) {
            return false;
        }
        self.take_events();
        self.record.leaves(self.world.now(), self.id(host), group);
        if self.views.is_roster() {
            self.roster.leave(&mut self.world, host, group);
        } else {
            self.world.command(host, Command::Leave(group).into());
            self.world.unsubscribe(host, group);
        }
        self.take_events();
        self.has_left(host, group);
        true
    }

    fn has_left(&mut self, host: HostIx, group: GroupId) {
        if let Some(groups) = self.groups.get_mut(&host) {
            groups.remove(&group);
        }
        self.record.left(self.world.now(), self.id(host), group);
    }

    /// Kills a node without a report to the other nodes.
    pub(crate) fn kill(&mut self, host: HostIx) {
        self.take_events();
        self.record.died(self.world.now(), self.id(host));
        self.world.kill(host);
        let groups = self.groups.remove(&host).unwrap_or_default();
        self.groups_of_dead.insert(host, groups);
    }

    pub(crate) fn report_failed(&mut self, host: HostIx) {
        self.roster.report_failed(&mut self.world, host);
    }

    fn crash(&mut self, host: HostIx) {
        if self.is_alive(host) {
            self.kill(host);
            self.report_failed(host);
        }
    }

    fn stop(&mut self, host: HostIx) {
        if !self.is_alive(host) || self.world.is_paused(host) {
            return;
        }
        let groups = self.groups.get(&host).cloned().unwrap_or_default();
        if self.views.is_roster() {
            groups.iter().for_each(|group| _ = self.leave(host, *group));
        } else {
            self.take_events();
            self.with(host, Member::shut_down);
        }
        self.crash(host);
        self.groups_of_dead.insert(host, groups);
    }

    fn restart(&mut self, host: HostIx) {
        let Some(groups) = self.groups_of_dead.remove(&host) else { return };
        self.start(host);
        groups.into_iter().for_each(|group| _ = self.join(host, group));
    }

    /// Restarts a live host at once under its id, if ids are kept. Only the incarnation reveals it.
    fn bounce(&mut self, host: HostIx) {
        if self.is_alive(host) && self.ids.keeps_ids() {
            self.kill(host);
            self.restart(host);
        }
    }

    pub(crate) fn expect_attacks(&mut self) {
        self.world.eavesdropper().set_memory(attacker::MEMORY);
    }

    pub(crate) fn forge(
        &mut self,
        host: HostIx,
        (count, forgery): (u32, Forgery),
        craft: &Craft<'_>,
    ) {
        self.take_events();
        self.attacker.strike(&mut self.world, host, (count, forgery), craft);
        self.take_events();
    }

    /// Makes the roster report a false failure. Gossip makes mistakes of its own.
    fn suspect(&mut self, host: HostIx, other: HostIx) {
        if self.views.is_roster() {
            self.suspicions.insert((host, other));
            self.roster.suspect(&mut self.world, host, other);
        }
    }

    fn trust(&mut self, host: HostIx, other: HostIx) {
        if self.suspicions.remove(&(host, other)) {
            self.roster.trust(&mut self.world, host, other);
        }
    }

    pub(crate) fn heal(&mut self) {
        self.world.apply(&Fault::Heal);
        self.world.apply(&Fault::Disturb(Disturbance::default()));
        for host in self.world.topology().all_hosts() {
            self.world.apply(&Fault::Resume(host));
            self.world.apply(&Fault::Slow(host, Duration::ZERO));
        }
        self.lose(Loss::None);
        if let Some(services) = &mut self.services {
            let store = services.store_mut();
            (store.failing, store.lost_answers) = (None, 0.0);
            (0..services.count()).for_each(|which| services.start(&mut self.world, which));
        }
        for (host, other) in std::mem::take(&mut self.suspicions) {
            self.roster.trust(&mut self.world, host, other);
        }
    }

    pub(crate) fn lose(&mut self, loss: Loss) {
        for host in self.world.topology().all_hosts() {
            self.world.apply(&Fault::Loss(host, loss));
        }
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        self.take_events();
        while self.step(end) {
            self.take_events();
            let seconds = self.world.now().since(self.start).as_secs();
            let most = MAX_STEPS.max(seconds.saturating_mul(self.steps_per_second));
            assert!(self.world.counters().steps < most, "the scenario exceeds {most} steps");
        }
        // Over a medium, a late world handles further events.
        let mut late = Vec::new();
        self.world.run_until(end, &mut |happening| late.push(happening));
        late.into_iter().for_each(|happening| self.handle_event(happening));
    }

    fn step(&mut self, end: Time) -> bool {
        if let Some(services) = &mut self.services {
            let mut late = Vec::new();
            let is_due = services.step(&mut self.world, end, &mut |happening| late.push(happening));
            late.into_iter().for_each(|happening| self.handle_event(happening));
            return is_due;
        }
        self.world.next_at().is_some_and(|at| at <= end) && self.world.step()
    }

    pub(crate) fn take_events(&mut self) {
        while let Some(happening) = self.world.poll_event() {
            self.handle_event(happening);
        }
        while let Some((group, node)) = self.services.as_mut().and_then(Services::next_unstored) {
            self.record.acknowledged_unstored(group, node);
        }
    }
    fn handle_event(&mut self, happening: Happening<ResidentEvent<Notice>>) {
        let Happening { at, host, event } = happening;
        match event {
            ResidentEvent::Member(Notice::Event(event)) => {
                self.record.event(at, self.origins[&host].node, event);
            }
            ResidentEvent::Member(Notice::Refused(group, _)) => {
                // The service could not store the join.
                self.world.unsubscribe(host, group);
                self.has_left(host, group);
            }
            ResidentEvent::Process(event) => {
                if let Some(services) = &mut self.services {
                    services.handle_event(at, host, event);
                }
            }
        }
    }
}

/// Draws a LAN, racks, or racks with slow links and short queues. With a distance, draws a LAN.
fn draw_topology(hosts: u32, distance: Duration, rng: &mut Rng) -> Topology {
    let jitter = Jitter::Exponential(Duration::from_micros(30));
    let delay = Duration::from_micros(100) + distance;
    let mut link = Link::of_delay(delay).with_jitter(jitter);
    if rng.chance(0.2) {
        link = link.with_loss(Loss::Markov { rate: 0.01, mean_burst: 3.0 });
    }
    match rng.below(5) {
        _ if !distance.is_zero() => Topology::lan(hosts, link),
        0 => Topology::rack(hosts.div_ceil(4), 4, link, link),
        1 => {
            let slow = link.with_bandwidth(100_000_000, 64 * 1024);
            Topology::rack(hosts.div_ceil(5), 5, slow, slow)
        }
        _ => Topology::lan(hosts, link),
    }
}

/// Maximum number of steps of a short run. Long runs may take more, because twenty members of a
/// stuck ring search permanently.
const MAX_STEPS: u64 = 5_000_000;
const STEPS_PER_SECOND_AND_GROUP: u64 = 10_000;
