//! View changes: requests that no New List has answered yet, in order of arrival (4.3).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ring::{ListChange, ListChangeKind, Locks, Process, RingView};
use crate::rmp::context::Context;
use crate::rmp::ring::{MAX_CHANGES, Ring, Round};
use crate::{NodeId, SeqNo};

#[derive(Debug, Default)]
pub(super) struct ViewChanges {
    waiting: BTreeMap<Process, Waiting>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiting {
    change: ListChange,
    arrived: u64,
}

// 0 is not a valid number of a request, and is skipped when the numbers wrap around.
pub(super) fn next_number(request: u32) -> u32 {
    SeqNo(request).next().0.max(1)
}

// `last` is the number of the last answered request, or 0 if there is none.
pub(super) fn is_answered(request: u32, last: u32) -> bool {
    request == 0 || (last != 0 && SeqNo(last).distance_from(SeqNo(request)) >= 0)
}

const MAX_REQUESTS: usize = 1024;

impl ViewChanges {
    /// Queues a request. A repeated one keeps its turn. Returns `false` if a joiner finds no room.
    pub(super) fn insert(&mut self, change: ListChange) -> bool {
        let known = self.waiting.get(&change.process);
        if known.is_some_and(|it| it.change == change) {
            return true;
        }
        let is_joining = matches!(change.kind, ListChangeKind::Join { .. });
        if known.is_none() && is_joining && self.waiting.len() >= MAX_REQUESTS {
            return false;
        }
        let arrived = self.arrivals;
        self.arrivals += 1;
        self.waiting.insert(change.process, Waiting { change, arrived });
        true
    }

    pub(super) fn enter_life(&mut self, process: Process) -> bool {
        let node = process.node;
        let stays = |it: &Process| *it == process || it.follows(process);
        self.waiting.retain(|it, _| it.node != node || stays(it));
        !self.waiting.keys().any(|it| it.follows(process))
    }

    pub(super) fn on_list(&mut self, round: &Round) {
        for change in round.changes() {
            let request = self.waiting.get(&change.process).map(|it| it.change.request);
            if request.is_some_and(|request| is_answered(request, change.request)) {
                self.waiting.remove(&change.process);
            }
        }
        if let Some(joiner) = round.joiner().map(|member| member.process) {
            self.waiting.retain(|it, _| it.node != joiner.node || *it == joiner);
        }
    }

    /// Returns the changes that one New List can make now, and the refused joiners. A change of the
    /// members stands alone, because it must be stable before the next one.
    pub(super) fn next(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
    ) -> (Vec<ListChange>, Vec<NodeId>) {
        let (mut changes, mut refused) = (Vec::new(), Vec::new());
        let mut locks = ring.view().locks.clone();
        for change in self.by_arrival() {
            let process = change.process;
            let is_in = ring.view().contains(process);
            let is_answered =
                is_in && is_answered(change.request, ring.standings().answered(process));
            let is_joining = matches!(change.kind, ListChangeKind::Join { .. });
            if is_answered || (!is_joining && !is_in) {
                self.waiting.remove(&process);
                continue;
            }
            if change.kind.is_of_members() {
                match self.possible_change(cx, ring, change, &mut refused) {
                    Some(possible) if changes.is_empty() => return (vec![possible], refused),
                    _ => continue,
                }
            }
            // A ring without its quorum changes no locks.
            if ring.shortage().is_some() {
                continue;
            }
            changes.push(lock_change(&mut locks, change));
            if changes.len() == MAX_CHANGES {
                break;
            }
        }
        (changes, refused)
    }

