//! The services of a member for its application: messages, confirmations, locks and requests.

use alloc::vec::Vec;

use bytes::Bytes;

use super::own_changes::OwnChanges;
use super::stability::Stability;
use crate::rmp::config::Config;
use crate::rmp::context::Context;
use crate::rmp::event::RingNews;
use crate::rmp::ids::{Process, Timestamp};
use crate::rmp::locks::{LockChange, LockError, LockName, LockNews, OwnLocks};
use crate::rmp::packet::{DataPacket, NonMemberAck, Packet};
use crate::rmp::qos::Qos;
use crate::rmp::request::{ReplyError, RequestId, RequestOptions, Seen};
use crate::rmp::ring::{
    Data, DeliveredMessage, ListChange, ListChangeKind, Ring, Round, ViewEvent,
};
use crate::rmp::rpc::{Client, Server};
use crate::rmp::sender::{Outgoing, Sender};
use crate::{Event, How, Message, NodeId, SeqNo};

/// Requests of a member's application, and the events for it.
#[derive(Debug)]
pub(crate) struct Application {
    sender: Sender,
    stability: Stability,
    changes: OwnChanges,
    locks: OwnLocks,
    client: Client,
    server: Server,
}

impl Application {
    /// Creates the services of a member with the open requests of `client`.
    pub(super) fn new(me: Process, config: &Config, client: Client) -> Self {
        Self {
            sender: Sender::new(config),
            stability: Stability::default(),
            changes: OwnChanges::new(me, config.first_number),
            locks: OwnLocks::default(),
            client,
            server: Server::default(),
        }
    }

