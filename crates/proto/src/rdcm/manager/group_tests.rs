use core::ops::Range;
use std::collections::BTreeSet;

use proptest::prelude::{Strategy, any};

use super::super::topology::{Topology, Vertex};
use super::tree::MulticastTree;
use crate::Rng;

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) topology: Topology,
    pub(super) sender: Vertex,
    pub(super) receivers: BTreeSet<Vertex>,
}

pub(super) fn any_group() -> impl Strategy<Value = Group> {
    (0..7_u8, any::<u64>(), 0.0..1.0_f64).prop_map(|(kind, seed, share)| {
        let topology = match kind {
            0 => Topology::bcube(4, 1),
            1 => Topology::bcube(3, 2),
            2 => Topology::bcube(2, 4),
            3 => Topology::fat_tree(4),
            4 => Topology::vl2(4, 6, 5),
            5 => Topology::tree(&[3, 1, 2, 4]),
            _ => Topology::racks(&[5, 1, 9, 0, 2]),
        };
        let topology = topology.expect("a topology");
        let others = topology.hosts() - 1;
        let count = 2 + (share * f64::from(others - 1)) as usize;
        Group::random(topology, count, seed)
    })
}

impl Group {
    pub(super) fn random(topology: Topology, count: usize, seed: u64) -> Self {
        let mut hosts: Vec<Vertex> = (0..topology.hosts()).map(Vertex).collect();
        Rng::new(seed).choose_to_front(&mut hosts, count + 1);
        let receivers = hosts[1..=count].iter().copied().collect();
        Self { topology, sender: hosts[0], receivers }
    }

    pub(super) fn a_thousand_in_bcube(seed: u64) -> Self {
        Self::random(Topology::bcube(8, 3).expect("a topology"), 1000, seed)
    }

    pub(super) fn of_first(topology: Topology, receivers: Range<u32>) -> Self {
        Self { topology, sender: Vertex(0), receivers: receivers.map(Vertex).collect() }
    }

    pub(super) fn tree(&self) -> MulticastTree {
        let Self { topology, sender, receivers } = self;
        let (tree, unreached) =
            MulticastTree::shortest(topology, &BTreeSet::new(), *sender, receivers);
        assert!(unreached.is_empty(), "{unreached:?}");
        tree
    }
}
