use super::LocalMember;
use super::application::Application;
use super::merge::{Meeting, Standpoint};
use super::reformation::{Start, Vote};
use super::token::send_confirm;
use crate::NodeId;
use crate::ring::{
    Epoch, ListChange, ListChangeKind, Process, Qos, Removal, RequestId, RingView, Timestamp,
};
use crate::rmp::context::Context;
use crate::rmp::packet::{DataPacket, Nack, NewList, NonMemberData, Packet};
use crate::rmp::ring::{Arrival, GuestArrival, Proposal, Ring, Round, Snapshot};
use crate::rmp::rpc;

impl LocalMember {
    pub(crate) fn on_packet(&mut self, cx: &mut Context<'_>, sender: NodeId, packet: Packet) {
        self.note_heard(sender, &packet);
        match packet {
            Packet::Data(DataPacket { source, seqno, data }) => {
                cx.counters.data_received += 1;
                let Some(session) = &mut self.session else { return };
                if data.qos == Qos::Unreliable {
                    return self.on_unreliable(cx, source, data);
                }
                match session.ring.sources_mut().insert_packet(source, seqno, data) {
                    Some(Arrival::New) => self.advance(cx, Some((source, seqno))),
                    Some(Arrival::Duplicate) => cx.counters.data_duplicate += 1,
                    Some(Arrival::TooFar) => cx.counters.data_too_far += 1,
                    None => cx.counters.data_unknown_source += 1,
                }
            }
            Packet::Ack { epoch, round } | Packet::NewList(NewList::Change { epoch, round }) => {
                self.on_round(cx, sender, epoch, round);
            }
            Packet::Confirm { epoch, at } => {
                let session = self.session.as_mut().filter(|it| it.ring.epoch() == epoch);
                let Some(session) = session else {
                    return cx.timing.on_late_answer(cx.now, epoch, at.plus(1), sender);
                };
                if session.token.pass.on_confirm(cx, at) {
                    self.departure.on_pass_accepted(cx, &session.ring);
                    self.application.sender.release_placed(cx.now, &session.ring);
                    self.advance(cx, None);
                }
            }
            Packet::Nack(nack) => self.on_nack(cx, sender, &nack),
            Packet::NewList(NewList::Whole(snapshot)) => self.on_snapshot(cx, sender, snapshot),
            Packet::NewList(NewList::Formation { proposal, is_committed }) => {
                self.on_formation(cx, sender, proposal, is_committed);
            }
            Packet::ListChangeRequest { epoch, change } => {
                self.on_change_request(cx, sender, epoch, change);
            }
            Packet::RecoveryStart { epoch, ballot, position, refuted, released } => {
                let start = Start { epoch, ballot, position, refuted, released };
                self.on_recovery_start(cx, sender, start);
            }
            Packet::RecoveryVote { epoch, ballot, position, accepted } => {
                let vote = Vote { epoch, position, accepted };
                cx.timing.on_vote(cx.now, sender, ballot, cx.config);
                self.reform(cx, |it, cx, ring| it.on_vote(cx, ring, (sender, ballot), vote));
            }
            Packet::RecoveryAckNewList { ballot } => {
                self.reform(cx, |it, _, _| it.on_accepted(sender, ballot));
            }
            Packet::RecoveryAbort { ballot, seen } => {
                cx.counters.foreign += u64::from(self.session.is_none());
                self.reform(cx, |it, cx, ring| it.on_abort(cx, ring, sender, (ballot, seen)));
            }
            Packet::ForceQuorum { epoch, lost } => {
                let Some(session) = &mut self.session else { return };
                session.on_force_quorum(cx, sender, epoch, lost);
            }
            Packet::NonMemberData(packet) => self.on_guest_packet(cx, sender, packet),
            Packet::NonMemberAck(ack) => self.application.client.on_ack(cx, sender, ack),
            // The engine has already reassembled the parts. A part within a part is invalid.
            Packet::Part(_) => cx.counters.malformed += 1,
        }
    }

