//! The environment of a scenario: a world with its hosts, their members, and their source of views.
//! A book records the run for its player.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use carom_proto::loss::Loss;
use carom_proto::membership::gossip::{self, Gossip};
use carom_proto::{Engine, Event, GroupId, GroupSettings, NodeId, Origin, Rng, Time};

use super::attacker::{self, Attacker, Craft, Forgery};
use super::cast::Cast;
use super::naming::Naming;
use super::scenario::{Act, Views};
use super::serving;
use crate::control::{Resident, Services, Told};
use crate::machine::{Command, GroupMember as _};
use crate::member::{Member, Notice};
use crate::roster::Roster;
use crate::{Disturbance, Fault, Happening, HostIx, Jitter, Link, Topology, World, WorldConfig};

/// The record of a run, for the checkers.
pub(crate) trait Book {
    /// Records the start of a node.
    fn born(&mut self, node: NodeId);
    /// Records that a node was killed.
    fn died(&mut self, node: NodeId);
    /// Records that a node joins a group.
    fn joined(&mut self, now: Time, node: NodeId, group: GroupId);
    /// Records that a node has left a group.
    fn left(&mut self, now: Time, node: NodeId, group: GroupId);
    /// Records an event that a node has received.
    fn told(&mut self, now: Time, node: NodeId, event: Event);
    /// Records that the membership service has acknowledged a join that it has not stored.
    fn acknowledged_unstored(&mut self, _group: GroupId, _node: NodeId) {}
}

/// Constructors of the parts of members.
pub(crate) struct Kit<E: Engine + ?Sized> {
    /// Constructor of the engine for a start of a node, from a seed.
    pub(crate) engine: Box<dyn Fn(Origin, u64) -> Box<E>>,
    /// Settings of the group of this name.
    pub(crate) group: Box<dyn Fn(&str) -> GroupSettings>,
    /// `true` if the protocol distinguishes the starts of a node, which may then share its id.
    pub(crate) tells_starts: bool,
}

/// A scenario in progress.
pub(crate) struct Stage<E: Engine + ?Sized, B> {
    pub(crate) world: World<Resident<Member<E>>>,
    pub(crate) services: Option<Services>,
    pub(crate) book: B,
    pub(crate) rng: Rng,
    kit: Kit<E>,
    views: Views,
    roster: Roster,
    ids: BTreeMap<HostIx, NodeId>,
    naming: Naming,
    attacker: Attacker,
    /// Groups of a killed host, which it rejoins when it restarts.
    groups_of_dead: BTreeMap<HostIx, Vec<GroupId>>,
    groups: BTreeMap<HostIx, BTreeSet<GroupId>>,
    suspicions: BTreeSet<(HostIx, HostIx)>,
    start: Time,
    /// Number of steps allowed per second; see [`STEPS_PER_SECOND_AND_GROUP`].
    steps_per_second: u64,
}

