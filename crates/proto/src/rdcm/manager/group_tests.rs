//! Random groups on all topologies, for the tests of trees and overlays.

use std::collections::BTreeSet;

use proptest::prelude::{Strategy, any};

use super::super::topology::{Topology, Vertex};
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
        let mut hosts: Vec<Vertex> = (0..topology.hosts()).map(Vertex).collect();
        let others = hosts.len() - 1;
        let count = 2 + (share * (others - 1) as f64) as usize;
        Rng::new(seed).choose_to_front(&mut hosts, count + 1);
        let receivers = hosts[1..=count].iter().copied().collect();
        Group { topology, sender: hosts[0], receivers }
    })
}
