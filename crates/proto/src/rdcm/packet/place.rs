use alloc::vec::Vec;

use super::super::limits::{MAX_PORTS, MAX_RELAYS};
use super::fields::number;
use crate::NodeId;
use crate::wire::HEADER_BYTES;

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
/// | 0 or 28 | seat in the proxy ring |
/// | 4 | ring of the overlay children |
/// | 2 + 8 each | overlay children |
/// | 2 + 8 each | receivers to which it relays packets of the tree |
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Place {
    /// Epoch of the place, which wraps around. Of two places, the one with the later epoch applies.
    pub epoch: u32,
    /// First packet that the receiver gets.
    #[cfg_attr(test, proptest(strategy = "super::tests::numbers()"))]
    pub first: u64,
    /// First packet to which the receiver is entitled. If the receiver had no place before, the
    /// packets from this one up to `first` are lost to it.
    #[cfg_attr(test, proptest(strategy = "super::tests::numbers()"))]
    pub owed_from: u64,
    /// Number of receivers in the group.
    pub receivers: u32,
    /// Seat of the receiver in its leaf ring.
    pub leaf: Seat,
    /// Seat of the receiver in its proxy ring, if any.
    pub proxy: Option<Seat>,
    /// Ring whose overlay parent is this receiver, or 0 if it has no overlay children.
    pub children_ring: u32,
    /// Overlay children of the receiver.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::some(0..MAX_PORTS)"))]
    pub children: Vec<NodeId>,
    /// Receivers without multicast to which this receiver relays packets of the tree.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::some(0..=MAX_RELAYS)"))]
    pub relays: Vec<NodeId>,
}

/// A seat in a ring. A receiver that is alone in a ring is its own neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Seat {
    /// Number of the ring, which is the number of its vertex.
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
}

crate::fields! {
    Seat { ring, predecessor, successor, parent };
    Place {
        epoch, first with number, owed_from with number, receivers, leaf, proxy, children_ring,
        children, relays,
    } if |place| {
        place.owed_from <= place.first
            && place.children.len() <= MAX_PORTS
            && place.relays.len() <= MAX_RELAYS
    };
}

/// Size, in bytes, of the datagram of a place without overlay children and relays.
pub(crate) const PLACE_BYTES: usize =
    HEADER_BYTES + 8 + 4 + 8 + 8 + 4 + SEAT_BYTES + 1 + SEAT_BYTES + 4 + 2 + 2;
const SEAT_BYTES: usize = 28;
