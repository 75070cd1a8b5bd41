use alloc::vec::Vec;
use core::time::Duration;

use super::token_loss::TokenPass;
use crate::NodeId;
use crate::ring::{Epoch, ListChange, ListChangeKind, Process, Timestamp};
use crate::rmp::context::{Context, Timer};
use crate::rmp::packet::Packet;
use crate::rmp::ring::{Ring, Round, Run, What};

#[derive(Debug, Default)]
pub(super) struct Token {
    pub(super) pass: TokenPass,
    /// Place of the round that passed a token which this member has accepted but not yet confirmed.
    unconfirmed: Option<Timestamp>,
    batch: Batch,
    /// `true` if this member must acknowledge the token with a round, as a joiner or as the
    /// initiator of a reformation.
    pub(super) owes_round: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    packets: usize,
    is_due: bool,
}

impl Token {
    pub(super) fn new(owes_round: bool) -> Self {
        Self { owes_round, ..Self::default() }
    }

    pub(super) fn on_reformed(&mut self, cx: &mut Context<'_>) {
        self.pass.forget(cx);
        (self.unconfirmed, self.batch) = (None, Batch::default());
        for timer in [Timer::Idle, Timer::Batch, Timer::Confirm] {
            cx.cancel(timer);
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.batch.is_due || self.owes_round
    }

    pub(super) fn on_batch_timer(&mut self) {
        self.batch.is_due = true;
    }

    // A member waits to join or leave if `changes_wait`. Returns `true` if an ACK was sent.
    pub(super) fn take_turn(
        &mut self,
        cx: &mut Context<'_>,
        ring: &mut Ring,
        turn: Turn,
        changes_wait: bool,
    ) -> bool {
        let Turn { runs, may_wait, is_ready } = turn;
        if is_ready || self.owes_round {
            self.send_ack(cx, ring, runs);
            return true;
        }
        if may_wait {
            let packets: usize = runs.iter().map(|run| usize::from(run.count)).sum();
            if packets > self.batch.packets {
                self.batch.packets = packets;
                cx.set(Timer::Batch, cx.config.batch_delay);
            }
        } else if ring.view().len() > 1 && (changes_wait || ring.waits_for_passes()) {
            self.send_ack(cx, ring, Vec::new());
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

    pub(super) fn send_ack(&mut self, cx: &mut Context<'_>, ring: &mut Ring, runs: Vec<Run>) {
        let next = ring.view().after(ring.me());
        self.send(cx, ring, What::Order(runs), next);
    }

    /// Sends a New List. If `keeps_token`, a list of lock changes does not pass the token, because
    /// the ACK of the waiting messages follows immediately.
    pub(super) fn send_list(
        &mut self,
        cx: &mut Context<'_>,
        ring: &mut Ring,
        changes: Vec<ListChange>,
        keeps_token: bool,
    ) {
        let view = ring.view();
        let after = view.after(ring.me());
        let next = match changes[..] {
            [ListChange { kind: ListChangeKind::Join { member, .. }, .. }] => member.process,
            [ListChange { kind: ListChangeKind::Leave, process, .. }] if process == after => {
                view.after(after)
            }
            [ListChange { kind: ListChangeKind::Leave, .. }] => after,
            _ if keeps_token => ring.me(),
            _ => after,
        };
        self.send(cx, ring, What::List(changes), next);
    }

    fn send(&mut self, cx: &mut Context<'_>, ring: &mut Ring, what: What, next: Process) {
        let (me, epoch) = (ring.me(), ring.epoch());
        let round = Round { at: ring.log().next(), site: me, next, what };
        cx.counters.rounds_sent += 1;
        cx.counters.nulls_sent += u64::from(round.is_null());
        if ring.view().len() > 1 || next != me {
            cx.multicast(&Packet::of_round(epoch, &round));
        }
        self.owes_round = false;
        if next != me {
            self.pass.begin(cx, epoch, &round);
        }
        ring.offer(round);
    }

    pub(super) fn on_applied(&mut self, cx: &mut Context<'_>, me: Process, round: &Round) -> bool {
        let is_accepted = self.pass.on_applied(cx, round);
        self.unconfirmed = (round.next == me && round.site != me).then_some(round.at);
        self.batch = Batch::default();
        for timer in [Timer::Batch, Timer::Idle, Timer::Confirm] {
            cx.cancel(timer);
        }
        is_accepted
    }

    pub(super) fn on_confirm_timer(&mut self, cx: &mut Context<'_>, ring: &Ring) {
        let Some(at) = self.unconfirmed.take() else { return };
        if let Some(round) = ring.log().at(at) {
            send_confirm(cx, round.site.node, ring.epoch(), at);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct TokenDelay {
    pub(crate) by: Duration,
    pub(super) has_waited: bool,
}

impl TokenDelay {
    pub(super) fn holds_token(&self, cx: &mut Context<'_>) -> bool {
        let is_held = !self.by.is_zero() && !self.has_waited;
        if is_held {
            cx.set_no_later(Timer::Slow, self.by);
        }
        is_held
    }

    pub(super) fn restart(&mut self, cx: &mut Context<'_>) {
        self.has_waited = false;
        cx.cancel(Timer::Slow);
    }
}

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) runs: Vec<Run>,
    pub(super) may_wait: bool,
    pub(super) is_ready: bool,
}

pub(super) fn send_confirm(cx: &mut Context<'_>, site: NodeId, epoch: Epoch, at: Timestamp) {
    cx.counters.confirms_sent += 1;
    cx.unicast(site, &Packet::Confirm { epoch, at });
}
