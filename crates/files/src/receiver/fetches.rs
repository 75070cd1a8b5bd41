use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use crate::limits::FETCHES_PER_RECEIVER;

const MAX_DISTRUSTED: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) piece: u32,
    pub(crate) source: u32,
    pub(crate) address: Option<SocketAddr>,
}

#[derive(Default)]
pub(crate) struct Fetches {
    waiting: VecDeque<Fetch>,
    distrusted: BTreeSet<SocketAddr>,
}

impl Fetches {
    pub(crate) fn push(&mut self, fetch: Fetch) -> bool {
        let has_room = self.waiting.len() < 2 * FETCHES_PER_RECEIVER;
        if has_room {
            self.waiting.push_back(fetch);
        }
        has_room
    }

    pub(crate) fn pop(&mut self) -> Option<Fetch> {
        self.waiting.pop_front()
    }

    /// Drops the queued fetches, which the sender has forgotten.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(crate) fn distrust(&mut self, address: SocketAddr) {
        if self.distrusted.len() < MAX_DISTRUSTED {
            self.distrusted.insert(address);
        }
    }

    pub(crate) fn is_distrusted(&self, address: &SocketAddr) -> bool {
        self.distrusted.contains(address)
    }
}
