//! The messages that this node has published to one group, from the send queue to their outcome.

use std::collections::BTreeMap;
use std::sync::Arc;

use carom_proto::node::Node;
use carom_proto::ring::Removal;
use carom_proto::{Confirmed, SendError, SeqNo, Time};

use super::given_up::{Covered, GivenUp};
use crate::shared::error::{ConfirmError, DeliveryError};
use crate::shared::group::GroupShared;
use crate::shared::receipt::Receipt;
use crate::shared::send_queue::SendQueueReader;

#[derive(Debug)]
pub(crate) struct OwnMessages {
    shared: Arc<GroupShared>,
    queue: SendQueueReader,
    /// Receipts of messages that await delivery at their place in the order, by sequence number.
    awaited: BTreeMap<u32, Receipt>,
    is_held: bool,
    accepted: u64,
    last: Option<SeqNo>,
    dropped: u64,
    given_up: GivenUp,
    confirmed: Option<(u64, Confirmed)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Accepted,
    Dropped,
    /// Another member sends in the bulk group, or the topology has no place for this node.
    Lost,
    Held,
    Empty,
}

impl OwnMessages {
    pub(crate) fn new(shared: Arc<GroupShared>) -> Self {
        Self {
            queue: SendQueueReader::new(Arc::clone(&shared.queue)),
            shared,
            awaited: BTreeMap::new(),
            is_held: false,
            accepted: 0,
            last: None,
            dropped: 0,
            given_up: GivenUp::default(),
            confirmed: None,
        }
    }

    pub(crate) fn send_next(&mut self, node: &mut Node, now: Time, count: usize) -> Sent {
        let Some(outgoing) = self.queue.front(count) else { return Sent::Empty };
        // The engine keeps the payload only if it accepts the message. Cloning copies a reference.
        match node.send(now, self.shared.id, outgoing.payload.clone(), outgoing.options) {
            Ok(seqno) => {
                self.on_accepted(seqno);
                Sent::Accepted
            }
            Err(
                error @ (SendError::HeldBack { .. }
                | SendError::QueueFull { .. }
                | SendError::NotReady),
            ) => {
                self.is_held = true;
                if let SendError::HeldBack { by, behind } = error {
                    self.shared.set_held_back(Some((by, behind)));
                }
                Sent::Held
            }
            // The application's call has already checked the size and the quality of service, so
            // the group was left before the message was sent.
            Err(SendError::NotJoined | SendError::TooLarge { .. } | SendError::Qos { .. }) => {
                self.drop_next();
                Sent::Dropped
            }
            // The other member has started to send since the message was published.
            Err(SendError::HasSender { .. } | SendError::NoPlace) => {
                self.drop_next();
                Sent::Lost
            }
        }
    }

    fn on_accepted(&mut self, seqno: SeqNo) {
        self.accepted += 1;
        self.last = Some(seqno);
        if std::mem::take(&mut self.is_held) {
            self.shared.set_held_back(None);
        }
        let receipt = self.queue.pop().and_then(|outgoing| outgoing.receipt);
        if let Some(receipt) = receipt.filter(Receipt::is_wanted) {
            self.awaited.insert(seqno.0, receipt);
        }
    }

    fn drop_next(&mut self) {
        self.dropped += 1;
        self.given_up.add(self.taken(), self.taken());
        self.queue.pop();
    }

    pub(crate) fn take_receipt(&mut self, seqno: SeqNo) -> Option<Receipt> {
        self.awaited.remove(&seqno.0)
    }

    /// Gives up the unconfirmed messages, because sequence numbers restart, and fails the receipts.
    pub(crate) fn on_removed(&mut self, why: Removal) {
        self.give_up_unconfirmed();
        for receipt in std::mem::take(&mut self.awaited).into_values() {
            receipt.send(Err(DeliveryError::Removed { why }));
        }
    }

    pub(crate) fn give_up_unconfirmed(&mut self) {
        self.last = None;
        self.given_up.add(self.last_confirmed() + 1, self.taken());
    }

    pub(crate) fn covered(&self, message: Option<u64>) -> Covered {
        let published = self.taken() + self.waiting() as u64;
        message.map_or_else(|| self.given_up.covered(published), Covered::one)
    }

    pub(crate) fn has_given_up(&self, covered: Covered) -> bool {
        self.given_up.has_any(covered)
    }

    pub(crate) fn note_reported(&mut self, covered: Covered) {
        self.given_up.note_reported(covered);
    }

    /// Settles the covered messages and all earlier ones that were not given up.
    pub(crate) fn note_confirmed(&mut self, covered: Covered, confirmed: &Confirmed) {
        if covered.last >= self.last_confirmed() && !confirmed.is_unconfirmed() {
            self.confirmed = Some((covered.last, confirmed.clone()));
        }
    }

    pub(crate) fn known(&mut self, covered: Covered) -> Option<Result<Confirmed, ConfirmError>> {
        if self.has_given_up(covered) {
            self.note_reported(covered);
            return Some(Err(ConfirmError::GivenUp));
        }
        match &self.confirmed {
            Some((last, confirmed)) if *last >= covered.last => return Some(Ok(confirmed.clone())),
            _ if self.last.is_some() => return None,
            _ => {}
        }
        let (group, up_to) = (self.shared.id, SeqNo::FIRST.minus(1));
        let members = self.shared.members().len();
        Some(Ok(Confirmed { group, up_to, members, incomplete: Vec::new() }))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn taken(&self) -> u64 {
        self.accepted + self.dropped
    }

    pub(crate) fn last(&self) -> Option<SeqNo> {
        self.last
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn close(&self) {
        self.queue.close();
    }

    fn last_confirmed(&self) -> u64 {
        self.confirmed.as_ref().map_or(0, |(last, _)| *last)
    }
}
