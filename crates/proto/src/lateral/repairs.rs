//! From what a bin holds to the repair on the wire.

use super::bins::Repair;
use super::block::xor_all;
use super::counters::Counters;
use super::outbox::Outbox;
use super::packet::{Packet, WireId};
use crate::{Destination, GroupId, NodeId, RateOfFire};

/// Encodes repairs, in buffers that it keeps.
#[derive(Debug, Default)]
pub(super) struct RepairEncoder {
    sum: Vec<u8>,
    ids: Vec<WireId>,
}

impl RepairEncoder {
    /// Puts the XOR of the repair's packets into the outbox, for each of its targets.
    pub(super) fn send(
        &mut self,
        sender: NodeId,
        repair: &Repair<'_>,
        outbox: &mut Outbox,
        counters: &mut Counters,
    ) {
        if repair.targets.is_empty() {
            return;
        }
        self.combine(repair);
        counters.xors += repair.packets.len() as u64;
        counters.repairs_sent += repair.targets.len() as u64;
        let before = outbox.sent_bytes();
        let targets = repair.targets.iter().map(|(_, node)| Destination::Node(*node));
        outbox.push(targets, |out| {
            let packet = Packet::Repair { ids: &self.ids, sum: &self.sum };
            packet.encode(sender, GroupId::NONE, 0, out);
        });
        counters.repair_bytes_sent += outbox.sent_bytes() - before;
    }

    fn combine(&mut self, repair: &Repair<'_>) {
        let mut blocks: [&[u8]; RateOfFire::MAX_R as usize] = Default::default();
        for (place, (_, block)) in blocks.iter_mut().zip(repair.packets) {
            *place = block.bytes();
        }
        xor_all(&mut self.sum, &blocks[..repair.packets.len()]);
        self.ids.clear();
        self.ids.extend(repair.packets.iter().map(|(id, _)| WireId::from(*id)));
    }
}
