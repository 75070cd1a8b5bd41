//! Packets that do not fit in a datagram, for example lists of many members. IP fragmentation is
//! not used.
//!
//! The datagram of such a packet is split into parts of equal length, except for the last one. If
//! one part is lost, the packet is lost. Packets that need an answer are sent again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Part;
use crate::NodeId;

#[derive(Debug, Default)]
pub(crate) struct PacketReassembly {
    open: BTreeMap<NodeId, Open>,
}

#[derive(Debug)]
struct Open {
    id: u32,
    pieces: Vec<Option<Vec<u8>>>,
    missing: usize,
}

const MAX_OPEN: usize = 64;

impl PacketReassembly {
    pub(crate) fn insert(&mut self, sender: NodeId, part: Part) -> Option<Vec<u8>> {
        let count = usize::from(part.count);
        let known = self.open.get(&sender);
        if known.is_none_or(|open| open.id != part.id || open.pieces.len() != count) {
            if known.is_none() && self.open.len() >= MAX_OPEN {
                self.open.pop_first();
            }
            let open = Open { id: part.id, pieces: vec![None; count], missing: count };
            self.open.insert(sender, open);
        }
        let open = self.open.get_mut(&sender)?;
        let piece = open.pieces.get_mut(usize::from(part.index))?;
        if piece.is_none() {
            *piece = Some(part.bytes.to_vec());
            open.missing -= 1;
        }
        if open.missing > 0 {
            return None;
        }
        let open = self.open.remove(&sender)?;
        Some(open.pieces.into_iter().flatten().flatten().collect())
    }
}

/// Maximum number of parts of a packet. The field on the wire has one byte.
pub(crate) const MAX_PARTS: usize = u8::MAX as usize;

pub(crate) fn split(id: u32, datagram: &[u8], largest: usize) -> impl Iterator<Item = Part> {
    let count = datagram.len().div_ceil(largest);
    assert!(count <= MAX_PARTS, "a packet of {} bytes was split", datagram.len());
    datagram.chunks(largest).enumerate().map(move |(index, bytes)| Part {
        id,
        index: index as u8,
        count: count as u8,
        bytes: bytes.to_vec().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reordered_and_repeated_parts_make_the_whole() {
        let whole: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut cut: Vec<Part> = split(7, &whole, 300).collect();
        assert_eq!(cut.len(), 4);
        cut.reverse();
        cut.insert(1, cut[0].clone());
        let mut parts = PacketReassembly::default();
        let last = cut.pop().expect("the packet has parts");
        for part in cut {
            assert_eq!(parts.insert(NodeId(1), part), None);
        }
        assert_eq!(parts.insert(NodeId(1), last), Some(whole));
    }

    #[test]
    fn new_packet_of_a_sender_replaces_one_that_lost_parts() {
        let mut parts = PacketReassembly::default();
        let old = split(1, &[1; 20], 10).next().expect("the packet has two parts");
        assert_eq!(parts.insert(NodeId(1), old), None);
        let new: Vec<Part> = split(2, &[2; 20], 10).collect();
        assert_eq!(parts.insert(NodeId(1), new[0].clone()), None);
        assert_eq!(parts.insert(NodeId(1), new[1].clone()), Some(vec![2; 20]));
    }
}
