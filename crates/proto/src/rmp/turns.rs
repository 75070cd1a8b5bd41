//! The token: turns, rounds of this member, and requests for missing packets (4.2).

use alloc::vec::Vec;

use super::around::{Around, Timer};
use super::group::Group;
use super::log::{ListChange, ListChangeKind, Offered, Round, What};
use super::names::{Epoch, Process, Timestamp};
use super::packet::{Nack, NewList, Packet};
use super::repairs::Repair;
use super::ring::Lacks;
use crate::{NodeId, SeqNo};

/// Packets that the token site could order and that wait for more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    /// Number of packets when the last of them arrived.
    pub(super) packets: usize,
    /// `true` if no packet has arrived for `batch_delay`.
    pub(super) is_due: bool,
}

impl Batch {
    /// Lets `packets` packets wait until no more arrive for `batch_delay`.
    pub(super) fn wait(&mut self, cx: &mut Around<'_>, packets: usize) {
        if packets > self.packets {
            self.packets = packets;
            cx.set(Timer::Batch, cx.config.batch_delay);
        }
    }
}

impl Group {
    /// Returns `true` if this member is to send the next round.
    fn has_turn(&self) -> bool {
        let Some(ring) = &self.ring else { return false };
        let is_free = self.reforming.is_idle() && !self.is_over;
        ring.token() == self.me && is_free && !ring.log().has_early() && ring.is_whole()
    }

    /// Sends a round if it is this member's turn and the round has content. Returns `true` if it
    /// has sent one.
    pub(super) fn take_turn(&mut self, cx: &mut Around<'_>) -> bool {
        if !self.has_turn() {
            return false;
        }
        if !self.slowness.is_zero() && !self.has_waited {
            cx.set_no_later(Timer::Slow, self.slowness);
            return false;
        }
        if self.ends_alone(cx) {
            return false;
        }
        let Some(ring) = &self.ring else { return false };
        let (runs, may_wait) = ring.orderable(self.pace.batch(cx.config), cx.config.max_runs());
        let is_ready = !runs.is_empty() && (!may_wait || self.batch.is_due || self.must_speak);
        // View changes and messages never wait for all of the other: a turn serves both.
        if !(is_ready && self.has_listed()) {
            let changes = self.next_changes(cx);
            if !changes.is_empty() {
                self.say_list(cx, changes, is_ready);
                return true;
            }
        }
        let Some(ring) = &self.ring else { return false };
        if is_ready || self.must_speak {
            self.say(cx, What::Order(runs));
            return true;
        }
        if may_wait {
            self.batch.wait(cx, runs.iter().map(|run| usize::from(run.count)).sum());
        }
        let has_others = ring.view().len() > 1;
        let is_awaited = ring.waits_for_passes() || self.waits_to_change_members();
        if has_others && is_awaited && !may_wait {
            self.say(cx, What::Order(Vec::new()));
            return true;
        }
        if !ring.is_quiet() {
            cx.set_no_later(Timer::Idle, cx.config.idle_after);
        }
        if self.unconfirmed.is_some() {
            cx.set_no_later(Timer::Confirm, cx.config.confirm_after);
        }
        false
    }

    /// Returns `true` if this member has sent a New List in this turn.
    fn has_listed(&self) -> bool {
        let last = self.ring.as_ref().and_then(|ring| ring.log().last());
        last.is_some_and(|round| round.is_list() && round.site == self.me && round.next == self.me)
    }

    /// Returns `true` if a member waits to join or to leave. The token has to go round before that
    /// is possible.
    fn waits_to_change_members(&self) -> bool {
        self.requests.has_of_members()
    }

