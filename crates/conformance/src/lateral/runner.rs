//! Runs a scenario with engines of any protocol, first with faults and then healed.

use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use carom_proto::loss::Loss;
use carom_proto::{Engine, GroupId, GroupSettings, PacketId, Rng, SendError, SendOptions, Time};
use carom_sim::scenario::{Runner, Scenario, Violation};
use carom_sim::{Command, Fault, HostIx, Media, Member, World};

use super::checkers;
use super::history::History;
use super::scenario::{Action, is_deceived};
use super::setup::Setup;
use crate::harness::{Harness, Kit, Start};
use crate::memory::retain_memory;
use crate::participants::{Participants, Views};
use crate::providers::{Resident, service};
use crate::recovery::{AGREE_WITHIN, LAST_MESSAGES, LOSSY_FOR, USUAL_LOSS};
use crate::step::Step;

pub struct EngineRunner {
    setup: Rc<Setup>,
    views: Views,
    is_deceived: bool,
    harness: Harness<dyn Engine, History>,
    messages: u64,
}

impl Kit<dyn Engine> for Rc<Setup> {
    fn engine(&self, start: &Start, seed: u64) -> Box<dyn Engine> {
        (self.engine)(start.origin, seed)
    }

    fn group(&self, name: &str) -> GroupSettings {
        GroupSettings::new(name, self.profile)
    }
}

impl EngineRunner {
    pub(super) fn new(
        setup: Setup,
        scenario: &Scenario<Participants, Step<Action>>,
        media: Option<Arc<dyn Media>>,
        rng: Rng,
    ) -> Self {
        let Scenario { participants, steps, .. } = scenario;
        let setup = Rc::new(setup);
        let kit = Rc::clone(&setup);
        let history = History::new(setup.owed_from);
        let distinguishes_starts = setup.distinguishes_starts;
        let mut harness =
            Harness::of_participants(participants, distinguishes_starts, kit, history, media, rng);
        if setup.forge.is_some() {
            harness.expect_attacks();
        }
        let is_deceived = is_deceived(steps);
        Self { setup, views: participants.views, is_deceived, harness, messages: 0 }
    }

    fn confirm(&mut self, host: HostIx, group: GroupId) {
        self.harness.world.command(host, Command::Confirm(group).into());
    }

    fn send(
        &mut self,
        host: HostIx,
        group: GroupId,
        bytes: usize,
        options: SendOptions,
    ) -> Result<(), SendError> {
        if !self.harness.can_use(host, group) {
            return Ok(());
        }
        self.messages += 1;
        let mut payload = self.messages.to_be_bytes().to_vec();
        payload.resize(bytes.clamp(8, self.setup.most_bytes), self.messages as u8);
        let bytes = payload.clone().into();
        let sent = self.harness.with(host, |member, now| member.send(now, group, bytes, options));
        let seqno = sent.unwrap_or(Err(SendError::NotJoined))?;
        let id = PacketId { sender: self.harness.id(host), group, seqno };
        self.harness.record.sent(self.harness.world.now(), id, payload, options.deadline.is_some());
        Ok(())
    }

    fn note_service(&mut self) {
        let Some(services) = &self.harness.services else { return };
        services.store().check();
        let record = &mut self.harness.record;
        (record.stored, record.processes) = (Some(services.store().members()), services.count());
        record.unsettled = service::unsettled(&self.harness.world);
    }

    /// Waits for operations from before the faults ended, and for views without a roster to agree.
    fn settle(&mut self) {
        self.run_for(SETTLE_WITHIN);
        if !self.views.is_roster() {
            self.harness.record.healed(self.harness.world.now(), self.setup.delivers_all);
            let end = self.harness.world.now() + AGREE_WITHIN;
            self.note_service();
            while !checkers::do_views_agree(&self.harness.record) && self.harness.world.now() < end
            {
                self.run_for(Duration::from_millis(500));
                self.note_service();
            }
        }
    }

    fn send_last(&mut self, host: HostIx, group: GroupId) {
        let end = self.harness.world.now() + self.setup.patience;
        while self.send(host, group, 20, SendOptions::default()).is_err() {
            if self.harness.world.now() >= end {
                self.harness.record.held_back.push((self.harness.id(host), group));
                break;
            }
            self.run_for(Duration::from_secs(1));
        }
        self.harness.take_events();
    }
}

impl Runner for EngineRunner {
    type Step = Step<Action>;
    type Record = History;
    type Machine = Resident<Member<dyn Engine>>;

    fn world(&mut self) -> &mut World<Self::Machine> {
        &mut self.harness.world
    }

    fn run_until(&mut self, end: Time) {
        self.harness.run_until(end);
        let bytes = self.harness.most_held_bytes();
        self.harness.record.memory.note(bytes, self.setup.limit_bytes);
    }

    fn execute(&mut self, step: &Step<Action>) {
        match step {
            Step::Act(Action::Send { host, group, count, bytes, deadline }) => {
                for _ in 0..*count {
                    let options = SendOptions { deadline: *deadline, qos: None };
                    _ = self.send(*host, *group, *bytes, options);
                }
            }
            Step::Act(Action::Confirm(host, group)) => self.confirm(*host, *group),
            Step::Forge(host, count, forgery) => {
                let forge = self.setup.forge;
                let craft = |rng: &mut Rng, heard: &[u8]| forge.and_then(|it| it(rng, heard));
                self.harness.forge(*host, (*count, *forgery), &craft);
            }
            _ => self.harness.execute(step),
        }
        self.harness.take_events();
    }

    fn recover(&mut self) {
        self.harness.heal();
        self.settle();
        self.harness.record.healed(self.harness.world.now(), self.setup.delivers_all);
        self.harness.lose(USUAL_LOSS);
        let members = self.harness.members();
        for _ in 0..LAST_MESSAGES {
            for (host, group) in &members {
                self.send_last(*host, *group);
            }
        }
        let asking = if self.setup.confirms { &members[..] } else { &[] };
        for (host, group) in asking {
            self.harness.record.awaits(self.harness.id(*host), *group);
            self.confirm(*host, *group);
        }
        // Packets in flight are lost on arrival, so the loss must last until they have arrived.
        self.run_for(LOSSY_FOR);
        self.wait(CONFIRM_WITHIN - LOSSY_FOR, |runner| runner.harness.record.is_all_confirmed());
        self.harness.lose(Loss::None);
        if !self.setup.delivers_all {
            // A missing packet is given up a fixed time after its loss is detected. A link that
            // drops one announcement after another could delay the detection forever, because a
            // burst of losses is counted in datagrams, and therefore lasts long where few are sent.
            self.harness.world.apply(&Fault::LinkLoss(Loss::None));
        }
        self.run_for(GIVE_UP_WITHIN);
        self.note_service();
        for host in self.harness.world.topology().all_hosts() {
            let Some(member) = self.harness.member(host) else { continue };
            if let Some(promise) = (self.setup.broken_promise)(&member.engine().stats()) {
                self.harness.record.broken.push((self.harness.id(host), promise));
            }
        }
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

/// Time in which all members hear from each other twice. Heartbeats are at most 6.4 s apart, and a
/// jump of the sequence numbers is accepted when it is seen a second time.
const SETTLE_WITHIN: Duration = Duration::from_secs(15);
const CONFIRM_WITHIN: Duration = Duration::from_secs(15);
/// Time in which missing packets are given up: the default of ten seconds, with a margin.
const GIVE_UP_WITHIN: Duration = Duration::from_secs(12);
