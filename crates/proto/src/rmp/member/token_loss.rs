//! Loss of the token: a pass that is not accepted (4.2, 4.4).
//!
//! A member passes the token with a round. It repeats the round until the next token site accepts
//! it, with a round of its own or with a Confirm. If nothing is heard from that site during all
//! tries, the token is lost, and the member begins a [reformation](super::reformation). The other
//! members wait for the next round ([`nack`](super::nack)) and then do the same.

use crate::ring::{Epoch, Timestamp};
use crate::rmp::context::{Context, Timer};
use crate::rmp::packet::Packet;
use crate::rmp::ring::{Ring, Round};

#[derive(Debug, Default)]
pub(super) struct TokenPass {
    pub(super) round: Option<Timestamp>,
    tries: u32,
    /// Number of tries since the next token site was last heard.
    silent_tries: u32,
}

#[derive(Debug)]
pub(super) enum PassTimeout {
    Repeat(Round),
    Lost,
}

impl TokenPass {
    pub(super) fn begin(&mut self, cx: &mut Context<'_>, epoch: Epoch, round: &Round) {
        (self.round, self.tries, self.silent_tries) = (Some(round.at), 0, 0);
        cx.timing.on_passed(cx.now, epoch, round.at, round.next);
        cx.set(Timer::Pass, cx.timing.pass_timeout(cx.config, 0));
    }

    pub(super) fn forget(&mut self, cx: &mut Context<'_>) {
        self.round = None;
        cx.cancel(Timer::Pass);
    }

    pub(super) fn on_applied(&mut self, cx: &mut Context<'_>, round: &Round) -> bool {
        let is_accepted = self.round.is_some_and(|at| round.at > at);
        if is_accepted {
            self.on_accepted(cx);
        }
        is_accepted
    }

    pub(super) fn on_confirm(&mut self, cx: &mut Context<'_>, at: Timestamp) -> bool {
        let is_accepted = self.round == Some(at);
        if is_accepted {
            self.on_accepted(cx);
        }
        is_accepted
    }

    // The next token site is alive, but may still lack packets that the round orders.
    pub(super) fn on_next_heard(&mut self) {
        self.silent_tries = 0;
    }

    fn on_accepted(&mut self, cx: &mut Context<'_>) {
        self.forget(cx);
        cx.timing.on_accepted(cx.now, cx.config);
    }

    // A member that has left (`is_out`) never gives up.
    pub(super) fn on_timer(
        &mut self,
        cx: &Context<'_>,
        ring: &Ring,
        is_out: bool,
    ) -> Option<PassTimeout> {
        let at = self.round?;
        self.tries += 1;
        self.silent_tries += 1;
        if self.silent_tries > cx.config.tries && !is_out {
            return Some(PassTimeout::Lost);
        }
        Some(PassTimeout::Repeat(ring.log().at(at)?.clone()))
    }

    pub(super) fn repeat(&self, cx: &mut Context<'_>, ring: &Ring, round: &Round) {
        cx.counters.rounds_resent += 1;
        cx.unicast(round.next.node, &Packet::of_round(ring.epoch(), round));
        cx.timing.on_passed_again(cx.now);
        cx.set(Timer::Pass, cx.timing.pass_timeout(cx.config, self.tries));
    }
}