impl<E: Engine + ?Sized + 'static, B: Book> Stage<E, B> {
    pub(crate) fn new(cast: Cast, views: Views, kit: Kit<E>, book: B, mut rng: Rng) -> Self {
        let others = match views {
            Views::Service(service) => service.hosts(),
            _ => 0,
        };
        let topology = draw_topology(cast.hosts + others, cast.distance, &mut rng);
        let config = WorldConfig {
            loss: cast.loss,
            receive_buffer: [1024, 64, 8][rng.below(3)],
            ..WorldConfig::new(topology, rng.next_u64())
        };
        let mut world = World::new(config);
        let delay = match views {
            Views::Roster(delay) => delay,
            Views::Gossip(_) | Views::Service(_) => Duration::ZERO,
        };
        let start = world.now();
        let roster = Roster::new(delay, rng.next_u64());
        let seed = rng.clone().next_u64();
        let naming = Naming::new(cast.keeps_ids && kit.tells_starts, seed);
        let services = match views {
            Views::Service(service) => {
                Some(serving::start(service, cast.hosts, &mut world, &mut rng))
            }
            Views::Roster(_) | Views::Gossip(_) => None,
        };
        let mut stage = Self {
            world,
            services,
            book,
            rng,
            kit,
            views,
            roster,
            ids: BTreeMap::new(),
            naming,
            attacker: Attacker::new(seed),
            groups_of_dead: BTreeMap::new(),
            groups: BTreeMap::new(),
            suspicions: BTreeSet::new(),
            start,
            steps_per_second: u64::from(cast.groups) * STEPS_PER_SECOND_AND_GROUP,
        };
        (0..cast.hosts).for_each(|host| stage.start(HostIx(host)));
        stage
    }

    /// Captures every packet from now on.
    pub(crate) fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.world.trace_to(out);
    }

    /// Ends the capture.
    pub(crate) fn end_trace(&mut self) -> io::Result<()> {
        self.world.end_trace()
    }

    /// Returns the time `at` after the start.
    pub(crate) fn time(&self, at: Duration) -> Time {
        self.start + at
    }

    /// Returns the node on a host, or the last one if none is alive.
    pub(crate) fn id(&self, host: HostIx) -> NodeId {
        self.ids[&host]
    }

    /// Returns the member on a host, if it is alive.
    pub(crate) fn member(&self, host: HostIx) -> Option<&Member<E>> {
        self.world.machine(host).and_then(Resident::member)
    }

    /// Returns all members with their groups.
    pub(crate) fn members(&self) -> Vec<(HostIx, GroupId)> {
        let groups = self.groups.iter();
        groups.flat_map(|(host, all)| all.iter().map(|group| (*host, *group))).collect()
    }

    /// Returns `true` if the application on a host can use a group now.
    pub(crate) fn can_use(&self, host: HostIx, group: GroupId) -> bool {
        self.is_in(host, group) && !self.world.is_paused(host)
    }

    /// Returns `true` if the world itself is the source of views.
    pub(crate) fn has_roster(&self) -> bool {
        matches!(self.views, Views::Roster(_))
    }

    /// Executes a step that concerns hosts, groups, the network or the membership service.
    pub(crate) fn act(&mut self, act: &Act) {
        match act {
            Act::Join(host, group) => self.join(*host, *group),
            Act::Leave(host, group) => self.leave(*host, *group),
            Act::Crash(host) => self.crash(*host),
            Act::Stop(host) => self.stop(*host),
            Act::Restart(host) => self.restart(*host),
            Act::Bounce(host) => self.bounce(*host),
            Act::Suspect(host, other) => self.suspect(*host, *other),
            Act::Trust(host, other) => self.trust(*host, *other),
            Act::Fault(fault) => self.world.apply(fault),
            Act::KillProcess(_) | Act::StartProcess(_) | Act::Store(..) => self.act_on_service(act),
            // The player executes the steps of applications and attackers.
            Act::Send { .. } | Act::Confirm(..) | Act::Forge(..) => {}
        }
    }

    fn start(&mut self, host: HostIx) {
        let origin = self.naming.next(host);
        let id = origin.node;
        let engine = (self.kit.engine)(origin, self.rng.next_u64());
        let provider = match (self.views, &self.services) {
            (Views::Roster(_), _) | (Views::Service(_), None) => None,
            (Views::Service(_), Some(services)) => {
                Some(serving::provider(services, host, origin, &mut self.rng))
            }
            (Views::Gossip(detection_time), _) => {
                let seed = self.rng.next_u64();
                let config = gossip::Config { detection_time, ..gossip::Config::default() };
                Some(Box::new(Gossip::new(origin, host.endpoint(), config, seed)) as Box<_>)
            }
        };
        self.ids.insert(host, id);
        self.book.born(id);
        self.world.spawn(host, id, Resident::Member(Member::new(engine, provider)));
    }

    fn act_on_service(&mut self, act: &Act) {
        let Some(services) = &mut self.services else { return };
        match act {
            Act::KillProcess(which) => services.kill(&mut self.world, *which as usize),
            Act::StartProcess(which) => services.start(&mut self.world, *which as usize),
            Act::Store(failing, lost_answers) => {
                let store = services.store_mut();
                (store.failing, store.lost_answers) = (*failing, *lost_answers);
            }
            _ => {}
        }
    }

    pub(crate) fn is_alive(&self, host: HostIx) -> bool {
        self.world.node_id(host).is_some()
    }

    fn is_in(&self, host: HostIx, group: GroupId) -> bool {
        self.groups.get(&host).is_some_and(|groups| groups.contains(&group))
    }

    fn join(&mut self, host: HostIx, group: GroupId) {
        if !self.is_alive(host) || self.is_in(host, group) || self.world.is_paused(host) {
            return;
        }
        self.take_events();
        self.book.joined(self.world.now(), self.ids[&host], group);
        let settings = (self.kit.group)(&format!("group {}", group.0));
        let joined = match self.views {
            Views::Roster(_) => self.roster.join(&mut self.world, host, group, settings),
            Views::Gossip(_) | Views::Service(_) => {
                self.world.subscribe(host, group);
                let join =
                    |member: &mut Resident<Member<E>>, now| member.join_group(now, group, settings);
                self.world.with(host, join).unwrap_or(Ok(()))
            }
        };
        joined.expect("all members have the same settings");
        self.groups.entry(host).or_default().insert(group);
    }

    fn leave(&mut self, host: HostIx, group: GroupId) {
        if !self.is_in(host, group) || self.world.is_paused(host) {
            return;
        }
        self.take_events();
        match self.views {
            Views::Roster(_) => self.roster.leave(&mut self.world, host, group),
            Views::Gossip(_) | Views::Service(_) => {
                self.world.command(host, Command::Leave(group).into());
                self.world.unsubscribe(host, group);
            }
        }
        self.take_events();
        if let Some(groups) = self.groups.get_mut(&host) {
            groups.remove(&group);
        }
        self.book.left(self.world.now(), self.ids[&host], group);
    }

    fn crash(&mut self, host: HostIx) {
        if !self.is_alive(host) {
            return;
        }
        self.take_events();
        self.book.died(self.ids[&host]);
        self.roster.crash(&mut self.world, host);
        self.world.kill(host);
        let groups = self.groups.remove(&host).unwrap_or_default();
        self.groups_of_dead.insert(host, groups.into_iter().collect());
    }

    fn stop(&mut self, host: HostIx) {
        if !self.is_alive(host) || self.world.is_paused(host) {
            return;
        }
        let groups = self.groups.get(&host).cloned().unwrap_or_default();
        match self.views {
            Views::Roster(_) => groups.iter().for_each(|group| self.leave(host, *group)),
            Views::Gossip(_) | Views::Service(_) => {
                self.take_events();
                self.world.with(host, |resident, now| {
                    resident.member_mut().map(|member| member.shut_down(now))
                });
            }
        }
        self.crash(host);
        self.groups_of_dead.insert(host, groups.into_iter().collect());
    }

    fn restart(&mut self, host: HostIx) {
        let Some(groups) = self.groups_of_dead.remove(&host).filter(|_| !self.is_alive(host))
        else {
            return;
        };
        self.start(host);
        groups.into_iter().for_each(|group| self.join(host, group));
    }

    /// Restarts the host at once, under its id and without a report. Its incarnation reveals it.
    fn bounce(&mut self, host: HostIx) {
        if !self.is_alive(host) || !self.naming.keeps_ids() {
            return;
        }
        self.take_events();
        self.book.died(self.ids[&host]);
        self.world.kill(host);
        let groups = self.groups.remove(&host).unwrap_or_default();
        self.start(host);
        groups.into_iter().for_each(|group| self.join(host, group));
    }

    /// Starts to overhear multicasts for the attacker.
    pub(crate) fn expect_attacks(&mut self) {
        self.world.overhear(attacker::MEMORY);
    }

    /// Sends `count` datagrams of the attacker to a host.
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

    /// Makes `host` suspect `other`. Only the roster makes mistakes on request; gossip makes its
    /// own.
    fn suspect(&mut self, host: HostIx, other: HostIx) {
        if matches!(self.views, Views::Roster(_)) {
            self.suspicions.insert((host, other));
            self.roster.suspect(&mut self.world, host, other);
        }
    }

    fn trust(&mut self, host: HostIx, other: HostIx) {
        if self.suspicions.remove(&(host, other)) {
            self.roster.trust(&mut self.world, host, other);
        }
    }

    /// Ends the faults, except that dead members stay dead.
    pub(crate) fn heal(&mut self) {
        self.world.apply(&Fault::Heal);
        self.world.apply(&Fault::Disturb(Disturbance::default()));
        for host in self.world.topology().all_hosts() {
            self.world.apply(&Fault::Resume(host));
            self.world.apply(&Fault::Slow(host, Duration::ZERO));
        }
        self.lose(Loss::None);
        self.heal_service();
        for (host, other) in std::mem::take(&mut self.suspicions) {
            self.roster.trust(&mut self.world, host, other);
        }
    }

    fn heal_service(&mut self) {
        let Some(services) = &mut self.services else { return };
        let store = services.store_mut();
        (store.failing, store.lost_answers) = (None, 0.0);
        (0..services.count()).for_each(|which| services.start(&mut self.world, which));
    }

    /// Returns the members that wait for their membership service, if there is one.
    pub(crate) fn unsettled(&self) -> Vec<NodeId> {
        serving::unsettled(&self.world)
    }

    pub(crate) fn lose(&mut self, loss: Loss) {
        for host in self.world.topology().all_hosts() {
            self.world.apply(&Fault::Loss(host, loss));
        }
    }

    /// Ends the losses of hosts and of links. A burst of losses on a link is counted in datagrams,
    /// and therefore lasts long where few are sent.
    pub(crate) fn end_loss(&mut self) {
        self.lose(Loss::None);
        self.world.apply(&Fault::LinkLoss(Loss::None));
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        self.take_events();
        while self.step(end) {
            self.take_events();
            let seconds = self.world.now().since(self.start).as_secs();
            let most = MAX_STEPS.max(seconds * self.steps_per_second);
            assert!(self.world.counters().steps < most, "the scenario exceeds {most} steps");
        }
        self.world.run_until(end, &mut |_| {});
    }

    /// Processes the next event, if it is due by `end`.
    fn step(&mut self, end: Time) -> bool {
        if let Some(services) = &mut self.services {
            let mut none_is_left = |_| unreachable!("events are taken as they come");
            return services.step(&mut self.world, end, &mut none_is_left);
        }
        self.world.next_at().is_some_and(|at| at <= end) && self.world.step()
    }

    pub(crate) fn take_events(&mut self) {
        while let Some(Happening { at, host, event }) = self.world.poll_event() {
            match event {
                Told::Member(Notice::Event(event)) => self.book.told(at, self.ids[&host], event),
                Told::Member(Notice::Refused(group, _)) => self.on_refused(host, group),
                Told::Process(event) => {
                    if let Some(services) = &mut self.services {
                        services.take(at, host, event);
                    }
                }
            }
        }
        while let Some((group, node)) = self.services.as_mut().and_then(Services::next_unstored) {
            self.book.acknowledged_unstored(group, node);
        }
    }

    /// Handles the service's refusal to admit the host to the group, which it could not store.
    fn on_refused(&mut self, host: HostIx, group: GroupId) {
        self.world.unsubscribe(host, group);
        if let Some(groups) = self.groups.get_mut(&host) {
            groups.remove(&group);
        }
        self.book.left(self.world.now(), self.ids[&host], group);
    }
}

/// Draws a LAN, racks, or a star of slow links with short queues. Sometimes links lose datagrams
/// too. With a distance, there is one switch between any two hosts.
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
            Topology::star(hosts.div_ceil(5), 5, slow, slow)
        }
        _ => Topology::lan(hosts, link),
    }
}

/// Maximum number of steps of a run, unless it is so long that this is little for each second:
/// twenty members of a ring that cannot continue search for the others all the time.
const MAX_STEPS: u64 = 5_000_000;
const STEPS_PER_SECOND_AND_GROUP: u64 = 10_000;
