use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::fields::MAX_NUMBER;
use super::*;
use crate::rdcm::limits::{MIN_MTU, UDP_AND_IP_BYTES};
use crate::rdcm::sack_set::SackSet;
use crate::wire::{HEADER_BYTES, MAX_DATAGRAM_BYTES};

const GROUP: GroupId = GroupId(0x0102_0304);
const SENDER: NodeId = NodeId(0x1122_3344_5566_7788);

fn encode(packet: &Packet) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(GROUP, SENDER, 9, &mut out);
    out
}

fn decode(datagram: &[u8]) -> Result<Packet, DecodeError> {
    let (header, body) = Header::decode(datagram)?;
    Packet::decode(&header, body)
}

fn body(packet: &Packet) -> Vec<u8> {
    encode(packet).split_off(HEADER_BYTES)
}

fn fragment(bytes: &[u8]) -> Fragment {
    Fragment { is_first: true, is_last: false, bytes: Bytes::copy_from_slice(bytes) }
}

#[test]
fn a_data_packet_on_the_wire_is_this() {
    let data = DataPacket {
        number: 0x0A0B,
        fragment: fragment(&[0xEE, 0xFF]),
        way: Way::Repair,
        is_relayed: false,
    };
    let golden = [
        0xCA, 0x70, 2, 5, 1, 5, 0, 46, // magic, version, protocol, kind, flags, length
        0x8E, 0xDC, 0x2A, 0xA9, // checksum
        1, 2, 3, 4, // group
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, // sender
        0, 0, 0, 0, 0, 0, 0, 0, // incarnation
        0, 0, 0, 9, // stream
        0, 0, 0, 0, 0, 0, 0x0A, 0x0B, // number
        0xEE, 0xFF, // fragment
    ];
    assert_eq!(encode(&Packet::Data(data)), golden);
}

#[test]
fn relayed_packet_has_its_own_kind_and_the_in_flight_count() {
    let way = Way::Tree { doublings: 9 };
    let data = DataPacket { number: 0x0A0B, fragment: fragment(&[0xEE]), way, is_relayed: true };
    let datagram = encode(&Packet::Data(data.clone()));
    assert_eq!(datagram[4..6], [9, 0x91], "kind and flags");
    assert_eq!(datagram[HEADER_BYTES..], [0, 0, 0, 0, 0, 0, 0x0A, 0x0B, 0xEE]);
    assert_eq!(decode(&datagram), Ok(Packet::Data(data)));
}

