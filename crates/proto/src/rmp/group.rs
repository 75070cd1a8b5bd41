//! One group of this node: what it has received, its own requests, and the decisions.
//!
//! All branching is here and in the modules named after sections of the paper: `turns` (4.2),
//! `lists` (4.3), `reforming` (4.4). [`Ring`] computes what is the same at all members.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use super::around::{Around, Timer};
use super::calling::Calling;
use super::config::Config;
use super::confirming::Confirming;
use super::delivery::{Delivery, ViewEvent};
use super::flow::{Limits, VanJacobson};
use super::list_requests::{ListRequests, next_number};
use super::locks::{MAX_OWN, OwnLocks};
use super::log::{ListChange, ListChangeKind, Round};
use super::names::{Epoch, Process, Timestamp};
use super::notices::Notices;
use super::pace::Pace;
use super::packet::{DataPacket, NewList, Packet};
use super::qos::Qos;
use super::quorum::Quorum;
use super::reach::Reach;
use super::reforming::{Reforming, Start};
use super::repairs::Repairs;
use super::requests::Answering;
use super::ring::{Former, Lacks, Ring};
use super::sending::{Outgoing, Sending};
use super::stream::{Arrival, Data, Stream, Whole};
use super::turns::Batch;
use super::view::Member;
use super::{RingNews, Terms};
use crate::{Event, How, Message, NodeId, SeqNo, Time};

/// State of one group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) me: Process,
    pub(super) terms: Terms,
    /// `None` until this node has been admitted or has created a ring.
    pub(super) ring: Option<Ring>,
    pub(super) reforming: Reforming,
    pub(super) sending: Sending,
    /// Other nodes in the group, as reported by the membership provider.
    pub(super) known: BTreeSet<NodeId>,
    /// Requests of all members and joiners that no New List has answered yet.
    pub(super) requests: ListRequests,
    /// Own change requests of this member, in order.
    pub(super) wishes: VecDeque<ListChange>,
    pub(super) next_request: u32,
    pub(super) confirming: Confirming,
    /// Earliest time of the next stability report.
    pub(super) stable_due: Time,
    pub(super) reach: Reach,
    pub(super) locks: OwnLocks,
    pub(super) calling: Calling,
    pub(super) answering: Answering,
    /// Last round of this member, until its token is known to be accepted.
    pub(super) passed: Option<Timestamp>,
    pub(super) pace: Pace,
    /// Round that passed the token to this member, until the acceptance is confirmed.
    pub(super) unconfirmed: Option<Timestamp>,
    pub(super) batch: Batch,
    /// Time for which the token waits here because the application does not keep up.
    pub(super) slowness: core::time::Duration,
    /// `true` once the token has waited for `slowness`.
    pub(super) has_waited: bool,
    /// `true` if this member sends a round at once. A joiner and the creator of a ring acknowledge
    /// with it that they have the token.
    pub(super) must_speak: bool,
    pub(super) tries: Tries,
    pub(super) lacked: Lacks,
    /// The missing packets and rounds that the `Ask` timer was set for.
    pub(super) awaited: Lacks,
    pub(super) repairs: Repairs,
    pub(super) notices: Notices,
    /// The ring from which this node was removed, until a view of another ring is delivered.
    pub(super) former: Option<Former>,
    /// Last time at which this node heard of a ring that it is not in.
    pub(super) elsewhere: Option<Time>,
    /// Known nodes with larger ids that have requested to join since this node was last in a ring,
    /// with the time of the last request.
    pub(super) joiners: BTreeMap<NodeId, Time>,
    pub(super) quorum: Quorum,
    pub(super) is_leaving: bool,
    /// `true` once the others were requested to release this member: it sends nothing more.
    pub(super) is_leave_asked: bool,
    /// The larger ring of the group that this member leaves to join.
    pub(super) merging: Option<Epoch>,
    /// `true` if a ring has received this node's request to join.
    pub(super) is_in_line: bool,
    /// The ring that this node requests to join; `None`: any.
    pub(super) target: Option<Epoch>,
    pub(super) is_over: bool,
}