    /// Notes that a member is alive. However late its answers are, it is not suspected.
    fn note_heard(&mut self, sender: NodeId, packet: &Packet) {
        let Some(session) = &mut self.session else { return };
        if packet.is_of_member(&session.ring, sender) {
            if session.ring.token().node == sender {
                self.application.on_token_site_heard();
            }
            session.on_heard(sender);
        }
    }

    fn on_round(&mut self, cx: &mut Context<'_>, sender: NodeId, epoch: Epoch, round: Round) {
        cx.counters.rounds_received += 1;
        if self.ring().map(Ring::epoch) != Some(epoch) {
            if round.site.node == sender {
                cx.timing.on_late_answer(cx.now, epoch, round.at, sender);
            }
            self.on_other_ring(cx, sender, epoch);
        }
        // Many members learn from the first round of a new ring that the list of the ring holds.
        let session = self.session.as_mut().filter(|it| it.ring.epoch() == epoch);
        if session.is_some_and(|session| session.on_round(cx, sender, round)) {
            self.advance(cx, None);
        }
    }

    fn on_nack(&mut self, cx: &mut Context<'_>, sender: NodeId, nack: &Nack) {
        let session = self.session.as_mut().filter(|it| it.ring.epoch() == nack.epoch);
        let Some(session) = session else {
            return self.on_other_ring(cx, sender, nack.epoch);
        };
        for run in nack.runs.iter().filter(|run| run.source == self.me) {
            self.application.sender.on_nack(run.first);
        }
        match session.ring.view().process_of(sender) {
            Some(_) => session.nacks.on_nack(cx, &session.ring, sender, nack),
            None => self.notify(cx, sender),
        }
    }

    fn on_other_ring(&mut self, cx: &mut Context<'_>, sender: NodeId, epoch: Epoch) {
        cx.counters.foreign += 1;
        self.reform(cx, |it, cx, ring| it.on_other_ring(cx, ring, sender, epoch));
    }

    fn on_recovery_start(&mut self, cx: &mut Context<'_>, sender: NodeId, start: Start) {
        if self.ring().map(Ring::epoch) != Some(start.epoch) {
            self.on_other_ring(cx, sender, start.epoch);
        }
        let session = self.session.as_mut().filter(|it| it.ring.epoch() == start.epoch);
        let Some(session) = session else { return };
        let view = session.ring.view();
        if !view.contains(self.me) {
            return self.departure.answer(cx, &session.ring, sender, start.position.next);
        }
        if start.ballot.creator.node != sender || !view.contains(start.ballot.creator) {
            return self.notify(cx, sender);
        }
        self.reform(cx, |it, cx, ring| it.on_start(cx, ring, start));
    }

    fn on_formation(
        &mut self,
        cx: &mut Context<'_>,
        sender: NodeId,
        proposal: Proposal,
        is_committed: bool,
    ) {
        let Some(ring) = self.ring() else { return };
        let ballot = proposal.view.epoch;
        let is_ours = ring.epoch() == proposal.base && ballot.creator.node == sender;
        if !is_committed && !is_ours {
            return self.on_other_ring(cx, sender, proposal.base);
        }
        self.reform(cx, |it, cx, ring| match is_committed {
            true => it.on_committed(sender, ballot),
            false => it.on_formation(cx, ring, proposal),
        });
    }

