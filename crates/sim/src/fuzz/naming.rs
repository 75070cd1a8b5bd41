//! Ids of the nodes of a run: one for each start, or one for each host, which all its starts share.

use std::collections::BTreeMap;

use carom_proto::{Incarnation, NodeId, Origin, Rng};

use super::draws::may_be_later;
use crate::HostIx;
use crate::checkers::ordered::PROCESSES_APART;

/// Returns `true` if hosts keep their ids in the scenario of this seed, as in two of five. The draw
/// does not influence any other.
pub(crate) fn keeps_ids(seed: u64) -> bool {
    may_be_later(seed) && Rng::new(seed ^ 0xf1ed_1d50).chance(0.4)
}

/// Assigns the id and incarnation of each start of each node.
#[derive(Debug)]
pub(crate) struct Naming {
    keeps_ids: bool,
    starts: u64,
    ids: BTreeMap<HostIx, NodeId>,
    rng: Rng,
}

impl Naming {
    pub(crate) fn new(keeps_ids: bool, seed: u64) -> Self {
        let rng = Rng::new(seed ^ 0x17ca_4a7e);
        Self { keeps_ids, starts: 0, ids: BTreeMap::new(), rng }
    }

    /// Returns `true` if the starts of a host share an id.
    pub(crate) fn keeps_ids(&self) -> bool {
        self.keeps_ids
    }

    /// Returns the origin of the next start on a host. A start with an id of its own needs no
    /// incarnation.
    pub(crate) fn next(&mut self, host: HostIx) -> Origin {
        self.starts += 1;
        let fresh = NodeId(u64::from(host.0) + 1 + PROCESSES_APART * self.starts);
        if !self.keeps_ids {
            return fresh.into();
        }
        let node = *self.ids.entry(host).or_insert(fresh);
        Origin { node, incarnation: Incarnation(self.rng.next_u64()) }
    }
}