    /// Sends a New List. The token stays here if messages wait, because their ACK follows at once.
    fn say_list(&mut self, cx: &mut Around<'_>, changes: Vec<ListChange>, keeps_token: bool) {
        let Some(view) = self.ring.as_ref().map(|ring| ring.view()) else { return };
        let after = view.after(self.me);
        let next = match changes[..] {
            [ListChange { kind: ListChangeKind::Join { member, .. }, .. }] => member.process,
            [ListChange { kind: ListChangeKind::Leave, process, .. }] if process == after => {
                view.after(after)
            }
            [ListChange { kind: ListChangeKind::Leave, .. }] => after,
            _ if keeps_token => self.me,
            _ => after,
        };
        self.say_to(cx, What::List(changes), next);
    }

    fn say(&mut self, cx: &mut Around<'_>, what: What) {
        let Some(ring) = &self.ring else { return };
        let next = ring.view().after(self.me);
        self.say_to(cx, what, next);
    }

    /// Multicasts a round of this member. It is applied like any other.
    fn say_to(&mut self, cx: &mut Around<'_>, what: What, next: Process) {
        let Some(ring) = &mut self.ring else { return };
        let round = Round { at: ring.log().next(), site: self.me, next, what };
        cx.counters.rounds_sent += 1;
        cx.counters.nulls_sent += u64::from(round.is_null());
        let epoch = ring.view().epoch;
        if ring.view().len() > 1 || next != self.me {
            cx.multicast(&round_packet(epoch, &round));
        }
        self.must_speak = false;
        if next != self.me {
            self.passed = Some(round.at);
            self.tries.pass = 0;
            self.pace.on_passed(cx.now, epoch, round.at, next);
            cx.set(Timer::Pass, self.pace.pass_timeout(cx.config, 0));
        }
        ring.offer(round);
    }

    /// Returns `false` if a sender that is not in the ring repeats a packet of another node.
    pub(super) fn may_say(&self, sender: NodeId, packet: &Packet) -> bool {
        let author = match packet {
            Packet::Data(data) => data.source,
            Packet::Ack { round, .. } | Packet::NewList(NewList::Change { round, .. }) => {
                round.site
            }
            _ => return true,
        };
        let Some(ring) = &self.ring else { return true };
        author.node == sender || ring.view().process_of(sender).is_some()
    }

    pub(super) fn on_round_packet(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        epoch: Epoch,
        round: Round,
    ) {
        cx.counters.rounds_received += 1;
        if self.epoch() != Some(epoch) {
            if round.site.node == sender {
                self.pace.on_late_answer(cx.now, epoch, round.at, sender);
            }
            self.on_other_epoch(cx, sender, epoch);
        }
        // Many members detect by the first round of a new ring that its list holds.
        let Some(ring) = self.ring.as_mut().filter(|ring| ring.view().epoch == epoch) else {
            return;
        };
        let (at, next) = (round.at, round.next);
        match ring.offer(round) {
            Offered::New => self.advance(cx, None),
            // The sender repeats the round because it has no report that the token was accepted.
            Offered::Known if next == self.me && at < ring.log().next() => {
                cx.counters.confirms_sent += 1;
                cx.unicast(sender, &Packet::Confirm { epoch, at });
            }
            Offered::Known => {}
            Offered::TooFar => cx.counters.rounds_too_far += 1,
        }
    }

    pub(super) fn on_confirm(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        epoch: Epoch,
        at: Timestamp,
    ) {
        if self.epoch() != Some(epoch) {
            self.pace.on_late_answer(cx.now, epoch, at.plus(1), sender);
        }
        if self.epoch() == Some(epoch) && self.passed == Some(at) {
            self.on_pass_accepted(cx);
            self.release_placed(cx);
            self.advance(cx, None);
        }
    }

    /// Handles the acceptance of the token by the next token site.
    pub(super) fn on_pass_accepted(&mut self, cx: &mut Around<'_>) {
        self.passed = None;
        cx.cancel(Timer::Pass);
        self.pace.on_accepted(cx.now, cx.config);
        self.on_leave_known(cx);
    }

