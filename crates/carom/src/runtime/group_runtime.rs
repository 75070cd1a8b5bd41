//! The runtime of one group of one node.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use carom_proto::node::Node;
use carom_proto::rmp::{Removal, RingEvent, RingNews};
use carom_proto::{Event, GroupId, LossCause, Lost, NodeId, Safe, SendError, SeqNo, Time};

use super::delivery::Delivery;
use super::given_up::{Covered, GivenUp};
use super::locks::LockTable;
use crate::shared::error::{NotDelivered, NotSafe};
use crate::shared::group::{GroupParts, GroupShared};
use crate::shared::receipt::Receipt;
use crate::shared::send_queue::Outgoing;
use crate::shared::status::{GroupStatus, RingStatus};

/// A joined group, with its queues to and from the application.
#[derive(Debug)]
pub(crate) struct GroupRuntime {
    pub(crate) shared: Arc<GroupShared>,
    delivery: Delivery,
    pub(crate) locks: LockTable,
    /// Multicast address of the group, if the node has multicast.
    pub(crate) address: Option<Ipv4Addr>,
    /// Messages taken out of the queue, to be sent next.
    next: VecDeque<Outgoing>,
    /// Receipts of own messages that are delivered at their place in the order, by sequence number.
    awaited: BTreeMap<u32, Receipt>,
    /// Receipts of messages that are staged for the application, or kept until it makes room for
    /// them.
    delivered: Vec<Receipt>,
    is_held: bool,
    /// `true` if events beyond the queue were waiting at the last check, in a group that guarantees
    /// all messages.
    is_behind: bool,
    accepted: u64,
    last: Option<SeqNo>,
    dropped: u64,
    given_up: GivenUp,
    /// Last confirmation, and the number of the last message that it covers.
    confirmed: Option<(u64, Safe)>,
}

/// Result of publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The queue is empty.
    Empty,
    /// The queue has more messages, for the next round.
    More,
    /// A member lags too far behind, the engine is full, or the group is still being joined.
    Held,
}

impl GroupRuntime {
    /// Returns the group, with room for `capacity` events, and the application's ends of its
    /// queues.
    pub(crate) fn new(
        shared: GroupShared,
        address: Option<Ipv4Addr>,
        capacity: usize,
    ) -> (Self, GroupParts) {
        let shared = Arc::new(shared);
        let keeps_all = shared.profile.promises_all();
        let (delivery, events) = Delivery::new(shared.id, capacity, keeps_all);
        let parts = GroupParts { shared: Arc::clone(&shared), events };
        let group = Self {
            shared,
            delivery,
            locks: LockTable::default(),
            address,
            next: VecDeque::new(),
            awaited: BTreeMap::new(),
            delivered: Vec::new(),
            is_held: false,
            is_behind: false,
            accepted: 0,
            last: None,
            dropped: 0,
            given_up: GivenUp::default(),
            confirmed: None,
        };
        (group, parts)
    }

    pub(crate) fn id(&self) -> GroupId {
        self.shared.id
    }