    pub(crate) fn sender(&self) -> &Sender {
        &self.sender
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn changes(&mut self) -> &mut OwnChanges {
        &mut self.changes
    }

    pub(crate) fn send(&mut self, qos: Qos, payload: Bytes) -> SeqNo {
        self.sender.push(Outgoing { qos, handler: None, is_call: false, payload })
    }

    /// Requests a report once everything sent so far is at all members.
    pub(crate) fn confirm(&mut self) {
        self.stability.confirm(self.sender.last_message());
    }

    pub(crate) fn lock(&mut self, name: LockName, waits: bool) -> Result<(), LockError> {
        self.locks.may_request(name)?;
        if !self.changes.has_room() {
            return Err(LockError::TooMany { asked: self.changes.len() });
        }
        let request = self.changes.push(ListChangeKind::Lock { name, waits });
        self.locks.on_requested(name, true, request);
        Ok(())
    }

    pub(crate) fn unlock(&mut self, name: LockName) -> Result<(), LockError> {
        self.locks.may_release(name)?;
        self.server.end_serving(name);
        let request = self.changes.push(ListChangeKind::Unlock(name));
        self.locks.on_requested(name, false, request);
        Ok(())
    }

    pub(crate) fn request(
        &mut self,
        cx: &mut Context<'_>,
        number: u32,
        payload: Bytes,
        options: RequestOptions,
    ) {
        self.client.request(cx, &mut self.sender, number, payload, options);
        self.client.set_timer(cx);
    }

    pub(crate) fn reply(
        &mut self,
        cx: &mut Context<'_>,
        ring: Option<&Ring>,
        id: RequestId,
        payload: Bytes,
    ) -> Result<(), ReplyError> {
        self.server.reply(cx, ring, &mut self.sender, id, payload)
    }

    /// Handles the admission of this member, with the requests that were delivered before.
    pub(super) fn on_admitted(&mut self, seen: Vec<(NodeId, Seen)>) {
        self.server.enter(seen);
    }

    /// Handles a new life of this member, whose requests wait for another ring.
    pub(super) fn on_new_life(&mut self, me: Process) {
        self.changes.enter_life(me);
    }

    /// Sets the timer of the requests, which expire in any ring that they wait for.
    pub(super) fn set_call_timer(&self, cx: &mut Context<'_>) {
        self.client.set_timer(cx);
    }

    pub(super) fn next_unreliable(&mut self) -> Option<Data> {
        self.sender.next_unreliable()
    }

    pub(super) fn next_packet(&mut self, cx: &Context<'_>) -> Option<(SeqNo, Data)> {
        self.sender.next_packet(cx.now, cx.config.fragment_sizes())
    }

    pub(super) fn set_retransmit_timer(&self, cx: &mut Context<'_>, may_send: bool) {
        self.sender.set_timer(cx, may_send);
    }

    /// Sends packets again that have waited too long for their places. Returns `false` if all tries
    /// are used up.
    pub(super) fn retransmit(&mut self, cx: &mut Context<'_>, ring: &Ring) -> bool {
        let (again, tries) = self.sender.on_timeout(cx.now);
        if tries > cx.config.tries {
            return false;
        }
        for packet in again.into_iter().filter_map(|seqno| DataPacket::kept(ring, ring.me(), seqno))
        {
            cx.counters.data_resent += 1;
            cx.multicast(&Packet::Data(packet));
        }
        true
    }

    pub(super) fn on_nack(&mut self, seqno: SeqNo) {
        self.sender.on_nack(seqno);
    }

    pub(super) fn release_placed(&mut self, cx: &Context<'_>, ring: &Ring) {
        self.sender.release_placed(cx.now, ring);
    }

    pub(super) fn on_applied(&mut self, cx: &Context<'_>, ring: &Ring, round: &Round) {
        if round.runs().iter().any(|run| run.source == ring.me()) {
            self.stability.on_placed(round.at);
        }
        if round.site != ring.me() || ring.view().len() == 1 {
            self.release_placed(cx, ring);
        }
    }

    /// Handles a reformation. `has_own` is `true` if it has assigned places to packets of this
    /// member.
    pub(super) fn on_formed(&mut self, cx: &Context<'_>, ring: &Ring, has_own: bool) {
        self.release_placed(cx, ring);
        self.stability.on_formed(has_own.then(|| ring.standings().settled()));
        self.sender.restart(cx.now);
    }

    pub(super) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        message: DeliveredMessage,
    ) {
        if message.whole.is_call {
            let answer = self.server.on_message(cx, ring, &mut self.sender, message);
            if let Some((number, outcome)) = answer {
                self.client.on_answer(cx, number, outcome);
            }
            return;
        }
        let DeliveredMessage { source, whole, round, place } = message;
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

    pub(super) fn on_view(&mut self, event: &ViewEvent) {
        if let Some(ListChange { process, request, kind: ListChangeKind::Lock { name, .. } }) =
            event.answered
            && process == self.changes.me()
        {
            self.locks.on_shown(name, request);
        }
    }

    /// Reports a change of a lock, unless this member has made a later request. The change follows
    /// from the view that was just delivered, or from the members that are known to have an earlier
    /// one.
    pub(super) fn on_lock_news(&mut self, cx: &mut Context<'_>, request: u32, news: LockNews) {
        let is_current = match news.change {
            LockChange::Granted { .. } => self.locks.is_wanted_as_shown(news.name),
            LockChange::Refused { .. } | LockChange::Released => {
                self.locks.on_ended(news.name, request)
            }
            LockChange::Lost => true,
        };
        if !is_current {
            return;
        }
        cx.report(RingNews::Lock(news));
        match news.change {
            LockChange::Granted { .. } => {
                cx.counters.locks_granted += 1;
                self.server.begin_serving(cx, news.name);
            }
            LockChange::Refused { .. } => cx.counters.locks_refused += 1,
            LockChange::Released | LockChange::Lost => self.server.end_serving(news.name),
        }
    }

    pub(super) fn lose_locks(&mut self, cx: &mut Context<'_>) {
        for name in self.locks.lose() {
            cx.counters.locks_lost += 1;
            cx.report(RingNews::Lock(LockNews { name, change: LockChange::Lost }));
        }
    }

    pub(super) fn report_stability(&mut self, cx: &mut Context<'_>, ring: &mut Ring) {
        self.stability.report_confirmed(cx, ring, &self.sender);
        self.stability.report_stable(cx, ring);
    }

    /// Reports the place up to which everything that was delivered is at all members.
    pub(super) fn report_stable(&mut self, cx: &mut Context<'_>, ring: &mut Ring) {
        self.stability.report_stable(cx, ring);
    }

    pub(super) fn on_ack(&mut self, cx: &mut Context<'_>, from: NodeId, ack: NonMemberAck) {
        self.client.on_ack(cx, from, ack);
    }

    pub(super) fn on_pull(
        &mut self,
        cx: &mut Context<'_>,
        ring: Option<&Ring>,
        id: RequestId,
        offset: u32,
    ) {
        self.server.on_pull(cx, ring, &mut self.sender, id, offset);
    }

    pub(super) fn on_call_timer(&mut self, cx: &mut Context<'_>) {
        self.client.on_timer(cx, &mut self.sender);
    }

    /// Sends all open requests again in a new life.
    pub(super) fn repeat_requests(&mut self, cx: &mut Context<'_>) {
        self.client.queue_all(cx, &mut self.sender);
    }

    pub(super) fn give_up_requests(&mut self, cx: &mut Context<'_>) {
        self.client.give_up_all(cx);
    }

    pub(super) fn take_client(&mut self) -> Client {
        core::mem::take(&mut self.client)
    }

    /// Returns the place from which all members have everything that was sent here; the last place
    /// if some messages have none.
    pub(crate) fn last_place(&self) -> Timestamp {
        match self.sender.unplaced_from() {
            Some(_) => Timestamp::MAX,
            None => self.stability.last_place(),
        }
    }

    /// Returns the range of own messages that contains all those not delivered in `ring`.
    pub(super) fn undelivered(&self, ring: Option<&Ring>) -> Option<(SeqNo, SeqNo)> {
        let own = ring.and_then(|ring| ring.sources().get(ring.me()));
        let placed = own.and_then(|stream| stream.first_undelivered());
        let unplaced = self.sender.unplaced_from();
        let first = match (placed, unplaced) {
            (Some(placed), Some(unplaced)) => placed.earlier(unplaced),
            (placed, unplaced) => placed.or(unplaced)?,
        };
        Some((first, self.sender.last_message()))
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.sender.waiting_bytes() + self.client.held_bytes() + self.server.held_bytes()
    }

    pub(crate) fn check(&self) {
        self.locks.check();
        self.server.check();
        self.changes.check();
    }
}
