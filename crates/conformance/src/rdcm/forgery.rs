//! An attacker that receives only multicast. It knows groups, streams, nodes and their
//! incarnations, but no epoch, and sends packets in the names of others.

use bytes::Bytes;
use carom_proto::rdcm::packet::{DataPacket, Fragment, Packet, Place, Report, RingAck, Way};
use carom_proto::rdcm::sack_set::SackSet;
use carom_proto::{NodeId, Rng};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Sender,
    Member(usize),
}

/// Forges a packet for the node `to`, whose place in the stream is `place` if it is a receiver.
/// `nodes` are the receivers of the stream.
///
/// A receiver of the stream can get packets that only the sender sends, in the sender's name. All
/// other packets are in the name of one of the `others` other members. The first place in a stream
/// is not forged, because without keys it cannot be distinguished from the sender's own.
pub(super) fn forged(
    rng: &mut Rng,
    to: NodeId,
    place: Option<Place>,
    nodes: &[NodeId],
    others: usize,
) -> Option<(Packet, Origin)> {
    match place {
        Some(place) if rng.chance(0.6) => {
            Some((draw_of_sender(rng, place, to, nodes), Origin::Sender))
        }
        place if others > 0 => {
            let any_ring = rng.below(16) as u32;
            let ring = place.map_or(any_ring, |place| place.leaf.ring);
            let packet = draw_of_receiver(rng, ring, nodes);
            Some((packet, Origin::Member(rng.below(others))))
        }
        _ => None,
    }
}

fn number(rng: &mut Rng) -> u64 {
    rng.next_u64() >> (4 + rng.below(56))
}

fn any(rng: &mut Rng, nodes: &[NodeId]) -> NodeId {
    match nodes {
        [] => NodeId(rng.next_u64()),
        nodes => nodes[rng.below(nodes.len())],
    }
}

fn draw_of_sender(rng: &mut Rng, place: Place, receiver: NodeId, nodes: &[NodeId]) -> Packet {
    let epoch = rng.next_u64() as u32;
    match rng.below(4) {
        0 => {
            let mut place = Place { epoch, first: number(rng), ..place };
            (place.leaf.predecessor, place.leaf.successor) = (any(rng, nodes), any(rng, nodes));
            Packet::Place { receiver, place }
        }
        1 => Packet::Announce { epoch: [0, epoch][rng.below(2)], end: number(rng) },
        2 => Packet::Farewell { epoch, end: number(rng) },
        _ => {
            // A forged payload with a number of the stream could only be detected by a signature.
            let number = (1 << 40) + number(rng);
            let bytes = Bytes::from_static(b"forged");
            let fragment = Fragment { is_first: true, is_last: true, bytes };
            let ways = [Way::tree(1), Way::Again, Way::Repair];
            let way = ways[rng.below(ways.len())];
            Packet::Data(DataPacket { number, fragment, way, is_relayed: rng.chance(0.5) })
        }
    }
}

fn draw_of_receiver(rng: &mut Rng, ring: u32, nodes: &[NodeId]) -> Packet {
    let epoch = rng.next_u64() as u32;
    let [first, next, limit, by_tree, by_repair] = [(); 5].map(|()| number(rng));
    match rng.below(6) {
        0 => Packet::Report(Report { epoch, next, limit, by_tree, by_repair }),
        1 => Packet::Release { ring, epoch, from: next },
        2 => Packet::Ask(core::iter::once(first..first.saturating_add(next)).collect()),
        3 => Packet::Silent { successor: any(rng, nodes) },
        4 => Packet::Cut { ring, successor: any(rng, nodes) },
        _ => {
            let mut has = SackSet::all_below(first);
            has.insert_range(next..next.saturating_add(by_repair));
            let (known_to, by_tree) = (first.saturating_add(by_repair), by_tree as u32);
            Packet::Ack(vec![RingAck::new(ring, &has, known_to, limit, by_tree)])
        }
    }
}