    /// Sends up to `share` messages while the engine accepts them. Returns the number of accepted
    /// messages.
    pub(crate) fn publish(
        &mut self,
        node: &mut Node,
        now: Time,
        share: usize,
    ) -> (usize, Progress) {
        for taken in 0..share {
            let Some(mut outgoing) = self.next(share - taken) else {
                return (taken, Progress::Empty);
            };
            // The engine keeps the payload only if it accepts the message. Cloning copies a
            // reference.
            match node.send(now, self.id(), outgoing.payload.clone(), outgoing.options) {
                Ok(seqno) => {
                    self.accepted += 1;
                    self.last = Some(seqno);
                    self.release();
                    self.shared.queue.sent(&outgoing);
                    if let Some(receipt) = outgoing.receipt.take().filter(Receipt::is_wanted) {
                        self.awaited.insert(seqno.0, receipt);
                    }
                }
                Err(
                    error @ (SendError::HeldBack { .. }
                    | SendError::QueueFull { .. }
                    | SendError::NotReady),
                ) => {
                    self.next.push_front(outgoing);
                    self.is_held = true;
                    if let SendError::HeldBack { by, behind } = error {
                        self.shared.set_held_back(Some((by, behind)));
                    }
                    return (taken, Progress::Held);
                }
                // The application's call has already checked these conditions, so the group was
                // left before the message was sent.
                Err(SendError::NotJoined | SendError::TooLarge { .. } | SendError::Qos { .. }) => {
                    self.drop_message(&outgoing);
                }
                // Another member of the bulk group has started to send since the message was
                // published, or the topology has no place for this node.
                Err(SendError::HasSender { .. } | SendError::NoPlace) => {
                    self.drop_message(&outgoing);
                    self.delivery.deliver(unnumbered(self.shared.id, node.id()));
                    self.delivery.hand_over();
                }
            }
        }
        (share, Progress::More)
    }

    /// Sends the messages that are queued now, while the engine accepts them. Later ones are not
    /// waited for, as there might be no end to them.
    pub(crate) fn publish_rest(&mut self, node: &mut Node, now: Time) {
        let _ = self.publish(node, now, self.unpublished());
    }

    /// Returns the backlog of events beyond the queue, in a group that guarantees all messages;
    /// `None` if there is none and was none at the last call.
    fn changed_backlog(&mut self) -> Option<f64> {
        if !self.shared.profile.promises_all() {
            return None;
        }
        let backlog = self.delivery.backlog();
        let was_behind = std::mem::replace(&mut self.is_behind, backlog > 0.0);
        (was_behind || self.is_behind).then_some(backlog)
    }

    /// Delivers an event to the application. The sender of an own message is notified after the
    /// hand-over. Returns the backlog, like [`GroupRuntime::changed_backlog`].
    pub(crate) fn deliver(&mut self, own: NodeId, event: Event) -> Option<f64> {
        match &event {
            Event::View(change) => self.shared.change_members(change),
            Event::Message(message) if message.sender == own => {
                self.delivered.extend(self.awaited.remove(&message.seqno.0));
            }
            _ => {}
        }
        self.delivery.deliver(event);
        self.changed_backlog()
    }

    /// Uses the room that the application has made in the event queue. Returns the backlog, like
    /// [`GroupRuntime::changed_backlog`].
    pub(crate) fn on_room(&mut self) -> Option<f64> {
        self.delivery.flush();
        self.hand_over();
        self.changed_backlog()
    }

    /// Hands the events of a turn over to the application.
    pub(crate) fn hand_over(&mut self) {
        self.delivery.hand_over();
        self.delivered.drain(..).for_each(|receipt| receipt.send(Ok(())));
    }

    /// Gives up own messages whose outcome will never be known, after a removal from the ring.
    /// Later messages begin with the first number again.
    pub(crate) fn on_removed(&mut self, why: Removal) {
        self.give_up_unconfirmed();
        for receipt in std::mem::take(&mut self.awaited).into_values() {
            receipt.send(Err(NotDelivered::Removed { why }));
        }
    }

    /// Ends the membership because the application is too slow: this is its last event.
    pub(crate) fn on_too_slow(&mut self) {
        let why = Removal::TooSlow;
        self.on_removed(why);
        let news = RingNews::Removed { why, unsent: None, rejoins: false };
        self.delivery.deliver(Event::Ring(RingEvent { group: self.id(), news }));
    }

    /// Gives up sent messages that will never be confirmed. Later messages begin with the first
    /// number again.
    pub(crate) fn give_up_unconfirmed(&mut self) {
        self.last = None;
        let confirmed = self.confirmed.as_ref().map_or(0, |(last, _)| *last);
        self.given_up.add(confirmed + 1, self.taken());
    }