    fn possible_change(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        change: ListChange,
        refused: &mut Vec<NodeId>,
    ) -> Option<ListChange> {
        let ListChange { process, kind, .. } = change;
        let view = ring.view();
        let may_change = ring.standings().may_change_members();
        let ListChangeKind::Join { member, .. } = kind else {
            // A leaving member must have every packet that has a place, as no member waits for it
            // later.
            return (may_change && ring.has_all(process)).then_some(change);
        };
        let old = view.process_of(process.node);
        if ring.is_over(process) {
            self.waiting.remove(&process);
            cx.counters.foreign += 1;
            return None;
        }
        // A voter beyond the electorate waits until another voter is gone.
        if view.is_full() && member.is_voter && view.process_of(member.process.node).is_none() {
            self.waiting.remove(&process);
            cx.counters.voters_refused += 1;
            refused.push(process.node);
            return None;
        }
        match old {
            Some(old) if old.follows(process) => {
                self.waiting.remove(&process);
                cx.counters.foreign += 1;
                None
            }
            // The former life of the node is over. Otherwise, the node would not request to join.
            Some(old) => {
                let request = next_number(ring.standings().answered(old));
                let kind = ListChangeKind::Leave;
                may_change.then_some(ListChange { process: old, request, kind })
            }
            None if view.len() >= RingView::MAX_MEMBERS => {
                self.waiting.remove(&process);
                cx.counters.members_refused += 1;
                refused.push(process.node);
                None
            }
            None => may_change.then_some(change),
        }
    }

    fn by_arrival(&self) -> Vec<ListChange> {
        let mut waiting: Vec<&Waiting> = self.waiting.values().collect();
        waiting.sort_unstable_by_key(|it| it.arrived);
        waiting.into_iter().map(|it| it.change).collect()
    }

    pub(super) fn has_of_members(&self) -> bool {
        self.waiting.values().any(|it| it.change.kind.is_of_members())
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

// Earlier changes of the same New List have already been applied to `locks`.
fn lock_change(locks: &mut Locks, change: ListChange) -> ListChange {
    match change.kind {
        ListChangeKind::Lock { name, waits } if locks.admits(name, change.process, waits) => {
            locks.ask(name, change.process);
        }
        ListChangeKind::Lock { name, .. } => {
            return ListChange { kind: ListChangeKind::Refused(name), ..change };
        }
        ListChangeKind::Unlock(name) => locks.release(name, change.process),
        ListChangeKind::Join { .. } | ListChangeKind::Leave | ListChangeKind::Refused(_) => {}
    }
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{LockName, Quorum, member, process};

    fn change(node: u64, request: u32) -> ListChange {
        let kind = ListChangeKind::Unlock(LockName(request.into()));
        ListChange { process: process(node), request, kind }
    }

    #[test]
    fn requests_are_served_by_arrival_and_repeats_keep_their_turn() {
        let mut requests = ViewChanges::default();
        for request in [change(7, 1), change(3, 1), change(5, 1), change(7, 1), change(3, 2)] {
            assert!(requests.insert(request));
        }
        assert_eq!(requests.by_arrival(), [change(7, 1), change(5, 1), change(3, 2)]);
    }

    #[test]
    fn numbers_of_requests_wrap_without_zero_and_keep_their_order() {
        let mut last = 0;
        let mut number = u32::MAX - 2;
        for _ in 0..6 {
            assert!(number != 0 && !is_answered(number, last), "{number} after {last}");
            assert!(is_answered(number, number) && is_answered(0, number));
            assert!(last == 0 || is_answered(last, number), "{last} before {number}");
            (last, number) = (number, next_number(number));
        }
        assert_eq!(number, 4);
        assert!(is_answered(0, 0), "requests to join have no number");
    }

    #[test]
    fn full_list_of_requests_refuses_joiners_and_takes_members() {
        let join = |node| {
            let member = member(node, Quorum::Majority);
            let kind = ListChangeKind::Join { member, name_check: 0 };
            ListChange { process: member.process, request: 0, kind }
        };
        let mut requests = ViewChanges::default();
        assert!((0..MAX_REQUESTS as u64).all(|node| requests.insert(join(node))));
        assert!(!requests.insert(join(u64::MAX)));
        assert!(requests.insert(join(0)), "the request is queued already");
        assert_eq!(requests.len(), MAX_REQUESTS);
        assert!(requests.insert(change(u64::MAX, 1)), "a member's request");
    }
}