#[test]
fn the_other_packets_on_the_wire_are_these() {
    let announce = Packet::Announce { epoch: 6, end: 7 };
    assert_eq!(body(&announce), [0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7]);
    let farewell = Packet::Farewell { epoch: 6, end: 7 };
    assert_eq!(body(&farewell), body(&announce));
    assert_eq!(body(&Packet::FarewellHeard), []);
    let mut has = SackSet::all_below(5);
    has.insert_range(7..10);
    let ack = Packet::Ack(alloc::vec![RingAck::new(3, &has, 11, 12, 13)]);
    let golden = [
        0, 1, // one ring
        0, 0, 0, 3, // the ring
        0, 0, 0, 0, 0, 0, 0, 5, // first missing packet
        0, 0, 0, 0, 0, 0, 0, 11, // known to
        0, 0, 0, 0, 0, 0, 0, 12, // limit
        0, 0, 0, 13, // through the tree
        0, 1, 0, 0, 0, 2, 0, 0, 0, 3, // one range: offset two, length three
    ];
    assert_eq!(body(&ack), golden);
    let report = Report { epoch: 1, next: 2, limit: 3, by_tree: 4, by_repair: 5 };
    let golden = [
        &[0, 0, 0, 1][..],
        &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3],
        &[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5],
    ];
    assert_eq!(body(&Packet::Report(report)), golden.concat());
    let ask = Packet::Ask(alloc::vec![1..2]);
    assert_eq!(body(&ask), [0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
    let cut = Packet::Cut { ring: 1, successor: NodeId(2) };
    assert_eq!(body(&cut), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
    let silent = Packet::Silent { successor: NodeId(2) };
    assert_eq!(body(&silent), [0, 0, 0, 0, 0, 0, 0, 2]);
    let release = Packet::Release { ring: 1, epoch: 2, from: 3 };
    assert_eq!(body(&release), [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
}

#[test]
fn a_place_on_the_wire_is_this() {
    let seat = |ring, [predecessor, successor, parent]: [u64; 3]| Seat {
        ring,
        predecessor: NodeId(predecessor),
        successor: NodeId(successor),
        parent: NodeId(parent),
    };
    let place = Place {
        epoch: 1,
        first: 2,
        owed_from: 1,
        receivers: 3,
        leaf: seat(4, [5, 6, 7]),
        proxy: Some(seat(8, [9, 10, 11])),
        children_ring: 12,
        children: alloc::vec![NodeId(13)],
        relays: alloc::vec![NodeId(14), NodeId(15)],
    };
    let golden = [
        &[0, 0, 0, 0, 0, 0, 0, 16][..],
        &[0, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 0, 2],
        &[0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 3],
        &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7],
        &[1],
        &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 11],
        &[0, 0, 0, 12],
        &[0, 1, 0, 0, 0, 0, 0, 0, 0, 13],
        &[0, 2, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 15],
    ];
    assert_eq!(body(&Packet::Place { receiver: NodeId(16), place }), golden.concat());
}

#[test]
fn the_largest_packets_fit_the_narrowest_path() {
    let path_mtu = MIN_MTU as u16;
    let relay_children = MAX_RELAYS;
    let config = super::super::Config { path_mtu, relay_children, ..Default::default() };
    let least = usize::from(path_mtu) - UDP_AND_IP_BYTES;
    let seat = Seat { ring: 1, predecessor: SENDER, successor: SENDER, parent: SENDER };
    let children = alloc::vec![SENDER; config.most_children()];
    let (epoch, first, owed_from, receivers, children_ring) = (1, 1, 1, 1, 1);
    let (leaf, proxy) = (seat, Some(seat));
    let relays = alloc::vec![SENDER; MAX_RELAYS];
    let place =
        Place { epoch, first, owed_from, receivers, leaf, proxy, children_ring, children, relays };
    assert!(encode(&Packet::Place { receiver: SENDER, place }).len() <= least);
    let mut has = SackSet::all_below(1);
    (1..100).for_each(|number| assert!(has.insert(number * 2)));
    let ack = RingAck::new(1, &has, 200, 0, 0);
    assert_eq!(ack.has.later().count(), MAX_RANGES);
    assert_eq!(ack.known_to, ack.has.end(), "unlisted packets are unknown");
    assert!(encode(&Packet::Ack(alloc::vec![ack.clone(), ack])).len() <= least);
    assert!(encode(&Packet::Ask(alloc::vec![1..2; MAX_RANGES])).len() <= least);
}

#[test]
fn impossible_values_are_refused() {
    let refused = |packet: &Packet| decode(&encode(packet)).expect_err("it is impossible");
    assert_eq!(refused(&Packet::Ask(alloc::vec![2..2])), DecodeError::Value);
    let data = |number, way, is_relayed| {
        Packet::Data(DataPacket { number, fragment: fragment(&[]), way, is_relayed })
    };
    assert_eq!(refused(&data(u64::MAX, Way::tree(1), false)), DecodeError::Value);
    assert_eq!(refused(&data(MAX_NUMBER + 1, Way::tree(1), true)), DecodeError::Value);
    assert_eq!(refused(&Packet::Announce { epoch: 0, end: MAX_NUMBER + 1 }), DecodeError::Value);
    assert_eq!(refused(&data(1, Way::Repair, true)), DecodeError::Value, "repairs are not relayed");
    let mut ack = RingAck::new(1, &SackSet::all_below(5), 5, 0, 0);
    ack.known_to = 4;
    assert_eq!(refused(&Packet::Ack(alloc::vec![ack.clone()])), DecodeError::Value);
    ack.known_to = 5;
    assert_eq!(refused(&Packet::Ack(alloc::vec![ack; 3])), DecodeError::Value);
}

#[test]
fn packet_carries_a_rough_count_of_packets_in_flight() {
    let doublings = [0, 1, 2, 3, 4, 1000, u64::MAX].map(Way::tree);
    let expected = [0, 0, 1, 1, 2, 9, 15].map(|doublings| Way::Tree { doublings });
    assert_eq!(doublings, expected);
}

pub(super) fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0..1000_u64, Just(MAX_NUMBER), any::<u32>().prop_map(u64::from)]
}

pub(super) fn ring_acks() -> impl Strategy<Value = RingAck> {
    let ranges = vec((1..50_u64, 1..50_u64), 0..40);
    let parts = (any::<u32>(), 0..u64::from(u32::MAX), ranges, 0..100_u64);
    (parts, numbers(), any::<u32>()).prop_map(|((ring, next, ranges, more), limit, by_tree)| {
        let mut has = SackSet::all_below(next);
        let mut end = next;
        for (gap, count) in ranges {
            has.insert_range(end + gap..end + gap + count);
            end += gap + count;
        }
        RingAck::new(ring, &has, end + more, limit, by_tree)
    })
}

pub(super) fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
    let ranges = (0..1000_u64, 1..1000_u64).prop_map(|(start, count)| start..start + count);
    vec(ranges, 0..MAX_RANGES)
}

fn packets() -> impl Strategy<Value = Packet> {
    any::<Packet>().prop_map(|mut packet| {
        match &mut packet {
            Packet::Data(data) => data.is_relayed &= data.way != Way::Repair,
            Packet::Place { place, .. } if place.owed_from > place.first => {
                (place.first, place.owed_from) = (place.owed_from, place.first);
            }
            _ => {}
        }
        packet
    })
}

proptest! {
    #[test]
    fn decoding_is_the_inverse_of_encoding(packet in packets()) {
        let datagram = encode(&packet);
        assert!(datagram.len() <= MAX_DATAGRAM_BYTES);
        prop_assert_eq!(decode(&datagram), Ok(packet));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        kind in 0..14_u8, flags: u8, body in vec(any::<u8>(), 0..200),
    ) {
        let header = Header { flags, ..Header::new(Protocol::Bulk, kind, GROUP, SENDER) };
        let _ = Packet::decode(&header, &body);
    }
}