/// Numbers of consecutive tries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    pub(super) pass: u32,
    pub(super) ask: u32,
    pub(super) request: u32,
    pub(super) join: u32,
    /// Requests to join that a ring received while it did not work.
    pub(super) in_line: u32,
}

impl Group {
    /// Creates the state of a group that this node is about to join.
    pub(super) fn new(me: Process, terms: Terms, config: &Config) -> Self {
        Self {
            me,
            terms,
            ring: None,
            reforming: Reforming::default(),
            sending: Self::sending(config),
            known: BTreeSet::new(),
            requests: ListRequests::default(),
            wishes: VecDeque::new(),
            next_request: config.first_number.0.max(1),
            confirming: Confirming::default(),
            stable_due: Time::ZERO,
            reach: Reach::default(),
            locks: OwnLocks::default(),
            calling: Calling::default(),
            answering: Answering::default(),
            passed: None,
            pace: Pace::default(),
            unconfirmed: None,
            batch: Batch::default(),
            slowness: core::time::Duration::ZERO,
            has_waited: false,
            must_speak: false,
            tries: Tries::default(),
            lacked: Lacks::default(),
            awaited: Lacks::default(),
            repairs: Repairs::default(),
            notices: Notices::default(),
            former: None,
            elsewhere: None,
            joiners: BTreeMap::new(),
            quorum: Quorum::default(),
            is_leaving: false,
            is_leave_asked: false,
            merging: None,
            is_in_line: false,
            target: None,
            is_over: false,
        }
    }

    /// Creates a sender that has sent nothing yet.
    pub(super) fn sending(config: &Config) -> Sending {
        let limits = Limits {
            packet_bytes: config.piece_bytes() + super::packet::DATA_BYTES,
            window_bytes: config.window_bytes,
            timeouts: config.timeouts(),
        };
        Sending::new(Box::new(VanJacobson::new(limits)), config.first_number)
    }

    /// Returns `true` if this node calls the group without being a member.
    pub(super) fn is_of_guest(&self) -> bool {
        self.calling.guest.is_some()
    }

    /// Returns the version of the ring's epoch; 0 without a ring.
    pub(super) fn version(&self) -> u32 {
        self.ring.as_ref().map_or(0, |ring| ring.view().epoch.version)
    }

    /// Returns this node's entry in a view.
    pub(super) fn member(&self) -> Member {
        let Terms { partition, is_multicast, is_voter, .. } = self.terms;
        Member { process: self.me, partition, is_multicast, is_voter }
    }

    /// Accepts a message of this node. Returns its number.
    pub(super) fn send(&mut self, cx: &mut Around<'_>, qos: Qos, payload: Bytes) -> SeqNo {
        let outgoing = Outgoing { qos, handler: None, is_call: false, payload };
        let number = self.sending.push(outgoing);
        self.advance(cx, None);
        number
    }

    /// Handles a packet from `sender`.
    pub(super) fn on_packet(&mut self, cx: &mut Around<'_>, sender: NodeId, packet: Packet) {
        match packet {
            Packet::Data(data) => self.on_data(cx, data),
            Packet::Ack { epoch, round } | Packet::NewList(NewList::Change { epoch, round }) => {
                self.on_round_packet(cx, sender, epoch, round);
            }
            Packet::Confirm { epoch, at } => self.on_confirm(cx, sender, epoch, at),
            Packet::Nack(nack) => self.on_nack(cx, sender, &nack),
            Packet::NewList(NewList::Whole(snapshot)) => self.on_snapshot(cx, sender, snapshot),
            Packet::NewList(NewList::Formation { proposal, is_committed }) => {
                self.on_formation(cx, sender, proposal, is_committed);
            }
            Packet::ListChangeRequest { epoch, change } => {
                self.on_request(cx, sender, epoch, change);
            }
            Packet::RecoveryStart { epoch, ballot, position, refuted, released } => {
                let start = Start { epoch, ballot, position, refuted, released };
                self.on_recovery_start(cx, sender, start);
            }
            Packet::RecoveryVote { epoch, ballot, position, accepted } => {
                self.on_recovery_vote(cx, sender, epoch, ballot, position, accepted);
            }
            Packet::RecoveryAckNewList { ballot } => self.on_recovery_ack(cx, sender, ballot),
            Packet::RecoveryAbort { ballot, seen } => {
                self.on_recovery_abort(cx, sender, ballot, seen);
            }
            Packet::ForceQuorum { epoch, lost } => self.on_force_quorum(cx, sender, epoch, lost),
            Packet::NonMemberData(packet) => self.on_non_member_data(cx, sender, packet),
            Packet::NonMemberAck(ack) => self.on_non_member_ack(cx, sender, ack),
            // The engine has reassembled it before. A part within a part is invalid.
            Packet::Part(_) => cx.counters.malformed += 1,
        }
    }