    pub(super) fn on_pass_timer(&mut self, cx: &mut Around<'_>) {
        let (Some(at), Some(ring)) = (self.passed, &self.ring) else { return };
        if !self.reforming.is_idle() {
            return;
        }
        self.tries.pass += 1;
        if self.tries.pass > cx.config.tries && !self.is_out() {
            return self.suspect(cx, "the token was not accepted");
        }
        let epoch = ring.view().epoch;
        let Some(round) = ring.log().range(at, at.plus(1)).next().cloned() else { return };
        cx.counters.rounds_resent += 1;
        if let Some(member) = round.joiner() {
            self.send_snapshot(cx, member.process.node);
        }
        cx.unicast(round.next.node, &round_packet(epoch, &round));
        self.pace.on_passed_again(cx.now);
        cx.set(Timer::Pass, self.pace.pass_timeout(cx.config, self.tries.pass));
    }

    pub(super) fn on_idle_timer(&mut self, cx: &mut Around<'_>) {
        let is_quiet = self.ring.as_ref().is_none_or(|ring| ring.is_quiet());
        if self.has_turn() && !is_quiet {
            self.say(cx, What::Order(Vec::new()));
        }
        self.advance(cx, None);
    }

    pub(super) fn on_confirm_timer(&mut self, cx: &mut Around<'_>) {
        let (Some(at), Some(ring)) = (self.unconfirmed.take(), &self.ring) else { return };
        let epoch = ring.view().epoch;
        let round = ring.log().range(at, at.plus(1)).next();
        if let Some(site) = round.map(|round| round.site) {
            cx.counters.confirms_sent += 1;
            cx.unicast(site.node, &Packet::Confirm { epoch, at });
        }
    }

    /// Sets the timer for the request of missing packets and rounds.
    pub(super) fn watch_for_holes(&mut self, cx: &mut Around<'_>) {
        let Some(ring) = &self.ring else { return };
        if !self.reforming.is_idle() {
            return cx.cancel(Timer::Ask);
        }
        let lacks = ring.lacks();
        if lacks != self.lacked {
            self.tries.ask = 0;
        }
        if !lacks.is_empty() {
            let wait = match self.tries.ask {
                0 => self.pace.nack_delay(cx.config),
                tries => self.pace.timeout(cx.config, tries - 1),
            };
            if lacks.overlaps(&self.awaited) {
                cx.set_no_later(Timer::Ask, wait);
            } else {
                // Everything that the timer was set for has arrived. The packets that are missing
                // now are younger.
                cx.set(Timer::Ask, wait);
                self.awaited.clone_from(&lacks);
            }
        } else if ring.token() != self.me && (!ring.is_quiet() || self.requests.has_of_members()) {
            // The token is in flight, or a member waits for it. If no member has it any more, this
            // timer detects that.
            let is_for_token = core::mem::take(&mut self.awaited).is_empty();
            if !(is_for_token && cx.is_set(Timer::Ask)) {
                cx.set(Timer::Ask, cx.config.idle_after + self.pace.longest(cx.config));
            }
        } else {
            cx.cancel(Timer::Ask);
            self.tries.ask = 0;
            self.awaited = Lacks::default();
        }
        self.lacked = lacks;
    }

    pub(super) fn on_ask_timer(&mut self, cx: &mut Around<'_>) {
        let Some(ring) = &self.ring else { return };
        if !self.reforming.is_idle() {
            return;
        }
        self.tries.ask += 1;
        let named_tries = cx.config.tries.min(ring.view().len() as u32);
        if self.tries.ask > cx.config.tries + named_tries {
            return self.suspect(cx, "a missing packet was not retransmitted");
        }
        let mut lacks = ring.lacks();
        if lacks.is_empty() {
            // A message waits for rounds that this member has never received.
            lacks.to = Timestamp::MAX;
        }
        let asked = self.whom_to_ask(&lacks, named_tries);
        let epoch = ring.view().epoch;
        self.ask(cx, epoch, asked, lacks, true);
        cx.set(Timer::Ask, self.pace.timeout(cx.config, self.tries.ask));
    }

