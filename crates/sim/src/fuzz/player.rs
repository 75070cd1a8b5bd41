//! Runner of a scenario with engines of any protocol, first with faults and then healed, which
//! records its ledger.

use core::time::Duration;
use std::io::{self, Write};
use std::rc::Rc;

use carom_proto::loss::Loss;
use carom_proto::{Engine, Event, GroupId, NodeId, PacketId, Rng, SendError, SendOptions, Time};

use super::scenario::{Act, Scenario};
use super::stage::{Book, Kit, Stage};
use super::subject::{Setup, Subject};
use crate::checkers::Ledger;
use crate::machine::Command;
use crate::{Counters, HostIx};

/// Results of a run.
pub struct Played {
    /// The record for the checkers.
    pub ledger: Ledger,
    /// Hash of the run's history.
    pub history: u64,
    /// Counters of the network.
    pub counters: Counters,
    /// Result of writing the capture.
    pub trace: io::Result<()>,
}

/// A scenario in progress.
pub(super) struct Player<'a> {
    scenario: &'a Scenario,
    setup: Rc<dyn Setup>,
    stage: Stage<dyn Engine, Ledger>,
    messages: u64,
}

impl<'a> Player<'a> {
    pub(super) fn new(subject: &dyn Subject, scenario: &'a Scenario) -> Self {
        let mut rng = setup_rng(scenario.seed);
        let setup: Rc<dyn Setup> = subject.set_up(&mut rng).into();
        let (engines, groups) = (Rc::clone(&setup), Rc::clone(&setup));
        let kit = Kit {
            tells_starts: setup.tells_starts(),
            engine: Box::new(move |origin, seed| engines.engine(origin, seed)),
            group: Box::new(move |name| groups.group(name)),
        };
        let ledger = Ledger::new(setup.owed_from());
        let mut stage = Stage::new(scenario.cast(), scenario.views, kit, ledger, rng);
        if setup.is_attacked() {
            stage.expect_attacks();
        }
        Self { scenario, setup, stage, messages: 0 }
    }

