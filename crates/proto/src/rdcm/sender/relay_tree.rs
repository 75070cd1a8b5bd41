//! The relay tree, which contains the unicast paths of data to receivers that multicast does not
//! reach.
//!
//! In the paper, the network copies packets. Where it does not, receivers copy them here. The
//! sender sends each packet to a few receivers, and each of them relays it at once to the same
//! number of others. No host sends a packet more often than that. All levels of the tree are full,
//! except for the last. Receivers that are adjacent in the topology are near each other in a new
//! tree, because the receivers below each one are consecutive in the order of the topology. A
//! receiver that joins later is appended at the end, and the last receiver takes the position of
//! one that leaves, so that few positions change. The tree is rebuilt when half of it has changed.

use std::collections::BTreeMap;

use super::super::topology::Vertex;
use crate::{NodeId, Rng};

/// The relay tree of one stream, below its sender.
#[derive(Debug)]
pub struct RelayTree {
    degree: usize,
    /// Receivers by level. The children of the receiver at `i` start at `(i + 1) * degree`.
    order: Vec<NodeId>,
    at: BTreeMap<NodeId, usize>,
    changes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    ToLeaf,
    /// Any other position. The receivers below it now depend on the moved receiver.
    Anywhere,
}

impl RelayTree {
    pub(super) fn new(degree: usize) -> Self {
        assert!(degree > 0, "the number of children must not be 0");
        Self { degree, order: Vec::new(), at: BTreeMap::new(), changes: 0 }
    }

    pub(super) fn arrange(&mut self, wanted: &BTreeMap<NodeId, Vertex>) {
        let gone: Vec<NodeId> =
            self.order.iter().copied().filter(|node| !wanted.contains_key(node)).collect();
        let fresh: Vec<NodeId> =
            wanted.keys().copied().filter(|node| !self.at.contains_key(node)).collect();
        if gone.is_empty() && fresh.is_empty() {
            return;
        }
        self.changes += gone.len() + fresh.len();
        if 2 * self.changes >= wanted.len() {
            self.build(wanted);
        } else {
            for node in gone {
                let place = self.order.iter().position(|it| *it == node);
                self.order.swap_remove(place.expect("a receiver that is removed was in the tree"));
            }
            self.order.extend(fresh);
        }
        self.find_places();
    }

    fn build(&mut self, wanted: &BTreeMap<NodeId, Vertex>) {
        self.changes = 0;
        let mut sorted: Vec<(Vertex, NodeId)> =
            wanted.iter().map(|(node, vertex)| (*vertex, *node)).collect();
        sorted.sort_unstable();
        let count = sorted.len();
        self.order = wanted.keys().copied().collect();
        let mut open: Vec<usize> = (0..self.degree.min(count)).rev().collect();
        for (_, node) in sorted {
            let place = open.pop().expect("the tree has as many positions as receivers");
            self.order[place] = node;
            open.extend(self.below(place, count).rev());
        }
    }

    fn find_places(&mut self) {
        self.at = self.order.iter().enumerate().map(|(place, node)| (*node, place)).collect();
    }

    fn below(&self, place: usize, count: usize) -> core::ops::Range<usize> {
        let first = (place + 1) * self.degree;
        first.min(count)..(first + self.degree).min(count)
    }

    fn above(&self, place: usize) -> Option<usize> {
        (place / self.degree).checked_sub(1)
    }

    /// Returns the children of the sender.
    pub fn roots(&self) -> &[NodeId] {
        &self.order[..self.degree.min(self.order.len())]
    }

    /// Returns the children of a receiver, or an empty slice if it is not in the tree.
    pub fn children(&self, node: NodeId) -> &[NodeId] {
        let below = self.at.get(&node).map_or(0..0, |place| self.below(*place, self.order.len()));
        &self.order[below]
    }

