//! What an engine has to say to the multicast manager of the membership service, if there is one.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::asking::{Asked, Request};
use crate::{Endpoint, GroupId, NodeId};

/// The way to the manager.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Whether there is a manager to be asked.
    pub(super) is_there: bool,
    requests: VecDeque<Request>,
    /// Where nodes were met.
    met: BTreeMap<NodeId, Endpoint>,
    /// Openings so far, in all groups.
    openings: u32,
    /// Groups whose sender had to do without the manager, which the application was not told yet.
    lost: BTreeSet<GroupId>,
    /// Requests that found no room.
    pub(super) dropped: u64,
}

impl Line {
    pub(super) fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        self.met.insert(node, endpoint);
    }

    pub(super) fn part(&mut self, node: NodeId) {
        self.met.remove(&node);
    }

    /// A number for another opening.
    pub(super) fn next_opening(&mut self) -> u32 {
        self.openings = self.openings.wrapping_add(1);
        self.openings
    }

    /// A node with the address at which it was met.
    pub(super) fn with_address(&self, node: NodeId) -> (NodeId, Endpoint) {
        let nowhere = Endpoint(([0, 0, 0, 0], 0).into());
        (node, self.met.get(&node).copied().unwrap_or(nowhere))
    }

    /// Asks. If there is no room the answer will not come either, and the sender goes on without.
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

    /// The manager is not reached any more.
    pub(super) fn lose(&mut self) {
        self.is_there = false;
        self.requests.clear();
    }

    /// The sender of a group has to do without the manager.
    pub(super) fn note_lost(&mut self, group: GroupId) {
        self.lost.insert(group);
    }

    /// A group whose sender has to do without.
    pub(super) fn poll_lost(&mut self) -> Option<GroupId> {
        self.lost.pop_first()
    }

    pub(super) fn poll(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }
}

/// Requests that wait for the driver, at most.
const MAX_WAITING: usize = 1024;
