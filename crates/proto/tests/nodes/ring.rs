use std::collections::BTreeSet;

use carom_proto::ring::{
    Epoch, ListChange, ListChangeKind, Process, Qos, Quorum, RingView, Timestamp,
};
use carom_proto::rmp::packet::{DataPacket, Nack, NewList, Packet, Position};
use carom_proto::rmp::{Data, Round, Run, What};
use carom_proto::wire::{Datagram, HEADER_BYTES, Header, Protocol, seal};
use carom_proto::*;

use crate::net::{MEMBERS, Net, origin};

fn ring() -> Net {
    let mut net = Net::new(MEMBERS, Profile::Ordered(Quorum::Majority));
    net.run(3000);
    (0..MEMBERS).for_each(|number| send(&mut net, number));
    net.run(1000);
    assert_eq!(view(&net, 0).len(), MEMBERS);
    assert!(net.given.iter().all(|given| given.len() == MEMBERS));
    net.troubles = 0;
    net
}

fn view(net: &Net, number: usize) -> RingView {
    net.nodes[number].engines().ordered.view(net.group).expect("it is in a ring").clone()
}

fn send(net: &mut Net, number: usize) {
    let payload = vec![number as u8; 20 + net.given[number].len()];
    let options = SendOptions { qos: Some(Qos::MajorityResilient), deadline: None };
    net.send(number, payload, options);
}

fn encode(net: &Net, origin: Origin, packet: &Packet) -> Vec<u8> {
    let mut datagram = Vec::new();
    packet.encode(&mut datagram, net.group, origin, view(net, 0).epoch.version);
    datagram
}

fn attack_in_vain(net: &mut Net, datagram: &[u8]) {
    assert_eq!(net.attack(datagram), [0; MEMBERS], "{:?}", packet(datagram));
}

fn assert_unharmed(net: &mut Net) {
    let (view_before, given) = (view(net, 0), net.given[0].len());
    net.run(3000);
    (0..MEMBERS).for_each(|number| send(net, number));
    net.run(1000);
    for number in 0..MEMBERS {
        assert_eq!(view(net, number), view_before);
        assert_eq!(net.given[number].len(), given + MEMBERS);
        assert_eq!(net.given[number], net.given[0]);
    }
    assert_eq!(net.troubles, 0, "a view changed, or another event was reported");
}

fn packet(datagram: &[u8]) -> Option<Packet> {
    let (header, body) = Header::decode(datagram).ok()?;
    Packet::decode(&header, body).ok()
}

/// Returns forgeries in the name of the second member. The attacker receives multicast.
fn forgeries(view: &RingView) -> Vec<(&'static str, Packet)> {
    let epoch = view.epoch;
    let [first, second] = [1, 2].map(|node| view.process_of(NodeId(node)).expect("it is in"));
    let data = Data::whole(SeqNo(2), Qos::TotallyOrdered, vec![66; 30].into());
    let data = |seqno| {
        Packet::Data(DataPacket { source: second, seqno: SeqNo(seqno), data: data.clone() })
    };
    let leave = ListChange { process: second, request: 1, kind: ListChangeKind::Leave };
    let ack = |at: u64, site: Process, next: Process, count: u16| {
        let runs = vec![Run { source: second, first: SeqNo(2), count }];
        let what = What::Order(if count == 0 { Vec::new() } else { runs });
        Packet::Ack { epoch, round: Round { at: Timestamp(at), site, next, what } }
    };
    let ballot = Epoch { version: u32::MAX, creator: second };
    let position = Position { next: Timestamp(1), is_whole: true, received: Vec::new() };
    let start = Packet::RecoveryStart {
        epoch,
        ballot,
        position: position.clone(),
        refuted: Vec::new(),
        released: Vec::new(),
    };
    let mut packets = vec![
        ("leave", Packet::ListChangeRequest { epoch: Some(epoch), change: leave }),
        ("abort", Packet::RecoveryAbort { ballot, seen: ballot }),
        (
            "vote",
            Packet::RecoveryVote {
                epoch,
                ballot,
                position: position.clone(),
                accepted: Vec::new(),
            },
        ),
        ("start", start),
    ];
    packets.extend((2..7).map(|seqno| ("data", data(seqno))));
    for at in 1..60 {
        packets.push(("null ack", ack(at, second, first, 0)));
        packets.push(("split", ack(at, first, second, 1 + (at % 3) as u16)));
        let round =
            Round { at: Timestamp(at), site: second, next: first, what: What::List(vec![leave]) };
        packets.push(("leave list", Packet::NewList(NewList::Change { epoch, round })));
    }
    packets.push(("far ack", ack(1 << 40, second, first, 4)));
    let runs = vec![Run { source: first, first: SeqNo(1), count: 64 }];
    let (from, to) = (Timestamp(1), Timestamp::MAX);
    let asked = Some(NodeId(1));
    packets.push(("nack", Packet::Nack(Nack { epoch, asked, from, to, runs })));
    packets
}

