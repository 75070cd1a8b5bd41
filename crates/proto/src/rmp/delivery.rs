//! What a ring hands out, and in which order.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::locks::{LockName, LockNews};
use super::log::ListChange;
use super::names::{Place, Process, Timestamp};
use super::stream::Whole;
use super::view::RingView;
use crate::SeqNo;

/// What waits to be delivered in the total order.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    /// A packet that this round gave its place.
    Packet {
        /// The round.
        round: Timestamp,
        /// Its place.
        place: Place,
        /// Who sent it.
        source: Process,
        /// Its number.
        seqno: SeqNo,
    },
    /// A change of the view.
    View {
        /// The round that made it.
        round: Timestamp,
        /// What changed. Boxed, because packets are many and views are few.
        event: Box<ViewEvent>,
    },
    /// A caller that is not a member was flushed.
    Flushed {
        /// By this round.
        round: Timestamp,
        /// The caller.
        source: Process,
    },
}

/// What is delivered.
#[derive(Clone, Debug)]
pub(super) enum Delivery {
    /// A message.
    Message {
        /// Who sent it.
        source: Process,
        /// The message.
        whole: Whole,
        /// The round that gave it its place; `None` if it did not wait for one.
        round: Option<Timestamp>,
        /// Its place, if it has waited for that of all before it.
        place: Option<Place>,
    },
    /// A change of the view.
    View(Box<ViewEvent>),
    /// A lock that somebody asked for.
    Lock {
        /// Who asked.
        process: Process,
        /// The request that is answered; 0 for a lock that was waited for.
        request: u32,
        /// What became of it.
        news: LockNews,
    },
}

/// A lock that was granted by a view that was delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// The round of the view.
    pub(super) round: Timestamp,
    /// The lock.
    pub(super) name: LockName,
    /// Who holds it now.
    pub(super) holder: Process,
}

/// A change of the view, at its place among the messages (virtual synchrony).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewEvent {
    /// The view from now on.
    pub view: RingView,
    /// Its place in the order.
    pub place: Place,
    /// Who is new.
    pub joined: Vec<Process>,
    /// Who left of its own will.
    pub left: Vec<Process>,
    /// Who was removed.
    pub failed: Vec<Process>,
    /// The member that decided.
    pub by: Process,
    /// The request that was answered, if it was one.
    pub answered: Option<ListChange>,
}

impl ViewEvent {
    /// The view from here on, decided by this member; nobody came or went.
    pub(super) fn of(view: RingView, at: Timestamp, by: Process) -> Self {
        let (joined, left, failed) = (Vec::new(), Vec::new(), Vec::new());
        let place = Place { ring: view.epoch, at };
        Self { view, place, joined, left, failed, by, answered: None }
    }

    /// Returns `true` if `next`, which follows at once, can be delivered together with this change:
    /// neither answers a request for a lock.
    pub(super) fn takes_in(&self, next: &Self) -> bool {
        [self, next]
            .into_iter()
            .filter_map(|event| event.answered)
            .all(|it| it.kind.is_of_members())
    }

    /// Becomes the change from before this one to `next`. Returns the processes that came with this
    /// one and are gone with `next`: nobody is told of them.
    pub(super) fn take_in(&mut self, next: Self) -> Vec<Process> {
        let (passed, stayed): (Vec<Process>, Vec<Process>) =
            self.joined.iter().partition(|process| !next.view.contains(**process));
        let is_told = |process: &Process| !passed.contains(process);
        let joined = stayed.into_iter().chain(next.joined).collect();
        let merge = |before: &[Process], after: Vec<Process>| {
            before.iter().copied().chain(after.into_iter().filter(is_told)).collect()
        };
        let (left, failed) = (merge(&self.left, next.left), merge(&self.failed, next.failed));
        *self = Self { joined, left, failed, ..next };
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::ListChangeKind;
    use super::super::view::{Member, Partition};
    use super::*;
    use crate::NodeId;

    fn process(node: u64) -> Process {
        Process { node: NodeId(node), life: 1 }
    }

    fn view(nodes: &[u64]) -> RingView {
        let member = |node: &u64| Member {
            process: process(*node),
            partition: Partition::Majority,
            is_multicast: true,
            is_voter: true,
        };
        let mut members = nodes.iter().map(member);
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
        let passed = both.take_in(event(&[1, 4, 5], &[5], &[2, 3], &[6]));
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
        assert!(plain.takes_in(&plain));
        assert!(!plain.takes_in(&lock) && !lock.takes_in(&plain));
    }
}
