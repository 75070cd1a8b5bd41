//! Tests that a node keeps working while it receives a million datagrams of noise and damaged
//! packets.

mod network;

use std::net::UdpSocket;

use carom::blocking::Group;
use carom::{MemberPath, NodeId, PathChoice};
use carom_proto::lateral::packet::Packet;
use carom_proto::wire::{Header, Protocol};
use carom_proto::{GroupId, Incarnation, Origin, PacketId, Rng, SeqNo};
use network::{join, multicast_port, next_message, on_loopback, start, wait_for};

const DATAGRAMS: usize = 1_000_000;
const MESSAGES: u32 = 2_000;

#[test]
fn a_node_works_while_a_million_damaged_datagrams_come_in() {
    let port = multicast_port();
    let nodes = [(); 3].map(|()| start(on_loopback(port)));
    let groups = nodes.each_ref().map(join);
    for (node, group) in nodes.iter().zip(&groups) {
        wait_for(node, "all members in the group", |_| group.members().len() == 2);
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(nodes[1].endpoint()).expect("an address");
    let mut rng = Rng::new(7);
    let templates = templates(nodes[0].id(), nodes[1].id(), groups[0].id());
    for count in 0..DATAGRAMS {
        // The kernel drops datagrams for which it has no room, as it does in an attack.
        let _ = socket.send(&damaged(&mut rng, &templates));
        if count.is_multiple_of(DATAGRAMS / MESSAGES as usize) {
            let number = (count / (DATAGRAMS / MESSAGES as usize)) as u32;
            groups[0].publish(number.to_be_bytes().to_vec()).expect("published");
        }
    }
    for group in &groups[1..] {
        assert_eq!(numbers(group, nodes[0].id()), (0..MESSAGES).collect::<Vec<u32>>());
    }
    let stats = nodes[1].status().stats;
    let refused = stats.lateral.malformed + stats.node.datagrams_unknown;
    assert!(refused > DATAGRAMS as u64 / 100, "only {refused} datagrams were refused");
}

#[test]
fn a_member_is_reached_as_it_says_itself() {
    let port = multicast_port();
    let node = start(on_loopback(port));
    let deaf = on_loopback(port).path(PathChoice::Unicast).seeds([node.endpoint().to_string()]);
    let deaf = start(deaf);
    let (in_node, in_deaf) = (join(&node), join(&deaf));
    let is_unicast = |status: &carom::Status| {
        status.members.len() == 1 && status.members[0].path == MemberPath::Unicast
    };
    wait_for(&node, "a member without multicast", is_unicast);
    wait_for(&node, "the member in the group", |_| in_node.members().len() == 1);
    // The node has received a message from the member's own address.
    in_deaf.publish(b"1".to_vec()).expect("published");
    next_message(&in_node);
    let origin = Origin { node: deaf.id(), incarnation: Incarnation(1) };
    let heard = [&1_u32.to_be_bytes()[..], &node.id().0.to_be_bytes()].concat();
    let datagram = Header::new(Protocol::Path, 2, GroupId::NONE, origin).datagram(&heard);
    let before = node.status().stats.net.path_elsewhere;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.send_to(&datagram, node.endpoint()).expect("it is sent");
    let heard = |status: &carom::Status| status.stats.net.path_elsewhere == before + 1;
    let status = wait_for(&node, "a forged report", heard);
    assert!(is_unicast(&status), "{status:#?}");
}

fn numbers(group: &Group, sender: NodeId) -> Vec<u32> {
    let mut numbers = Vec::new();
    while numbers.len() < MESSAGES as usize {
        let message = next_message(group);
        assert_eq!(message.sender, sender, "no other node has sent anything");
        let bytes = message.payload[..].try_into().expect("four bytes, as were sent");
        numbers.push(u32::from_be_bytes(bytes));
    }
    numbers.sort_unstable();
    numbers
}

fn templates(from: NodeId, to: NodeId, group: GroupId) -> Vec<Vec<u8>> {
    let id = PacketId { sender: from, group, seqno: SeqNo(3) };
    let own = PacketId { sender: to, group, seqno: SeqNo(1) };
    let ids = [id.into(), own.into()];
    let symbol = [7; 60];
    let packets = [
        Packet::Data { seqno: SeqNo(3), confirm: true, symbol: &symbol },
        Packet::Repair { ids: &ids, sum: &symbol },
        Packet::Nak { cookie: 0, ids: &ids },
        Packet::Retransmission { origin: from, seqno: SeqNo(4), symbol: &symbol },
        Packet::HaveNot { ids: &ids, expired: true },
        Packet::Heartbeat { next: SeqNo(9), first: Some(SeqNo(1)), nonce: 0, confirm: true },
        Packet::Ack { to: Origin::from(to), settled_to: SeqNo(1), lost: 0 },
        Packet::Open { nonce: 0 },
    ];
    let encode = |packet: &Packet<'_>| {
        let mut datagram = Vec::new();
        packet.encode(from, group, 1, &mut datagram);
        datagram
    };
    packets.iter().map(encode).collect()
}

fn damaged(rng: &mut Rng, templates: &[Vec<u8>]) -> Vec<u8> {
    let mut datagram = templates[rng.below(templates.len())].clone();
    match rng.below(5) {
        0 => (0..1 + rng.below(4)).for_each(|_| {
            let place = rng.below(datagram.len());
            datagram[place] = datagram[place].wrapping_add(1 + rng.below(255) as u8);
        }),
        1 => datagram.truncate(rng.below(datagram.len())),
        2 => datagram.extend((0..1 + rng.below(40)).map(|it| it as u8)),
        3 => {
            // The protocol number is valid, so that the datagram reaches an engine.
            let noise = datagram.iter_mut().skip(4);
            noise.for_each(|byte| *byte = rng.next_u64() as u8);
        }
        _ => datagram.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8),
    }
    if templates.contains(&datagram) {
        // If two changes have canceled each other out, the packet is valid and would be accepted.
        datagram[0] ^= 1;
    }
    datagram
}
