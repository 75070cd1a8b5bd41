//! Tests packets in the names of others, which must have no effect.

use std::collections::BTreeSet;

use carom_proto::rdcm::packet::{DataPacket, Fragment, Packet, Place, Report, RingAck, Way};
use carom_proto::rdcm::sack_set::SackSet;
use carom_proto::wire::Datagram;
use carom_proto::{Engine, GroupId, NodeId, Rng};
use carom_sim::{Fault, HostIx};

use crate::net::{Net, Setup};

fn net() -> Net {
    let mut net = Net::sending(500, Setup::rack(4, SEED).at_mbit(20), &[0, 1, 2, 3]);
    net.run(200);
    net
}

fn stream() -> u32 {
    let id = Net::id(0);
    let before = (Rng::new(SEED ^ id.0.rotate_left(32)).next_u64() >> 32) as u32;
    before.wrapping_add(1)
}

fn forge(net: &mut Net, to: u32, from: NodeId, packet: &Packet) {
    let mut datagram = Vec::new();
    packet.encode(net.group, from, stream(), &mut datagram);
    let datagram = Datagram::parse(&datagram).expect("a datagram");
    net.with(to, |engine, now| engine.handle_datagram(now, &datagram));
}

fn data(number: u64, way: Way, is_relayed: bool) -> Packet {
    let fragment = Fragment { is_first: true, is_last: true, bytes: vec![7; 100].into() };
    Packet::Data(DataPacket { number, fragment, way, is_relayed })
}

