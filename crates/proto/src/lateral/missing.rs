//! The packets that this node should have and has not, and when to do something about each.

use crate::lateral::streams::StreamIx;
use crate::{NodeId, SeqNo, Time, Timers};

/// Which record of a missing packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MissingIx(pub(super) u32);

/// A packet that is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    pub(super) stream: StreamIx,
    pub(super) seqno: SeqNo,
    pub(super) noticed_at: Time,
    /// How often somebody was asked for it.
    pub(super) attempts: u8,
    /// Nodes that sent repairs which contain it, the first ones heard of.
    pub(super) holders: Holders,
}

/// Up to three nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holders {
    nodes: [Option<NodeId>; 3],
}

/// All missing packets.
#[derive(Debug, Default)]
pub(super) struct MissingPackets {
    slots: Vec<Option<Missing>>,
    vacant: Vec<MissingIx>,
    due: Timers<MissingIx>,
    /// Nothing is due before this time.
    paused_until: Time,
}

impl Holders {
    pub(super) fn add(&mut self, node: NodeId) {
        if !self.nodes.contains(&Some(node))
            && let Some(vacant) = self.nodes.iter_mut().find(|place| place.is_none())
        {
            *vacant = Some(node);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.into_iter().flatten()
    }
}

impl MissingPackets {
    /// Records a missing packet that is to be looked after at `due`.
    pub(super) fn insert(&mut self, missing: Missing, due: Time) -> MissingIx {
        let ix = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            MissingIx(self.slots.len() as u32 - 1)
        });
        self.slots[ix.0 as usize] = Some(missing);
        self.due.set(ix, due);
        ix
    }

    pub(super) fn get(&self, ix: MissingIx) -> &Missing {
        self.slots[ix.0 as usize].as_ref().expect("a missing packet's record lives while it does")
    }

    pub(super) fn get_mut(&mut self, ix: MissingIx) -> &mut Missing {
        self.slots[ix.0 as usize].as_mut().expect("a missing packet's record lives while it does")
    }

    /// The packet is settled: forgets it.
    pub(super) fn remove(&mut self, ix: MissingIx) -> Missing {
        self.due.cancel(ix);
        self.vacant.push(ix);
        self.slots[ix.0 as usize].take().expect("a packet is settled once")
    }

    /// The packet is to be looked after at `due`.
    pub(super) fn set_due(&mut self, ix: MissingIx, due: Time) {
        self.due.set(ix, due);
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.next_due().map(|due| due.max(self.paused_until))
    }

    /// The packet, and all others with it, wait until `end`: nobody may be asked before. They
    /// wait together, for otherwise each of them would wake the node for nothing again and again.
    pub(super) fn pause(&mut self, now: Time, ix: MissingIx, end: Time) {
        self.due.set(ix, now);
        self.paused_until = end;
    }

    /// Takes the first packet that is to be looked after at `now`; it has no due time then.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<MissingIx> {
        if now < self.paused_until {
            return None;
        }
        self.due.pop_due(now)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(super) fn check(&self) {
        assert_eq!(self.due.len(), self.len(), "a missing packet is not looked after");
    }
}
