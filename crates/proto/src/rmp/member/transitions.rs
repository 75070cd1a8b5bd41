//! Transitions of a member between rings: admission, reformation, removal and departure.

use super::LocalMember;
use super::departure::Departure;
use super::reformation::Verdict;
use super::session::Session;
use crate::rmp::context::{Context, Timer};
use crate::rmp::event::{Removal, RingNews};
use crate::rmp::ring::{Proposal, Ring};

impl LocalMember {
    pub(super) fn enter(&mut self, cx: &mut Context<'_>, ring: Ring) {
        cx.version = ring.epoch().version;
        cx.cancel(Timer::Join);
        let session = self.session.insert(Session::new(ring));
        self.known.refresh(cx, self.me, &self.terms, Some(session.ring()));
        let own = self.application.changes();
        if own.len() > 0 {
            session.request_change(cx, own);
        }
        self.advance(cx, None);
    }

    /// Handles the outcome of an event of a reformation.
    pub(super) fn conclude(&mut self, cx: &mut Context<'_>, verdict: Verdict) {
        let Some(session) = &self.session else { return };
        let (quorum, state) = (self.terms.quorum.required_voters(), session.reformation());
        if let Verdict::Voted(Some(count)) | Verdict::Overtaken(count) | Verdict::TooFew(count) =
            &verdict
        {
            self.quorum.report_too_few(cx, session.ring(), quorum, *count);
        }
        let (now, patience) = (cx.now, cx.config.patience);
        let is_long = quorum.is_some() && state.is_minority_for(now) >= patience;
        let is_stuck = || quorum.is_some() && state.is_stuck(now, patience);
        match verdict {
            Verdict::Pending | Verdict::Overtaken(_) => {}
            Verdict::Advance | Verdict::Voted(_) => self.advance(cx, None),
            Verdict::Stranger(sender) => self.notify(cx, sender),
            Verdict::Holds(proposal) | Verdict::Commit(proposal) => self.commit(cx, proposal),
            // Clients alone do not prevent other nodes from creating a ring.
            Verdict::TooFew(count) if count.voters == 0 && is_long => {
                self.on_removed(cx, Removal::Removed);
            }
            // Nothing is lost with the ring, and other nodes may wait to join another one.
            Verdict::TooFew(_) if is_stuck() && self.is_dispensable() => {
                self.dissolve(cx);
                self.admission.forget_others();
            }
            Verdict::Overdue if is_stuck() && !state.has_accepted() && self.is_dispensable() => {
                self.dissolve(cx);
                self.admission.forget_others();
            }
            Verdict::TooFew(_) | Verdict::Overdue => {
                let Some(session) = &mut self.session else { return };
                match verdict {
                    Verdict::Overdue => session.initiate(cx),
                    _ => session.wait_in_minority(cx),
                }
            }
        }
    }

    /// Continues with a list that holds: all its members have accepted it.
    fn commit(&mut self, cx: &mut Context<'_>, proposal: Proposal) {
        let Some(session) = &mut self.session else { return };
        let has_own = proposal.position.received.iter().any(|(source, _)| *source == self.me);
        session.form(cx, proposal);
        self.application.on_formed(cx, session.ring(), has_own);
        self.known.refresh(cx, self.me, &self.terms, Some(session.ring()));
        session.request_change(cx, self.application.changes());
        self.advance(cx, None);
    }

    /// Handles the end of this member's time in the ring. A node that leaves still answers for a
    /// limited time.
    pub(super) fn on_out(&mut self, cx: &mut Context<'_>) {
        if !self.departure.is_leaving() {
            // Or the ring concluded that this life was over.
            let is_merging = self.departure.merging().is_some();
            let why = if is_merging { Removal::Merged } else { Removal::Removed };
            return self.on_removed(cx, why);
        }
        cx.cancel_all_but_linger();
        let Some(session) = &mut self.session else { return };
        session.clear_nacks();
        let is_passing = session.token_pass().is_pending();
        self.departure.on_released(cx, session.ring(), is_passing);
    }

    /// Removes this member, because the ring continues without it. Joins again if its terms allow
    /// it.
    pub(super) fn on_removed(&mut self, cx: &mut Context<'_>, why: Removal) {
        if why == Removal::Merged && self.is_dispensable() {
            return self.dissolve(cx);
        }
        cx.counters.removals += 1;
        self.stop(cx);
        let unsent = self.application.undelivered(self.ring());
        tracing::info!(me = ?self.me, group = %cx.group, ?why, "removed");
        let rejoins = self.terms.rejoin && !self.departure.is_leaving();
        self.application.lose_locks(cx);
        cx.report(RingNews::Removed { why, unsent, rejoins });
        if !rejoins {
            self.application.give_up_requests(cx);
            return self.departure.end();
        }
        let (former, target) = (self.departure.former(self.ring()), self.departure.merging());
        let client = self.application.take_client();
        let mut next = Self::new(cx.next_life(), self.terms, cx.config, client);
        next.known = core::mem::take(&mut self.known).without_notices();
        next.departure = Departure::of_removed(former);
        next.admission.retarget(cx.now, target);
        *self = next;
        self.join(cx);
    }

    /// Returns `true` if this member's ring has never had a quorum, so that everything that was
    /// requested of it can be requested of another ring.
    pub(super) fn is_dispensable(&self) -> bool {
        let ring = self.ring().filter(|ring| ring.shortage().is_some());
        ring.is_some_and(Ring::is_unused)
            && self.terms.rejoin
            && !self.departure.is_leaving()
            && self.application.sender().has_all_placed()
    }

    /// Joins another ring instead of its own, which has never had a quorum. The application has
    /// received no view of that ring, so nothing is reported now.
    fn dissolve(&mut self, cx: &mut Context<'_>) {
        tracing::info!(me = ?self.me, group = %cx.group, "joins another ring");
        self.stop(cx);
        self.session = None;
        self.me = cx.next_life();
        self.admission.retarget(cx.now, self.departure.on_dissolved());
        self.application.on_new_life(self.me);
        self.application.set_call_timer(cx);
        self.known.refresh(cx, self.me, &self.terms, None);
        self.admission.begin(cx, self.terms.join_request(self.me));
    }

    /// Ends the participation in the ring: gives up an own ballot, and stops the timers except that
    /// of the departure.
    pub(crate) fn stop(&mut self, cx: &mut Context<'_>) {
        if let Some(session) = &mut self.session {
            session.abandon_ballot(cx);
            session.clear_nacks();
        }
        cx.cancel_all_but_linger();
    }
}
