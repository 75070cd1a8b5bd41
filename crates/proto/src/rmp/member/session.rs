use alloc::vec::Vec;

use super::nack::Nacks;
use super::own_changes::OwnChanges;
use super::reformation::{Reformation, Verdict};
use super::token::{Token, Turn, send_confirm};
use super::token_loss::PassTimeout;
use super::view_change::ViewChanges;
use crate::ring::{Epoch, ListChange, ListChangeKind, Process};
use crate::rmp::context::{Context, Timer};
use crate::rmp::packet::{NewList, Packet};
use crate::rmp::ring::{Arrival, Delivery, Proposal, Ring, Round, Snapshot};
use crate::rmp::rpc::Server;
use crate::{NodeId, SeqNo};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) ring: Ring,
    pub(super) token: Token,
    pub(super) nacks: Nacks,
    pub(super) changes: ViewChanges,
    pub(super) reformation: Reformation,
}

impl Session {
    pub(super) fn new(ring: Ring) -> Self {
        Self {
            token: Token::new(ring.view().len() > 1),
            nacks: Nacks::default(),
            changes: ViewChanges::default(),
            reformation: Reformation::of(ring.epoch()),
            ring,
        }
    }

    pub(crate) fn is_working(&self) -> bool {
        self.reformation.is_idle() && self.ring.shortage().is_none()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.ring.snapshot(self.reformation.is_idle())
    }

    pub(super) fn send_snapshot(&self, cx: &mut Context<'_>, server: &Server, to: NodeId) {
        let mut snapshot = self.snapshot();
        if snapshot.view.process_of(to).is_some() {
            // No life of that node may enter the ring with an incomplete snapshot.
            snapshot.seen = server.seen_for_joiner(&self.ring);
        } else {
            snapshot.sources.clear();
            snapshot.guests.clear();
        }
        cx.unicast(to, &Packet::NewList(NewList::Whole(snapshot)));
    }

    // Any member could announce the ring, but only the token site does.
    pub(super) fn announce(&self, cx: &mut Context<'_>, server: &Server, to: &[NodeId]) {
        if self.ring.token() == self.ring.me() && self.reformation.is_idle() {
            for stranger in to {
                cx.counters.notices_sent += 1;
                self.send_snapshot(cx, server, *stranger);
            }
        }
    }

    // `tries` queries of the node have had no answer.
    pub(super) fn answers_query(&self, tries: u32) -> bool {
        let (view, me) = (self.ring.view(), self.ring.me());
        let is_first = view.processes().next() == Some(me);
        let is_on_duty = is_first || self.ring.token() == me;
        view.contains(me) && (is_on_duty || !self.reformation.is_idle() || tries >= 2)
    }

    // The token site answers a joiner, and so do two other members on average. If all members
    // answered each of many joiners, there would be too many answers.
    pub(super) fn answers_joiner(&self, cx: &mut Context<'_>) -> bool {
        self.ring.token() == self.ring.me()
            || cx.rng.below(self.ring.view().len()) < JOINERS_ANSWERED_BY
    }

    // A member that has accepted the list of a reformation applies no rounds.
    pub(super) fn apply_next(&mut self, cx: &mut Context<'_>) -> Option<Round> {
        if self.reformation.has_accepted() {
            return None;
        }
        self.ring.apply_next(&mut cx.counters.rounds_impossible)
    }

    pub(super) fn on_applied(&mut self, cx: &mut Context<'_>, round: &Round) -> bool {
        self.nacks.on_applied(cx);
        self.changes.on_list(round);
        self.token.on_applied(cx, self.ring.me(), round)
    }

    // Packets that arrive after a list was accepted are not part of it. They wait for their places,
    // so that all members that continue with the list have delivered the same messages.
    pub(super) fn deliver(&mut self, arrived: Option<(Process, SeqNo)>) -> Vec<Delivery> {
        let arrived = arrived.filter(|_| !self.reformation.has_accepted());
        self.ring.deliver(arrived)
    }