    /// Handles a timer of the group that is due.
    pub(super) fn on_timer(&mut self, cx: &mut Around<'_>, timer: Timer) {
        match timer {
            Timer::Retransmit if self.is_of_guest() => self.on_guest_retransmit_timer(cx),
            Timer::Retransmit => self.on_retransmit_timer(cx),
            Timer::Pass => self.on_pass_timer(cx),
            Timer::Idle => self.on_idle_timer(cx),
            Timer::Batch => {
                self.batch.is_due = true;
                self.advance(cx, None);
            }
            Timer::Slow => {
                self.has_waited = true;
                self.advance(cx, None);
            }
            Timer::Confirm => self.on_confirm_timer(cx),
            Timer::Ask => self.on_ask_timer(cx),
            Timer::Request => self.on_request_timer(cx),
            Timer::Join => self.on_join_timer(cx),
            Timer::Recovery => self.on_recovery_timer(cx),
            Timer::Announce => self.on_announce_timer(cx),
            Timer::Call => self.on_call_timer(cx),
            Timer::Stable => self.tell_stable(cx),
            Timer::Forget | Timer::Linger => self.is_over = true,
        }
    }

    /// Does everything that can be done now: applies rounds, delivers, takes the token's turn,
    /// sends.
    pub(super) fn advance(&mut self, cx: &mut Around<'_>, arrived: Option<(Process, SeqNo)>) {
        if self.is_of_guest() {
            return self.advance_as_guest(cx);
        }
        let mut arrived = arrived;
        loop {
            while let Some(round) = self.apply_next(cx) {
                self.on_applied(cx, &round);
            }
            let Some(ring) = &mut self.ring else { return };
            // Packets that arrive after a list was accepted are not part of it. They wait for their
            // places, so that all members that continue with the list have delivered the same
            // messages.
            let now = arrived.take().filter(|_| !self.reforming.has_accepted());
            for delivery in ring.deliver(now) {
                self.hand_out(cx, delivery);
            }
            if self.ring.as_mut().is_some_and(Ring::leave_unseen) {
                return self.on_out(cx);
            }
            if self.take_turn(cx) {
                continue;
            }
            match self.send_next(cx) {
                Some(seqno) => arrived = Some((self.me, seqno)),
                None if self.leave_when_done(cx) => {}
                None => break,
            }
        }
        self.watch_own(cx);
        self.watch_for_holes(cx);
        self.reformation_advanced(cx);
        self.answer_confirm(cx);
        self.tell_stable(cx);
        self.tell_shortage(cx);
    }

    fn apply_next(&mut self, cx: &mut Around<'_>) -> Option<Round> {
        if self.reforming.has_accepted() {
            return None;
        }
        self.ring.as_mut()?.apply_next(&mut cx.counters.rounds_impossible)
    }

