//! One group of this node: what it has heard, what it wishes, and what follows.
//!
//! All branching is here and in the parts named after sections of the paper: `turns` (4.2),
//! `lists` (4.3), `reforming` (4.4). What all members compute alike is in [`Ring`].

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

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) me: Process,
    pub(super) terms: Terms,
    /// `None` until this node was let in or has begun a ring.
    pub(super) ring: Option<Ring>,
    pub(super) reforming: Reforming,
    pub(super) sending: Sending,
    /// The other nodes that are in the group, as the membership provider says.
    pub(super) known: BTreeSet<NodeId>,
    /// Requests of all members and joiners that no New List has answered yet.
    pub(super) requests: ListRequests,
    /// This member's own, the first of them asked for.
    pub(super) wishes: VecDeque<ListChange>,
    pub(super) next_request: u32,
    pub(super) confirming: Confirming,
    /// When it may be told again what all members have.
    pub(super) stable_due: Time,
    pub(super) reach: Reach,
    pub(super) locks: OwnLocks,
    pub(super) calling: Calling,
    pub(super) answering: Answering,
    /// The last round of this member's own, until its token is known to be accepted.
    pub(super) passed: Option<Timestamp>,
    pub(super) pace: Pace,
    /// The token was accepted by the round before this place, and that was not said yet.
    pub(super) unconfirmed: Option<Timestamp>,
    pub(super) batch: Batch,
    /// How long the token waits here, because the application does not keep up.
    pub(super) slowness: core::time::Duration,
    /// The token has waited that long.
    pub(super) has_waited: bool,
    /// A joiner and the creator of a ring speak at once: that is their acknowledgement.
    pub(super) must_speak: bool,
    pub(super) tries: Tries,
    pub(super) lacked: Lacks,
    /// What the timer waits for that requests what is missing.
    pub(super) awaited: Lacks,
    pub(super) repairs: Repairs,
    pub(super) notices: Notices,
    /// The ring from which this node was removed, until a view of another is delivered.
    pub(super) former: Option<Former>,
    /// When this node has last known of a ring that it is not in.
    pub(super) elsewhere: Option<Time>,
    /// Known nodes with larger ids that have asked to be let in since they were last in a ring, and
    /// when they did so last.
    pub(super) joiners: BTreeMap<NodeId, Time>,
    pub(super) quorum: Quorum,
    pub(super) is_leaving: bool,
    /// The others were asked to let it go: nothing more is sent.
    pub(super) is_leave_asked: bool,
    /// It leaves to join this larger ring of the group.
    pub(super) merging: Option<Epoch>,
    /// A ring has heard that this node asks to be let in.
    pub(super) is_in_line: bool,
    /// The ring that it asks to be let in; `None`: any.
    pub(super) target: Option<Epoch>,
    pub(super) is_over: bool,
}

/// How often something was tried in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    pub(super) pass: u32,
    pub(super) ask: u32,
    pub(super) request: u32,
    pub(super) join: u32,
    /// Requests to be let in that a ring has heard which does not work.
    pub(super) in_line: u32,
}

impl Group {
    /// A group that this node is about to join.
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

    /// A sender that has sent nothing yet.
    pub(super) fn sending(config: &Config) -> Sending {
        let limits = Limits {
            packet_bytes: config.piece_bytes() + super::packet::DATA_BYTES,
            window_bytes: config.window_bytes,
            timeouts: config.timeouts(),
        };
        Sending::new(Box::new(VanJacobson::new(limits)), config.first_number)
    }

    /// Whether this node calls the group without being in it.
    pub(super) fn is_of_guest(&self) -> bool {
        self.calling.guest.is_some()
    }

    /// The version of the ring's epoch; 0 without a ring.
    pub(super) fn version(&self) -> u32 {
        self.ring.as_ref().map_or(0, |ring| ring.view().epoch.version)
    }

    /// This node as a member.
    pub(super) fn member(&self) -> Member {
        let Terms { partition, is_multicast, is_voter, .. } = self.terms;
        Member { process: self.me, partition, is_multicast, is_voter }
    }

    /// Takes a message of this node's own.
    pub(super) fn send(&mut self, cx: &mut Around<'_>, qos: Qos, payload: Bytes) -> SeqNo {
        let outgoing = Outgoing { qos, handler: None, is_call: false, payload };
        let number = self.sending.push(outgoing);
        self.advance(cx, None);
        number
    }

    /// A packet arrived from `sender`.
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
            // The engine has put it together before it came here: a part of a part is nonsense.
            Packet::Part(_) => cx.counters.malformed += 1,
        }
    }

    /// A timer of the group is due.
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

    /// Does all that can be done now: applies rounds, delivers, takes the token's turn, sends.
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
            // What comes after a list was accepted is not in it: it waits for its place, so that
            // all who go on with the list have delivered the same.
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

    /// Another member has all that has a place: it is not under way any more. What this member has
    /// only given a place itself may still wait in its own queue.
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

    /// Sends what waits for no window; it is delivered here as anywhere else.
    fn send_unreliable(&mut self, cx: &mut Around<'_>) {
        while let Some(data) = self.sending.next_unreliable() {
            cx.counters.data_sent += 1;
            let packet = DataPacket { source: self.me, seqno: data.message, data: data.clone() };
            cx.multicast(&Packet::Data(packet));
            self.on_unreliable(cx, self.me, data);
        }
    }

    /// Sends the next packet that the window lets out. It is here then like any other.
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

    /// The packet of a source, as it is sent again.
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

    /// The epoch of the ring, if this node is in one.
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

    /// Whether this member may ask for another lock now. It may always leave, and give back what it
    /// has asked for: those requests are as few as the locks.
    pub(super) fn may_wish(&self) -> bool {
        self.wishes.len() < MAX_WISHES
    }

    /// Asks for a change of the view.
    pub(super) fn wish(&mut self, cx: &mut Around<'_>, kind: ListChangeKind) {
        let request = self.next_request;
        self.next_request = next_number(request);
        self.wishes.push_back(ListChange { process: self.me, request, kind });
        if self.wishes.len() == 1 {
            self.ask_for_change(cx);
        }
    }
}

/// So many requests for changes of the view wait, and no other lock is asked for.
const MAX_WISHES: usize = 64;
/// Packets that are sent again at once after a timeout.
const RESENT_AT_ONCE: usize = 8;