    /// Captures every packet from now on.
    pub(super) fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.stage.trace_to(out);
    }

    /// Runs the scenario.
    pub(super) fn play(mut self) -> Played {
        for (at, act) in &self.scenario.acts {
            self.run_until(self.stage.time(*at));
            self.act(act);
        }
        self.heal();
        for host in self.stage.world.topology().all_hosts() {
            let Some(member) = self.stage.member(host) else { continue };
            if let Some(promise) = self.setup.broken_promise(&member.engine().stats()) {
                self.stage.book.breaks(self.stage.id(host), promise);
            }
        }
        Played {
            trace: self.stage.end_trace(),
            history: self.stage.world.history(),
            counters: *self.stage.world.counters(),
            ledger: self.stage.book,
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Send { host, group, count, bytes, deadline } => {
                for _ in 0..*count {
                    let options = SendOptions { deadline: *deadline, qos: None };
                    _ = self.send(*host, *group, *bytes, options);
                }
            }
            Act::Confirm(host, group) => self.confirm(*host, *group),
            Act::Forge(host, count, forgery) => {
                let setup = Rc::clone(&self.setup);
                let craft = |rng: &mut Rng, heard: &[u8]| setup.forge(rng, heard);
                self.stage.forge(*host, (*count, *forgery), &craft);
            }
            _ => self.stage.act(act),
        }
        self.stage.take_events();
    }

    fn confirm(&mut self, host: HostIx, group: GroupId) {
        self.stage.world.command(host, Command::Confirm(group).into());
    }

    fn send(
        &mut self,
        host: HostIx,
        group: GroupId,
        bytes: usize,
        options: SendOptions,
    ) -> Result<(), SendError> {
        if !self.stage.can_use(host, group) {
            return Ok(());
        }
        self.messages += 1;
        let mut payload = self.messages.to_be_bytes().to_vec();
        payload.resize(bytes.clamp(8, self.setup.most_bytes()), self.messages as u8);
        let sent = self
            .stage
            .world
            .with(host, |resident, now| {
                let member = resident.member_mut()?;
                Some(member.send(now, group, payload.clone().into(), options))
            })
            .flatten();
        let seqno = sent.unwrap_or(Err(SendError::NotJoined))?;
        let id = PacketId { sender: self.stage.id(host), group, seqno };
        self.stage.book.sent(self.stage.world.now(), id, payload, options.deadline.is_some());
        Ok(())
    }

    /// Ends the faults, and lets the group recover under the usual loss only.
    fn heal(&mut self) {
        self.stage.heal();
        self.settle();
        self.stage.book.healed(self.stage.world.now(), self.setup.delivers_all());
        self.stage.lose(USUAL_LOSS);
        let members = self.stage.members();
        for _ in 0..LAST_WORDS {
            for (host, group) in &members {
                self.say_one_thing_more(*host, *group);
            }
        }
        let asking = if self.setup.confirms() { &members[..] } else { &[] };
        for (host, group) in asking {
            self.stage.book.awaits(self.stage.id(*host), *group);
            self.confirm(*host, *group);
        }
        let end = self.stage.world.now() + CONFIRM_WITHIN;
        // Packets in flight are lost on arrival, so the loss must last until they have arrived.
        self.run_for(LOSSY_FOR);
        while !self.stage.book.is_all_confirmed() && self.stage.world.now() < end {
            self.run_for(Duration::from_millis(200));
        }
        if self.setup.delivers_all() {
            self.stage.lose(Loss::None);
        } else {
            // A missing packet is given up a fixed time after the detection of its loss. A link
            // that drops one announcement after another could delay the detection forever.
            self.stage.end_loss();
        }
        self.run_for(GIVE_UP_WITHIN);
        self.look_at_service();
    }

    /// Records the state of the membership service for the checkers.
    fn look_at_service(&mut self) {
        let Some(services) = &self.stage.services else { return };
        services.store().check();
        self.stage.book.has_stored(services.store().members(), services.count());
        let unsettled = self.stage.unsettled();
        self.stage.book.are_unsettled(unsettled);
    }

    /// Completes the operations from before the faults ended, until the views agree.
    fn settle(&mut self) {
        self.run_for(SETTLE_WITHIN);
        if !self.stage.has_roster() {
            self.stage.book.healed(self.stage.world.now(), self.setup.delivers_all());
            let end = self.stage.world.now() + AGREE_WITHIN;
            self.look_at_service();
            while !self.stage.book.do_views_agree() && self.stage.world.now() < end {
                self.run_for(Duration::from_millis(500));
                self.look_at_service();
            }
        }
    }

    /// Sends one more message. Others can hold the member back only until [`Setup::patience`] has
    /// passed.
    fn say_one_thing_more(&mut self, host: HostIx, group: GroupId) {
        let end = self.stage.world.now() + self.setup.patience();
        while self.send(host, group, 20, SendOptions::default()).is_err() {
            if self.stage.world.now() >= end {
                self.stage.book.held_back(self.stage.id(host), group);
                break;
            }
            self.run_for(Duration::from_secs(1));
        }
        self.stage.take_events();
    }

    fn run_for(&mut self, span: Duration) {
        self.run_until(self.stage.world.now() + span);
    }

    fn run_until(&mut self, end: Time) {
        self.stage.run_until(end);
        for host in self.stage.world.topology().all_hosts() {
            if let Some(member) = self.stage.member(host) {
                let bytes = member.engine().held_bytes();
                self.stage.book.keeps(bytes, self.setup.limit_bytes());
            }
        }
    }
}

impl Book for Ledger {
    fn born(&mut self, node: NodeId) {
        Ledger::born(self, node);
    }

    fn died(&mut self, node: NodeId) {
        Ledger::died(self, node);
    }

    fn joined(&mut self, now: Time, node: NodeId, group: GroupId) {
        Ledger::joined(self, now, node, group);
    }

    fn left(&mut self, now: Time, node: NodeId, group: GroupId) {
        Ledger::left(self, now, node, group);
    }

    fn told(&mut self, now: Time, node: NodeId, event: Event) {
        Ledger::told(self, now, node, event);
    }

    fn acknowledged_unstored(&mut self, group: GroupId, node: NodeId) {
        Ledger::acknowledged_unstored(self, group, node);
    }
}

/// Returns the source of a run's randomness, apart from the scenario's. The protocol's settings are
/// drawn from it first.
pub(super) fn setup_rng(seed: u64) -> Rng {
    Rng::new(seed ^ 0x91a7)
}

/// Time in which all members hear from each other twice: heartbeats are at most 6.4 s apart, and a
/// jump of the numbers is accepted the second time.
const SETTLE_WITHIN: Duration = Duration::from_secs(15);
/// Loss that remains in a healed network, to exercise repairs and requests.
const USUAL_LOSS: Loss = Loss::Uniform(0.03);
/// Minimum time for which this loss lasts after the last message.
const LOSSY_FOR: Duration = Duration::from_secs(1);
/// Number of messages that every member sends in each of its groups in the healed world.
const LAST_WORDS: u32 = 3;
/// Time after the faults in which the views of gossiping members agree. A failed member is probed
/// repeatedly, and its state takes time to spread.
const AGREE_WITHIN: Duration = Duration::from_secs(40);
/// Maximum time until confirmations.
const CONFIRM_WITHIN: Duration = Duration::from_secs(15);
/// Time in which missing packets are given up: the default of ten seconds, with a margin.
const GIVE_UP_WITHIN: Duration = Duration::from_secs(12);
