use super::*;
use crate::Incarnation;
use proptest::prelude::*;

const SENDER: NodeId = NodeId(0x1122_3344_5566_7788);
const GROUP: GroupId = GroupId(0x0102_0304);

fn id(seqno: u32) -> WireId {
    PacketId { sender: NodeId(0xA), group: GroupId(0xB), seqno: SeqNo(seqno) }.into()
}

fn body(packet: Packet<'_>) -> (u8, u8, Vec<u8>) {
    let mut out = Vec::new();
    packet.encode(SENDER, GROUP, 9, &mut out);
    let (header, decoded) = Packet::decode(&out).expect("an encoded packet can be decoded");
    assert_eq!(decoded, packet);
    assert_eq!((header.sender, header.group, header.view), (SENDER, GROUP, 9));
    (header.kind, header.flags, out[HEADER_BYTES..].to_vec())
}

const ID_7: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0xA, 0, 0, 0, 0xB, 0, 0, 0, 7];

#[test]
fn data_on_the_wire_is_this() {
    let packet = Packet::Data { seqno: SeqNo(7), confirm: true, symbol: &[0xEE, 0xFF] };
    assert_eq!(body(packet), (1, CONFIRM, vec![0, 0, 0, 7, 0xEE, 0xFF]));
}

#[test]
fn a_repair_on_the_wire_is_this() {
    let packet = Packet::Repair { ids: &[id(7)], sum: &[0xEE] };
    assert_eq!(body(packet), (2, 0, [&[1, 0, 0, 0][..], &ID_7, &[0xEE]].concat()));
}

#[test]
fn a_nak_and_a_have_not_on_the_wire_are_this() {
    let (cookie, ids) = (0x0102_0304_0506_0708, &[id(7)][..]);
    let with_cookie = [&[1, 2, 3, 4, 5, 6, 7, 8][..], &ID_7].concat();
    assert_eq!(body(Packet::Nak { cookie, ids }), (3, 0, with_cookie.clone()));
    assert_eq!(body(Packet::Challenge { cookie, ids }), (9, 0, with_cookie));
    let have_not = Packet::HaveNot { ids: &[id(7)], expired: true };
    assert_eq!(body(have_not), (5, EXPIRED, ID_7.to_vec()));
}

#[test]
fn a_retransmission_on_the_wire_is_this() {
    let packet = Packet::Retransmission { origin: NodeId(5), seqno: SeqNo(6), symbol: &[1] };
    assert_eq!(body(packet), (4, 0, vec![0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 1]));
}

#[test]
fn a_heartbeat_on_the_wire_is_this() {
    let (next, nonce) = (SeqNo(3), 0);
    let plain = Packet::Heartbeat { next, first: None, nonce, confirm: true };
    assert_eq!(body(plain), (6, CONFIRM, [&[0, 0, 0, 3][..], &[0; 12]].concat()));
    let (first, nonce) = (Some(SeqNo(2)), 0x0102_0304_0506_0708);
    let answer = Packet::Heartbeat { next, first, nonce, confirm: false };
    assert_eq!(body(answer), (6, FIRST, vec![0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]));
}

#[test]
fn an_ack_and_an_open_on_the_wire_are_this() {
    let to = Origin { node: NodeId(2), incarnation: Incarnation(3) };
    let ack = Packet::Ack { to, settled_to: SeqNo(4), lost: 1 };
    let words = [0, 0, 0, 2, 0, 0, 0, 3, 0, 4, 0, 1].into_iter().flat_map(u16::to_be_bytes);
    assert_eq!(body(ack), (7, 0, words.collect()));
    assert_eq!(body(Packet::Open { nonce: 5 }), (8, 0, vec![0, 0, 0, 0, 0, 0, 0, 5]));
}

proptest! {
    #[test]
    fn body_under_a_valid_header_decodes_to_itself_or_an_error(
        kind in 0..12_u8,
        body in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let datagram = Header::new(Protocol::Lateral, kind, GROUP, SENDER).datagram(&body);
        if let Ok((header, packet)) = Packet::decode(&datagram) {
            let mut again = Vec::new();
            packet.encode(header.origin(), header.group, header.view, &mut again);
            if !matches!(packet, Packet::Heartbeat { .. }) {
                prop_assert_eq!(again, datagram);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = Packet::decode(&bytes);
    }

    #[test]
    fn every_repair_comes_back_as_it_was(
        seqnos in prop::collection::vec(any::<u32>(), 1..=32),
        sum in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let ids: Vec<WireId> = seqnos.into_iter().map(id).collect();
        body(Packet::Repair { ids: &ids, sum: &sum });
        body(Packet::Nak { cookie: 1, ids: &ids });
        body(Packet::Data { seqno: SeqNo(1), confirm: false, symbol: &sum });
    }
}
