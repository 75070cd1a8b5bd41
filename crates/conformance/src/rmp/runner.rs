//! Runs a scenario of ordered groups, first with faults and then healed, and records its history.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use carom_proto::loss::Loss;
use carom_proto::ring::{Handler, JoinOptions, Process, Qos, RequestOptions};
use carom_proto::rmp::{Config, Rmp};
use carom_proto::{Engine, GroupId, GroupSettings, NodeId, Profile, Rng, SendOptions, Time};
use carom_sim::scenario::{Runner, Scenario, Violation};
use carom_sim::{HostIx, Media, Member, World};

use super::checkers::{self, is_all_delivered, is_whole, reply_to};
use super::forgery;
use super::history::{FinalState, History, Sent};
use super::scenario::{self, Action, LEVELS};
use super::settings::Settings;
use crate::harness::{Harness, Kit, Start};
use crate::memory::retain_memory;
use crate::participants::Participants;
use crate::providers::Resident;
use crate::recovery::{AGREE_WITHIN, LAST_MESSAGES, LEAST_PAUSE, LOSSY_FOR, USUAL_LOSS};
use crate::step::{Forgery, Step};

pub struct RingRunner {
    participants: Participants,
    settings: Settings,
    is_deceived: bool,
    harness: Harness<Rmp, History>,
    messages: u64,
}

impl Kit<Rmp> for Settings {
    fn engine(&self, start: &Start, seed: u64) -> Box<Rmp> {
        let is_voter = self.is_voter(start.origin.node);
        let options = JoinOptions { is_voter, ..JoinOptions::default() };
        Box::new(Rmp::new(start.origin, self.config.clone(), seed).joining_with(options))
    }

    fn group(&self, name: &str) -> GroupSettings {
        GroupSettings::new(name, Profile::Ordered(self.quorum))
    }
}

impl RingRunner {
    pub(super) fn new(
        scenario: &Scenario<Participants, Step<Action>>,
        media: Option<Arc<dyn Media>>,
    ) -> Self {
        let Scenario { seed, participants, steps } = scenario;
        let settings = Settings::of_seed(*seed, participants.hosts);
        let kit = settings.clone();
        let rng = Rng::new(seed ^ 0x91a7);
        let mut history = History::default();
        // Members with less time to leave than usual may fail to complete the leave.
        let has_time = settings.config.leave_within >= Config::default().leave_within;
        if has_time && !scenario::is_silenced(steps) {
            history.are_all_heard = true;
        }
        let mut harness = Harness::of_participants(participants, true, kit, history, media, rng);
        if scenario::is_attacked(steps) {
            harness.expect_attacks();
        }
        let is_deceived = scenario::is_deceived(steps);
        Self { participants: participants.clone(), settings, is_deceived, harness, messages: 0 }
    }

    fn request(&mut self, host: HostIx, group: GroupId, handler: Option<Handler>, bytes: usize) {
        if !self.harness.is_alive(host) || self.harness.world.is_paused(host) {
            return;
        }
        let payload = self.payload(bytes);
        let request = payload.clone();
        let options = RequestOptions { handler, ..RequestOptions::default() };
        let made = self
            .harness
            .with(host, |member, now| member.engine_mut().request(now, group, request, options));
        if let Some(Ok(id)) = made {
            self.harness.record.requested(group, id, payload, handler.is_some());
        }
    }

    fn reply(&mut self) {
        while let Some((node, group, id, payload)) = self.harness.record.to_reply.pop_front() {
            let mut hosts = (0..self.participants.hosts).map(HostIx);
            let host = hosts.find(|host| self.harness.world.node_id(*host) == Some(node));
            let can_use = |host: &HostIx| self.harness.can_use(*host, group);
            let Some(host) = host.filter(can_use) else { continue };
            self.harness.with(host, |member, now| {
                // A member whose reply is refused has been replaced in the meantime.
                member.engine_mut().reply(now, group, id, reply_to(&payload))
            });
        }
    }

    fn payload(&mut self, bytes: usize) -> Bytes {
        self.messages += 1;
        let mut payload = self.messages.to_be_bytes().to_vec();
        payload.resize(bytes.max(8), self.messages as u8);
        payload.into()
    }

    /// Calls the engine on a host that can use the group. A refused call has no effect.
    fn call<T>(&mut self, host: HostIx, group: GroupId, call: impl FnOnce(&mut Rmp, Time) -> T) {
        if self.harness.can_use(host, group) {
            self.harness.with(host, |member, now| call(member.engine_mut(), now));
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Send { host, group, count, bytes, qos } => {
                for _ in 0..*count {
                    let qos = qos.unwrap_or_else(|| LEVELS[self.harness.rng.below(LEVELS.len())]);
                    self.send(*host, *group, *bytes, qos);
                }
            }
            Action::Lock(host, group, name, waits) => {
                self.call(*host, *group, |engine, now| match waits {
                    true => engine.lock(now, *group, *name),
                    false => engine.try_lock(now, *group, *name),
                });
            }
            Action::Unlock(host, group, name) => {
                self.call(*host, *group, |engine, now| engine.unlock(now, *group, *name));
            }
            Action::Request { host, group, handler, bytes } => {
                self.request(*host, *group, *handler, *bytes);
            }
            Action::CrashToken(group, others) => {
                for host in self.token_and(*group, *others) {
                    self.harness.execute(&Step::<Action>::Crash(host));
                }
            }
        }
    }

