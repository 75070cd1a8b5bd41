//! Runner of a scenario of ordered groups, first with faults and then healed, which records its
//! story.

use core::time::Duration;
use std::collections::BTreeSet;
use std::io::{self, Write};

use bytes::Bytes;
use carom_proto::loss::Loss;
use carom_proto::rmp::{
    Config, Handler, JoinOptions, LockError, Process, Qos, RequestOptions, Rmp,
};
use carom_proto::{
    Engine as _, Event, GroupId, GroupSettings, NodeId, Profile, Rng, SendOptions, SeqNo, Time,
};

use super::forging;
use super::scenario::{Deed, LEVELS, Scenario};
use super::settings::Settings;
use crate::checkers::ordered::{Sent, Standing, Story, is_whole, reply_to};
use crate::control::Resident;
use crate::fuzz::stage::{Book, Kit, Stage};
use crate::fuzz::{Act, Forgery};
use crate::{Counters, HostIx};

/// Results of a run.
pub struct Played {
    /// The record for the checkers.
    pub story: Story,
    /// Hash of the run's history.
    pub history: u64,
    /// Counters of the network.
    pub counters: Counters,
    /// Sums of the counters of all engines that were alive at the end.
    pub totals: Vec<(&'static str, u64)>,
    /// Result of writing the capture.
    pub trace: io::Result<()>,
}

/// A scenario in progress.
pub(super) struct Player<'a> {
    scenario: &'a Scenario,
    settings: Settings,
    stage: Stage<Rmp, Story>,
    messages: u64,
}