#[test]
fn huge_numbers_that_the_sender_has_not_confirmed_lose_nothing() {
    let far = 1 << 50;
    let announce = Packet::Announce { epoch: 0, end: far };
    let packets = [
        (Net::id(2), data(far, Way::tree(1), true)),
        (Net::id(2), data(far, Way::Repair, false)),
        (Net::id(0), data(far, Way::tree(1), false)),
        (Net::id(0), announce),
        (Net::id(0), Packet::Farewell { epoch: 1, end: far }),
    ];
    for (from, packet) in packets {
        let mut net = net();
        forge(&mut net, 1, from, &packet);
        net.run_until_whole(&[1, 2, 3], 5000);
        net.leave(0);
        net.run(3000);
        let lost = net.log(1).lost.iter().map(|it| u64::from(it.last.0)).max();
        assert!(lost.unwrap_or(0) < 40_000, "{packet:?}: {lost:?}");
    }
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_stops_nobody() {
    let mut net = net();
    let group = net.group;
    for to in 1..4 {
        let place = net.engine(to).place(group).expect("it receives").clone();
        let rings = place.seats().map(|seat| seat.ring).chain([place.children_ring]);
        for ring in rings.collect::<Vec<_>>() {
            for from in (0..4).filter(|from| *from != to) {
                let ack = RingAck::new(ring, &SackSet::all_below(1 << 50), 1 << 50, 1 << 51, 7);
                forge(&mut net, to, Net::id(from), &Packet::Ack(vec![ack]));
            }
        }
    }
    net.run_until_whole(&[1, 2, 3], 5000);
}

#[test]
fn sender_answers_and_believes_members_only() {
    let mut net = net();
    let (group, stranger) = (net.group, NodeId(77));
    let place = net.engine(1).place(group).expect("it receives").clone();
    let ring = place.children_ring;
    let ack = RingAck::new(ring, &SackSet::all_below(1 << 50), 1 << 50, 1 << 51, 7);
    let report = Report { epoch: place.epoch, next: 400, limit: 500, by_tree: 0, by_repair: 0 };
    let before = net.engine(0).counters();
    let packets = [
        Packet::Ask(std::iter::once(0..1 << 20).collect()),
        Packet::Ack(vec![ack]),
        Packet::Report(report),
        Packet::Cut { ring, successor: Net::id(1) },
        Packet::Silent { successor: Net::id(1) },
    ];
    packets.iter().for_each(|packet| forge(&mut net, 0, stranger, packet));
    let after = net.engine(0).counters();
    assert_eq!(after.foreign, before.foreign + packets.len() as u64);
    assert_eq!(after.repairs_asked_for, before.repairs_asked_for);
    net.run_until_whole(&[1, 2, 3], 5000);
}

#[test]
fn a_place_of_the_highest_epoch_is_not_taken() {
    let mut net = net();
    let group = net.group;
    let mut place = net.engine(1).place(group).expect("it receives").clone();
    for step in [i32::MAX as u32, u32::MAX / 3, 5000] {
        place.epoch = place.epoch.wrapping_add(step);
        place.first = 1 << 40;
        place.leaf.predecessor = NodeId(77);
        let packet = Packet::Place { receiver: Net::id(1), place: place.clone() };
        forge(&mut net, 1, Net::id(0), &packet);
    }
    // Its neighbor leaves, and the host gets another place.
    net.kill(2, true);
    net.run_until_whole(&[1, 3], 5000);
    assert!(net.engine(0).is_settled(group));
    assert_eq!(net.engine(1).counters().implausible, 3);
}

#[test]
fn a_report_in_the_name_of_another_confirms_nothing() {
    let mut net = net();
    net.world.apply(&Fault::Partition(vec![HostIx(1)]));
    net.run(20);
    for epoch in [0, 1, 7, u32::MAX] {
        let next = net.engine(0).counters().data_sent + 1;
        let report = Report { epoch, next, limit: 1 << 40, by_tree: 5, by_repair: 5 };
        forge(&mut net, 0, Net::id(1), &Packet::Report(report));
    }
    net.confirm(0);
    net.run(50);
    assert_eq!(net.safe, [], "host 1 has not confirmed it");
    net.world.apply(&Fault::Heal);
    net.run_until_whole(&[1, 2, 3], 5000);
}

/// The packets are of every kind, in the names of all members, with random fields. An attacker that
/// has seen no unicast packet knows no epoch. Data packets are those that all members already have,
/// or are far ahead.
#[test]
fn packets_with_fields_drawn_at_random_lose_and_confirm_nothing() {
    for seed in 5..10 {
        let mut net = net();
        net.to_send = 1500;
        let known = net.engine(1).place(net.group).expect("it receives").clone();
        let mut rng = Rng::new(seed);
        let mut drawn = BTreeSet::new();
        for _ in 0..2000 {
            let [to, from] = [4, 4].map(|count| rng.below(count) as u32);
            let packet = draw(&mut rng, &known);
            if from != to {
                drawn.insert(kind(&packet));
                forge(&mut net, to, Net::id(from), &packet);
            }
            net.run(1);
        }
        assert!(drawn.into_iter().eq(1..=12), "packets of each kind");
        assert!(net.log(1).got.len() > 1000, "the stream has not paused");
        net.run_until_whole(&[1, 2, 3], 5000);
        assert_eq!(
            (net.slow.len(), net.safe.len()),
            (0, 0),
            "no receiver is slow, and no confirmation was requested"
        );
        let it = net.engine(0).counters();
        let at_sender = [it.implausible, it.cuts_heard, it.silences_heard, it.asks_answered];
        assert!(at_sender.iter().all(|count| *count > 0), "{it:?}");
        let beyond: u64 = (1..4).map(|host| net.engine(host).counters().data_beyond).sum();
        assert!(beyond > 0, "data reaches receivers");
    }
}

fn kind(packet: &Packet) -> u8 {
    let mut datagram = Vec::new();
    packet.encode(GroupId(1), NodeId(1), 0, &mut datagram);
    datagram[4]
}

fn draw(rng: &mut Rng, known: &Place) -> Packet {
    let [number, next, limit, by_tree, by_repair] =
        [(); 5].map(|()| rng.next_u64() >> (4 + rng.below(56)));
    let epoch = rng.next_u64() as u32;
    let [to, before, after] = [4, 9, 9].map(|count| Net::id(rng.below(count) as u32));
    let rings = [known.leaf.ring, known.children_ring, rng.below(9) as u32];
    let ring = rings[rng.below(3)];
    match rng.below(11) {
        0 => {
            let mut place = known.clone();
            (place.epoch, place.first) = (epoch, number);
            (place.leaf.predecessor, place.leaf.successor) = (before, after);
            Packet::Place { receiver: to, place }
        }
        1 => Packet::Announce { epoch: [0, epoch][rng.below(2)], end: next },
        2 => Packet::Report(Report { epoch, next, limit, by_tree, by_repair }),
        3 => Packet::Farewell { epoch, end: next },
        4 => Packet::FarewellHeard,
        5 => Packet::Release { ring, epoch, from: next },
        6 => {
            let number = [1 + number % 100, number | 1 << 40][rng.below(2)];
            let way = [Way::tree(next), Way::Again, Way::Repair][rng.below(3)];
            data(number, way, way != Way::Repair && rng.below(2) == 0)
        }
        7 => {
            let mut has = SackSet::all_below(next);
            has.insert_range(next + 1 + number..next + 2 + number + limit);
            Packet::Ack(vec![RingAck::new(ring, &has, next.max(by_repair), limit, by_tree as u32)])
        }
        8 => {
            let count = 1 + rng.below(3) as u64;
            Packet::Ask((0..count).map(|it| number + it..number + it + 1 + next).collect())
        }
        9 => Packet::Cut { ring, successor: after },
        _ => Packet::Silent { successor: after },
    }
}

const SEED: u64 = 11;