    fn on_change_request(
        &mut self,
        cx: &mut Context<'_>,
        sender: NodeId,
        epoch: Option<Epoch>,
        change: ListChange,
    ) {
        let ListChange { process, kind, request } = change;
        if process.node != sender {
            cx.counters.malformed += 1;
            return;
        }
        let Some(session) = &mut self.session else {
            return self.admission.on_other_joiner(cx, &self.known, sender, change);
        };
        let mut is_joining = false;
        if let ListChangeKind::Join { member, name_check } = kind {
            is_joining = true;
            if name_check != self.terms.name_check {
                cx.counters.name_collisions += 1;
                return;
            }
            if member.quorum != self.terms.quorum {
                // The membership refuses one of the two nodes. Until then, there must be only one
                // ring.
                cx.counters.joins_contradicting += 1;
                return self.notify_anyway(cx, sender);
            }
        }
        if epoch.is_none() && kind == ListChangeKind::Leave {
            if !session.answers_query(request) {
                return;
            }
            if !self.known.may_notify(cx, sender) {
                cx.counters.looks_too_often += 1;
                return;
            }
            cx.counters.looks_answered += 1;
            return session.send_snapshot(cx, &self.application.server, sender);
        }
        if epoch.map_or(!is_joining, |epoch| epoch != session.ring.epoch()) {
            match epoch {
                Some(epoch) if !is_joining => self.on_other_ring(cx, sender, epoch),
                // The requested ring was created by this node and no longer exists.
                Some(epoch) if epoch.creator.node == cx.node => self.notify_anyway(cx, sender),
                _ => {}
            }
            return;
        }
        if !session.is_current(cx, change) {
            return;
        }
        if is_joining && session.lets_joiners_wait() && session.answers_joiner(cx) {
            // A joiner that gets no answer at all would create its own ring.
            self.notify_anyway(cx, sender);
        }
        let Some(session) = &mut self.session else { return };
        let verdict = session.on_change_request(cx, &self.application.server, change);
        self.conclude(cx, verdict);
    }

    fn on_snapshot(&mut self, cx: &mut Context<'_>, sender: NodeId, snapshot: Snapshot) {
        if snapshot.view.name_check != self.terms.name_check {
            cx.counters.name_collisions += 1;
            return;
        }
        let Some(session) = &mut self.session else {
            self.admission.on_snapshot(cx.now, sender, &snapshot);
            if self.terms.options.is_voter {
                self.quorum.report_if_full(cx, &snapshot.view);
            }
            if snapshot.view.contains(self.me) && snapshot.token == self.me {
                self.application.server.requests.enter(snapshot.seen.clone());
                self.enter(cx, Ring::entered(self.me, snapshot, cx.config.first_number));
            }
            return;
        };
        let (ring, theirs) = (&session.ring, &snapshot.view);
        let ours = ring.view();
        if theirs.epoch == ours.epoch {
            if !theirs.contains(self.me) && snapshot.next > ring.log().next() {
                self.on_out(cx);
            } else if snapshot.token == self.me {
                let at = Timestamp(snapshot.next.0.saturating_sub(1));
                send_confirm(cx, sender, theirs.epoch, at);
            }
            return;
        }
        let is_in = theirs.contains(self.me);
        if !is_in || theirs.origin != ours.origin {
            refuse_late_entry(cx, self.me, sender, theirs);
        }
        if is_in {
            return self.reform(cx, |it, _, _| it.on_working(theirs.epoch));
        }
        if session.reformation.is_ancestor(theirs.epoch) || ours.is_continued_from(theirs) {
            // The sender has not heard that the ring continues without it.
            return self.notify(cx, sender);
        }
        self.meet(cx, sender, &snapshot);
    }

    fn meet(&mut self, cx: &mut Context<'_>, sender: NodeId, snapshot: &Snapshot) {
        let is_unused = self.is_dispensable();
        let Some(session) = &mut self.session else { return };
        let theirs = &snapshot.view;
        if let Some(process) = theirs.process_of(sender) {
            // The sender may have requested to join just before it created its own ring.
            session.changes.enter_life(process);
        }
        let (state, patience) = (&session.reformation, cx.config.patience);
        let standpoint = Standpoint {
            ring: &session.ring,
            is_working: state.is_idle(),
            is_minority: state.is_minority(),
            is_patient: state.is_minority_for(cx.now) < patience,
            is_unused,
            is_leaving: self.departure.is_leaving,
            is_merging: self.departure.merging.is_some(),
            is_known: theirs.processes().any(|process| self.known.nodes.contains(&process.node)),
        };
        match standpoint.meet(snapshot) {
            Meeting::Ignore => {}
            Meeting::Foreign => cx.counters.foreign += 1,
            Meeting::Removed => self.on_removed(cx, Removal::Removed),
            Meeting::Missed => session.suspect(cx, "members of the ring are in another"),
            Meeting::Announce => self.notify_anyway(cx, sender),
            Meeting::Join => {
                self.departure.merging = Some(theirs.epoch);
                self.on_removed(cx, Removal::Merged);
            }
            Meeting::Leave => {
                self.departure.merging = Some(theirs.epoch);
                self.advance(cx, None);
            }
        }
    }

