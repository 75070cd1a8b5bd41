//! This node as a member of a group.
//!
//! [`LocalMember`] decides between its parts, each of which owns its state:
//!
//! | part | decision |
//! |---|---|
//! | [`admission`] | when to request to join, and when to create a ring |
//! | [`session`] | how to act in a ring: `token`, `nack`, `view_change`, `reformation` |
//! | [`departure`] | when to leave |
//! | [`application`] | what the application sends and receives |
//! | [`known_nodes`] | which nodes of the group receive notices about the ring |
//! | [`quorum`], [`merge`] | reports on the electorate; which of two rings remains |

use self::admission::{Admission, JoinTimeout};
pub(super) use self::application::Application;
use self::departure::{Departure, Release};
use self::known_nodes::KnownNodes;
use self::quorum::QuorumReports;
use self::reformation::Reformation;
pub(super) use self::session::Session;
use self::token::TokenDelay;
use super::config::Config;
use super::context::{Context, Timer};
use super::packet::{DataPacket, Packet};
use super::reach::Reach;
use super::ring::{Data, DeliveredMessage, Delivery, Ring, Round};
use super::rpc::{self, Client};
use super::terms::Terms;
use crate::ring::{JoinOptions, ListChangeKind, Process, Removal, RingNews};
use crate::{NodeId, SeqNo, ViewChangeKind};

mod admission;
mod application;
mod departure;
mod known_nodes;
mod merge;
mod nack;
mod own_changes;
mod packets;
mod quorum;
mod reformation;
mod session;
mod stability;
mod token;
mod token_loss;
mod transitions;
mod view_change;

#[derive(Debug)]
pub(super) struct LocalMember {
    me: Process,
    pub(super) terms: Terms,
    known: KnownNodes,
    admission: Admission,
    pub(super) session: Option<Session>,
    pub(super) departure: Departure,
    pub(super) application: Application,
    quorum: QuorumReports,
    pub(super) token_delay: TokenDelay,
}

impl LocalMember {
    pub(super) fn new(me: Process, terms: Terms, config: &Config, client: Client) -> Self {
        Self {
            me,
            terms,
            known: KnownNodes::default(),
            admission: Admission::default(),
            session: None,
            departure: Departure::default(),
            application: Application::new(me, config, client),
            quorum: QuorumReports::default(),
            token_delay: TokenDelay::default(),
        }
    }

    pub(super) fn ring(&self) -> Option<&Ring> {
        self.session.as_ref().map(|session| &session.ring)
    }

    pub(super) fn join(&mut self, cx: &mut Context<'_>) {
        let Application { client, sender, .. } = &mut self.application;
        client.queue_all(cx, sender);
        self.refresh_reach(cx);
        self.admission.begin(cx, self.terms.join_request(self.me));
    }

