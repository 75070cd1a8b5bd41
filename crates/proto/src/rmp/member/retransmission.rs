//! Choice between retransmission to one member and to all (4.2: "a topic for continuing research").
//!
//! A packet that one member lost is sent to that member. If a second member soon requests it too,
//! the loss occurred on a shared part of their paths, and the packet is sent to the group. Later
//! requests are then unnecessary.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::rmp::ids::Process;
use crate::{SeqNo, Time};

#[derive(Debug, Default)]
pub(super) struct Retransmissions {
    lately: BTreeMap<(Process, u32), (Time, RetransmitTo)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetransmitTo {
    One,
    All,
    /// None, because the packet was just sent to all.
    None,
}

const MAX_REMEMBERED: usize = 256;

impl Retransmissions {
    // Retransmissions within the last `span` count.
    pub(super) fn next(
        &mut self,
        now: Time,
        span: Duration,
        packet: (Process, SeqNo),
    ) -> RetransmitTo {
        let packet = (packet.0, packet.1.0);
        let last = self.lately.get(&packet).filter(|(at, _)| now.since(*at) < span);
        let destination = match last {
            None => RetransmitTo::One,
            Some((_, RetransmitTo::One)) => RetransmitTo::All,
            Some(_) => return RetransmitTo::None,
        };
        if self.lately.len() >= MAX_REMEMBERED {
            self.lately.retain(|_, (at, _)| now.since(*at) < span);
        }
        if self.lately.len() >= MAX_REMEMBERED {
            self.lately.pop_first();
        }
        self.lately.insert(packet, (now, destination));
        destination
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn packet_is_retransmitted_to_one_then_to_all_then_pauses() {
        let mut retransmissions = Retransmissions::default();
        let packet = (Process { node: NodeId(1), life: 1 }, SeqNo(7));
        let span = Duration::from_nanos(100);
        let next = |at| retransmissions.next(Time(at), span, packet);
        let given = [1000, 1010, 1020, 1109, 1110].map(next);
        assert_eq!(
            given,
            [
                RetransmitTo::One,
                RetransmitTo::All,
                RetransmitTo::None,
                RetransmitTo::None,
                RetransmitTo::One
            ]
        );
    }

    #[test]
    fn remembered_repairs_are_bounded() {
        let mut retransmissions = Retransmissions::default();
        let process = Process { node: NodeId(1), life: 1 };
        for number in 0..10_000 {
            retransmissions.next(Time(1), Duration::from_secs(1), (process, SeqNo(number)));
        }
        assert_eq!(retransmissions.lately.len(), MAX_REMEMBERED);
    }
}
