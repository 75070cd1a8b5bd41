//! Wire format of a receiver's place.

use alloc::vec::Vec;

use bytes::BufMut;

use super::super::limits::{MAX_PORTS, MAX_RELAYS};
use super::fields::{take_list, take_node, take_number, take_u8, take_u32};
use crate::NodeId;
use crate::wire::{DecodeError, HEADER_BYTES};

/// Place of a receiver. On the wire it follows the id of the receiver.
///
/// | bytes | field |
/// |---|---|
/// | 4 | epoch |
/// | 8 | first packet that it gets |
/// | 8 | first packet to which it is entitled |
/// | 4 | number of receivers in the group |
/// | 28 | seat in the leaf ring: ring u32, predecessor, successor and parent u64 each |
/// | 1 | 1 if it has a seat in a proxy ring, otherwise 0 |
/// | 0 or 28 | that seat |
/// | 4 | ring of the overlay children |
/// | 2 + 8 each | overlay children |
/// | 2 + 8 each | receivers to which it relays packets of the tree |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Epoch of the place. Of two places, the one with the later epoch applies. Epochs wrap around.
    pub epoch: u32,
    /// First packet that the receiver gets.
    pub first: u64,
    /// First packet to which the receiver is entitled. If it has had no place before, the packets
    /// from this one up to `first` are lost.
    pub owed_from: u64,
    /// Number of receivers.
    pub receivers: u32,
    /// Seat in the leaf ring.
    pub leaf: Seat,
    /// Seat in the proxy ring, if any.
    pub proxy: Option<Seat>,
    /// Ring whose overlay parent the receiver is. 0 if it has no overlay children.
    pub children_ring: u32,
    /// Overlay children of the receiver.
    pub children: Vec<NodeId>,
    /// Receivers without multicast to which this one relays packets of the tree.
    pub relays: Vec<NodeId>,
}

/// A seat in a ring. A receiver that is alone in a ring is its own neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Number of the ring: that of its vertex.
    pub ring: u32,
    /// Node that repairs for the receiver.
    pub predecessor: NodeId,
    /// Node for which the receiver repairs.
    pub successor: NodeId,
    /// Overlay parent of the receiver.
    pub parent: NodeId,
}

impl Place {
    /// Returns the seats in the leaf ring and, if any, in the proxy ring.
    pub fn seats(&self) -> impl Iterator<Item = Seat> {
        [Some(self.leaf), self.proxy].into_iter().flatten()
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
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

    pub(crate) fn take(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
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
            proxy: match take_u8(bytes)? {
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

/// Size of a datagram with the place of a receiver that has no overlay children and relays nothing.
pub(crate) const PLACE_BYTES: usize =
    HEADER_BYTES + 8 + 4 + 8 + 8 + 4 + SEAT_BYTES + 1 + SEAT_BYTES + 4 + 2 + 2;
const SEAT_BYTES: usize = 28;
