//! The multicast tree of a group, which contains the paths of its packets from the sender to the
//! receivers.
//!
//! The paper leaves the algorithm open (section 3.2, footnote 1). Here, a tree has shortest paths
//! and few links; see [`MulticastTree::shortest`].

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use core::cmp::Reverse;

use super::super::topology::{LinkId, Topology, Vertex};

/// A tree in a [`Topology`]. The sender is at its root, and its leaves are receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastTree {
    sender: Vertex,
    receivers: BTreeSet<Vertex>,
    above: BTreeMap<Vertex, Above>,
    below: BTreeMap<Vertex, BTreeSet<Vertex>>,
}

/// Parent of a vertex in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Above {
    /// The parent vertex.
    pub vertex: Vertex,
    /// Link from the parent to the vertex.
    pub link: LinkId,
}

impl MulticastTree {
    /// Creates the tree of a sender without receivers.
    pub fn of_sender(sender: Vertex) -> Self {
        Self { sender, receivers: BTreeSet::new(), above: BTreeMap::new(), below: BTreeMap::new() }
    }

    /// Builds a tree in which each of `receivers` is at its shortest distance from `sender`,
    /// without the `dead` links. Returns it with the receivers that cannot be reached. The sender
    /// is not a receiver of its own tree.
    ///
    /// The tree is built from the farthest distance to the nearest. The vertices at one distance
    /// get as few different parents as a greedy choice finds: first the vertices that are already
    /// in the tree, then those that reach most of the remaining vertices. Among equals, the lowest
    /// number is chosen. The time is proportional to the number of links in the topology.
    pub fn shortest(
        topology: &Topology,
        dead: &BTreeSet<LinkId>,
        sender: Vertex,
        receivers: &BTreeSet<Vertex>,
    ) -> (Self, BTreeSet<Vertex>) {
        let distance = distances(topology, dead, sender);
        let mut tree = Self::of_sender(sender);
        let mut layers: BTreeMap<u32, BTreeSet<Vertex>> = BTreeMap::new();
        let mut unreached = BTreeSet::new();
        for receiver in receivers.iter().filter(|receiver| **receiver != sender) {
            match distance.get(receiver.0 as usize) {
                Some(Some(steps)) => {
                    tree.receivers.insert(*receiver);
                    layers.entry(*steps).or_default().insert(*receiver);
                }
                _ => {
                    unreached.insert(*receiver);
                }
            }
        }
        while let Some((steps, layer)) = layers.pop_last() {
            let nearer = layers.entry(steps - 1).or_default();
            let is_nearer = |vertex: Vertex| distance[vertex.0 as usize] == Some(steps - 1);
            let ways = |vertex: Vertex| ways_to(topology, dead, sender, vertex, is_nearer);
            tree.choose_parents(&layer, nearer, ways);
            if steps == 1 {
                break;
            }
        }
        (tree, unreached)
    }

    fn choose_parents(
        &mut self,
        layer: &BTreeSet<Vertex>,
        nearer: &mut BTreeSet<Vertex>,
        ways: impl Fn(Vertex) -> Vec<Above>,
    ) {
        let mut reaches: BTreeMap<Vertex, Vec<(Vertex, LinkId)>> = BTreeMap::new();
        for vertex in layer {
            let ways = ways(*vertex);
            if let Some(above) = ways.iter().find(|above| nearer.contains(&above.vertex)) {
                self.attach(*vertex, *above);
                continue;
            }
            for above in ways {
                reaches.entry(above.vertex).or_default().push((*vertex, above.link));
            }
        }
        let mut candidates: BinaryHeap<(usize, Reverse<Vertex>)> =
            reaches.iter().map(|(above, reached)| (reached.len(), Reverse(*above))).collect();
        while let Some((count, Reverse(above))) = candidates.pop() {
            let reached = reaches.get_mut(&above).expect("every candidate reaches a vertex");
            reached.retain(|(vertex, _)| !self.above.contains_key(vertex));
            if reached.is_empty() {
                continue;
            }
            // Some of these vertices may have been reached since they were counted.
            if reached.len() < count {
                candidates.push((reached.len(), Reverse(above)));
                continue;
            }
            nearer.insert(above);
            for (vertex, link) in core::mem::take(reached) {
                self.attach(vertex, Above { vertex: above, link });
            }
        }
    }

    /// Adds a receiver by the shortest path from the tree. Of equal paths, the one that leaves the
    /// tree nearest to the sender is used. Returns `false` for the sender, or if there is no path.
    pub fn graft(
        &mut self,
        topology: &Topology,
        dead: &BTreeSet<LinkId>,
        receiver: Vertex,
    ) -> bool {
        if receiver == self.sender {
            return false;
        }
        if !self.contains(receiver) && !self.grow_to(topology, dead, receiver) {
            return false;
        }
        self.receivers.insert(receiver);
        true
    }