    /// Returns the node to request missing packets from. The first is the last known token site, or
    /// the source itself. Other members follow, one for each of `named_tries`. After that it is
    /// `None`, for any member (4.2).
    fn whom_to_ask(&self, lacks: &Lacks, named_tries: u32) -> Option<NodeId> {
        let ring = self.ring.as_ref()?;
        let early = ring.log().early().last().map(|round| round.site);
        let source = lacks.runs.first().map(|run| run.source);
        let last = early.or(source).unwrap_or(ring.token());
        let others: Vec<Process> = ring.view().processes().filter(|it| *it != self.me).collect();
        let first = others.iter().position(|other| *other == last).unwrap_or(0);
        let turn = self.tries.ask as usize - 1;
        (turn < others.len().min(named_tries as usize))
            .then(|| others[(first + turn) % others.len()].node)
    }

    /// Requests missing packets and rounds: by multicast if other members should receive the
    /// request, otherwise from one node.
    pub(super) fn ask(
        &mut self,
        cx: &mut Around<'_>,
        epoch: Epoch,
        asked: Option<NodeId>,
        lacks: Lacks,
        is_public: bool,
    ) {
        let Lacks { from, to, mut runs } = lacks;
        runs.truncate(RUNS_IN_A_NACK);
        let nack = Packet::Nack(Nack { epoch, asked, from, to, runs });
        cx.counters.nacks_sent += 1;
        match asked {
            Some(node) if !is_public => cx.unicast(node, &nack),
            _ => cx.multicast(&nack),
        }
    }

    pub(super) fn on_nack(&mut self, cx: &mut Around<'_>, sender: NodeId, nack: &Nack) {
        if self.epoch() != Some(nack.epoch) {
            return self.on_other_epoch(cx, sender, nack.epoch);
        }
        for run in nack.runs.iter().filter(|run| run.source == self.me) {
            self.sending.on_nack(run.first);
        }
        let Some(ring) = &self.ring else { return };
        if ring.view().process_of(sender).is_none() {
            return self.notify(cx, sender);
        }
        let is_asked = match nack.asked {
            Some(asked) => asked == cx.node,
            // Two members answer on average.
            None => cx.rng.below(ring.view().len()) < 2,
        };
        if !is_asked {
            return;
        }
        let rounds = ring.log().range(nack.from, nack.to).take(ROUNDS_IN_AN_ANSWER);
        let rounds: Vec<Packet> = rounds.map(|round| round_packet(nack.epoch, round)).collect();
        for round in &rounds {
            cx.counters.nacks_answered += 1;
            cx.unicast(sender, round);
        }
        let mut left = PACKETS_IN_AN_ANSWER.saturating_sub(rounds.len());
        for run in &nack.runs {
            for seqno in (0..u32::from(run.count)).map(|step| run.first.plus(step)) {
                let Some(packet) = self.packet_of(run.source, seqno).filter(|_| left > 0) else {
                    continue;
                };
                left -= 1;
                self.repair(cx, sender, (run.source, seqno), &packet);
            }
        }
    }

    fn repair(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        name: (Process, SeqNo),
        packet: &Packet,
    ) {
        let repair = self.repairs.next(cx.now, cx.config.least_timeout / 2, name);
        cx.counters.nacks_answered += u64::from(repair != Repair::Not);
        match repair {
            Repair::ToOne => cx.unicast(sender, packet),
            Repair::ToAll => cx.multicast(packet),
            Repair::Not => {}
        }
    }
}

pub(super) fn round_packet(epoch: Epoch, round: &Round) -> Packet {
    let round = round.clone();
    match round.what {
        What::Order(_) => Packet::Ack { epoch, round },
        What::List(_) => Packet::NewList(NewList::Change { epoch, round }),
    }
}

/// Maximum number of runs in a NACK. They fit one packet.
const RUNS_IN_A_NACK: usize = 64;
const ROUNDS_IN_AN_ANSWER: usize = 32;
const PACKETS_IN_AN_ANSWER: usize = 64;
