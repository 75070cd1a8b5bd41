//! The place of a receiver on the wire.

use alloc::vec::Vec;

use bytes::{Buf, BufMut};

use super::super::config::MAX_PORTS;
use super::{take_list, take_node, take_number, take_u32};
use crate::NodeId;
use crate::wire::{DecodeError, HEADER_BYTES};

/// The place of a receiver. On the wire it follows the receiver's id.
///
/// | bytes | field |
/// |---|---|
/// | 12 | epoch |
/// | 16 | the first packet for it |
/// | 24 | the first packet that it is owed |
/// | 12 | receivers in the group |
/// | 36 | seat in the leaf ring: ring u32, predecessor, successor and parent u64 each |
/// | 9 | whether it has another in a proxy ring |
/// | 0 or 28 | that seat |
/// | 12 | the ring of the overlay children |
/// | 2 + 8 each | the overlay children |
/// | 2 + 8 each | to whom it passes on what comes by the tree |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of two places that of the higher epoch holds.
    pub epoch: u32,
    /// The first packet that it gets.
    pub first: u64,
    /// The first packet that it is owed. One that has had no place before has lost those from here
    /// to `first`.
    pub owed_from: u64,
    /// How many receivers there are.
    pub receivers: u32,
    /// Its seat in its leaf ring.
    pub leaf: Seat,
    /// Its seat in its proxy ring.
    pub proxy: Option<Seat>,
    /// The ring whose overlay parent it is; 0 if it has no children.
    pub children_ring: u32,
    /// Its overlay children.
    pub children: Vec<NodeId>,
    /// The receivers that multicast does not reach and to which it passes on what comes by the
    /// tree.
    pub relays: Vec<NodeId>,
}

/// A seat in a ring. Who is alone in a ring is its own neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The ring, by its vertex.
    pub ring: u32,
    /// Who repairs for it.
    pub predecessor: NodeId,
    /// For whom it repairs.
    pub successor: NodeId,
    /// Its overlay parent.
    pub parent: NodeId,
}

impl Place {
    /// Its seats: in its leaf ring, and perhaps in a proxy ring.
    pub fn seats(&self) -> impl Iterator<Item = Seat> {
        [Some(self.leaf), self.proxy].into_iter().flatten()
    }

    pub(in super::super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.epoch);
        out.put_u64(self.first);
        out.put_u64(self.owed_from);
        out.put_u32(self.receivers);
        self.leaf.put(out);
        out.put_u8(self.proxy.is_some().into());
        self.proxy.iter().for_each(|seat| seat.put(out));
        out.put_u32(self.children_ring);
        out.put_u16(self.children.len() as u16);
        self.children.iter().for_each(|child| out.put_u64(child.0));
        out.put_u16(self.relays.len() as u16);
        self.relays.iter().for_each(|relay| out.put_u64(relay.0));
    }

    pub(in super::super) fn take(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let (epoch, first) = (take_u32(bytes)?, take_number(bytes)?);
        let owed_from = take_number(bytes)?;
        if owed_from > first {
            return Err(DecodeError::Value);
        }
        Ok(Self {
            epoch,
            first,
            owed_from,
            receivers: take_u32(bytes)?,
            leaf: Seat::take(bytes)?,
            proxy: match bytes.try_get_u8().map_err(|_| DecodeError::Length)? {
                0 => None,
                1 => Some(Seat::take(bytes)?),
                _ => return Err(DecodeError::Value),
            },
            children_ring: take_u32(bytes)?,
            children: take_list(bytes, MAX_PORTS, take_node)?,
            relays: take_list(bytes, MAX_RELAYS, take_node)?,
        })
    }
}

impl Seat {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.ring);
        out.put_u64(self.predecessor.0);
        out.put_u64(self.successor.0);
        out.put_u64(self.parent.0);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Self {
            ring: take_u32(bytes)?,
            predecessor: take_node(bytes)?,
            successor: take_node(bytes)?,
            parent: take_node(bytes)?,
        })
    }
}

/// Bytes of the place of a receiver that has no overlay children and passes nothing on.
pub(in super::super) const PLACE_BYTES: usize =
    HEADER_BYTES + 8 + 4 + 8 + 8 + 4 + SEAT_BYTES + 1 + SEAT_BYTES + 4 + 2 + 2;
const SEAT_BYTES: usize = 28;
/// Receivers to which one passes on what comes by the tree, at most.
pub const MAX_RELAYS: usize = 16;
