use bytes::Bytes;

use super::repair_window::KeptPacket;
use crate::NodeId;

#[derive(Debug, Default)]
pub(super) struct Reassembly {
    open: Option<Open>,
    last_bytes: usize,
}

#[derive(Debug)]
struct Open {
    first: u64,
    bytes: Vec<u8>,
    repaired_by: Option<NodeId>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) first: u64,
    pub(super) payload: Bytes,
    pub(super) repaired_by: Option<NodeId>,
}

impl Reassembly {
    /// Adds a packet, and returns the message that it completes, unless that exceeds `limit` bytes.
    pub(super) fn push(&mut self, number: u64, packet: KeptPacket, limit: usize) -> Option<Whole> {
        let KeptPacket { fragment, repaired_by } = packet;
        if fragment.is_first {
            self.open = None;
            if fragment.is_last {
                return Some(Whole { first: number, payload: fragment.bytes, repaired_by });
            }
            self.open = Some(Open {
                first: number,
                bytes: Vec::with_capacity(self.last_bytes),
                repaired_by: None,
            });
        }
        let open = self.open.as_mut()?;
        open.bytes.extend_from_slice(&fragment.bytes);
        open.repaired_by = repaired_by.or(open.repaired_by);
        if open.bytes.len() > limit {
            self.open = None;
            return None;
        }
        if !fragment.is_last {
            return None;
        }
        let Open { first, bytes, repaired_by } = self.open.take()?;
        self.last_bytes = bytes.len();
        Some(Whole { first, payload: bytes.into(), repaired_by })
    }

    pub(super) fn begun_at(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.first)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::packet::Fragment;
    use super::*;

    fn packet(bytes: &'static str, is_first: bool, is_last: bool, by: Option<u64>) -> KeptPacket {
        let fragment = Fragment { is_first, is_last, bytes: bytes.into() };
        KeptPacket { fragment, repaired_by: by.map(NodeId) }
    }

    #[test]
    fn messages_come_out_whole_with_who_repaired_them() {
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.push(4, packet("tail of another", false, true, None), 100), None);
        let whole = reassembly.push(5, packet("one", true, true, None), 100).expect("a message");
        assert_eq!((whole.first, &whole.payload[..], whole.repaired_by), (5, &b"one"[..], None));
        assert_eq!(reassembly.push(6, packet("tw", true, false, Some(3)), 100), None);
        assert_eq!(reassembly.held_bytes(), 2);
        let whole = reassembly.push(7, packet("o", false, true, None), 100).expect("a message");
        assert_eq!((whole.first, &whole.payload[..]), (6, &b"two"[..]));
        assert_eq!(whole.repaired_by, Some(NodeId(3)));
        assert_eq!(reassembly.held_bytes(), 0);
    }

    #[test]
    fn a_message_without_an_end_is_given_up() {
        let mut reassembly = Reassembly::default();
        reassembly.push(1, packet("abc", true, false, None), 5);
        assert_eq!(reassembly.push(2, packet("def", false, false, None), 5), None);
        assert_eq!(reassembly.held_bytes(), 0);
        assert_eq!(reassembly.push(3, packet("g", false, true, None), 5), None);
        reassembly.push(4, packet("abc", true, false, None), 5);
        let whole = reassembly.push(5, packet("x", true, true, None), 5).expect("a message");
        assert_eq!(whole.first, 5, "the one that never ended is forgotten");
    }
}