    /// Returns the messages that a confirmation covers: `message`, or everything published so far.
    pub(crate) fn covered(&self, message: Option<u64>) -> Covered {
        let published = self.taken() + self.unpublished() as u64;
        message.map_or_else(|| self.given_up.covered(published), Covered::one)
    }

    pub(crate) fn has_given_up(&self, covered: Covered) -> bool {
        self.given_up.has_any(covered)
    }

    /// Records that a confirmation of these messages has failed because some were given up.
    pub(crate) fn note_reported(&mut self, covered: Covered) {
        self.given_up.note_reported(covered);
    }

    /// Records that these messages, and all earlier ones that were not given up, are settled at all
    /// members.
    pub(crate) fn note_confirmed(&mut self, covered: Covered, safe: &Safe) {
        let confirmed = self.confirmed.as_ref().map_or(0, |(last, _)| *last);
        if covered.last >= confirmed && !safe.is_unconfirmed() {
            self.confirmed = Some((covered.last, safe.clone()));
        }
    }

    /// Returns the result for these messages, which have all left the queue, if no query of the
    /// engine is necessary.
    pub(crate) fn known(&mut self, covered: Covered) -> Option<Result<Safe, NotSafe>> {
        if self.has_given_up(covered) {
            self.note_reported(covered);
            return Some(Err(NotSafe::GivenUp));
        }
        match &self.confirmed {
            Some((last, safe)) if *last >= covered.last => return Some(Ok(safe.clone())),
            _ if self.last.is_some() => return None,
            _ => {}
        }
        // Nothing was sent.
        let (group, up_to) = (self.id(), SeqNo::FIRST.minus(1));
        let members = self.shared.members().len();
        Some(Ok(Safe { group, up_to, members, incomplete: Vec::new() }))
    }

    /// Returns the number of messages that the engine has not accepted yet.
    fn unpublished(&self) -> usize {
        self.shared.queue.len() + self.next.len()
    }

    /// Returns the number of messages that have left the queue, whether or not the engine accepted
    /// them.
    pub(crate) fn taken(&self) -> u64 {
        self.accepted + self.dropped
    }

    /// Returns the sequence number of the last message that the engine has accepted.
    pub(crate) fn last(&self) -> Option<SeqNo> {
        self.last
    }

    /// Returns the number of messages that were never sent, including those still queued.
    pub(crate) fn unsent(&self) -> u64 {
        self.dropped + self.unpublished() as u64
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the number of events that were dropped for lack of room in the event queue.
    pub(crate) fn dropped_events(&self) -> u64 {
        self.delivery.dropped()
    }

    /// Returns the current status; `address` is the multicast address.
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
            unread: self.delivery.unread(),
            dropped: self.delivery.dropped(),
        }
    }

    /// Returns the next message, one of up to `share` that are taken out of the queue together. The
    /// mark is cleared before the last check of the queue, so that a message that arrives later
    /// enters the group again.
    fn next(&mut self, share: usize) -> Option<Outgoing> {
        if self.next.is_empty() {
            self.shared.queue.take(share, &mut self.next);
        }
        if self.next.is_empty() {
            self.shared.ready.clear();
            self.shared.queue.take(share, &mut self.next);
        }
        self.next.pop_front()
    }

    /// Gives up a message that the engine refuses.
    fn drop_message(&mut self, outgoing: &Outgoing) {
        self.dropped += 1;
        self.given_up.add(self.taken(), self.taken());
        self.shared.queue.sent(outgoing);
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.shared.set_held_back(None);
        }
    }
}

impl Drop for GroupRuntime {
    fn drop(&mut self) {
        self.hand_over();
        self.shared.queue.close();
    }
}

/// Returns the loss event of an own message that never received a sequence number.
fn unnumbered(group: GroupId, sender: NodeId) -> Event {
    let (first, last, cause) = (SeqNo(0), SeqNo(0), LossCause::AnotherSender);
    Event::Lost(Lost { group, sender, first, last, cause })
}
