//! Leaving a ring: by one's own will, or because it continues without this member (4.3).

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
    /// Wants to be out of the ring: once what was accepted has its place the others are asked.
    pub(super) fn leave(&mut self, cx: &mut Around<'_>) {
        if core::mem::replace(&mut self.is_leaving, true) {
            return;
        }
        self.give_up_calls(cx);
        if self.ring.is_none() {
            self.is_over = true;
            return;
        }
        // A ring that may not go on lets nobody go either.
        cx.set(Timer::Linger, self.within_rounds(cx.config.leave_within));
        self.advance(cx, None);
    }

    /// A member that wants to leave asks for it when nothing of its own waits any more; one that
    /// goes to a larger ring, when all that it has sent has its place: some may have delivered it.
    /// Says whether it does so now.
    pub(super) fn leave_when_done(&mut self, cx: &mut Around<'_>) -> bool {
        let is_done = match self.is_leaving {
            true => self.sending.unplaced_from().is_none(),
            // Without a quorum nothing gets a place here.
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

    /// This node has left: it answers for a while.
    pub(super) fn on_out(&mut self, cx: &mut Around<'_>) {
        if self.is_leaving {
            self.stop_timers(cx);
            let mut linger = self.within_rounds(cx.config.linger);
            if self.passed.is_some() {
                // Its own list lets it go, and the next site may not have heard that.
                cx.set(Timer::Pass, self.pace.pass_timeout(cx.config, 0));
                linger = linger.max(self.within_rounds(cx.config.leave_within));
            }
            cx.set(Timer::Linger, linger);
        } else {
            // Or its former life was taken for over.
            let why = if self.merging.is_some() { Removal::Merged } else { Removal::Removed };
            self.on_removed(cx, why);
        }
    }

    /// The ring goes on without this member.
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

    /// Own messages that were not delivered here: from the first to the last of these numbers.
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

    /// Returns `true` if this member has left the ring and answers for a while.
    pub(super) fn is_out(&self) -> bool {
        self.is_leaving && self.ring.as_ref().is_some_and(|ring| !ring.view().contains(self.me))
    }

    /// The next site knows that it has the token, and so that this member has left.
    pub(super) fn on_leave_known(&mut self, cx: &mut Around<'_>) {
        if self.is_out() {
            cx.set(Timer::Linger, self.within_rounds(cx.config.linger));
        }
    }

    /// A member that has not heard that this one has left looks for it: it is sent the rounds from
    /// where it stands.
    pub(super) fn answer_as_former(&self, cx: &mut Around<'_>, sender: NodeId, from: Timestamp) {
        let Some(ring) = self.ring.as_ref().filter(|_| self.is_out()) else { return };
        let epoch = ring.view().epoch;
        let rounds = ring.log().range(from, ring.log().next()).take(ROUNDS_FOR_OTHERS);
        rounds.for_each(|round: &Round| cx.unicast(sender, &round_packet(epoch, round)));
    }
}

/// Rounds that a member that has left sends at once to one that lacks them.
const ROUNDS_FOR_OTHERS: usize = 32;
