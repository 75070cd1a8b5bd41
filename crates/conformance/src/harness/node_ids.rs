//! Ids of the nodes of a run: one for each start, or one for each host, which all its starts share.

use std::collections::BTreeMap;

use carom_proto::{Incarnation, NodeId, Origin, Rng};
use carom_sim::HostIx;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) host: HostIx,
    pub(crate) life: u32,
    pub(crate) origin: Origin,
}

pub(crate) struct NodeIds {
    keeps_ids: bool,
    /// Returns the id of the start with this number on a host.
    id_of: Box<dyn FnMut(HostIx, u32) -> NodeId>,
    lives: BTreeMap<HostIx, u32>,
    ids: BTreeMap<HostIx, NodeId>,
    rng: Rng,
}

impl NodeIds {
    /// Assigns ids by `id_of`. The starts of a host share the first one if `keeps_ids` is set.
    pub(crate) fn new(
        keeps_ids: bool,
        seed: u64,
        id_of: impl FnMut(HostIx, u32) -> NodeId + 'static,
    ) -> Self {
        let (lives, ids) = (BTreeMap::new(), BTreeMap::new());
        let rng = Rng::new(seed ^ 0x17ca_4a7e);
        Self { keeps_ids, id_of: Box::new(id_of), lives, ids, rng }
    }

    /// Assigns ids that do not depend on the protocol.
    pub(crate) fn by_default(keeps_ids: bool, seed: u64) -> Self {
        let mut starts = 0;
        Self::new(keeps_ids, seed, move |host, _| {
            starts += 1;
            NodeId(u64::from(host.0) + 1 + IDS_APART * starts)
        })
    }

    pub(crate) fn keeps_ids(&self) -> bool {
        self.keeps_ids
    }

    pub(crate) fn lives(&self, host: HostIx) -> u32 {
        self.lives.get(&host).copied().unwrap_or(0)
    }

    /// Returns the next start on a host. A start with an id of its own needs no incarnation.
    pub(crate) fn next(&mut self, host: HostIx) -> Start {
        let life = self.lives(host);
        self.lives.insert(host, life + 1);
        let id = (self.id_of)(host, life);
        let origin = match self.keeps_ids {
            true => {
                let node = *self.ids.entry(host).or_insert(id);
                Origin { node, incarnation: Incarnation(self.rng.next_u64()) }
            }
            false => id.into(),
        };
        Start { host, life, origin }
    }
}

/// Difference between the ids of two starts on a host, which are equal modulo this number.
pub(crate) const IDS_APART: u64 = 1000;
