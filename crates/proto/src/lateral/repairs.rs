//! Encoding of repairs.

use crate::lateral::counters::Counters;
use crate::lateral::outbox::Outbox;
use crate::lateral::packet::Packet;
use crate::lateral::repair::bins::Repair;
use crate::{Class, Destination, GroupId, Origin};

/// Adds a repair to the outbox, once for each of its targets.
pub(super) fn send(
    origin: Origin,
    repair: &Repair<'_>,
    outbox: &mut Outbox,
    counters: &mut Counters,
) {
    if repair.targets.is_empty() {
        return;
    }
    counters.xors += repair.ids.len() as u64;
    counters.repairs_sent += repair.targets.len() as u64;
    let before = outbox.sent_bytes();
    let targets = repair.targets.iter().map(|(_, node)| Destination::Node(*node));
    outbox.push(Class::Repair, targets, |out| {
        let packet = Packet::Repair { ids: repair.ids, sum: repair.sum };
        packet.encode(origin, GroupId::NONE, 0, out);
    });
    counters.repair_bytes_sent += outbox.sent_bytes() - before;
}
