use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use carom_proto::node::Node;
use carom_proto::ring::{Removal, RingEvent, RingNews, RingStatus};
use carom_proto::{Event, GroupId, LossCause, Lost, NodeId, SeqNo, Time};

use super::delivery::Delivery;
use super::locks::LockTable;
use super::own_messages::{OwnMessages, Sent};
use crate::shared::commands::Topic;
use crate::shared::event_queue::EventReceiver;
use crate::shared::group::{GroupParts, GroupShared};
use crate::shared::receipt::Receipt;
use crate::shared::status::GroupStatus;

#[derive(Debug)]
pub(crate) struct GroupRuntime {
    pub(crate) shared: Arc<GroupShared>,
    delivery: Delivery,
    topics: BTreeMap<Topic, Delivery>,
    capacity: usize,
    pub(crate) locks: LockTable,
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) own: OwnMessages,
    delivered: Vec<Receipt>,
    is_behind: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Empty,
    More,
    /// A member lags too far behind, the engine is full, or the join is still in progress.
    Held,
}

impl GroupRuntime {
    pub(crate) fn new(
        shared: GroupShared,
        address: Option<Ipv4Addr>,
        capacity: usize,
    ) -> (Self, GroupParts) {
        let shared = Arc::new(shared);
        let keeps_all = shared.profile.promises_all();
        let (delivery, events) = Delivery::new(shared.id, capacity, keeps_all);
        let parts = GroupParts { shared: Arc::clone(&shared), events };
        let own = OwnMessages::new(Arc::clone(&shared));
        let group = Self {
            shared,
            delivery,
            topics: BTreeMap::new(),
            capacity,
            locks: LockTable::default(),
            address,
            own,
            delivered: Vec::new(),
            is_behind: false,
        };
        (group, parts)
    }

    pub(crate) fn id(&self) -> GroupId {
        self.shared.id
    }

    pub(crate) fn publish(
        &mut self,
        node: &mut Node,
        now: Time,
        share: usize,
    ) -> (usize, Progress) {
        for taken in 0..share {
            match self.own.send_next(node, now, share - taken) {
                Sent::Accepted | Sent::Dropped => {}
                Sent::Lost => {
                    self.delivery.deliver(unnumbered(self.id(), node.id()));
                    self.delivery.hand_over();
                }
                Sent::Held => return (taken, Progress::Held),
                Sent::Empty => return (taken, Progress::Empty),
            }
        }
        (share, Progress::More)
    }

    /// Sends the messages that are queued now, but not later ones, because these might never end.
    pub(crate) fn publish_rest(&mut self, node: &mut Node, now: Time) {
        let _ = self.publish(node, now, self.own.waiting());
    }

    /// Returns the backlog, or `None` if the group does not keep all messages, or had no backlog at
    /// this call and the previous one.
    fn changed_backlog(&mut self) -> Option<f64> {
        if !self.shared.profile.promises_all() {
            return None;
        }
        let backlog = self.deliveries().map(Delivery::backlog).fold(0.0, f64::max);
        let was_behind = std::mem::replace(&mut self.is_behind, backlog > 0.0);
        (was_behind || self.is_behind).then_some(backlog)
    }

    pub(crate) fn deliver(&mut self, own_id: NodeId, event: Event) -> Option<f64> {
        match &event {
            Event::View(change) => self.shared.change_members(change),
            Event::Message(message) if message.sender == own_id => {
                self.delivered.extend(self.own.take_receipt(message.seqno));
            }
            _ => {}
        }
        let topic = Topic::of(&event).and_then(|topic| self.topics.get_mut(&topic));
        topic.unwrap_or(&mut self.delivery).deliver(event);
        self.changed_backlog()
    }

    pub(crate) fn subscribe(&mut self, topic: Topic) -> EventReceiver {
        let (delivery, events) = Delivery::new(self.id(), self.capacity, true);
        self.topics.insert(topic, delivery);
        events
    }

    fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.topics.values().chain([&self.delivery])
    }

    pub(crate) fn on_room(&mut self) -> Option<f64> {
        self.topics.values_mut().for_each(Delivery::flush);
        self.delivery.flush();
        self.hand_over();
        self.changed_backlog()
    }

    pub(crate) fn hand_over(&mut self) {
        self.topics.retain(|_, delivery| !delivery.is_abandoned());
        self.topics.values_mut().for_each(Delivery::hand_over);
        self.delivery.hand_over();
        self.delivered.drain(..).for_each(|receipt| receipt.send(Ok(())));
    }

    pub(crate) fn on_too_slow(&mut self) {
        let why = Removal::TooSlow;
        self.own.on_removed(why);
        let news = RingNews::Removed { why, unsent: None, rejoins: false };
        self.delivery.deliver(Event::Ring(RingEvent { group: self.id(), news }));
    }

    pub(crate) fn dropped_events(&self) -> u64 {
        self.deliveries().map(Delivery::dropped).sum()
    }

    pub(crate) fn status(
        &self,
        address: Option<SocketAddr>,
        ring: Option<RingStatus>,
    ) -> GroupStatus {
        GroupStatus {
            name: self.shared.name.clone(),
            id: self.id(),
            profile: self.shared.profile,
            members: self.shared.members(),
            address,
            ring,
            unread: self.deliveries().map(Delivery::unread).sum(),
            dropped: self.dropped_events(),
        }
    }
}

impl Drop for GroupRuntime {
    fn drop(&mut self) {
        self.hand_over();
        self.own.close();
        self.shared.changed.notify(usize::MAX);
    }
}

/// Returns the event for the loss of an own message that never received a sequence number.
fn unnumbered(group: GroupId, sender: NodeId) -> Event {
    let (first, last, cause) = (SeqNo(0), SeqNo(0), LossCause::AnotherSender);
    Event::Lost(Lost { group, sender, first, last, cause })
}
