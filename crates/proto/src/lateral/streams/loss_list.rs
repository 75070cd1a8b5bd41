//! Loss list: the packets that are missing, with the time of the next action for each.

use crate::lateral::index::StreamIx;
use crate::{NodeId, SeqNo, Time, Timers};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MissingIx(pub(crate) u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    pub(crate) stream: StreamIx,
    pub(crate) seqno: SeqNo,
    pub(crate) noticed_at: Time,
    pub(crate) attempts: u8,
    /// First three nodes that sent repairs containing the packet, in order of arrival.
    pub(crate) holders: Holders,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holders {
    nodes: [Option<NodeId>; 3],
}

#[derive(Debug, Default)]
pub(crate) struct LossList {
    slots: Vec<Option<Missing>>,
    vacant: Vec<MissingIx>,
    due: Timers<MissingIx>,
    paused_until: Time,
}

impl Missing {
    pub(crate) fn new(stream: StreamIx, seqno: SeqNo, now: Time) -> Self {
        Self { stream, seqno, noticed_at: now, attempts: 0, holders: Holders::default() }
    }
}

impl Holders {
    #[inline]
    pub(crate) fn add(&mut self, node: NodeId) {
        if !self.nodes.contains(&Some(node))
            && let Some(vacant) = self.nodes.iter_mut().find(|place| place.is_none())
        {
            *vacant = Some(node);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.into_iter().flatten()
    }
}

impl LossList {
    pub(crate) fn insert(&mut self, missing: Missing, due: Time) -> MissingIx {
        let ix = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            MissingIx(self.slots.len() as u32 - 1)
        });
        self.slots[ix.0 as usize] = Some(missing);
        self.due.set(ix, due);
        ix
    }

    pub(crate) fn get(&self, ix: MissingIx) -> &Missing {
        self.slots[ix.0 as usize].as_ref().expect("a missing packet has a record")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, ix: MissingIx) -> &mut Missing {
        self.slots[ix.0 as usize].as_mut().expect("a missing packet has a record")
    }

    pub(crate) fn remove(&mut self, ix: MissingIx) -> Missing {
        self.due.cancel(ix);
        self.vacant.push(ix);
        self.slots[ix.0 as usize].take().expect("a packet is settled only once")
    }

    pub(crate) fn set_due(&mut self, ix: MissingIx, due: Time) {
        self.due.set(ix, due);
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.next_due().map(|due| due.max(self.paused_until))
    }

    /// Makes the packet and all others that become due wait until `end`, because no NAK may be sent
    /// before then. They wait together, so that the node does not wake up for each of them.
    pub(crate) fn pause(&mut self, now: Time, ix: MissingIx, end: Time) {
        self.due.set(ix, now);
        self.paused_until = end;
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<MissingIx> {
        if now < self.paused_until {
            return None;
        }
        self.due.pop_due(now)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.due.len(), self.len(), "a missing packet has no due time");
    }
}
