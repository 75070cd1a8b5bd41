use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::messages::Request;
use crate::{Endpoint, GroupId, NodeId};

#[derive(Debug, Default)]
pub(crate) struct ManagerRequests {
    pub(crate) is_reachable: bool,
    pub(crate) queue: VecDeque<Request>,
    pub(crate) endpoints: BTreeMap<NodeId, Endpoint>,
    openings: u32,
    /// Groups whose loss of the manager has not been reported to the application yet.
    pub(crate) lost: BTreeSet<GroupId>,
    dropped: u64,
}

impl ManagerRequests {
    pub(crate) fn next_opening(&mut self) -> u32 {
        self.openings = self.openings.wrapping_add(1);
        self.openings
    }

    pub(crate) fn with_address(&self, node: NodeId) -> (NodeId, Endpoint) {
        let unknown = Endpoint(([0, 0, 0, 0], 0).into());
        (node, self.endpoints.get(&node).copied().unwrap_or(unknown))
    }

    /// Queues a request if the manager is reachable. If the queue is full, no answer will arrive,
    /// and the sender continues without the manager.
    pub(crate) fn push(&mut self, request: Request) {
        if !self.is_reachable {
            return;
        }
        if self.queue.len() >= MAX_QUEUED {
            self.dropped += 1;
            return;
        }
        self.queue.push_back(request);
    }

    pub(crate) fn set_unreachable(&mut self) {
        self.is_reachable = false;
        self.queue.clear();
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

const MAX_QUEUED: usize = 1024;