    /// Returns the parent of a receiver, or `None` for a child of the sender or an unknown node.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        let place = *self.at.get(&node)?;
        self.above(place).map(|parent| self.order[parent])
    }

    /// Returns the number of hops from the sender to a receiver, or 0 if it is not in the tree.
    pub fn depth(&self, node: NodeId) -> u32 {
        let mut place = self.at.get(&node).copied();
        let mut depth = 0;
        while let Some(here) = place {
            depth += 1;
            place = self.above(here);
        }
        depth
    }

    /// Swaps a receiver with a random one that has another parent, and prefers one without
    /// children, so that few others are affected. With [`Moved::ToLeaf`], receivers with children
    /// are excluded.
    pub(super) fn move_away(&mut self, node: NodeId, most: Moved, rng: &mut Rng) -> Option<Moved> {
        let place = self.at.get(&node).copied()?;
        let (count, parent) = (self.order.len(), self.above(place));
        let is_elsewhere = |other: &usize| *other != place && self.above(*other) != parent;
        let is_leaf = |other: &usize| {
            self.below(*other, count).is_empty() && self.above(*other) != Some(place)
        };
        let mut others: Vec<usize> = (0..count).filter(is_elsewhere).collect();
        let has_leaf = others.iter().any(is_leaf);
        if has_leaf || most == Moved::ToLeaf {
            others.retain(is_leaf);
        }
        if others.is_empty() {
            return None;
        }
        self.order.swap(place, others[rng.below(others.len())]);
        self.find_places();
        Some(if has_leaf { Moved::ToLeaf } else { Moved::Anywhere })
    }

    pub(super) fn check(&self) {
        assert_eq!(self.at.len(), self.order.len(), "a receiver is in the tree twice");
        for (node, place) in &self.at {
            assert_eq!(self.order.get(*place), Some(node), "{node} is misplaced");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn receivers(ids: impl IntoIterator<Item = u64>) -> BTreeMap<NodeId, Vertex> {
        ids.into_iter().map(|id| (NodeId(id), Vertex(10_000 - id as u32))).collect()
    }

    fn assert_reaches(tree: &RelayTree, wanted: &BTreeMap<NodeId, Vertex>, degree: usize) {
        tree.check();
        let (mut level, mut depth, mut seen) = (tree.roots().to_vec(), 0, BTreeSet::new());
        while !level.is_empty() {
            depth += 1;
            let mut next = Vec::new();
            for node in level {
                assert!(seen.insert(node), "{node} is reached twice");
                assert_eq!(tree.depth(node), depth);
                let children = tree.children(node);
                assert!(children.len() <= degree);
                assert!(children.iter().all(|child| tree.parent(*child) == Some(node)));
                next.extend_from_slice(children);
            }
            level = next;
        }
        assert!(tree.roots().len() <= degree);
        assert_eq!(seen, wanted.keys().copied().collect());
        let (mut least, mut room) = (0, 0);
        while room < wanted.len() {
            least += 1;
            room += degree.pow(least);
        }
        assert_eq!(depth, least, "{} receivers, {degree} children each", wanted.len());
    }

    #[test]
    fn all_receivers_are_reached_in_minimal_hops_despite_churn() {
        for degree in [1, 2, 3, 16] {
            let mut rng = Rng::new(degree as u64);
            let mut tree = RelayTree::new(degree);
            let mut wanted = BTreeMap::new();
            for _ in 0..if degree == 1 { 40 } else { 400 } {
                let id = rng.below(120) as u64;
                match wanted.remove(&NodeId(id)) {
                    Some(_) => {}
                    None => wanted.extend(receivers([id])),
                }
                tree.arrange(&wanted);
                if rng.chance(0.2) && !wanted.is_empty() {
                    let which = rng.below(wanted.len());
                    let node = *wanted.keys().nth(which).expect("it is one of them");
                    tree.move_away(node, Moved::Anywhere, &mut rng);
                }
                assert_reaches(&tree, &wanted, degree);
            }
        }
    }

    #[test]
    fn below_each_is_a_stretch_of_hosts_that_follow_each_other() {
        let wanted = receivers(0..500);
        let mut tree = RelayTree::new(3);
        tree.arrange(&wanted);
        for node in wanted.keys() {
            let mut below = vec![*node];
            let mut next = 0;
            while let Some(node) = below.get(next) {
                below.extend_from_slice(tree.children(*node));
                next += 1;
            }
            let ids = || below.iter().map(|node| node.0);
            let span = ids().max().expect("itself") - ids().min().expect("itself") + 1;
            assert_eq!(span, below.len() as u64, "below {node}: {below:?}");
        }
    }

    #[test]
    fn joins_and_leaves_change_the_places_of_few() {
        let mut tree = RelayTree::new(2);
        let mut wanted = receivers(0..100);
        tree.arrange(&wanted);
        let places = |tree: &RelayTree| -> BTreeMap<NodeId, Vec<NodeId>> {
            (0..120).map(|id| (NodeId(id), tree.children(NodeId(id)).to_vec())).collect()
        };
        for id in 0..20 {
            let before = places(&tree);
            wanted.remove(&NodeId(id * 2));
            wanted.extend(receivers([100 + id]));
            tree.arrange(&wanted);
            let after = places(&tree);
            let others = before.iter().filter(|(node, was)| after[*node] != **was).count();
            assert!(others <= 6, "{others} have other children");
        }
    }

    #[test]
    fn moved_receiver_has_another_parent_and_no_children() {
        let mut tree = RelayTree::new(2);
        tree.arrange(&receivers(0..30));
        let mut rng = Rng::new(1);
        for id in 0..30 {
            let before = tree.parent(NodeId(id));
            let moved = tree.move_away(NodeId(id), Moved::Anywhere, &mut rng);
            assert_eq!(moved, Some(Moved::ToLeaf));
            assert_ne!(tree.parent(NodeId(id)), before);
            assert_eq!(tree.children(NodeId(id)), []);
        }
        assert_eq!(tree.move_away(NodeId(99), Moved::Anywhere, &mut rng), None);
        tree.arrange(&receivers(0..2));
        let moved = tree.move_away(NodeId(0), Moved::Anywhere, &mut rng);
        assert_eq!(moved, None, "both have the sender");
    }

    #[test]
    fn moved_receiver_of_a_chain_has_another_parent() {
        let mut rng = Rng::new(1);
        for count in 2..6 {
            let mut tree = RelayTree::new(1);
            tree.arrange(&receivers(0..count));
            for id in (0..count).cycle().take(40) {
                let before = tree.parent(NodeId(id));
                assert!(tree.move_away(NodeId(id), Moved::Anywhere, &mut rng).is_some());
                assert_ne!(tree.parent(NodeId(id)), before, "{id} of {count}");
                assert_reaches(&tree, &receivers(0..count), 1);
            }
        }
    }

    #[test]
    fn last_receiver_of_a_chain_cannot_be_moved_to_a_leaf() {
        let mut rng = Rng::new(1);
        let mut tree = RelayTree::new(1);
        tree.arrange(&receivers(0..4));
        let depth = |tree: &RelayTree, depth| {
            let mut all = (0..4).map(NodeId);
            all.find(|node| tree.depth(*node) == depth).expect("it is a chain")
        };
        let (first, last) = (depth(&tree, 1), depth(&tree, 4));
        assert_eq!(tree.move_away(last, Moved::ToLeaf, &mut rng), None);
        assert_eq!(tree.depth(last), 4);
        assert_eq!(tree.move_away(first, Moved::ToLeaf, &mut rng), Some(Moved::ToLeaf));
        assert_eq!((tree.depth(first), tree.depth(last)), (4, 1));
    }
}