    fn on_applied(&mut self, cx: &mut Around<'_>, round: &Round) {
        if self.passed.is_some_and(|at| round.at > at) {
            self.on_pass_accepted(cx);
        }
        self.tries.ask = 0;
        self.unconfirmed = (round.next == self.me && round.site != self.me).then_some(round.at);
        (self.batch, self.has_waited) = (Batch::default(), false);
        for timer in [Timer::Batch, Timer::Slow, Timer::Idle, Timer::Confirm, Timer::Ask] {
            cx.cancel(timer);
        }
        if round.runs().iter().any(|run| run.source == self.me) {
            self.confirming.last_place = round.at;
        }
        let is_alone = self.ring.as_ref().is_some_and(|ring| ring.view().len() == 1);
        if round.site != self.me || is_alone {
            self.release_placed(cx);
        }
        self.watch_own(cx);
        if round.is_list() {
            self.on_list(cx, round);
        }
        if round.site == self.me {
            self.tell_guests(cx, round);
        }
    }

    /// Removes own packets that have a place from the window. Another member must have them:
    /// packets that only this member has ordered may still wait in its own queue.
    pub(super) fn release_placed(&mut self, cx: &mut Around<'_>) {
        let own = self.ring.as_ref().and_then(|ring| ring.stream(self.me));
        if let Some(to) = own.map(Stream::ordered_to) {
            self.sending.on_ordered(cx.now, to);
        }
    }

    fn hand_out(&mut self, cx: &mut Around<'_>, delivery: Delivery) {
        match delivery {
            Delivery::Message { source, whole, round, place } if whole.is_call => {
                self.on_call(cx, source, whole, round, place);
            }
            Delivery::Message { source, whole, round, place } => {
                cx.counters.delivered += 1;
                cx.counters.bytes_delivered += whole.payload.len() as u64;
                cx.events.push_back(Event::Message(Message {
                    group: cx.group,
                    sender: source.node,
                    seqno: whole.number,
                    payload: whole.payload,
                    how: How::Direct,
                    age: None,
                    missing_for: core::time::Duration::ZERO,
                    place,
                }));
                tracing::trace!(?source, number = %whole.number, ?round, "delivered");
            }
            Delivery::View(event) => self.on_view(cx, *event),
            Delivery::Lock { process, request, news } => {
                self.on_lock_news(cx, process, request, news);
            }
        }
    }

    fn on_view(&mut self, cx: &mut Around<'_>, event: ViewEvent) {
        let is_out = !event.view.contains(self.me);
        tracing::info!(me = ?self.me, view = ?event.view, "view");
        if let Some(former) = self.former.take() {
            cx.tell(RingNews::Rejoined { missed: former.missed_before(&event) });
        }
        self.on_locks_shown(&event);
        cx.tell(RingNews::View(Box::new(event)));
        if is_out {
            self.on_out(cx);
        }
    }

    fn on_data(&mut self, cx: &mut Around<'_>, packet: DataPacket) {
        cx.counters.data_received += 1;
        let DataPacket { source, seqno, data } = packet;
        let Some(ring) = &mut self.ring else { return };
        if data.qos == Qos::Unreliable {
            return self.on_unreliable(cx, source, data);
        }
        match ring.insert(source, seqno, data) {
            Some(Arrival::New) => self.advance(cx, Some((source, seqno))),
            Some(Arrival::Duplicate) => cx.counters.data_duplicate += 1,
            Some(Arrival::TooFar) => cx.counters.data_too_far += 1,
            None => cx.counters.data_unknown_source += 1,
        }
    }

    pub(super) fn on_unreliable(&mut self, cx: &mut Around<'_>, source: Process, data: Data) {
        let ring = self.ring.as_ref();
        if !ring.is_some_and(|it| it.view().contains(source) || it.is_guest(source)) {
            cx.counters.data_unknown_source += 1;
            return;
        }
        if data.is_first && data.is_last {
            let Data { message: number, qos, handler, is_call, payload, .. } = data;
            let whole = Whole { number, qos, handler, is_call, payload };
            self.hand_out(cx, Delivery::Message { source, whole, round: None, place: None });
            self.advance(cx, None);
        }
    }

