//! Ids of the nodes of a run. Either each start has its own id, or all starts of a host share one.

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
    id_of: Box<dyn FnMut(HostIx, u32) -> NodeId>,
    lives: BTreeMap<HostIx, u32>,
    ids: BTreeMap<HostIx, NodeId>,
    rng: Rng,
}

impl NodeIds {
    /// Creates ids with `id_of`. All starts of a host share the first id if `keeps_ids` is `true`.
    pub(crate) fn new(
        keeps_ids: bool,
        seed: u64,
        id_of: impl FnMut(HostIx, u32) -> NodeId + 'static,
    ) -> Self {
        let (lives, ids) = (BTreeMap::new(), BTreeMap::new());
        let rng = Rng::new(seed ^ 0x17ca_4a7e);
        Self { keeps_ids, id_of: Box::new(id_of), lives, ids, rng }
    }

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

    /// Returns the next start on a host. A start with its own id needs no incarnation.
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

/// Ids of two starts of a host are equal modulo this number.
pub(crate) const IDS_APART: u64 = 1000;