    pub(super) fn act<T, E>(
        &mut self,
        cx: &mut Context<'_>,
        request: impl FnOnce(&mut Application, &mut Context<'_>, Option<&Ring>) -> Result<T, E>,
    ) -> Result<T, E> {
        let had_changes = !self.application.changes.waiting.is_empty();
        let ring = self.session.as_ref().map(|session| &session.ring);
        let result = request(&mut self.application, cx, ring)?;
        let has_first = !had_changes && !self.application.changes.waiting.is_empty();
        match &mut self.session {
            Some(session) if has_first => session.request_change(cx, &mut self.application.changes),
            // The timer may belong to an earlier membership, whose state was replaced.
            None if has_first => cx.cancel(Timer::Request),
            _ => {}
        }
        self.advance(cx, None);
        Ok(result)
    }

    // The release is requested once all accepted messages have their places.
    pub(super) fn leave(&mut self, cx: &mut Context<'_>) {
        if core::mem::replace(&mut self.departure.is_leaving, true) {
            return;
        }
        self.application.client.give_up_all(cx);
        let Some(session) = &self.session else { return self.departure.end() };
        // Leaving takes a limited time, since a ring that may not continue releases no member.
        let members = session.ring.view().len();
        cx.set(Timer::Linger, cx.timing.round(cx.config.leave_within, members));
        self.advance(cx, None);
    }

    pub(super) fn abandon(&mut self, cx: &mut Context<'_>) {
        self.application.client.give_up_all(cx);
        self.departure.end();
    }

    pub(super) fn on_node(&mut self, cx: &mut Context<'_>, node: NodeId, kind: ViewChangeKind) {
        let is_up = kind == ViewChangeKind::Joined;
        if is_up {
            self.known.nodes.insert(node);
        } else {
            self.known.nodes.remove(&node);
            self.admission.on_node_down(&self.known, node);
        }
        self.refresh(cx);
        match &mut self.session {
            // The node may be in a ring, so it receives a request immediately.
            None if is_up => self.admission.request(cx, self.terms.join_request(self.me)),
            Some(session) if !is_up && session.ring.view().process_of(node).is_some() => {
                session.suspect(cx, "the membership reported a failure");
            }
            _ => {}
        }
    }

    pub(super) fn on_timer(&mut self, cx: &mut Context<'_>, timer: Timer) {
        match timer {
            Timer::Join => return self.on_join_timer(cx),
            Timer::Forget | Timer::Linger => return self.departure.end(),
            Timer::Call => {
                let Application { client, sender, .. } = &mut self.application;
                client.on_timer(cx, sender);
                self.advance(cx, None);
                return self.application.client.set_timer(cx);
            }
            _ => {}
        }
        let Some(session) = &mut self.session else { return };
        match timer {
            Timer::Retransmit => {
                let may_send = session.is_working();
                if !may_send || !self.application.sender.is_due(cx) {
                    return self.application.sender.set_timer(cx, may_send);
                }
                if !self.application.retransmit(cx, &session.ring) {
                    return session.suspect(cx, "own data got no place");
                }
            }
            Timer::Pass => {
                let is_out = self.departure.is_out(&session.ring);
                return session.on_pass_timer(cx, &self.application.server, is_out);
            }
            Timer::Batch | Timer::Idle => session.on_token_timer(cx, timer),
            Timer::Confirm => return session.on_token_timer(cx, timer),
            Timer::Slow => self.token_delay.has_waited = true,
            Timer::Ask => return session.on_nack_timer(cx),
            Timer::Request => {
                let is_leaving = self.departure.is_requested;
                if !session.on_request_timer(cx, &mut self.application.changes, is_leaving) {
                    return;
                }
            }
            Timer::Recovery => return self.reform(cx, Reformation::on_timer),
            Timer::Announce => {
                let strangers = self.known.strangers(&session.ring);
                session.announce(cx, &self.application.server, &strangers);
                return self.known.set_timer(cx, Some(&session.ring));
            }
            Timer::Stable => {
                return self.application.stability.report_stable(cx, &mut session.ring);
            }
            Timer::Join | Timer::Forget | Timer::Linger | Timer::Call => return,
        }
        self.advance(cx, None);
    }

    fn on_join_timer(&mut self, cx: &mut Context<'_>) {
        if self.session.is_some() {
            return;
        }
        let (join, may_create) = (self.terms.join_request(self.me), self.terms.may_create_ring());
        match self.admission.on_timer(cx, &self.known, join, may_create) {
            JoinTimeout::Repeated => {}
            JoinTimeout::MayNotCreate => {
                self.quorum.report_shortage(cx, None, self.terms.quorum.required_voters());
            }
            JoinTimeout::Create => {
                // If another ring has admitted this node in the meantime, that ring waits for the
                // former life.
                self.me = cx.next_life();
                self.application.changes.enter_life(self.me);
                tracing::info!(me = ?self.me, group = %cx.group, "starts a ring");
                let (founder, check) = (self.terms.member(self.me), self.terms.name_check);
                self.enter(cx, Ring::founded_by(founder, check, cx.config.first_number));
            }
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, arrived: Option<(Process, SeqNo)>) {
        let mut arrived = arrived;
        loop {
            while let Some(round) = self.session.as_mut().and_then(|it| it.apply_next(cx)) {
                self.on_applied(cx, &round);
            }
            let Some(session) = &mut self.session else { return };
            for delivery in session.deliver(arrived.take()) {
                self.deliver(cx, delivery);
            }
            if self.session.as_mut().is_some_and(|it| it.ring.leave_unseen()) {
                return self.on_out(cx);
            }
            if self.take_turn(cx) {
                continue;
            }
            match self.send_next(cx) {
                Some(seqno) => arrived = Some((self.me, seqno)),
                None => {
                    let Some(session) = &mut self.session else { break };
                    match self.departure.next_step(&session.ring, &self.application.sender) {
                        Release::No => break,
                        Release::Alone => {}
                        Release::Request => {
                            let own = &mut self.application.changes;
                            own.push(ListChangeKind::Leave);
                            if own.waiting.len() == 1 {
                                session.request_change(cx, own);
                            }
                        }
                    }
                }
            }
        }
        let may_send = self.session.as_ref().is_none_or(Session::is_working);
        self.application.sender.set_timer(cx, may_send);
        if let Some(session) = &mut self.session {
            session.set_nack_timer(cx);
            self.reform(cx, Reformation::on_progress);
        }
        if let Some(session) = &mut self.session {
            let Application { stability, sender, .. } = &mut self.application;
            stability.report_confirmed(cx, &session.ring, sender);
            stability.report_stable(cx, &mut session.ring);
        }
        let quorum = self.terms.quorum.required_voters();
        self.quorum.report_shortage(cx, self.session.as_ref(), quorum);
    }

    fn on_applied(&mut self, cx: &mut Context<'_>, round: &Round) {
        let Some(session) = &mut self.session else { return };
        let is_accepted = session.on_applied(cx, round);
        self.token_delay.restart(cx);
        let ring = &session.ring;
        if is_accepted {
            self.departure.on_pass_accepted(cx, ring);
        }
        self.application.on_applied(cx, ring, round);
        self.application.sender.set_timer(cx, session.is_working());
        let is_in = ring.view().contains(self.me);
        for change in round.changes().iter().filter(|_| is_in) {
            if self.application.changes.on_answered(change) {
                session.request_change(cx, &mut self.application.changes);
            }
        }
        if round.is_list() {
            if let Some(joiner) = round.joiner().filter(|_| round.site == self.me) {
                session.send_snapshot(cx, &self.application.server, joiner.process.node);
            }
            self.refresh(cx);
        }
        if let Some(ring) = self.ring().filter(|_| round.site == self.me) {
            rpc::notify_guests(cx, ring, round);
        }
    }

    fn refresh(&self, cx: &mut Context<'_>) {
        self.refresh_reach(cx);
        self.known.set_timer(cx, self.ring());
    }

    fn refresh_reach(&self, cx: &mut Context<'_>) {
        let JoinOptions { is_multicast, via, .. } = self.terms.options;
        let known = self.known.nodes.iter().copied().chain(via);
        *cx.reach = Reach::new(self.me, self.ring().map(Ring::view), !is_multicast, known);
    }

    fn deliver(&mut self, cx: &mut Context<'_>, delivery: Delivery) {
        match delivery {
            Delivery::Message(message) => {
                let Some(session) = &self.session else { return };
                self.application.on_message(cx, &session.ring, message);
            }
            Delivery::Lock { process, request, news } => {
                if process == self.me {
                    self.application.on_lock_news(cx, request, news);
                }
            }
            Delivery::View(event) => {
                let is_out = !event.view.contains(self.me);
                tracing::info!(me = ?self.me, view = ?event.view, "view");
                if let Some(former) = self.departure.former.take() {
                    cx.report(RingNews::Rejoined { missed: former.missed_before(&event) });
                }
                self.application.on_view(&event);
                cx.report(RingNews::View(event));
                if is_out {
                    self.on_out(cx);
                }
            }
        }
    }

    fn take_turn(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(session) = self.session.as_ref().filter(|it| it.has_turn()) else { return false };
        let is_alone = session.ring.view().len() == 1;
        if self.departure.is_over || self.token_delay.holds_token(cx) {
            return false;
        }
        if is_alone && self.departure.is_leaving {
            self.departure.end();
            return false;
        }
        if is_alone && self.departure.merging.is_some() {
            self.on_removed(cx, Removal::Merged);
            return false;
        }
        let Some(session) = &mut self.session else { return false };
        let (turn, changes, refused) = session.begin_turn(cx);
        refused.into_iter().for_each(|node| self.notify_anyway(cx, node));
        let Some(session) = &mut self.session else { return false };
        session.take_turn(cx, turn, changes)
    }

    fn send_next(&mut self, cx: &mut Context<'_>) -> Option<SeqNo> {
        let session = self.session.as_ref()?;
        let is_in = session.ring.view().contains(self.me);
        if !session.is_working() || self.departure.is_going() || !is_in {
            return None;
        }
        // Unreliable messages need no window. They are delivered here as at the other members.
        while let Some(data) = self.application.sender.next_unreliable() {
            cx.counters.data_sent += 1;
            let packet = DataPacket { source: self.me, seqno: data.message, data: data.clone() };
            cx.multicast(&Packet::Data(packet));
            self.on_unreliable(cx, self.me, data);
        }
        let ring = &mut self.session.as_mut()?.ring;
        let sizes = cx.config.fragment_sizes();
        let (seqno, data) = self.application.sender.next_packet(cx.now, sizes)?;
        ring.sources_mut().insert_packet(self.me, seqno, data.clone());
        cx.counters.data_sent += 1;
        if ring.view().len() > 1 {
            cx.multicast(&Packet::Data(DataPacket { source: self.me, seqno, data }));
        }
        Some(seqno)
    }

    fn on_unreliable(&mut self, cx: &mut Context<'_>, source: Process, data: Data) {
        let ring = self.ring();
        if !ring.is_some_and(|it| it.view().contains(source) || it.sources().is_guest(source)) {
            cx.counters.data_unknown_source += 1;
            return;
        }
        if data.is_first && data.is_last {
            let message = DeliveredMessage { source, data, round: None, place: None };
            self.deliver(cx, Delivery::Message(message));
            self.advance(cx, None);
        }
    }
}