    /// Sends unreliable messages, which need no window. They are delivered here like elsewhere.
    fn send_unreliable(&mut self, cx: &mut Around<'_>) {
        while let Some(data) = self.sending.next_unreliable() {
            cx.counters.data_sent += 1;
            let packet = DataPacket { source: self.me, seqno: data.message, data: data.clone() };
            cx.multicast(&Packet::Data(packet));
            self.on_unreliable(cx, self.me, data);
        }
    }

    /// Sends the next packet that the window allows, and inserts it into the own stream.
    fn send_next(&mut self, cx: &mut Around<'_>) -> Option<SeqNo> {
        let ring = self.ring.as_ref()?;
        let is_going = self.is_leave_asked || self.merging.is_some();
        let may_send = self.reforming.is_idle() && ring.shortage().is_none();
        if !may_send || is_going || !ring.view().contains(self.me) {
            return None;
        }
        self.send_unreliable(cx);
        let ring = self.ring.as_mut()?;
        let (seqno, data) = self.sending.next_packet(cx.now, cx.sizes())?;
        ring.insert(self.me, seqno, data.clone());
        cx.counters.data_sent += 1;
        if ring.view().len() > 1 {
            cx.multicast(&Packet::Data(DataPacket { source: self.me, seqno, data }));
        }
        Some(seqno)
    }

    pub(super) fn watch_own(&mut self, cx: &mut Around<'_>) {
        match self.sending.due(&self.pace, cx.config) {
            Some(at) if self.reforming.is_idle() && !self.is_short() => {
                cx.timers.set((cx.group, Timer::Retransmit), at.max(cx.now));
            }
            _ => cx.cancel(Timer::Retransmit),
        }
    }

    /// Returns a packet of a source for retransmission.
    pub(super) fn packet_of(&self, source: Process, seqno: SeqNo) -> Option<Packet> {
        let data = self.ring.as_ref()?.stream(source)?.packet(seqno)?.clone();
        Some(Packet::Data(DataPacket { source, seqno, data }))
    }

    fn on_retransmit_timer(&mut self, cx: &mut Around<'_>) {
        let may_send = self.reforming.is_idle() && !self.is_short();
        if self.sending.due(&self.pace, cx.config).is_none_or(|due| due > cx.now) || !may_send {
            return self.watch_own(cx);
        }
        let (again, tries) = self.sending.on_timeout(cx.now, RESENT_AT_ONCE);
        let packets: Vec<Packet> =
            again.into_iter().filter_map(|seqno| self.packet_of(self.me, seqno)).collect();
        if tries > cx.config.tries {
            return self.suspect(cx, "own data got no place");
        }
        for packet in packets {
            cx.counters.data_resent += 1;
            cx.multicast(&packet);
        }
        self.advance(cx, None);
    }

    /// Returns the epoch of the ring, if this node is in one.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.ring.as_ref().map(|ring| ring.view().epoch)
    }

    /// Asserts the invariants.
    pub(super) fn check(&self) {
        if let Some(ring) = &self.ring {
            ring.check();
        }
        self.locks.check();
        self.answering.check();
        assert!(self.wishes.len() <= MAX_WISHES + MAX_OWN + 1, "too many wishes");
    }

    /// Returns `true` if this member may request another lock now. Leaving and releasing locks are
    /// always allowed, because those requests are no more than the locks.
    pub(super) fn may_wish(&self) -> bool {
        self.wishes.len() < MAX_WISHES
    }

    /// Queues a request for a change of the view.
    pub(super) fn wish(&mut self, cx: &mut Around<'_>, kind: ListChangeKind) {
        let request = self.next_request;
        self.next_request = next_number(request);
        self.wishes.push_back(ListChange { process: self.me, request, kind });
        if self.wishes.len() == 1 {
            self.ask_for_change(cx);
        }
    }
}

/// Maximum number of queued change requests with which another lock may be requested.
const MAX_WISHES: usize = 64;
/// Maximum number of packets that are retransmitted at once after a timeout.
const RESENT_AT_ONCE: usize = 8;
