use alloc::boxed::Box;

use super::stream::Data;
use crate::SeqNo;
use crate::ring::{
    Epoch, LockName, LockNews, Member, Place, Process, Quorum, Timestamp, ViewEvent,
};

#[derive(Clone, Debug)]
pub(crate) enum Queued {
    Packet {
        round: Timestamp,
        place: Place,
        source: Process,
        seqno: SeqNo,
    },
    View {
        round: Timestamp,
        /// Boxed, because there are many packets and few views.
        event: Box<ViewEvent>,
    },
    Flushed {
        round: Timestamp,
        source: Process,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    Message(DeliveredMessage),
    View(Box<ViewEvent>),
    Lock {
        process: Process,
        /// Number of the answered request, or 0 for a grant.
        request: u32,
        news: LockNews,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct DeliveredMessage {
    pub(crate) source: Process,
    pub(crate) data: Data,
    /// Round that ordered the message. `None` if the message did not wait for a place.
    pub(crate) round: Option<Timestamp>,
    /// Place in the total order. `None` if earlier messages may be delivered later.
    pub(crate) place: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) round: Timestamp,
    pub(crate) name: LockName,
    pub(crate) holder: Process,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FormerRing {
    pub(super) epoch: Epoch,
    pub(super) origin: Epoch,
    pub(super) delivered: Timestamp,
}

impl FormerRing {
    /// Returns the number of missed places, or `None` if the new ring may have its own order.
    pub(crate) fn missed_before(&self, first: &ViewEvent) -> Option<u64> {
        let view = &first.view;
        // Several parts of such a ring may have continued.
        let has_parts = |it: &Member| matches!(it.quorum, Quorum::AtLeast(_));
        let is_one = view.origin == self.origin && !view.members.iter().any(has_parts);
        let missed = first.place.at.0.saturating_sub(self.delivered.0 + 1);
        (is_one || view.epoch == self.epoch).then_some(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{ListChange, ListChangeKind, RingView, member, process};

    fn view(nodes: &[u64]) -> RingView {
        let mut members = nodes.iter().map(|node| member(*node, Quorum::Majority));
        let mut view = RingView::founded_by(members.next().expect("a founder"), 0);
        for member in members {
            view.insert_after(process(nodes[0]), member);
        }
        view
    }

    fn event(nodes: &[u64], joined: &[u64], left: &[u64], failed: &[u64]) -> ViewEvent {
        let [joined, left, failed] =
            [joined, left, failed].map(|all| all.iter().copied().map(process).collect());
        ViewEvent { joined, left, failed, ..ViewEvent::of(view(nodes), Timestamp(9), process(1)) }
    }

    #[test]
    fn two_changes_become_one_without_those_that_came_and_went() {
        let mut both = event(&[1, 2, 3, 4], &[3, 4], &[7], &[8]);
        let passed = both.merge(event(&[1, 4, 5], &[5], &[2, 3], &[6]));
        assert_eq!(passed, [process(3)]);
        assert_eq!(both, event(&[1, 4, 5], &[4, 5], &[7, 2], &[8, 6]));
    }

    #[test]
    fn answer_to_a_request_for_a_lock_is_delivered_by_itself() {
        let change = |kind| Some(ListChange { process: process(1), request: 1, kind });
        let plain =
            ViewEvent { answered: change(ListChangeKind::Leave), ..event(&[1], &[], &[], &[]) };
        let kind = ListChangeKind::Unlock(LockName(1));
        let lock = ViewEvent { answered: change(kind), ..plain.clone() };
        assert!(plain.can_merge(&plain));
        assert!(!plain.can_merge(&lock) && !lock.can_merge(&plain));
    }
}