    pub(super) fn has_turn(&self) -> bool {
        self.ring.token() == self.ring.me()
            && self.reformation.is_idle()
            && !self.ring.log().has_early()
            && self.ring.sources().are_whole()
    }

    /// Returns the packets to order, the changes to make, and the nodes whose join was refused.
    pub(super) fn begin_turn(
        &mut self,
        cx: &mut Context<'_>,
    ) -> (Turn, Vec<ListChange>, Vec<NodeId>) {
        let (limit, max_runs) = (cx.timing.batch(cx.config), cx.config.max_runs());
        let (runs, may_wait) = self.ring.orderable(limit, max_runs);
        let is_ready = !runs.is_empty() && (!may_wait || self.token.is_due());
        let me = self.ring.me();
        let is_own_list = |it: &Round| it.is_list() && it.site == me && it.next == me;
        let has_listed = self.ring.log().last().is_some_and(is_own_list);
        // View changes and messages must not block each other, so a turn serves both.
        let (changes, refused) = if is_ready && has_listed {
            (Vec::new(), Vec::new())
        } else {
            self.changes.next(cx, &self.ring)
        };
        (Turn { runs, may_wait, is_ready }, changes, refused)
    }

    pub(super) fn take_turn(
        &mut self,
        cx: &mut Context<'_>,
        turn: Turn,
        changes: Vec<ListChange>,
    ) -> bool {
        if !changes.is_empty() {
            self.token.send_list(cx, &mut self.ring, changes, turn.is_ready);
            return true;
        }
        let changes_wait = self.changes.has_of_members();
        self.token.take_turn(cx, &mut self.ring, turn, changes_wait)
    }

    pub(super) fn on_round(&mut self, cx: &mut Context<'_>, sender: NodeId, round: Round) -> bool {
        let (at, next) = (round.at, round.next);
        match self.ring.offer(round) {
            Arrival::New => return true,
            // The sender repeats the round because it has no report that the token was accepted.
            Arrival::Duplicate if next == self.ring.me() && at < self.ring.log().next() => {
                send_confirm(cx, sender, self.ring.epoch(), at);
            }
            Arrival::Duplicate => {}
            Arrival::TooFar => cx.counters.rounds_too_far += 1,
        }
        false
    }

    pub(super) fn on_pass_timer(&mut self, cx: &mut Context<'_>, server: &Server, is_out: bool) {
        if !self.reformation.is_idle() {
            return;
        }
        match self.token.pass.on_timer(cx, &self.ring, is_out) {
            None => {}
            Some(PassTimeout::Lost) => self.suspect(cx, "the token was not accepted"),
            Some(PassTimeout::Repeat(round)) => {
                if let Some(joiner) = round.joiner() {
                    self.send_snapshot(cx, server, joiner.process.node);
                }
                self.token.pass.repeat(cx, &self.ring, &round);
            }
        }
    }

    pub(super) fn on_token_timer(&mut self, cx: &mut Context<'_>, timer: Timer) {
        match timer {
            Timer::Batch => self.token.on_batch_timer(),
            Timer::Confirm => self.token.on_confirm_timer(cx, &self.ring),
            _ if self.has_turn() && !self.ring.is_quiet() => {
                self.token.send_ack(cx, &mut self.ring, Vec::new());
            }
            _ => {}
        }
    }

    pub(super) fn set_nack_timer(&mut self, cx: &mut Context<'_>) {
        if !self.reformation.is_idle() {
            return cx.cancel(Timer::Ask);
        }
        self.nacks.set_timer(cx, &self.ring, self.changes.has_of_members());
    }

    pub(super) fn on_nack_timer(&mut self, cx: &mut Context<'_>) {
        if self.reformation.is_idle() && !self.nacks.on_timer(cx, &self.ring) {
            self.suspect(cx, "a missing packet was not retransmitted");
        }
    }

    pub(super) fn on_heard(&mut self, node: NodeId) {
        // A member that passes the token knows of no later token site until the pass is accepted.
        if self.ring.token().node == node {
            self.token.pass.on_next_heard();
        }
        self.nacks.on_heard(&self.ring, node);
    }

