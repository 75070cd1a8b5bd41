//! Leaving a ring: on request, or because the ring continues without this member (4.3).

use core::time::Duration;

use super::around::{Around, Timer};
use super::group::Group;
use super::log::{ListChangeKind, Round};
use super::names::{Process, Timestamp};
use super::ring::{Lacks, Ring};
use super::turns::round_packet;
use super::{Removal, RingNews};
use crate::{NodeId, SeqNo};

impl Group {
    /// Begins to leave the ring. The others are requested to release this member once all messages
    /// that it has accepted have their places.
    pub(super) fn leave(&mut self, cx: &mut Around<'_>) {
        if core::mem::replace(&mut self.is_leaving, true) {
            return;
        }
        self.give_up_calls(cx);
        if self.ring.is_none() {
            self.is_over = true;
            return;
        }
        // A ring that may not continue releases no member either.
        cx.set(Timer::Linger, self.within_rounds(cx.config.leave_within));
        self.advance(cx, None);
    }

    /// Requests the release from the ring, if it is time. A leaving member waits until all its
    /// messages have places. A member that moves to a larger ring waits for the messages that it
    /// has sent, because some members may have delivered them. Returns `true` if it has requested
    /// the release now.
    pub(super) fn leave_when_done(&mut self, cx: &mut Around<'_>) -> bool {
        let is_done = match self.is_leaving {
            true => self.sending.unplaced_from().is_none(),
            // Without a quorum no message gets a place here.
            false => self.merging.is_some() && (self.sending.has_all_placed() || self.is_short()),
        };
        let Some(ring) = self.ring.as_ref().filter(|_| is_done) else { return false };
        if self.is_over || core::mem::replace(&mut self.is_leave_asked, true) {
            return false;
        }
        match ring.view().len() {
            1 => self.is_over = self.is_leaving,
            _ => self.wish(cx, ListChangeKind::Leave),
        }
        true
    }

    /// Handles the end of this member's time in the ring. A node that leaves still answers for a
    /// limited time.
    pub(super) fn on_out(&mut self, cx: &mut Around<'_>) {
        if self.is_leaving {
            self.stop_timers(cx);
            let mut linger = self.within_rounds(cx.config.linger);
            if self.passed.is_some() {
                // Its own list releases it, and the next site may not have received that list.
                cx.set(Timer::Pass, self.pace.pass_timeout(cx.config, 0));
                linger = linger.max(self.within_rounds(cx.config.leave_within));
            }
            cx.set(Timer::Linger, linger);
        } else {
            // Or the ring concluded that this life was over.
            let why = if self.merging.is_some() { Removal::Merged } else { Removal::Removed };
            self.on_removed(cx, why);
        }
    }

    /// Removes this member, because the ring continues without it. Joins again if its terms allow
    /// it.
    pub(super) fn on_removed(&mut self, cx: &mut Around<'_>, why: Removal) {
        if why == Removal::Merged && self.has_done_nothing() {
            return self.dissolve(cx);
        }
        cx.counters.removals += 1;
        self.abandon_ballot(cx);
        let unsent = self.undelivered_messages();
        tracing::info!(me = ?self.me, group = %cx.group, ?why, "removed");
        self.stop_timers(cx);
        let is_back = self.terms.rejoin && !self.is_leaving;
        self.lose_locks(cx);
        cx.tell(RingNews::Removed { why, unsent, rejoins: is_back });
        if !is_back {
            self.give_up_calls(cx);
            self.is_over = true;
            return;
        }
        *cx.lives += 1;
        let me = Process { node: self.me.node, life: *cx.lives };
        let (terms, known) = (self.terms, core::mem::take(&mut self.known));
        let (target, calling) = (self.merging, core::mem::take(&mut self.calling));
        let former = self.former.or_else(|| self.ring.as_ref().map(Ring::as_former));
        let pace = core::mem::take(&mut self.pace);
        *self = Self::new(me, terms, cx.config);
        (self.known, self.target, self.calling) = (known, target, calling);
        (self.pace, self.former) = (pace, former);
        self.elsewhere = Some(cx.now);
        self.make_all_again(cx);
        self.begin_joining(cx);
    }

    /// Returns the range of own messages that contains all those not delivered here.
    fn undelivered_messages(&self) -> Option<(SeqNo, SeqNo)> {
        let own = self.ring.as_ref().and_then(|ring| ring.stream(self.me));
        let placed = own.and_then(|stream| stream.first_undelivered());
        let unplaced = self.sending.unplaced_from();
        let first = match (placed, unplaced) {
            (Some(placed), Some(unplaced)) => placed.earlier(unplaced),
            (placed, unplaced) => placed.or(unplaced)?,
        };
        Some((first, self.sending.last_message()))
    }

    pub(super) fn stop_timers(&mut self, cx: &mut Around<'_>) {
        for timer in [
            Timer::Retransmit,
            Timer::Pass,
            Timer::Idle,
            Timer::Batch,
            Timer::Slow,
            Timer::Confirm,
            Timer::Ask,
            Timer::Request,
            Timer::Join,
            Timer::Recovery,
            Timer::Announce,
            Timer::Call,
            Timer::Stable,
            Timer::Forget,
        ] {
            cx.cancel(timer);
        }
        (self.lacked, self.awaited) = (Lacks::default(), Lacks::default());
    }

    /// Returns `least`, or more if the token takes longer to go round.
    fn within_rounds(&self, least: Duration) -> Duration {
        let members = self.ring.as_ref().map_or(0, |ring| ring.view().len());
        self.pace.round(least, members)
    }

    /// Returns `true` if this member has left the ring and still answers.
    pub(super) fn is_out(&self) -> bool {
        self.is_leaving && self.ring.as_ref().is_some_and(|ring| !ring.view().contains(self.me))
    }

    /// Handles the report that the next site has the token, and therefore the departure of this
    /// member.
    pub(super) fn on_leave_known(&mut self, cx: &mut Around<'_>) {
        if self.is_out() {
            cx.set(Timer::Linger, self.within_rounds(cx.config.linger));
        }
    }

    /// Sends rounds, from `from` on, to a member that has not heard of the departure of this one.
    pub(super) fn answer_as_former(&self, cx: &mut Around<'_>, sender: NodeId, from: Timestamp) {
        let Some(ring) = self.ring.as_ref().filter(|_| self.is_out()) else { return };
        let epoch = ring.view().epoch;
        let rounds = ring.log().range(from, ring.log().next()).take(ROUNDS_FOR_OTHERS);
        rounds.for_each(|round: &Round| cx.unicast(sender, &round_packet(epoch, round)));
    }
}

/// Maximum number of rounds that a member that has left sends at once.
const ROUNDS_FOR_OTHERS: usize = 32;
