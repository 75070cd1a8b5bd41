//! Departure from a ring (4.3): on request, or to join a larger ring.

use crate::NodeId;
use crate::ring::{Epoch, Timestamp};
use crate::rmp::context::{Context, Timer};
use crate::rmp::packet::Packet;
use crate::rmp::ring::{FormerRing, Ring};
use crate::rmp::sender::Sender;

#[derive(Debug, Default)]
pub(crate) struct Departure {
    pub(crate) is_leaving: bool,
    pub(super) is_requested: bool,
    pub(super) merging: Option<Epoch>,
    pub(crate) is_over: bool,
    /// Kept until a view of another ring is delivered.
    pub(super) former: Option<FormerRing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    No,
    Alone,
    Request,
}

impl Departure {
    pub(super) fn is_going(&self) -> bool {
        self.is_requested || self.merging.is_some()
    }

    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    pub(super) fn is_out(&self, ring: &Ring) -> bool {
        self.is_leaving && !ring.view().contains(ring.me())
    }

    /// Returns the next step. A leaving member waits until all of its messages have places. A
    /// member that moves to a larger ring waits only for those that it has sent, because some may
    /// have been delivered.
    pub(super) fn next_step(&mut self, ring: &Ring, sender: &Sender) -> Release {
        let is_done = match self.is_leaving {
            true => sender.unplaced_from().is_none(),
            // Without a quorum, no message gets a place in this ring.
            false => {
                self.merging.is_some() && (sender.has_all_placed() || ring.shortage().is_some())
            }
        };
        if !is_done || self.is_over || core::mem::replace(&mut self.is_requested, true) {
            Release::No
        } else if ring.view().len() == 1 {
            self.is_over = self.is_leaving;
            Release::Alone
        } else {
            Release::Request
        }
    }

    /// Sets the time for which a released member still answers. It is longer if the member's own
    /// list releases it (`is_passing`), since the next token site may not have received that list.
    pub(super) fn on_released(&self, cx: &mut Context<'_>, ring: &Ring, is_passing: bool) {
        let members = ring.view().len();
        let mut linger = cx.timing.round(cx.config.linger, members);
        if is_passing {
            cx.set(Timer::Pass, cx.timing.pass_timeout(cx.config, 0));
            linger = linger.max(cx.timing.round(cx.config.leave_within, members));
        }
        cx.set(Timer::Linger, linger);
    }

    // The next site has the token and therefore knows of the departure.
    pub(super) fn on_pass_accepted(&self, cx: &mut Context<'_>, ring: &Ring) {
        if self.is_out(ring) {
            self.on_released(cx, ring, false);
        }
    }

    pub(super) fn answer(&self, cx: &mut Context<'_>, ring: &Ring, to: NodeId, from: Timestamp) {
        if self.is_out(ring) {
            let rounds = ring.log().range(from, ring.log().next()).take(ROUNDS_FOR_OTHERS);
            rounds.for_each(|round| cx.unicast(to, &Packet::of_round(ring.epoch(), round)));
        }
    }
}

const ROUNDS_FOR_OTHERS: usize = 32;
