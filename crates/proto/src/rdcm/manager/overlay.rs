//! The backup overlay (section 3.2, figure 8), which consists of the rings in which receivers
//! repair for each other.
//!
//! Each vertex of the tree with more than one child has an overlay ring. It contains one receiver
//! from below each child, the child's *proxy*. In a ring, each member repairs for its successor. If
//! a receiver is the only one in its branch, this ring is its *leaf ring*. Otherwise, the ring is
//! the receiver's *proxy ring*. A receiver that forwards packets counts as a switch with itself as
//! an additional child.
//!
//! Theorem 1: with more than one receiver, each receiver is in exactly one leaf ring and in at most
//! one proxy ring. Each receiver therefore repairs for at most two others, regardless of the size
//! of the group.

use std::collections::BTreeMap;

use super::super::topology::Vertex;
use super::ring::{self, OverlayRing, RingMember};
use super::tree::MulticastTree;
use crate::Rng;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overlay {
    /// Rings by their tree parent, which is the vertex whose branches they connect.
    pub(super) rings: BTreeMap<Vertex, OverlayRing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) ring: Vertex,
    /// A receiver that is alone is its own predecessor and successor.
    pub(super) predecessor: Vertex,
    pub(super) successor: Vertex,
    pub(super) parent: Vertex,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seats {
    pub(super) leaf: Seat,
    pub(super) proxy: Option<Seat>,
    pub(super) children_ring: Option<Vertex>,
    pub(super) children: Vec<Vertex>,
}

struct Branch {
    child: Vertex,
    receivers: Vec<Vertex>,
    top: Option<Vertex>,
}

impl Overlay {
    /// Builds the overlay of a tree. The proxy of a branch is the receiver that is nearest to the
    /// sender, among the receivers that are in the fewest rings. Repairs in higher rings then cross
    /// few links. Ties are broken at random. The proxy in `previous`, the overlay before the last
    /// change of the tree, remains if it is in as few rings, so that few rings change. The order of
    /// the members shortens the time in which repairs reach all of them.
    ///
    /// A single receiver is alone in a ring of the sender.
    pub(super) fn of_tree(tree: &MulticastTree, previous: Option<&Self>, rng: &mut Rng) -> Self {
        let mut overlay = Self::default();
        let mut rings_of: BTreeMap<Vertex, u32> = BTreeMap::new();
        let mut open: BTreeMap<Vertex, Branch> = BTreeMap::new();
        let mut receivers_below: BTreeMap<Vertex, usize> = BTreeMap::new();
        for vertex in tree.upwards() {
            let mut branches: Vec<Branch> =
                tree.children(vertex).filter_map(|child| open.remove(&child)).collect();
            if tree.receivers().contains(&vertex) {
                branches.push(Branch { child: vertex, receivers: vec![vertex], top: None });
                branches.sort_by_key(|branch| branch.child);
            }
            let is_alone = vertex == tree.sender() && tree.receivers().len() == 1;
            if branches.len() > 1 || is_alone {
                overlay.add_ring(tree, vertex, &branches, previous, &mut rings_of, rng);
            }
            let top = match branches.as_slice() {
                [one] => one.top,
                _ => Some(vertex),
            };
            let receivers: Vec<Vertex> =
                branches.into_iter().flat_map(|branch| branch.receivers).collect();
            receivers_below.insert(vertex, receivers.len());
            open.insert(vertex, Branch { child: vertex, receivers, top });
        }
        // A ring without a branching vertex above it is below the sender.
        for ring in overlay.rings.values_mut().filter(|ring| ring.parent == NOBODY) {
            ring.parent = tree.sender();
        }
        ring::arrange(&mut overlay.rings, &receivers_below, previous.map(|overlay| &overlay.rings));
        overlay
    }

    fn add_ring(
        &mut self,
        tree: &MulticastTree,
        vertex: Vertex,
        branches: &[Branch],
        previous: Option<&Self>,
        rings_of: &mut BTreeMap<Vertex, u32>,
        rng: &mut Rng,
    ) {
        let before = previous.and_then(|overlay| overlay.rings.get(&vertex));
        let mut members = Vec::with_capacity(branches.len());
        let mut level = 0;
        for branch in branches {
            let was = before.and_then(|ring| ring.proxy_of(branch.child));
            let proxy = choose_proxy(tree, &branch.receivers, was, rings_of, rng);
            *rings_of.entry(proxy).or_default() += 1;
            let is_leaf = branch.receivers.len() == 1;
            members.push(RingMember { branch: branch.child, proxy, is_leaf });
            if let Some(below) = branch.top.and_then(|top| self.rings.get_mut(&top)) {
                below.parent = proxy;
                level = level.max(below.level);
            }
        }
        let ring = OverlayRing { level: level + 1, parent: NOBODY, members };
        self.rings.insert(vertex, ring);
    }

    pub(super) fn seats(&self) -> BTreeMap<Vertex, Seats> {
        let mut leaves = BTreeMap::new();
        let mut proxies = BTreeMap::new();
        let mut children: BTreeMap<Vertex, (Vertex, Vec<Vertex>)> = BTreeMap::new();
        for (vertex, ring) in &self.rings {
            let count = ring.members.len();
            for (place, member) in ring.members.iter().enumerate() {
                let seat = Seat {
                    ring: *vertex,
                    predecessor: ring.members[(place + count - 1) % count].proxy,
                    successor: ring.members[(place + 1) % count].proxy,
                    parent: ring.parent,
                };
                let seats = if member.is_leaf { &mut leaves } else { &mut proxies };
                let other = seats.insert(member.proxy, seat);
                assert!(other.is_none(), "a receiver has two seats of one kind");
            }
            let proxies = ring.members.iter().map(|member| member.proxy).collect();
            let other = children.insert(ring.parent, (*vertex, proxies));
            assert!(other.is_none(), "a receiver is the overlay parent of two rings");
        }
        let seats = |(receiver, leaf)| {
            let proxy = proxies.get(&receiver).copied();
            let (children_ring, children) =
                children.remove(&receiver).map_or((None, Vec::new()), |it| (Some(it.0), it.1));
            (receiver, Seats { leaf, proxy, children_ring, children })
        };
        leaves.into_iter().map(seats).collect()
    }
}

fn choose_proxy(
    tree: &MulticastTree,
    receivers: &[Vertex],
    was: Option<Vertex>,
    rings_of: &BTreeMap<Vertex, u32>,
    rng: &mut Rng,
) -> Vertex {
    let count = |receiver: &Vertex| rings_of.get(receiver).copied().unwrap_or(0);
    let fewest = receivers.iter().map(count).min().expect("every branch has a receiver");
    let candidates: Vec<Vertex> =
        receivers.iter().filter(|receiver| count(receiver) == fewest).copied().collect();
    match was {
        Some(was) if candidates.contains(&was) => was,
        _ => {
            let depth = |receiver: &Vertex| tree.depth(*receiver);
            let nearest = candidates.iter().map(depth).min();
            let nearest: Vec<Vertex> =
                candidates.iter().filter(|it| Some(depth(it)) == nearest).copied().collect();
            nearest[rng.below(nearest.len())]
        }
    }
}

/// Placeholder for an overlay parent that is not known yet.
const NOBODY: Vertex = Vertex(u32::MAX);

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
