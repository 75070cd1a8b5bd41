//! Plays a scenario: first with faults, then healed; writes the ledger on the way.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use carom_proto::loss::Loss;
use carom_proto::membership::gossip::{self, Gossip};
use carom_proto::{GroupId, NodeId, PacketId, Rng, SendError, SendOptions, Time};

use super::scenario::{Act, Scenario, Views};
use super::serving;
use super::subject::{Setup, Subject};
use crate::checkers::Ledger;
use crate::control::{Resident, Services, Told};
use crate::machine::{Command, GroupMember as _};
use crate::member::{Member, Notice};
use crate::roster::Roster;
use crate::{
    Counters, Disturbance, Fault, Happening, HostIx, Jitter, Link, Topology, World, WorldConfig,
};

/// A run as it was played.
pub struct Played {
    /// Everything the checkers need.
    pub ledger: Ledger,
    /// The hash of its history.
    pub history: u64,
    /// What crossed its network, and what did not.
    pub counters: Counters,
    /// Whether the capture could be written.
    pub trace: io::Result<()>,
}

/// A scenario under way.
pub(super) struct Player<'a> {
    scenario: &'a Scenario,
    setup: Box<dyn Setup>,
    world: World<Resident<Member>>,
    roster: Roster,
    services: Option<Services>,
    ledger: Ledger,
    ids: BTreeMap<HostIx, NodeId>,
    lives: u64,
    /// Groups of a host that was killed, for when it comes back.
    groups_of_dead: BTreeMap<HostIx, Vec<GroupId>>,
    groups: BTreeMap<HostIx, BTreeSet<GroupId>>,
    suspicions: BTreeSet<(HostIx, HostIx)>,
    rng: Rng,
    start: Time,
    messages: u64,
}

impl<'a> Player<'a> {
    pub(super) fn new(subject: &dyn Subject, scenario: &'a Scenario) -> Self {
        let mut rng = setup_rng(scenario.seed);
        let setup = subject.set_up(&mut rng);
        let owed_from = setup.owed_from();
        let others = match scenario.views {
            Views::Service(service) => service.hosts(),
            _ => 0,
        };
        let topology = draw_topology(scenario.hosts + others, &mut rng);
        let config = WorldConfig {
            loss: scenario.loss,
            receive_buffer: [1024, 64, 8][rng.below(3)],
            ..WorldConfig::new(topology, rng.next_u64())
        };
        let mut world = World::new(config);
        let delay = match scenario.views {
            Views::Roster(delay) => delay,
            Views::Gossip(_) | Views::Service(_) => Duration::ZERO,
        };
        let start = world.now();
        let roster = Roster::new(delay, rng.next_u64());
        let services = match scenario.views {
            Views::Service(service) => {
                Some(serving::start(service, scenario.hosts, &mut world, &mut rng))
            }
            Views::Roster(_) | Views::Gossip(_) => None,
        };
        let mut player = Self {
            scenario,
            setup,
            world,
            roster,
            services,
            ledger: Ledger::new(owed_from),
            ids: BTreeMap::new(),
            lives: 0,
            groups_of_dead: BTreeMap::new(),
            groups: BTreeMap::new(),
            suspicions: BTreeSet::new(),
            rng,
            start,
            messages: 0,
        };
        (0..scenario.hosts).for_each(|host| player.start(HostIx(host)));
        player
    }

