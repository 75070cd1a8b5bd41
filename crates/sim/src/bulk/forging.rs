//! An attacker that receives multicast only. It knows groups, streams, nodes and their
//! incarnations, but no epoch, and sends packets in the names of others.

use bytes::Bytes;
use carom_proto::rdcm::Rdcm;
use carom_proto::rdcm::packet::{DataPacket, Fragment, Packet, Place, Report, RingAck, Way};
use carom_proto::rdcm::sack_set::SackSet;
use carom_proto::{Engine as _, NodeId, Rng};

use super::player::Player;
use crate::HostIx;

impl Player<'_> {
    /// Delivers a forged packet to a host.
    ///
    /// A receiver of the stream gets packets that only the sender sends, in the sender's name. All
    /// other packets are in the name of any other member. The first place in a stream is not
    /// forged, because without keys it cannot be distinguished from the sender's own.
    pub(super) fn forge(&mut self, to: HostIx, draw: u64) {
        let mut rng = Rng::new(draw);
        let Some(sender) = self.sender().filter(|_| self.can_use(to)) else { return };
        let engine = self.engine(sender).expect("it sends");
        let (stream, receivers) = (engine.stream(self.group), engine.receivers(self.group));
        let others: Vec<HostIx> = self.members().into_iter().filter(|host| *host != to).collect();
        let nodes: Vec<NodeId> = receivers.into_iter().map(|(node, _)| node).collect();
        // A place from a former start of the sender does not count in this stream.
        let follows = |it: &&Rdcm| {
            it.sender(self.group) == self.id(sender) && it.stream(self.group) == stream
        };
        let receiver = self.engine(to).filter(follows);
        let place = receiver.and_then(|engine| engine.place(self.group)).cloned();
        let (packet, from) = match place {
            Some(place) if rng.chance(0.6) => {
                (draw_of_sender(&mut rng, place, self.id(to).expect("it is alive"), &nodes), sender)
            }
            place if !others.is_empty() => {
                let ring = place.map_or(rng.below(16) as u32, |place| place.leaf.ring);
                (draw_of_receiver(&mut rng, ring, &nodes), others[rng.below(others.len())])
            }
            _ => return,
        };
        let Some(origin) = self.origin(from) else { return };
        let mut datagram = Vec::new();
        packet.encode(self.group, origin, stream, &mut datagram);
        self.world.with(to, |member, now| member.engine_mut().handle_datagram(now, &datagram));
    }
}

/// Draws a number of random size: most are small, some are huge.
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
            // A payload with a number of the stream could only be detected by a signature.
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
