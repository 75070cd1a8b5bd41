//! The links of a scenario: the dead ones, which never disconnect hosts, and those of the trees
//! along which the network forwards.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::GroupId;
use carom_proto::rdcm::topology::{LinkId, Topology as Cluster, Vertex};
use carom_proto::rdcm::tree::MulticastTree;
use carom_sim::{Fault, HostIx, Machine, World};

use super::cluster::{place, set_tree};

pub(super) struct Links {
    cluster: Cluster,
    dead: BTreeSet<LinkId>,
    trees: BTreeMap<HostIx, MulticastTree>,
}

impl Links {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster, dead: BTreeSet::new(), trees: BTreeMap::new() }
    }

    pub(super) fn carry(&self, sender: HostIx, tree: &MulticastTree) -> bool {
        self.trees.get(&sender) == Some(tree)
    }

    pub(super) fn follow<M: Machine>(
        &mut self,
        world: &mut World<M>,
        group: GroupId,
        sender: HostIx,
        tree: MulticastTree,
    ) {
        set_tree(world, &self.cluster, group, &tree);
        self.trees.insert(sender, tree);
    }

    pub(super) fn all(&self) -> Vec<LinkId> {
        (0..self.cluster.links().len() as u32).map(LinkId).collect()
    }

    pub(super) fn cut(&mut self, link: LinkId) -> Option<Fault> {
        let mut dead = self.dead.clone();
        if !dead.insert(link) || !self.is_connected_without(&dead) {
            return None;
        }
        self.dead = dead;
        let [a, b] = self.cluster.links()[link.0 as usize].map(|end| place(&self.cluster, end));
        Some(Fault::CutLink(a, b))
    }

    pub(super) fn mend(&mut self) -> Vec<Fault> {
        let ends = |link: LinkId| {
            let [a, b] = self.cluster.links()[link.0 as usize].map(|end| place(&self.cluster, end));
            Fault::MendLink(a, b)
        };
        let faults = self.dead.iter().copied().map(ends).collect();
        self.dead.clear();
        faults
    }

    fn is_connected_without(&self, dead: &BTreeSet<LinkId>) -> bool {
        let cluster = &self.cluster;
        let mut reached = BTreeSet::from([Vertex(0)]);
        let mut next = vec![Vertex(0)];
        while let Some(vertex) = next.pop() {
            if vertex != Vertex(0) && !cluster.forwards(vertex) {
                continue;
            }
            for (neighbor, link) in cluster.neighbours(vertex) {
                if !dead.contains(link) && reached.insert(*neighbor) {
                    next.push(*neighbor);
                }
            }
        }
        (0..cluster.hosts()).all(|host| reached.contains(&Vertex(host)))
    }
}
