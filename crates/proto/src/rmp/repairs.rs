//! Choice between retransmission to one member and to all (4.2: "a topic for continuing research").
//!
//! A packet that one member lost is sent to that member. If a second member soon requests it too,
//! the loss occurred on a shared part of their paths, and the packet is sent to the group. Later
//! requests are then unnecessary.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::names::Process;
use crate::{SeqNo, Time};

/// Recent retransmissions.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    lately: BTreeMap<(Process, u32), (Time, Repair)>,
}

/// Destination of a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    ToOne,
    ToAll,
    /// None, because the packet was just sent to all.
    Not,
}

/// Maximum number of retransmissions that are remembered.
const MAX_REPAIRS: usize = 256;

impl Repairs {
    /// Returns the destination of this packet. Retransmissions within the last `span` count.
    pub(super) fn next(&mut self, now: Time, span: Duration, packet: (Process, SeqNo)) -> Repair {
        let packet = (packet.0, packet.1.0);
        let last = self.lately.get(&packet).filter(|(at, _)| now.since(*at) < span);
        let repair = match last {
            None => Repair::ToOne,
            Some((_, Repair::ToOne)) => Repair::ToAll,
            Some(_) => return Repair::Not,
        };
        if self.lately.len() >= MAX_REPAIRS {
            self.lately.retain(|_, (at, _)| now.since(*at) < span);
        }
        if self.lately.len() >= MAX_REPAIRS {
            self.lately.pop_first();
        }
        self.lately.insert(packet, (now, repair));
        repair
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn repair_goes_to_one_then_to_all_then_pauses() {
        let mut repairs = Repairs::default();
        let packet = (Process { node: NodeId(1), life: 1 }, SeqNo(7));
        let span = Duration::from_nanos(100);
        let next = |at| repairs.next(Time(at), span, packet);
        let given = [1000, 1010, 1020, 1109, 1110].map(next);
        assert_eq!(given, [Repair::ToOne, Repair::ToAll, Repair::Not, Repair::Not, Repair::ToOne]);
    }

    #[test]
    fn remembered_repairs_are_bounded() {
        let mut repairs = Repairs::default();
        let process = Process { node: NodeId(1), life: 1 };
        for number in 0..10_000 {
            repairs.next(Time(1), Duration::from_secs(1), (process, SeqNo(number)));
        }
        assert_eq!(repairs.lately.len(), MAX_REPAIRS);
    }
}
