//! Cookies that prove that a node receives the datagrams sent to its address. They prevent hosts
//! that do not receive these datagrams from requesting packets in its name.
//!
//! A requester stores one cookie for each node that has challenged it.

use alloc::collections::BTreeMap;

use crate::cookie::CookieKey;
use crate::{NodeId, Rng};

#[derive(Debug)]
pub(super) struct Cookies {
    key: CookieKey,
    given: BTreeMap<NodeId, u64>,
}

const MAX_KEPT: usize = 1 << 14;

impl Cookies {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { key: CookieKey::new(rng), given: BTreeMap::new() }
    }

    pub(super) fn of(&self, requester: NodeId) -> u64 {
        self.key.cookie_of(requester)
    }

    /// Evicts the entry with the lowest id if the table is full.
    pub(super) fn keep(&mut self, node: NodeId, cookie: u64) {
        if self.given.len() >= MAX_KEPT && !self.given.contains_key(&node) {
            self.given.pop_first();
        }
        self.given.insert(node, cookie);
    }

    pub(super) fn given_by(&self, node: NodeId) -> u64 {
        self.given.get(&node).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_differ_by_requester_and_by_node_and_are_bounded() {
        let (mut mine, other) = (Cookies::new(&mut Rng::new(1)), Cookies::new(&mut Rng::new(2)));
        assert_eq!(mine.of(NodeId(1)), mine.of(NodeId(1)));
        assert_ne!(mine.of(NodeId(1)), mine.of(NodeId(2)));
        assert_ne!(mine.of(NodeId(1)), other.of(NodeId(1)));
        (0..MAX_KEPT as u64 + 5).for_each(|node| mine.keep(NodeId(node), node));
        assert_eq!(mine.given.len(), MAX_KEPT);
        assert_eq!((mine.given_by(NodeId(3)), mine.given_by(NodeId(9))), (0, 9));
    }
}