    pub(super) fn is_current(&mut self, cx: &mut Context<'_>, change: ListChange) -> bool {
        let process = change.process;
        let later = self.ring.view().process_of(process.node).filter(|it| it.follows(process));
        let is_old = later.is_some() || self.ring.is_over(process);
        if is_old && matches!(change.kind, ListChangeKind::Join { .. }) {
            cx.counters.foreign += 1;
            return false;
        }
        self.changes.enter_life(process)
    }

    pub(super) fn on_change_request(
        &mut self,
        cx: &mut Context<'_>,
        server: &Server,
        change: ListChange,
    ) -> Verdict {
        let (process, token) = (change.process, self.ring.token());
        if token.node == process.node && token != process && !token.follows(process) {
            // A quiet ring does not wait for the token, and no other member can take it.
            self.suspect(cx, "the token site has restarted");
        }
        let view = self.ring.view();
        let is_in = view.contains(process);
        if matches!(change.kind, ListChangeKind::Join { .. }) {
            if is_in {
                // The New List was lost on its way to the joiner, which has the token.
                if token == process {
                    self.send_snapshot(cx, server, process.node);
                }
                return Verdict::Pending;
            }
        } else if view.process_of(process.node).is_some_and(|it| process.follows(it)) {
            return Verdict::Pending;
        } else if !is_in {
            return Verdict::Stranger(process.node);
        }
        cx.counters.requests_refused += u64::from(!self.changes.insert(change));
        Verdict::Advance
    }

    pub(super) fn lets_joiners_wait(&self) -> bool {
        !self.ring.standings().may_change_members()
            || !self.reformation.is_idle()
            || self.changes.len() > 1
    }

    pub(super) fn request_change(&mut self, cx: &mut Context<'_>, own: &mut OwnChanges) {
        own.request(cx, &self.ring, &mut self.changes);
    }

    pub(super) fn on_request_timer(
        &mut self,
        cx: &mut Context<'_>,
        own: &mut OwnChanges,
        is_leaving: bool,
    ) -> bool {
        if !self.reformation.is_idle() {
            cx.set(Timer::Request, cx.timing.longest(cx.config));
            return false;
        }
        let is_repeated = own.on_timer(cx, &self.ring, &mut self.changes, is_leaving);
        if !is_repeated {
            self.suspect(cx, "a request was not answered");
        }
        is_repeated
    }

    /// Begins a reformation (4.4), unless one is in progress or this member is alone.
    pub(super) fn suspect(&mut self, cx: &mut Context<'_>, why: &'static str) {
        if self.reformation.is_idle() && self.ring.view().len() > 1 {
            tracing::info!(me = ?self.ring.me(), group = %cx.group, why, "starts a reformation");
            self.reformation.initiate(cx, &self.ring);
        }
    }

    // `lost` must contain all voters that the ring lacks.
    pub(super) fn on_force_quorum(
        &mut self,
        cx: &mut Context<'_>,
        sender: NodeId,
        epoch: Epoch,
        lost: Vec<NodeId>,
    ) {
        let is_named = self.ring.epoch() == epoch && !lost.contains(&cx.node);
        if !is_named || self.is_working() || self.ring.view().electorate().is_none() {
            cx.counters.forces_refused += 1;
            return;
        }
        if self.reformation.force(lost.clone()) {
            let (me, group) = (self.ring.me(), cx.group);
            tracing::warn!(?me, %group, ?sender, ?lost, "a quorum is forced");
            cx.cancel(Timer::Recovery);
            self.reformation.initiate(cx, &self.ring);
        }
    }

    pub(super) fn form(&mut self, cx: &mut Context<'_>, proposal: Proposal) {
        for (source, message) in self.ring.form(&proposal) {
            cx.give_up(source, message);
        }
        cx.version = self.ring.epoch().version;
        cx.counters.reformations_done += 1;
        self.reformation.on_formed(proposal);
        self.token.on_reformed(cx);
        cx.cancel(Timer::Recovery);
    }
}

const JOINERS_ANSWERED_BY: usize = 2;
