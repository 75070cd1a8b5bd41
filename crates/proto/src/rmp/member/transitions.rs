use super::LocalMember;
use super::reformation::{Reformation, Verdict};
use super::session::Session;
use crate::ring::{Removal, RingNews};
use crate::rmp::context::{Context, Timer};
use crate::rmp::ring::{Proposal, Ring};

impl LocalMember {
    pub(super) fn enter(&mut self, cx: &mut Context<'_>, ring: Ring) {
        cx.version = ring.epoch().version;
        cx.cancel(Timer::Join);
        self.session = Some(Session::new(ring));
        self.refresh(cx);
        if let Some(session) = &mut self.session
            && !self.application.changes.waiting.is_empty()
        {
            session.request_change(cx, &mut self.application.changes);
        }
        self.advance(cx, None);
    }

    // The initiator of a list that holds has the token, and acknowledges the list with a round.
    pub(super) fn reform(
        &mut self,
        cx: &mut Context<'_>,
        event: impl FnOnce(&mut Reformation, &mut Context<'_>, &Ring) -> Verdict,
    ) {
        let Some(session) = &mut self.session else { return };
        let verdict = event(&mut session.reformation, cx, &session.ring);
        if let Verdict::Holds(proposal) = &verdict {
            session.token.owes_round = proposal.view.len() > 1;
        }
        self.conclude(cx, verdict);
    }

    pub(super) fn conclude(&mut self, cx: &mut Context<'_>, verdict: Verdict) {
        let Some(session) = &self.session else { return };
        let (quorum, state) = (self.terms.quorum.required_voters(), &session.reformation);
        if let Verdict::Voted(Some(count)) | Verdict::Overtaken(count) | Verdict::TooFew(count) =
            &verdict
        {
            self.quorum.report_too_few(cx, &session.ring, quorum, *count);
        }
        let (now, patience) = (cx.now, cx.config.patience);
        let is_long = quorum.is_some() && state.is_minority_for(now) >= patience;
        let is_stuck = || quorum.is_some() && state.is_stuck(now, patience);
        match verdict {
            Verdict::Pending | Verdict::Overtaken(_) => {}
            Verdict::Advance | Verdict::Voted(_) => self.advance(cx, None),
            Verdict::Stranger(sender) => self.notify(cx, sender),
            Verdict::Holds(proposal) | Verdict::Commit(proposal) => self.commit(cx, proposal),
            // Clients alone must not prevent other nodes from creating a ring.
            Verdict::TooFew(count) if count.voters == 0 && is_long => {
                self.on_removed(cx, Removal::Removed);
            }
            // Nothing is lost with the ring, and other nodes may be waiting to join another one.
            Verdict::TooFew(_) if is_stuck() && self.is_dispensable() => {
                self.dissolve(cx);
                self.admission.elsewhere = None;
            }
            Verdict::Overdue if is_stuck() && !state.has_accepted() && self.is_dispensable() => {
                self.dissolve(cx);
                self.admission.elsewhere = None;
            }
            Verdict::TooFew(_) | Verdict::Overdue => {
                let Some(session) = &mut self.session else { return };
                match verdict {
                    Verdict::Overdue => session.reformation.initiate(cx, &session.ring),
                    _ => session.reformation.wait_in_minority(cx),
                }
            }
        }
    }

    fn commit(&mut self, cx: &mut Context<'_>, proposal: Proposal) {
        let Some(session) = &mut self.session else { return };
        let has_own = proposal.position.received.iter().any(|(source, _)| *source == self.me);
        session.form(cx, proposal);
        self.application.on_formed(cx, &session.ring, has_own);
        self.refresh(cx);
        if let Some(session) = &mut self.session {
            session.request_change(cx, &mut self.application.changes);
        }
        self.advance(cx, None);
    }

    pub(super) fn on_out(&mut self, cx: &mut Context<'_>) {
        if !self.departure.is_leaving {
            // If this member does not merge, the ring has concluded that this life is over.
            let is_merging = self.departure.merging.is_some();
            let why = if is_merging { Removal::Merged } else { Removal::Removed };
            return self.on_removed(cx, why);
        }
        cx.cancel_all_but_linger();
        let Some(session) = &mut self.session else { return };
        session.nacks.clear();
        let is_passing = session.token.pass.round.is_some();
        self.departure.on_released(cx, &session.ring, is_passing);
    }

    // The ring continues without this member, which joins again if its terms allow it.
    pub(super) fn on_removed(&mut self, cx: &mut Context<'_>, why: Removal) {
        if why == Removal::Merged && self.is_dispensable() {
            return self.dissolve(cx);
        }
        cx.counters.removals += 1;
        self.stop(cx);
        let unsent = self.application.undelivered(self.ring());
        tracing::info!(me = ?self.me, group = %cx.group, ?why, "removed");
        let rejoins = self.terms.options.rejoin && !self.departure.is_leaving;
        self.application.lose_locks(cx);
        cx.report(RingNews::Removed { why, unsent, rejoins });
        if !rejoins {
            self.application.client.give_up_all(cx);
            return self.departure.end();
        }
        let former = self.departure.former.or_else(|| self.ring().map(Ring::as_former));
        let target = self.departure.merging;
        let client = core::mem::take(&mut self.application.client);
        let mut next = Self::new(cx.next_life(), self.terms, cx.config, client);
        next.known.nodes = core::mem::take(&mut self.known.nodes);
        next.departure.former = former;
        next.admission.retarget(cx.now, target);
        *self = next;
        self.join(cx);
    }

    // Everything requested from a ring without a quorum can be requested from another ring.
    pub(super) fn is_dispensable(&self) -> bool {
        let ring = self.ring().filter(|ring| ring.shortage().is_some());
        ring.is_some_and(Ring::is_unused)
            && self.terms.options.rejoin
            && !self.departure.is_leaving
            && self.application.sender.has_all_placed()
    }

    fn dissolve(&mut self, cx: &mut Context<'_>) {
        tracing::info!(me = ?self.me, group = %cx.group, "joins another ring");
        self.stop(cx);
        self.session = None;
        self.me = cx.next_life();
        self.departure.is_requested = false;
        self.admission.retarget(cx.now, self.departure.merging.take());
        self.application.changes.enter_life(self.me);
        self.application.client.set_timer(cx);
        self.refresh(cx);
        self.admission.begin(cx, self.terms.join_request(self.me));
    }

    pub(crate) fn stop(&mut self, cx: &mut Context<'_>) {
        if let Some(session) = &mut self.session {
            session.reformation.abandon_ballot(cx);
            session.nacks.clear();
        }
        cx.cancel_all_but_linger();
    }
}
