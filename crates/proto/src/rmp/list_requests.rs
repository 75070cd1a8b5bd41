//! Requests for changes of the view that no New List has answered yet, in order of arrival (4.3).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::log::{ListChange, ListChangeKind};
use super::names::Process;
use crate::{NodeId, SeqNo};

/// Last request of each process.
#[derive(Debug, Default)]
pub(super) struct ListRequests {
    waiting: BTreeMap<Process, Waiting>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiting {
    change: ListChange,
    /// Number of requests that arrived before it.
    arrived: u64,
}

/// Returns the number of the request that follows number `request` of the same process. 0 is not
/// the number of a request, and is skipped when the numbers wrap.
pub(super) fn next_number(request: u32) -> u32 {
    SeqNo(request).next().0.max(1)
}

/// Returns `true` if request number `request` of a process is answered when `last` is the number of
/// its last answered request, or 0 if there is none.
pub(super) fn is_answered(request: u32, last: u32) -> bool {
    request == 0 || (last != 0 && SeqNo(last).distance_from(SeqNo(request)) >= 0)
}

/// Maximum number of processes whose requests are kept. Processes repeat requests that are refused.
const MAX_REQUESTS: usize = 1024;

impl ListRequests {
    /// Adds a request. A repeated request keeps its turn. A different one of the same process goes
    /// to the end. Returns `false` if there is no room, which happens only to joiners.
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

    /// Returns the request of this process.
    pub(super) fn of(&self, process: Process) -> Option<&ListChange> {
        self.waiting.get(&process).map(|it| &it.change)
    }

    /// Removes the request of this process.
    pub(super) fn remove(&mut self, process: Process) {
        self.waiting.remove(&process);
    }

    /// Removes the requests of other lives of a node. Returns `false` if a later life than
    /// `process` has one.
    pub(super) fn enter_life(&mut self, process: Process) -> bool {
        let node = process.node;
        let stays = |it: &Process| *it == process || it.follows(process);
        self.waiting.retain(|it, _| it.node != node || stays(it));
        !self.waiting.keys().any(|it| it.follows(process))
    }

    /// Removes all requests of a node except that of this life.
    pub(super) fn keep_life(&mut self, node: NodeId, process: Process) {
        self.waiting.retain(|it, _| it.node != node || *it == process);
    }

    /// Returns the requests in order of arrival.
    pub(super) fn by_arrival(&self) -> Vec<ListChange> {
        let mut waiting: Vec<&Waiting> = self.waiting.values().collect();
        waiting.sort_unstable_by_key(|it| it.arrived);
        waiting.into_iter().map(|it| it.change).collect()
    }

    /// Returns `true` if a process waits to join or to leave.
    pub(super) fn has_of_members(&self) -> bool {
        self.waiting.values().any(|it| it.change.kind.is_of_members())
    }

    /// Returns the number of processes that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::locks::LockName;
    use super::super::view::{Member, Partition};
    use super::*;

    fn change(node: u64, request: u32) -> ListChange {
        let process = Process { node: NodeId(node), life: 1 };
        ListChange { process, request, kind: ListChangeKind::Unlock(LockName(request.into())) }
    }

    #[test]
    fn requests_are_served_by_arrival_and_repeats_keep_their_turn() {
        let mut requests = ListRequests::default();
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
            let process = Process { node: NodeId(node), life: 1 };
            let (partition, is_multicast, is_voter) = (Partition::Majority, true, true);
            let member = Member { process, partition, is_multicast, is_voter };
            ListChange { process, request: 0, kind: ListChangeKind::Join { member, name_check: 0 } }
        };
        let mut requests = ListRequests::default();
        assert!((0..MAX_REQUESTS as u64).all(|node| requests.insert(join(node))));
        assert!(!requests.insert(join(u64::MAX)));
        assert!(requests.insert(join(0)), "it has room already");
        assert_eq!(requests.len(), MAX_REQUESTS);
        assert!(requests.insert(change(u64::MAX, 1)), "a member's request");
    }
}
