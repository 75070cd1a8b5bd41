//! Counts of messages, repairs and requests at one node, for each packet of the group.

use std::collections::BTreeSet;

use carom_baselines::guest::{Datagram, GuestPacket};
use carom_baselines::{lbrm, rmtp, srm, tmtp};
use carom_proto::rdcm::packet::{Packet as RdcmPacket, RingAck, Way};
use carom_proto::wire::Header;
use carom_proto::{Destination, NodeId, SeqNo, Time};

use super::protocol::Protocol;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Observations by packet, in the order of sequence numbers.
    pub(super) packets: Vec<Seen>,
    pub(super) control: u64,
    /// Nodes that were sent repairs of a packet, by its place. `None` is a multicast.
    served: BTreeSet<(u32, Option<NodeId>)>,
    /// Nodes that requested a packet, by its sequence number.
    requesters: BTreeSet<(u32, NodeId)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) first_at: Option<Time>,
    pub(crate) came: bool,
    pub(crate) repairs: u32,
    /// Number of received requests for the packet, and of acknowledgments that list it as missing.
    pub(crate) requests: u32,
    /// Number of different nodes that sent these requests.
    pub(crate) requesters: u32,
    /// Number of repairs that the node sent. A multicast counts once.
    pub(crate) copies: u32,
    /// Number of different nodes to which it sent repairs. All multicasts count as one.
    pub(crate) served: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum About {
    Message(SeqNo),
    Repair(SeqNo),
    Requests(Vec<SeqNo>),
    Nothing,
}

impl Tally {
    pub(super) fn note_received(&mut self, now: Time, protocol: Protocol, datagram: &[u8]) {
        match about(protocol, datagram) {
            About::Message(seqno) => {
                let packet = self.at(seqno);
                packet.came = true;
                packet.first_at.get_or_insert(now);
            }
            About::Repair(seqno) => {
                let packet = self.at(seqno);
                packet.repairs += 1;
                packet.first_at.get_or_insert(now);
            }
            About::Requests(seqnos) => {
                self.control += 1;
                let from = Header::decode(datagram).map_or(NodeId(0), |(header, _)| header.sender);
                for seqno in seqnos {
                    let is_new = self.requesters.insert((seqno.0, from));
                    let packet = self.at(seqno);
                    packet.requests += 1;
                    packet.requesters += u32::from(is_new);
                }
            }
            About::Nothing => self.control += 1,
        }
    }

    pub(super) fn note_repair_sent(
        &mut self,
        protocol: Protocol,
        to: &Destination,
        datagram: &[u8],
    ) {
        if let About::Repair(seqno) = about(protocol, datagram) {
            let to = if let Destination::Node(node) = to { Some(*node) } else { None };
            let is_new = self.served.insert((seqno.0, to));
            let packet = self.at(seqno);
            packet.copies += 1;
            packet.served += u32::from(is_new);
        }
    }

    fn at(&mut self, seqno: SeqNo) -> &mut Seen {
        let place = seqno.minus(SeqNo::FIRST.0).0 as usize;
        assert!(place < MAX_PACKETS, "{seqno:?} was never sent");
        if place >= self.packets.len() {
            self.packets.resize(place + 1, Seen::default());
        }
        &mut self.packets[place]
    }
}

fn about(protocol: Protocol, datagram: &[u8]) -> About {
    match protocol {
        Protocol::Srm => about_guest(datagram, |packet| match packet {
            srm::packet::Packet::Repair { seqno, .. } => About::Repair(seqno),
            srm::packet::Packet::Request { seqno, .. } => About::Requests(vec![seqno]),
            srm::packet::Packet::Session { .. } => About::Nothing,
        }),
        Protocol::Lbrm => about_guest(datagram, |packet| match packet {
            lbrm::packet::Packet::Nack { seqnos, .. } => {
                About::Requests(seqnos.iter().map(|seqno| SeqNo(seqno.get())).collect())
            }
            lbrm::packet::Packet::Heartbeat { .. } => About::Nothing,
        }),
        Protocol::Tmtp => about_guest(datagram, |packet| match packet {
            tmtp::packet::Packet::Nack { seqnos, .. } => {
                About::Requests(seqnos.iter().map(|seqno| SeqNo(seqno.get())).collect())
            }
            _ => About::Nothing,
        }),
        Protocol::Rmtp => about_guest(datagram, |packet| match packet {
            rmtp::packet::Packet::Ack { settled_to, next, bitmap, .. } => {
                About::Requests(rmtp::packet::missing_of(settled_to, next, bitmap).collect())
            }
            rmtp::packet::Packet::Beacon { .. } => About::Nothing,
        }),
        Protocol::Rdcm => about_rdcm(datagram),
    }
}

/// Returns the subject of a datagram, by `of_packet` unless it is a message or a repair.
fn about_guest<'a, P: GuestPacket<'a>>(
    datagram: &'a [u8],
    of_packet: impl FnOnce(P) -> About,
) -> About {
    match P::decode(datagram) {
        Ok((_, Datagram::Data { seqno, .. })) => About::Message(seqno),
        Ok((_, Datagram::Repair { seqno, .. })) => About::Repair(seqno),
        Ok((_, Datagram::Own(packet))) => of_packet(packet),
        Err(_) => About::Nothing,
    }
}

fn about_rdcm(datagram: &[u8]) -> About {
    let decoded =
        Header::decode(datagram).and_then(|(header, body)| RdcmPacket::decode(&header, body));
    match decoded {
        Ok(RdcmPacket::Data(data)) => {
            let seqno = SeqNo(data.number as u32);
            if data.way == Way::Repair { About::Repair(seqno) } else { About::Message(seqno) }
        }
        Ok(RdcmPacket::Ask(ranges)) => {
            About::Requests(ranges.into_iter().flatten().map(|it| SeqNo(it as u32)).collect())
        }
        Ok(RdcmPacket::Ack(acks)) => {
            let missing = |ack: RingAck| {
                let unknown = ack.has.next()..ack.known_to;
                unknown.filter(|number| !ack.has.contains(*number)).collect::<Vec<u64>>()
            };
            // A packet that is missing in two rings is one loss.
            let missing: BTreeSet<u64> = acks.into_iter().flat_map(missing).collect();
            About::Requests(missing.into_iter().map(|it| SeqNo(it as u32)).collect())
        }
        _ => About::Nothing,
    }
}

/// Limit that detects invalid sequence numbers. No run sends more packets.
const MAX_PACKETS: usize = 1 << 20;
