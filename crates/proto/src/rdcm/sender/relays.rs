use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::topology::Vertex;
use super::relay_tree::{Moved, RelayTree};
use crate::{Hops, NodeId, Rng, Time};

#[derive(Debug)]
pub(crate) struct Relays {
    pub(crate) tree: RelayTree,
    /// Next hops of each packet: multicast, unless it reaches none of the receivers, and the roots
    /// of the tree.
    pub(super) hops: Hops,
    move_at: Time,
    /// Number of recent moves to a position with receivers below it.
    rough_moves: u32,
    rough_move_at: Time,
}

impl Relays {
    pub(super) fn new(degree: usize) -> Self {
        let (move_at, rough_move_at) = (Time::ZERO, Time::ZERO);
        let tree = RelayTree::new(degree);
        let hops = Hops { by_multicast: true, relays: Arc::default() };
        Self { tree, hops, move_at, rough_moves: 0, rough_move_at }
    }

    pub(super) fn arrange(
        &mut self,
        placed: impl Iterator<Item = (NodeId, Vertex)>,
        unreached: &BTreeSet<NodeId>,
    ) {
        let (unreached, reached): (Vec<_>, Vec<_>) =
            placed.partition(|(node, _)| unreached.contains(node));
        self.tree.arrange(&unreached.into_iter().collect());
        self.hops.by_multicast = !reached.is_empty() || self.tree.roots().is_empty();
        self.hops.relays = self.tree.roots().into();
    }

    /// Moves a receiver that gets nothing through the tree to another parent, unless its current
    /// parent gets nothing either. No receiver is moved again until the last move could have had an
    /// effect, which takes the time `settle`. The pause between moves to a position with receivers
    /// below it doubles each time, and is reset after a long time without such a move. Without the
    /// pause, two receivers that do not hear each other could displace each other forever.
    pub(super) fn move_away(
        &mut self,
        now: Time,
        node: NodeId,
        settle: Duration,
        is_fed: impl FnOnce(NodeId) -> bool,
        rng: &mut Rng,
    ) -> bool {
        if now < self.move_at || !self.tree.parent(node).is_none_or(is_fed) {
            return false;
        }
        if now.since(self.rough_move_at) > settle * (1 << MAX_DOUBLINGS) {
            self.rough_moves = 0;
        }
        let most = if now < self.rough_move_at { Moved::ToLeaf } else { Moved::Anywhere };
        let Some(moved) = self.tree.move_away(node, most, rng) else { return false };
        self.hops.relays = self.tree.roots().into();
        self.move_at = now + settle;
        if moved == Moved::Anywhere {
            self.rough_moves = (self.rough_moves + 1).min(MAX_DOUBLINGS);
            self.rough_move_at = now + settle * (1 << self.rough_moves);
        }
        true
    }
}

/// Maximum number of doublings of the pause between moves, which reaches 25 s by default.
const MAX_DOUBLINGS: u32 = 6;