    fn grow_to(&mut self, topology: &Topology, dead: &BTreeSet<LinkId>, to: Vertex) -> bool {
        // For each vertex, the next one on the path to the receiver, where the search starts.
        let mut leads_to: BTreeMap<Vertex, Option<(Vertex, LinkId)>> = [(to, None)].into();
        let mut layer = vec![to];
        while !layer.is_empty() {
            let mut next = Vec::new();
            let mut found: Option<(usize, Vertex)> = None;
            for vertex in layer {
                for (neighbour, link) in topology.neighbours(vertex) {
                    let is_way = topology.forwards(*neighbour) || *neighbour == self.sender;
                    if !is_way || dead.contains(link) || leads_to.contains_key(neighbour) {
                        continue;
                    }
                    leads_to.insert(*neighbour, Some((vertex, *link)));
                    if self.contains(*neighbour) {
                        let here = (self.depth(*neighbour), *neighbour);
                        found = Some(found.map_or(here, |best| best.min(here)));
                    } else {
                        next.push(*neighbour);
                    }
                }
            }
            if let Some((_, mut above)) = found {
                while let Some((vertex, link)) = leads_to[&above] {
                    self.attach(vertex, Above { vertex: above, link });
                    above = vertex;
                }
                return true;
            }
            layer = next;
        }
        false
    }

    /// Removes a receiver, and the vertices that led only to it. Returns `false` if the vertex is
    /// not a receiver.
    pub fn prune(&mut self, receiver: Vertex) -> bool {
        if !self.receivers.remove(&receiver) {
            return false;
        }
        let mut vertex = receiver;
        while !self.receivers.contains(&vertex)
            && !self.below.contains_key(&vertex)
            && let Some(above) = self.above.remove(&vertex)
        {
            if let Some(siblings) = self.below.get_mut(&above.vertex) {
                siblings.remove(&vertex);
                if siblings.is_empty() {
                    self.below.remove(&above.vertex);
                }
            }
            vertex = above.vertex;
        }
        true
    }

    fn attach(&mut self, vertex: Vertex, above: Above) {
        self.below.entry(above.vertex).or_default().insert(vertex);
        self.above.insert(vertex, above);
    }

    /// Returns the sender, which is the root of the tree.
    pub fn sender(&self) -> Vertex {
        self.sender
    }

    /// Returns the receivers that the tree reaches.
    pub fn receivers(&self) -> &BTreeSet<Vertex> {
        &self.receivers
    }

    /// Returns `true` if the tree contains a vertex.
    pub fn contains(&self, vertex: Vertex) -> bool {
        vertex == self.sender || self.above.contains_key(&vertex)
    }

    /// Returns the parent of a vertex, or `None` if the vertex is the sender or not in the tree.
    pub fn above(&self, vertex: Vertex) -> Option<Above> {
        self.above.get(&vertex).copied()
    }

    /// Returns the children of a vertex.
    pub fn children(&self, vertex: Vertex) -> impl ExactSizeIterator<Item = Vertex> {
        static NONE: BTreeSet<Vertex> = BTreeSet::new();
        self.below.get(&vertex).unwrap_or(&NONE).iter().copied()
    }

    /// Returns the links of the tree.
    pub fn links(&self) -> impl ExactSizeIterator<Item = LinkId> {
        self.above.values().map(|above| above.link)
    }

    /// Returns the number of links between the sender and a vertex.
    pub fn depth(&self, vertex: Vertex) -> usize {
        core::iter::successors(self.above(vertex), |above| self.above(above.vertex)).count()
    }

    /// Returns all vertices of the tree. Each vertex comes after those below it.
    pub fn upwards(&self) -> Vec<Vertex> {
        let mut vertices = vec![self.sender];
        let mut place = 0;
        while place < vertices.len() {
            let children = self.children(vertices[place]);
            vertices.extend(children);
            place += 1;
        }
        vertices.reverse();
        vertices
    }
}

fn distances(topology: &Topology, dead: &BTreeSet<LinkId>, sender: Vertex) -> Vec<Option<u32>> {
    let mut distance = vec![None; topology.len()];
    let Some(own) = distance.get_mut(sender.0 as usize) else { return distance };
    *own = Some(0);
    let mut queue: VecDeque<(Vertex, u32)> = [(sender, 0)].into();
    while let Some((vertex, steps)) = queue.pop_front() {
        if vertex != sender && !topology.forwards(vertex) {
            continue;
        }
        for (neighbour, link) in topology.neighbours(vertex) {
            let known = &mut distance[neighbour.0 as usize];
            if known.is_none() && !dead.contains(link) {
                *known = Some(steps + 1);
                queue.push_back((*neighbour, steps + 1));
            }
        }
    }
    distance
}

fn ways_to(
    topology: &Topology,
    dead: &BTreeSet<LinkId>,
    sender: Vertex,
    vertex: Vertex,
    is_nearer: impl Fn(Vertex) -> bool,
) -> Vec<Above> {
    let is_way = |(above, link): &&(Vertex, LinkId)| {
        let passes = topology.forwards(*above) || *above == sender;
        passes && is_nearer(*above) && !dead.contains(link)
    };
    let ways = topology.neighbours(vertex).iter().filter(is_way);
    ways.map(|(above, link)| Above { vertex: *above, link: *link }).collect()
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
