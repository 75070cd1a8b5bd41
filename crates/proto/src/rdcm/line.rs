//! Queue of an engine's requests to the multicast manager in the membership service.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::asking::{Asked, Request};
use crate::{Endpoint, GroupId, NodeId};

/// Requests to the manager, and its reachability.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// `true` if a manager can be reached.
    pub(super) is_there: bool,
    requests: VecDeque<Request>,
    /// Addresses of the nodes.
    met: BTreeMap<NodeId, Endpoint>,
    /// Number of openings so far, in all groups.
    openings: u32,
    /// Groups whose sender lost the manager, which the application has yet to be notified of.
    lost: BTreeSet<GroupId>,
    /// Requests that were dropped because the queue was full.
    pub(super) dropped: u64,
}

impl Line {
    pub(super) fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        self.met.insert(node, endpoint);
    }

    pub(super) fn part(&mut self, node: NodeId) {
        self.met.remove(&node);
    }

    /// Returns the number of a new opening.
    pub(super) fn next_opening(&mut self) -> u32 {
        self.openings = self.openings.wrapping_add(1);
        self.openings
    }

    /// Returns a node with its address, or with `0.0.0.0:0` if that is unknown.
    pub(super) fn with_address(&self, node: NodeId) -> (NodeId, Endpoint) {
        let nowhere = Endpoint(([0, 0, 0, 0], 0).into());
        (node, self.met.get(&node).copied().unwrap_or(nowhere))
    }

    /// Queues a request. If the queue is full, no answer will arrive, and the sender continues
    /// without the manager.
    pub(super) fn ask(&mut self, group: GroupId, opening: u32, number: u32, what: Asked) {
        if !self.is_there {
            return;
        }
        if self.requests.len() >= MAX_WAITING {
            self.dropped += 1;
            return;
        }
        self.requests.push_back(Request { group, opening, number, what });
    }

    /// Marks the manager as unreachable.
    pub(super) fn lose(&mut self) {
        self.is_there = false;
        self.requests.clear();
    }

    /// Records that the sender of a group has lost the manager.
    pub(super) fn note_lost(&mut self, group: GroupId) {
        self.lost.insert(group);
    }

    /// Returns the next group whose sender has lost the manager.
    pub(super) fn poll_lost(&mut self) -> Option<GroupId> {
        self.lost.pop_first()
    }

    pub(super) fn poll(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }
}

/// Maximum number of requests that wait for the driver.
const MAX_WAITING: usize = 1024;