    fn on_guest_packet(&mut self, cx: &mut Context<'_>, sender: NodeId, packet: NonMemberData) {
        let (epoch, is_first, data) = match packet {
            NonMemberData::Data { epoch, is_first, data } => (epoch, is_first, data),
            NonMemberData::Pull { number, offset } => {
                let ring = self.session.as_ref().map(|session| &session.ring);
                let id = RequestId { caller: sender, number };
                let Application { server, sender, .. } = &mut self.application;
                return server.on_pull(cx, ring, sender, id, offset);
            }
        };
        let DataPacket { source, seqno, data } = data;
        let Some(session) = &mut self.session else { return };
        let (ours, state) = (session.ring.view(), &session.reformation);
        if epoch.is_some_and(|epoch| epoch != ours.epoch && !state.is_ancestor(epoch)) {
            cx.counters.calls_foreign += 1;
            return;
        }
        let is_allowed = self.terms.allows(data.qos) && data.is_call;
        if state.is_minority() || !is_allowed || ours.contains(source) {
            cx.counters.calls_refused += 1;
            return;
        }
        cx.counters.data_received += 1;
        if data.qos == Qos::Unreliable {
            return self.on_unreliable(cx, source, data);
        }
        match session.ring.sources_mut().insert_of_guest(source, seqno, data, is_first) {
            GuestArrival::Kept(Arrival::New) => self.advance(cx, Some((source, seqno))),
            GuestArrival::Kept(Arrival::Duplicate) => {
                cx.counters.data_duplicate += 1;
                rpc::notify_guest_again(cx, &session.ring, source, seqno);
            }
            GuestArrival::Kept(Arrival::TooFar) => cx.counters.data_too_far += 1,
            GuestArrival::Unknown => cx.counters.calls_unknown += 1,
            GuestArrival::Replayed => cx.counters.calls_replayed += 1,
            GuestArrival::Full => cx.counters.calls_refused += 1,
        }
    }

    /// Sends a notice to a node, except during a reformation, in which the members are unknown.
    pub(super) fn notify(&mut self, cx: &mut Context<'_>, to: NodeId) {
        if self.session.as_ref().is_some_and(|session| session.reformation.is_idle()) {
            self.notify_anyway(cx, to);
        }
    }

    pub(super) fn notify_anyway(&mut self, cx: &mut Context<'_>, to: NodeId) {
        let Some(session) = &self.session else { return };
        if !self.departure.is_leaving && self.known.may_notify(cx, to) {
            cx.counters.notices_sent += 1;
            session.send_snapshot(cx, &self.application.server, to);
        }
    }
}

/// Requests to leave a ring that admitted this node after the node had entered its own ring as
/// `me`. The life for which the other ring waits will never enter it.
fn refuse_late_entry(cx: &mut Context<'_>, me: Process, to: NodeId, theirs: &RingView) {
    let Some(awaited) = theirs.process_of(cx.node) else { return };
    let process = Process { life: me.life.max(awaited.life + 1), ..me };
    let change = ListChange { process, request: 0, kind: ListChangeKind::Leave };
    cx.unicast(to, &Packet::ListChangeRequest { epoch: Some(theirs.epoch), change });
}
