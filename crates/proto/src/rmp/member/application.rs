use bytes::Bytes;

use super::own_changes::OwnChanges;
use super::stability::Stability;
use crate::ring::{
    ListChange, ListChangeKind, LockChange, LockError, LockName, LockNews, Process, Qos, RingNews,
    Timestamp, ViewEvent,
};
use crate::rmp::config::Config;
use crate::rmp::context::Context;
use crate::rmp::own_locks::OwnLocks;
use crate::rmp::packet::{DataPacket, Packet};
use crate::rmp::ring::{DeliveredMessage, Ring, Round};
use crate::rmp::rpc::{Client, Server};
use crate::rmp::sender::{Outgoing, Sender};
use crate::{Event, How, Message, SeqNo};

#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) sender: Sender,
    pub(super) stability: Stability,
    pub(super) changes: OwnChanges,
    locks: OwnLocks,
    pub(crate) client: Client,
    pub(crate) server: Server,
}

impl Application {
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

    pub(crate) fn send(&mut self, qos: Qos, payload: Bytes) -> SeqNo {
        self.sender.push(Outgoing { qos, handler: None, is_call: false, payload })
    }

    pub(crate) fn confirm(&mut self) {
        self.stability.confirm(self.sender.last_message());
    }

    pub(crate) fn lock(&mut self, name: LockName, waits: bool) -> Result<(), LockError> {
        self.locks.may_request(name)?;
        if !self.changes.has_room() {
            return Err(LockError::TooMany { asked: self.changes.waiting.len() });
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

    pub(super) fn on_token_site_heard(&mut self) {
        self.sender.on_token_site_heard();
        self.changes.on_token_site_heard();
    }

    pub(super) fn retransmit(&mut self, cx: &mut Context<'_>, ring: &Ring) -> bool {
        if ring.token() == ring.me() {
            // This member has to receive missing packets before it orders its own.
            self.sender.on_token_site_heard();
        }
        let (again, silent_tries) = self.sender.on_timeout(cx.now);
        if silent_tries > cx.config.tries {
            return false;
        }
        for packet in again.into_iter().filter_map(|seqno| DataPacket::kept(ring, ring.me(), seqno))
        {
            cx.counters.data_resent += 1;
            cx.multicast(&Packet::Data(packet));
        }
        true
    }

    pub(super) fn on_applied(&mut self, cx: &Context<'_>, ring: &Ring, round: &Round) {
        if round.runs().iter().any(|run| run.source == ring.me()) {
            self.stability.last_place = round.at;
        }
        if round.site != ring.me() || ring.view().len() == 1 {
            self.sender.release_placed(cx.now, ring);
        }
    }

    // `has_own` is `true` if the reformation has assigned places to packets of this member.
    pub(super) fn on_formed(&mut self, cx: &Context<'_>, ring: &Ring, has_own: bool) {
        self.sender.release_placed(cx.now, ring);
        self.stability.on_formed(has_own.then(|| ring.standings().settled()));
        self.sender.restart(cx.now);
    }

    pub(super) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        message: DeliveredMessage,
    ) {
        if message.data.is_call {
            let answer = self.server.on_message(cx, ring, &mut self.sender, message);
            if let Some((number, outcome)) = answer {
                self.client.on_answer(cx, number, outcome);
            }
            return;
        }
        let DeliveredMessage { source, data, round, place } = message;
        cx.counters.delivered += 1;
        cx.counters.bytes_delivered += data.payload.len() as u64;
        cx.events.push_back(Event::Message(Message {
            group: cx.group,
            sender: source.node,
            seqno: data.message,
            payload: data.payload,
            how: How::Direct,
            age: None,
            missing_for: core::time::Duration::ZERO,
            place,
        }));
        tracing::trace!(?source, number = %data.message, ?round, "delivered");
    }

    pub(super) fn on_view(&mut self, event: &ViewEvent) {
        if let Some(ListChange { process, request, kind: ListChangeKind::Lock { name, .. } }) =
            event.answered
            && process == self.changes.me
        {
            self.locks.on_shown(name, request);
        }
    }

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

    pub(crate) fn last_place(&self) -> Timestamp {
        match self.sender.unplaced_from() {
            Some(_) => Timestamp::MAX,
            None => self.stability.last_place,
        }
    }

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
        self.sender.waiting_bytes + self.client.held_bytes() + self.server.requests.held_bytes()
    }

    pub(crate) fn check(&self) {
        self.locks.check();
        self.server.requests.check();
        self.changes.check();
    }
}