    /// Captures every packet from now on.
    pub(super) fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.world.trace_to(out);
    }

    /// Plays all of it.
    pub(super) fn play(mut self) -> Played {
        for (at, act) in &self.scenario.acts {
            self.run_until(self.start + *at);
            self.act(act);
        }
        self.heal();
        for host in self.world.topology().all_hosts() {
            let member = self.world.machine(host).and_then(Resident::member);
            let Some(member) = member else { continue };
            if let Some(promise) = self.setup.broken_promise(&member.engine().stats()) {
                self.ledger.breaks(self.ids[&host], promise);
            }
        }
        Played {
            trace: self.world.end_trace(),
            history: self.world.history(),
            counters: *self.world.counters(),
            ledger: self.ledger,
        }
    }

    fn start(&mut self, host: HostIx) {
        self.lives += 1;
        let id = NodeId(u64::from(host.0) + 1 + 1000 * self.lives);
        let engine = self.setup.engine(id, self.rng.next_u64());
        let provider = match (self.scenario.views, &self.services) {
            (Views::Roster(_), _) | (Views::Service(_), None) => None,
            (Views::Service(_), Some(services)) => {
                Some(serving::provider(services, host, id, &mut self.rng))
            }
            (Views::Gossip(detection_time), _) => {
                let seed = self.rng.next_u64();
                let config = gossip::Config { detection_time, ..gossip::Config::default() };
                Some(Box::new(Gossip::new(id, host.endpoint(), config, seed)) as Box<_>)
            }
        };
        self.ids.insert(host, id);
        self.ledger.born(id);
        self.world.spawn(host, id, Resident::Member(Member::new(engine, provider)));
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Join(host, group) => self.join(*host, *group),
            Act::Leave(host, group) => self.leave(*host, *group),
            Act::Send { host, group, count, bytes, deadline } => {
                for _ in 0..*count {
                    let options = SendOptions { deadline: *deadline, qos: None };
                    _ = self.send(*host, *group, *bytes, options);
                }
            }
            Act::Confirm(host, group) => {
                self.world.command(*host, Command::Confirm(*group).into());
            }
            Act::Crash(host) => self.crash(*host),
            Act::Stop(host) => self.stop(*host),
            Act::Restart(host) => self.restart(*host),
            Act::Suspect(host, other) => self.suspect(*host, *other),
            Act::Trust(host, other) => self.trust(*host, *other),
            Act::Fault(fault) => self.world.apply(fault),
            Act::KillProcess(_) | Act::StartProcess(_) | Act::Store(..) => self.act_on_service(act),
        }
        self.take_events();
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

    fn is_alive(&self, host: HostIx) -> bool {
        self.world.node_id(host).is_some()
    }

    fn is_in(&self, host: HostIx, group: GroupId) -> bool {
        self.groups.get(&host).is_some_and(|groups| groups.contains(&group))
    }

    fn join(&mut self, host: HostIx, group: GroupId) {
        if !self.is_alive(host) || self.is_in(host, group) || self.world.is_paused(host) {
            return;
        }
        self.ledger.joined(self.world.now(), self.ids[&host], group);
        let settings = self.setup.group(&format!("group {}", group.0));
        let joined = match self.scenario.views {
            Views::Roster(_) => self.roster.join(&mut self.world, host, group, settings),
            Views::Gossip(_) | Views::Service(_) => {
                self.world.subscribe(host, group);
                let join =
                    |member: &mut Resident<Member>, now| member.join_group(now, group, settings);
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
        match self.scenario.views {
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
        self.ledger.left(self.world.now(), self.ids[&host], group);
    }

    fn crash(&mut self, host: HostIx) {
        if !self.is_alive(host) {
            return;
        }
        self.take_events();
        self.ledger.died(self.ids[&host]);
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
        match self.scenario.views {
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

    /// Only the roster makes mistakes to order; gossip makes its own.
    fn suspect(&mut self, host: HostIx, other: HostIx) {
        if matches!(self.scenario.views, Views::Roster(_)) {
            self.suspicions.insert((host, other));
            self.roster.suspect(&mut self.world, host, other);
        }
    }

    fn trust(&mut self, host: HostIx, other: HostIx) {
        if self.suspicions.remove(&(host, other)) {
            self.roster.trust(&mut self.world, host, other);
        }
    }

    fn send(
        &mut self,
        host: HostIx,
        group: GroupId,
        bytes: usize,
        options: SendOptions,
    ) -> Result<(), SendError> {
        if !self.is_in(host, group) || self.world.is_paused(host) {
            return Ok(());
        }
        self.messages += 1;
        let mut payload = self.messages.to_be_bytes().to_vec();
        payload.resize(bytes.clamp(8, self.setup.most_bytes()), self.messages as u8);
        let sent = self
            .world
            .with(host, |resident, now| {
                let member = resident.member_mut()?;
                Some(member.send(now, group, payload.clone().into(), options))
            })
            .flatten();
        let seqno = sent.unwrap_or(Err(SendError::NotJoined))?;
        let id = PacketId { sender: self.ids[&host], group, seqno };
        self.ledger.sent(self.world.now(), id, payload, options.deadline.is_some());
        Ok(())
    }

    /// The faults stop: what is dead stays dead, everything else must come right, under no more
    /// than the losses of every day.
    fn heal(&mut self) {
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
        self.settle();
        self.ledger.healed(self.world.now(), self.setup.delivers_all());
        self.lose(USUAL_LOSS);
        let members: Vec<(HostIx, GroupId)> = self
            .groups
            .iter()
            .flat_map(|(host, groups)| groups.iter().map(|group| (*host, *group)))
            .collect();
        for _ in 0..LAST_WORDS {
            for (host, group) in &members {
                self.say_one_thing_more(*host, *group);
            }
        }
        for (host, group) in members.iter().filter(|_| self.setup.confirms()) {
            self.ledger.awaits(self.ids[host], *group);
            self.world.command(*host, Command::Confirm(*group).into());
        }
        let end = self.world.now() + CONFIRM_WITHIN;
        // What is under way is lost on arrival: the loss must not end before that.
        self.run_for(LOSSY_FOR);
        while !self.ledger.is_all_confirmed() && self.world.now() < end {
            self.run_for(Duration::from_millis(200));
        }
        self.lose(Loss::None);
        self.run_for(GIVE_UP_WITHIN);
        self.look_at_service();
    }

    fn heal_service(&mut self) {
        let Some(services) = &mut self.services else { return };
        let store = services.store_mut();
        (store.failing, store.lost_answers) = (None, 0.0);
        (0..services.count()).for_each(|which| services.start(&mut self.world, which));
    }

    /// Writes down how the service stands, for the checkers.
    fn look_at_service(&mut self) {
        let Some(services) = &self.services else { return };
        services.store().check();
        self.ledger.has_stored(services.store().members());
        self.ledger.are_unsettled(serving::unsettled(&self.world));
    }

    fn lose(&mut self, loss: Loss) {
        for host in self.world.topology().all_hosts() {
            self.world.apply(&Fault::Loss(host, loss));
        }
    }

    /// Lets what was done before the faults stopped come to its end, and the views agree.
    fn settle(&mut self) {
        self.run_for(SETTLE_WITHIN);
        if !matches!(self.scenario.views, Views::Roster(_)) {
            self.ledger.healed(self.world.now(), self.setup.delivers_all());
            let end = self.world.now() + AGREE_WITHIN;
            self.look_at_service();
            while !self.ledger.do_views_agree() && self.world.now() < end {
                self.run_for(Duration::from_millis(500));
                self.look_at_service();
            }
        }
    }

    /// A member that was held back by others is so no longer once their patience has ended.
    fn say_one_thing_more(&mut self, host: HostIx, group: GroupId) {
        let end = self.world.now() + self.setup.patience();
        while self.send(host, group, 20, SendOptions::default()).is_err() {
            if self.world.now() >= end {
                self.ledger.held_back(self.ids[&host], group);
                break;
            }
            self.run_for(Duration::from_secs(1));
        }
        self.take_events();
    }

    fn run_for(&mut self, span: Duration) {
        self.run_until(self.world.now() + span);
    }

    fn run_until(&mut self, end: Time) {
        self.take_events();
        while self.step(end) {
            self.take_events();
            assert!(self.world.counters().steps < MAX_STEPS, "too much happens");
        }
        self.world.run_until(end, &mut |_| {});
        for host in self.world.topology().all_hosts() {
            if let Some(member) = self.world.machine(host).and_then(Resident::member) {
                self.ledger.keeps(member.engine().held_bytes(), self.setup.limit_bytes());
            }
        }
    }

    /// Lets the next thing happen, if it is due by `end`.
    fn step(&mut self, end: Time) -> bool {
        if let Some(services) = &mut self.services {
            let mut none_is_left = |_| unreachable!("events are taken as they come");
            return services.step(&mut self.world, end, &mut none_is_left);
        }
        self.world.next_at().is_some_and(|at| at <= end) && self.world.step()
    }

    fn take_events(&mut self) {
        while let Some(Happening { at, host, event }) = self.world.poll_event() {
            match event {
                Told::Member(Notice::Event(event)) => self.ledger.told(at, self.ids[&host], event),
                Told::Member(Notice::Refused(group, _)) => self.on_refused(host, group),
                Told::Process(event) => {
                    if let Some(services) = &mut self.services {
                        services.take(at, host, event);
                    }
                }
            }
        }
        while let Some((group, node)) = self.services.as_mut().and_then(Services::next_unstored) {
            self.ledger.acknowledged_unstored(group, node);
        }
    }

    /// The service could not store that the host is in the group: it is out of it.
    fn on_refused(&mut self, host: HostIx, group: GroupId) {
        self.world.unsubscribe(host, group);
        if let Some(groups) = self.groups.get_mut(&host) {
            groups.remove(&group);
        }
        self.ledger.left(self.world.now(), self.ids[&host], group);
    }
}

/// A LAN, racks, or a star of slow links with short queues; now and then links lose too.
fn draw_topology(hosts: u32, rng: &mut Rng) -> Topology {
    let jitter = Jitter::Exponential(Duration::from_micros(30));
    let mut link = Link::of_delay(Duration::from_micros(100)).with_jitter(jitter);
    if rng.chance(0.2) {
        link = link.with_loss(Loss::Markov { rate: 0.01, mean_burst: 3.0 });
    }
    match rng.below(5) {
        0 => Topology::rack(hosts.div_ceil(4), 4, link, link),
        1 => {
            let slow = link.with_bandwidth(100_000_000, 64 * 1024);
            Topology::star(hosts.div_ceil(5), 5, slow, slow)
        }
        _ => Topology::lan(hosts, link),
    }
}

/// The randomness of a run besides the scenario's; the protocol's settings are drawn first.
pub(super) fn setup_rng(seed: u64) -> Rng {
    Rng::new(seed ^ 0x91a7)
}

/// Everybody has heard from everybody twice within this time: heartbeats come every 6.4 s at the
/// least, and a jump is believed the second time.
const SETTLE_WITHIN: Duration = Duration::from_secs(15);
/// What a healed network still loses: repairs and requests must do their work.
const USUAL_LOSS: Loss = Loss::Uniform(0.03);
/// It does so at least for this time after the last message.
const LOSSY_FOR: Duration = Duration::from_secs(1);
/// Messages that every member sends in the healed world in each of its groups.
const LAST_WORDS: u32 = 3;
/// Views of gossiping members agree so long after the faults have stopped: a failed member is
/// tried again and again, and news of it takes a while.
const AGREE_WITHIN: Duration = Duration::from_secs(40);
/// Confirmations come within this time.
const CONFIRM_WITHIN: Duration = Duration::from_secs(15);
/// What is missing is given up within this time: the default of ten seconds, and some.
const GIVE_UP_WITHIN: Duration = Duration::from_secs(12);
/// A run in which more happens has gone wrong.
const MAX_STEPS: u64 = 5_000_000;