impl<'a> Player<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let settings = Settings::of_seed(scenario.seed, scenario.hosts);
        let profile = Profile::Ordered(settings.partition);
        let (all, hosts) = (settings.clone(), scenario.hosts);
        let kit = Kit {
            tells_starts: true,
            engine: Box::new(move |origin, seed| {
                let is_voter = all.is_voter(origin.node, hosts);
                let options = JoinOptions { is_voter, ..JoinOptions::default() };
                Box::new(Rmp::new(origin, all.config.clone(), seed).joining_with(options))
            }),
            group: Box::new(move |name| GroupSettings::new(name, profile)),
        };
        let rng = Rng::new(scenario.seed ^ 0x91a7);
        let mut story = Story::default();
        // Members that must leave in less time than usual may fail to complete the leave.
        let has_time = settings.config.leave_within >= Config::default().leave_within;
        if has_time && !scenario.is_silenced() {
            story.all_are_heard();
        }
        let mut stage = Stage::new(scenario.cast(), scenario.views, kit, story, rng);
        if scenario.is_attacked() {
            stage.expect_attacks();
        }
        Self { scenario, settings, stage, messages: 0 }
    }

    /// Captures every packet from now on.
    pub(super) fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.stage.trace_to(out);
    }

    /// Runs the scenario.
    pub(super) fn play(mut self) -> Played {
        for (at, deed) in &self.scenario.deeds {
            self.run_until(self.stage.time(*at));
            self.carry_out(deed);
            self.stage.take_events();
        }
        self.heal();
        Played {
            trace: self.stage.end_trace(),
            history: self.stage.world.history(),
            counters: *self.stage.world.counters(),
            totals: self.totals(),
            story: self.stage.book,
        }
    }

    fn carry_out(&mut self, deed: &Deed) {
        match deed {
            Deed::Act(act) => self.act(act),
            Deed::Say { host, group, count, bytes, qos } => {
                for _ in 0..*count {
                    let qos = qos.unwrap_or_else(|| LEVELS[self.stage.rng.below(LEVELS.len())]);
                    self.say(*host, *group, *bytes, qos);
                }
            }
            Deed::Lock(host, group, name, waits) => {
                self.ask(*host, *group, |engine, now| match waits {
                    true => engine.lock(now, *group, *name),
                    false => engine.try_lock(now, *group, *name),
                });
            }
            Deed::Unlock(host, group, name) => {
                self.ask(*host, *group, |engine, now| engine.unlock(now, *group, *name));
            }
            Deed::Call { host, group, handler, bytes } => {
                self.call(*host, *group, *handler, *bytes);
            }
            Deed::CrashToken(group, others) => {
                for host in self.token_and(*group, *others) {
                    self.stage.act(&Act::Crash(host));
                }
            }
        }
    }

    fn call(&mut self, host: HostIx, group: GroupId, handler: Option<Handler>, bytes: usize) {
        if !self.stage.is_alive(host) || self.stage.world.is_paused(host) {
            return;
        }
        let payload = self.payload(bytes);
        let asked = payload.clone();
        let options = RequestOptions { handler, ..RequestOptions::default() };
        let made = self.stage.world.with(host, |resident, now| {
            Some(resident.member_mut()?.engine_mut().request(now, group, asked, options))
        });
        if let Some(Some(Ok(id))) = made {
            self.stage.book.called(group, id, payload, handler.is_some());
        }
    }

    /// Replies to the requests that handlers have received.
    fn reply(&mut self) {
        while let Some((node, group, id, payload)) = self.stage.book.next_to_reply() {
            let mut hosts = (0..self.scenario.hosts).map(HostIx);
            let host = hosts.find(|host| self.stage.world.node_id(*host) == Some(node));
            let Some(host) = host.filter(|host| self.stage.can_use(*host, group)) else { continue };
            self.stage.world.with(host, |resident, now| {
                let engine = resident.member_mut().map(|member| member.engine_mut());
                // A member whose reply is refused has been replaced in the meantime.
                engine.map(|engine| engine.reply(now, group, id, reply_to(&payload)))
            });
        }
    }

    fn payload(&mut self, bytes: usize) -> Bytes {
        self.messages += 1;
        let mut payload = self.messages.to_be_bytes().to_vec();
        payload.resize(bytes.max(8), self.messages as u8);
        payload.into()
    }

    /// Calls a method that only this engine has. A refused call has no effect.
    fn ask(
        &mut self,
        host: HostIx,
        group: GroupId,
        verb: impl FnOnce(&mut Rmp, Time) -> Result<(), LockError>,
    ) {
        if self.stage.can_use(host, group) {
            self.stage.world.with(host, |resident, now| {
                resident.member_mut().map(|member| verb(member.engine_mut(), now))
            });
        }
    }

    fn act(&mut self, act: &Act) {
        if let Act::Forge(host, count, forgery) = act {
            return self.forge(*host, *count, *forgery);
        }
        self.stage.act(act);
        if let Act::Leave(host, group) = act
            && self.stage.is_alive(*host)
        {
            // A leaving member must receive packets until it is out of the ring.
            self.stage.world.subscribe(*host, *group);
        }
    }

    /// Sends an attacker's datagrams to a host. None is forged in the name of a node that the host
    /// has not heard yet, because only a key could expose it.
    fn forge(&mut self, host: HostIx, count: u32, forgery: Forgery) {
        let member = self.stage.member(host);
        let hosts = self.stage.world.topology().all_hosts();
        let ids = hosts.filter_map(|host| self.stage.world.node_id(host));
        let heard: BTreeSet<NodeId> =
            ids.filter(|id| member.is_some_and(|member| member.has_heard(*id))).collect();
        let craft = |rng: &mut Rng, datagram: &[u8]| forging::forged(rng, &heard, datagram);
        self.stage.forge(host, (count, forgery), &craft);
    }

    /// Returns the hosts of the token site and of the `others` that follow it in the ring.
    fn token_and(&self, group: GroupId, others: u32) -> Vec<HostIx> {
        let hosts = || self.stage.world.topology().all_hosts();
        let engines = hosts().filter_map(|host| self.stage.member(host)).map(|it| it.engine());
        let ring = engines
            .filter_map(|engine| Some((engine.view(group)?, engine.token(group)?)))
            .max_by_key(|(view, _)| (view.epoch, view.version));
        let Some((view, token)) = ring else { return Vec::new() };
        let mut victims: Vec<Process> = vec![token];
        while victims.len() <= others as usize && victims.len() < view.len() {
            victims.push(view.after(victims[victims.len() - 1]));
        }
        let is_victim = |host: &HostIx| {
            let id = self.stage.world.node_id(*host);
            id.is_some_and(|id| victims.iter().any(|victim| victim.node == id))
        };
        hosts().filter(is_victim).collect()
    }

    fn say(&mut self, host: HostIx, group: GroupId, bytes: usize, qos: Qos) {
        if !self.stage.can_use(host, group) {
            return;
        }
        let payload = self.payload(bytes);
        let options = SendOptions { qos: Some(qos), ..SendOptions::default() };
        let text = payload.clone();
        let sent = self.stage.world.with(host, |resident, now| {
            Some(resident.member_mut()?.send(now, group, text, options))
        });
        if let Some(Some(Ok(seqno))) = sent {
            self.write_down(host, group, seqno, qos, payload);
        }
    }

    fn write_down(&mut self, host: HostIx, group: GroupId, seqno: SeqNo, qos: Qos, payload: Bytes) {
        let (sender, at) = (self.stage.id(host), self.stage.world.now());
        let sent = Sent { group, sender, life: 0, seqno, qos, at, payload };
        self.stage.book.sent(self.messages, sent);
    }

    /// Ends the faults, and waits until the group has recovered.
    fn heal(&mut self) {
        self.stage.heal();
        let patience = self.settings.patience(self.scenario);
        let providers = if self.stage.has_roster() { Duration::ZERO } else { AGREE_WITHIN };
        self.run_for(LEAST_PAUSE);
        self.wait(patience + providers, |player| is_whole(&player.standings()));
        self.call_the_roll();
        self.stage.book.healed(self.stage.world.now());
        self.stage.lose(USUAL_LOSS);
        for _ in 0..LAST_WORDS {
            for (host, group) in self.stage.members() {
                LEVELS.iter().for_each(|qos| self.say(host, group, 20, *qos));
            }
            self.run_for(LEAST_PAUSE);
        }
        self.run_for(LOSSY_FOR);
        self.stage.lose(Loss::None);
        self.run_for(LEAST_PAUSE);
        let calls = self.settings.config.call_patience;
        self.wait(patience + providers + calls, |player| {
            is_whole(&player.standings()) && {
                player.call_the_roll();
                player.stage.book.is_all_told()
            }
        });
        self.call_the_roll();
    }

    /// Advances time until `is_well`, by at most `most`.
    fn wait(&mut self, most: Duration, is_well: impl Fn(&mut Self) -> bool) {
        let end = self.stage.world.now() + most;
        while !is_well(self) && self.stage.world.now() < end {
            self.run_for(LEAST_PAUSE);
        }
    }

    fn standings(&self) -> Vec<Standing> {
        let is_voter = |node| self.settings.is_voter(node, self.scenario.hosts);
        let members = self.stage.members();
        // Clients without a voter wait for one, in no ring.
        let has_voter = |group: GroupId| {
            members.iter().any(|(host, other)| *other == group && is_voter(self.stage.id(*host)))
        };
        let standing = |(host, group): &(HostIx, GroupId)| {
            let view = self.stage.member(*host)?.engine().view(*group).cloned();
            let node = self.stage.id(*host);
            (has_voter(*group) || view.is_some()).then_some(())?;
            let is_voter = is_voter(node);
            Some(Standing { group: *group, node, view, is_voter, is_minority: false })
        };
        members.iter().filter_map(standing).collect()
    }

    fn call_the_roll(&mut self) {
        let standings = self.standings();
        self.stage.book.calls_the_roll(standings);
    }

    fn run_for(&mut self, span: Duration) {
        self.run_until(self.stage.world.now() + span);
    }

    fn run_until(&mut self, end: Time) {
        self.stage.run_until(end);
        self.reply();
        let hosts = self.scenario.hosts;
        for host in (0..hosts).map(HostIx) {
            let Some(member) = self.stage.member(host) else { continue };
            let bytes = member.engine().held_bytes();
            let limit = self.settings.limit_bytes(self.scenario, 2 * hosts);
            self.stage.book.keeps(bytes, limit);
        }
    }

    fn totals(&self) -> Vec<(&'static str, u64)> {
        let mut totals: Vec<(&'static str, u64)> = Vec::new();
        for host in self.stage.world.topology().all_hosts() {
            let resident = self.stage.world.machine(host).and_then(Resident::member);
            let Some(member) = resident else { continue };
            for (name, count) in member.engine().stats() {
                match totals.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, total)) => *total += count,
                    None => totals.push((name, count)),
                }
            }
        }
        totals
    }
}

impl Book for Story {
    fn born(&mut self, node: NodeId) {
        Story::born(self, node);
    }

    fn died(&mut self, node: NodeId) {
        Story::died(self, node);
    }

    fn joined(&mut self, now: Time, node: NodeId, group: GroupId) {
        Story::joined(self, now, node, group);
    }

    fn left(&mut self, _now: Time, node: NodeId, group: GroupId) {
        Story::left(self, node, group);
    }

    fn told(&mut self, now: Time, node: NodeId, event: Event) {
        Story::told(self, now, node, event);
    }
}

/// Time after the faults in which the views of gossiping members agree.
const AGREE_WITHIN: Duration = Duration::from_secs(40);
/// Loss that remains in a healed network.
const USUAL_LOSS: Loss = Loss::Uniform(0.03);
/// Minimum time for which this loss lasts after the last message.
const LOSSY_FOR: Duration = Duration::from_secs(1);
/// Number of messages of each level that every member sends in each of its groups in the healed
/// world.
const LAST_WORDS: u32 = 3;
/// Interval between checks of the rings.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