    /// Sends an attacker's datagrams to a host. None is crafted from a packet of a node that the
    /// host has not heard yet, because only a key could expose it.
    fn forge(&mut self, host: HostIx, count: u32, forgery: Forgery) {
        let member = self.harness.member(host);
        let hosts = self.harness.world.topology().all_hosts();
        let ids = hosts.filter_map(|host| self.harness.world.node_id(host));
        let heard: BTreeSet<NodeId> =
            ids.filter(|id| member.is_some_and(|member| member.has_heard(*id))).collect();
        let craft = |rng: &mut Rng, datagram: &[u8]| forgery::forged(rng, &heard, datagram);
        self.harness.forge(host, (count, forgery), &craft);
    }

    /// Returns the hosts of the token site and of the `others` that follow it in the ring.
    fn token_and(&self, group: GroupId, others: u32) -> Vec<HostIx> {
        let ring = self
            .harness
            .engines()
            .filter_map(|engine| Some((engine.view(group)?, engine.token(group)?)))
            .max_by_key(|(view, _)| (view.epoch, view.version));
        let Some((view, token)) = ring else { return Vec::new() };
        let mut victims: Vec<Process> = vec![token];
        while victims.len() <= others as usize && victims.len() < view.len() {
            victims.push(view.after(victims[victims.len() - 1]));
        }
        let is_victim = |host: &HostIx| {
            let id = self.harness.world.node_id(*host);
            id.is_some_and(|id| victims.iter().any(|victim| victim.node == id))
        };
        self.harness.world.topology().all_hosts().filter(is_victim).collect()
    }

    fn send(&mut self, host: HostIx, group: GroupId, bytes: usize, qos: Qos) {
        if !self.harness.can_use(host, group) {
            return;
        }
        let payload = self.payload(bytes);
        let options = SendOptions { qos: Some(qos), ..SendOptions::default() };
        let bytes = payload.clone();
        let sent = self.harness.with(host, |member, now| member.send(now, group, bytes, options));
        if let Some(Ok(seqno)) = sent {
            let (sender, at) = (self.harness.id(host), self.harness.world.now());
            let sent = Sent { group, sender, life: 0, seqno, qos, at, payload };
            self.harness.record.sent(self.messages, sent);
        }
    }

    fn states(&self) -> Vec<FinalState> {
        let is_voter = |node| self.settings.is_voter(node);
        let members = self.harness.members();
        // Clients without a voter wait for one outside of any ring.
        let has_voter = |group: GroupId| {
            members.iter().any(|(host, other)| *other == group && is_voter(self.harness.id(*host)))
        };
        let state = |(host, group): &(HostIx, GroupId)| {
            let view = self.harness.member(*host)?.engine().view(*group).cloned();
            let node = self.harness.id(*host);
            (has_voter(*group) || view.is_some()).then_some(())?;
            let is_voter = is_voter(node);
            Some(FinalState { group: *group, node, view, is_voter, is_minority: false })
        };
        members.iter().filter_map(state).collect()
    }

    fn note_states(&mut self) {
        let states = self.states();
        self.harness.record.note_states(states);
    }

    fn totals(&self) -> BTreeMap<&'static str, u64> {
        let mut totals = BTreeMap::new();
        for (name, count) in self.harness.engines().flat_map(Engine::stats) {
            *totals.entry(name).or_default() += count;
        }
        totals
    }
}

impl Runner for RingRunner {
    type Step = Step<Action>;
    type Record = History;
    type Machine = Resident<Member<Rmp>>;

    fn world(&mut self) -> &mut World<Self::Machine> {
        &mut self.harness.world
    }

    fn run_until(&mut self, end: Time) {
        self.harness.run_until(end);
        self.reply();
        let limit = self.settings.limit_bytes(&self.participants, 2 * self.participants.hosts);
        self.harness.record.memory.note(self.harness.most_held_bytes(), limit);
    }

    fn execute(&mut self, step: &Step<Action>) {
        match step {
            Step::Act(action) => self.act(action),
            Step::Forge(host, count, forgery) => self.forge(*host, *count, *forgery),
            step => self.harness.execute(step),
        }
        if let Step::Leave(host, group) = step
            && self.harness.is_alive(*host)
        {
            // A leaving member must receive packets until it is out of the ring.
            self.harness.world.subscribe(*host, *group);
        }
        self.harness.take_events();
    }

    fn recover(&mut self) {
        self.harness.heal();
        let patience = self.settings.patience(&self.participants);
        let is_roster = self.participants.views.is_roster();
        let providers = if is_roster { Duration::ZERO } else { AGREE_WITHIN };
        self.run_for(LEAST_PAUSE);
        self.wait(patience + providers, |runner| is_whole(&runner.states()));
        self.note_states();
        self.harness.record.healed(self.harness.world.now());
        self.harness.lose(USUAL_LOSS);
        for _ in 0..LAST_MESSAGES {
            for (host, group) in self.harness.members() {
                LEVELS.iter().for_each(|qos| self.send(host, group, 20, *qos));
            }
            self.run_for(LEAST_PAUSE);
        }
        self.run_for(LOSSY_FOR);
        self.harness.lose(Loss::None);
        self.run_for(LEAST_PAUSE);
        let requests = self.settings.config.call_patience;
        self.wait(patience + providers + requests, |runner| {
            is_whole(&runner.states()) && {
                runner.note_states();
                is_all_delivered(&runner.harness.record)
            }
        });
        self.note_states();
        self.harness.record.totals = self.totals();
    }

    fn finish(self) -> (History, Vec<Violation>) {
        let record = self.harness.record;
        let mut violations = checkers::all(&record);
        if self.is_deceived {
            retain_memory(&mut violations);
        }
        (record, violations)
    }
}