fn kinds() -> BTreeSet<&'static str> {
    forgeries(&view(&ring(), 0)).iter().map(|(name, _)| *name).collect()
}

fn ring_and_forged(name: &str, origin: Origin) -> (Net, Vec<Vec<u8>>) {
    let net = ring();
    let forged = forgeries(&view(&net, 0)).into_iter().filter(|(it, _)| *it == name);
    let datagrams = forged.map(|(_, packet)| encode(&net, origin, &packet)).collect();
    (net, datagrams)
}

#[test]
fn packets_in_a_members_name_from_elsewhere_change_nothing() {
    for name in kinds() {
        let (mut net, datagrams) = ring_and_forged(name, origin(1));
        datagrams.iter().for_each(|datagram| attack_in_vain(&mut net, datagram));
        assert_unharmed(&mut net);
    }
}

/// A NACK or the start of a reformation shows that its sender does not know the ring. At intervals,
/// each member describes the ring to that node, in more bytes than it received. The runtime
/// withholds the excess for an address that has not answered.
#[test]
fn what_strangers_repeat_in_their_own_names_changes_nothing() {
    let stranger = Origin { node: NodeId(99), incarnation: Incarnation(9 << 45) };
    for name in kinds() {
        let (mut net, datagrams) = ring_and_forged(name, stranger);
        for datagram in &datagrams {
            if !["nack", "start"].contains(&name) {
                attack_in_vain(&mut net, datagram);
                continue;
            }
            let before = net.seen.len();
            (0..10).for_each(|_| _ = net.attack(datagram));
            let answers: Vec<_> = net.seen[before..].iter().map(|it| packet(it)).collect();
            let is_snapshot =
                |it: &Option<Packet>| matches!(it, Some(Packet::NewList(NewList::Whole(_))));
            assert_eq!(answers.len(), MEMBERS, "{name}: one from each");
            assert!(answers.iter().all(is_snapshot), "{name}: {answers:?}");
        }
        assert_unharmed(&mut net);
    }
}

#[test]
fn mutations_and_replays_from_elsewhere_change_nothing() {
    let mut net = ring();
    let mut rng = Rng::new(5);
    let seen: Vec<Vec<u8>> = net.seen.clone();
    for turn in 0..20_000 {
        let mut datagram = seen[rng.below(seen.len())].clone();
        let is_ordered =
            Datagram::parse(&datagram).is_ok_and(|it| it.header().protocol == Protocol::Ordered);
        if !is_ordered {
            continue;
        }
        if turn % 8 != 0 {
            // The header still contains the group and the sender. The rest is arbitrary.
            let at = HEADER_BYTES;
            let at = at + rng.below(datagram.len().saturating_sub(at).max(1));
            if let Some(byte) = datagram.get_mut(at) {
                *byte = [0, 255, *byte ^ 1, rng.next_u64() as u8][rng.below(4)];
            }
            seal(&mut datagram, 0);
        }
        attack_in_vain(&mut net, &datagram);
    }
    assert_unharmed(&mut net);
}
