use core::ops::Range;
use core::time::Duration;

use bytes::Bytes;

use crate::rdcm::packet::{DataPacket, Fragment, Packet, Place, Report, RingAck, Seat, Way};
use crate::rdcm::sack_set::SackSet;
use crate::rdcm::topology::{Topology, Vertex};
use crate::rdcm::{Config, Hosts, Network, Rdcm};
use crate::wire::Datagram;
use crate::{
    Class, Endpoint, Engine as _, Event, GroupId, GroupSettings, NetworkChange, NodeId, Profile,
    SendError, SendOptions, Slow, Time, ViewChange, ViewChangeKind,
};

const NOW: Time = Time(1_000_000_000);
const GROUP: GroupId = GroupId(5);
const SENDER: NodeId = NodeId(1);
const NEXT: NodeId = NodeId(3);
const FAR: u64 = 1 << 60;

fn engine(id: NodeId, others: impl IntoIterator<Item = u64>) -> Rdcm {
    engine_in(Network::Unknown, id, others)
}

fn engine_in(network: Network, id: NodeId, others: impl IntoIterator<Item = u64>) -> Rdcm {
    let mut engine = Rdcm::new(id, Config { network, ..Config::default() }, 1);
    engine.join(NOW, GROUP, GroupSettings::new("g", Profile::Bulk)).expect("a new group");
    others.into_iter().for_each(|other| join(&mut engine, other));
    engine
}

fn join(engine: &mut Rdcm, node: u64) {
    let kind = ViewChangeKind::Joined;
    engine.handle_view(NOW, &ViewChange { group: GROUP, version: 0, node: NodeId(node), kind });
}

fn send(engine: &mut Rdcm, bytes: &'static [u8]) -> Result<(), SendError> {
    let payload = Bytes::from_static(bytes);
    engine.send(NOW, GROUP, payload, SendOptions::default()).map(|_| ())
}

fn hear(engine: &mut Rdcm, from: NodeId, packet: &Packet) {
    hear_at(engine, NOW, 9, from, packet);
}

fn hear_at(engine: &mut Rdcm, now: Time, stream: u32, from: NodeId, packet: &Packet) {
    let mut datagram = Vec::new();
    packet.encode(GROUP, from, stream, &mut datagram);
    engine.handle_datagram(now, &Datagram::parse(&datagram).expect("a datagram"));
    engine.handle_timeout(now);
    engine.check();
}

fn place() -> Packet {
    Packet::Place { receiver: NodeId(2), place: alone() }
}

fn alone() -> Place {
    let node = NodeId(2);
    let leaf = Seat { ring: 7, predecessor: node, successor: node, parent: SENDER };
    let (children, relays) = (Vec::new(), Vec::new());
    let (epoch, first, owed_from, receivers) = (1, 1, 1, 1);
    let (proxy, children_ring) = (None, 0);
    Place { epoch, first, owed_from, receivers, leaf, proxy, children_ring, children, relays }
}

#[test]
fn joiners_at_once_are_sent_their_places_once() {
    let mut engine = engine(SENDER, [2]);
    send(&mut engine, b"something").expect("there is room");
    (3..303).for_each(|node| join(&mut engine, node));
    engine.handle_timeout(NOW);
    assert!(engine.counters().places_sent <= 302, "{}", engine.counters().places_sent);
}

#[test]
fn many_small_messages_fill_the_buffer_too() {
    for message in [&b""[..], b"x"] {
        let mut engine = engine(SENDER, [2]);
        let room = Config::default().send_bytes / 32;
        let full = (0..room).find_map(|_| send(&mut engine, message).err());
        assert!(matches!(full, Some(SendError::QueueFull { .. })), "{full:?}");
        engine.check();
    }
}

#[test]
fn numbers_beyond_all_that_can_be_are_taken_in_no_time() {
    let leaf = Seat { ring: 7, predecessor: NEXT, successor: NEXT, parent: SENDER };
    for first in [1, FAR] {
        let children = Vec::from([NodeId(2), NEXT]);
        let (owed_from, receivers, children_ring) = (first, 2, 7);
        let place = Place { first, owed_from, receivers, leaf, children_ring, children, ..alone() };
        let mut engine = engine(NodeId(2), [1, 3]);
        hear(&mut engine, SENDER, &Packet::Place { receiver: NodeId(2), place });
        let mut has = SackSet::all_below(1);
        (1..30).for_each(|it| has.insert_range(FAR - 40 * it..FAR - 40 * it + 20));
        hear(&mut engine, NEXT, &Packet::Ack(vec![RingAck::new(7, &has, FAR, FAR, 0)]));
        hear(&mut engine, SENDER, &Packet::Announce { epoch: 0, end: FAR });
        hear(&mut engine, NEXT, &Packet::Ack(vec![RingAck::new(7, &has, FAR, FAR, 0)]));
        hear(&mut engine, NEXT, &Packet::Release { ring: 7, epoch: 2, from: FAR });
        let mut out = Vec::new();
        while engine.poll_transmit(&mut out).is_some() {
            out.clear();
        }
    }
}

#[test]
fn a_node_takes_no_place_of_another_at_its_address() {
    let mut engine = engine(NodeId(2), [1]);
    let receiver = NodeId(77);
    hear(&mut engine, SENDER, &Packet::Place { receiver, place: alone() });
    assert_eq!((engine.place(GROUP), engine.counters().foreign), (None, 1));
    hear(&mut engine, SENDER, &place());
    assert_eq!(engine.place(GROUP), Some(&alone()));
}

#[test]
fn restarted_sender_is_followed_and_a_silent_one_given_up() {
    let mut engine = engine(NodeId(2), [1]);
    hear(&mut engine, SENDER, &place());
    hear(&mut engine, SENDER, &Packet::Announce { epoch: 0, end: 3 });
    // The restarted sender begins its streams with another number, which may be lower.
    let later = NOW + Duration::from_secs(2);
    hear_at(&mut engine, NOW + Duration::from_millis(50), 5, SENDER, &place());
    assert_eq!(engine.counters().foreign, 1, "it was heard a moment ago");
    (0..2000).for_each(|ms| engine.handle_timeout(NOW + Duration::from_millis(ms)));
    hear_at(&mut engine, later, 5, SENDER, &place());
    assert_eq!(engine.counters().foreign, 1);
    hear_at(&mut engine, later, 5, SENDER, &Packet::Announce { epoch: 0, end: 2 });
    let told = core::iter::from_fn(|| engine.poll_event());
    let lost = told.filter(|event| matches!(event, Event::Lost(_))).count();
    assert_eq!(lost, 1, "two packets of the first stream never arrived");
    for ms in 0..10_000 {
        engine.handle_timeout(later + Duration::from_millis(ms));
    }
    assert_eq!(engine.sender(GROUP), None);
    assert!(core::iter::from_fn(|| engine.poll_event()).any(|it| matches!(it, Event::Lost(_))));
}

/// A wrong view reports the sender as failed, but the sender still keeps the packets given up here.
#[test]
fn packets_reported_lost_are_not_delivered_when_sender_returns() {
    let mut engine = engine(NodeId(2), [1]);
    let data = |number| {
        let fragment =
            Fragment { is_first: true, is_last: true, bytes: Bytes::from_static(b"one fragment") };
        Packet::Data(DataPacket { number, fragment, way: Way::Again, is_relayed: false })
    };
    let first = alone().first;
    hear(&mut engine, SENDER, &place());
    [0, 1, 3].into_iter().for_each(|ahead| hear(&mut engine, SENDER, &data(first + ahead)));
    let view = |engine: &mut Rdcm, now, kind| {
        engine.handle_view(now, &ViewChange { group: GROUP, version: 1, node: SENDER, kind });
    };
    view(&mut engine, NOW, ViewChangeKind::Failed);
    (0..5000).for_each(|ms| engine.handle_timeout(NOW + Duration::from_millis(ms)));
    let back = NOW + Duration::from_secs(5);
    view(&mut engine, back, ViewChangeKind::Joined);
    hear_at(&mut engine, back, 9, SENDER, &place());
    (0..6).for_each(|ahead| hear_at(&mut engine, back, 9, SENDER, &data(first + ahead)));
    let (mut got, mut lost) = (Vec::new(), Vec::new());
    while let Some(event) = engine.poll_event() {
        match event {
            Event::Message(message) => got.push(u64::from(message.seqno.0) - first),
            Event::Lost(it) => lost.push([it.first, it.last].map(|it| u64::from(it.0) - first)),
            _ => {}
        }
    }
    assert_eq!(lost, [[2, 3]], "{got:?}");
    assert_eq!(got, [0, 1, 4, 5]);
}

#[test]
fn node_without_a_place_in_the_network_is_evicted_at_once() {
    let topology = Topology::racks(&[4]).expect("a rack");
    let hosts = [1, 2, 4].map(|node| (NodeId(node), Vertex(node as u32 - 1)));
    let network = Network::Known { topology: topology.into(), hosts: hosts.into_iter().collect() };
    let mut engine = engine_in(network, SENDER, [2, 3, 4]);
    send(&mut engine, b"something").expect("there is room");
    let mut left = engine.receivers(GROUP);
    left.retain(|(_, state)| state.evicted_at.is_some());
    assert_eq!(left.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [3]);
    engine.handle_timeout(NOW);
    assert_eq!(engine.counters().places_sent, 2);
    engine.check();
}

#[test]
fn last_receiver_without_a_place_is_waited_for() {
    let at = Endpoint(([10, 0, 0, 3], 7400).into());
    let mut hosts = Hosts::from_iter([(SENDER, Vertex(0))]);
    hosts.place_address(at.0.ip(), None, Vertex(2));
    let topology = Topology::racks(&[4]).expect("a rack").into();
    let mut engine = engine_in(Network::Known { topology, hosts }, SENDER, [3]);
    send(&mut engine, b"kept").expect("there is room");
    engine.confirm(NOW, GROUP);
    run_ms(&mut engine, 0..1000);
    assert_eq!(engine.counters().data_sent, 1);
    assert_eq!(engine.poll_event(), None, "no member has the message");
    assert!(engine.receivers(GROUP).iter().all(|(_, state)| state.evicted_at.is_none()));
    engine.handle_network(NOW, &NetworkChange::Met(NEXT, at));
    run_ms(&mut engine, 1000..1500);
    assert!(engine.counters().places_sent > 0, "the place is requested again");
}

#[test]
fn receiver_that_loses_its_place_is_reported_with_what_it_lacks() {
    let hosts = [(1, 0), (2, 1), (3, 2), (9, 2)];
    let hosts = hosts.map(|(node, host)| (NodeId(node), Vertex(host))).into_iter().collect();
    let topology = Topology::racks(&[4]).expect("a rack").into();
    let mut engine = engine_in(Network::Known { topology, hosts }, SENDER, [2, 3]);
    send(&mut engine, b"not acknowledged").expect("there is room");
    run_ms(&mut engine, 0..700);
    join(&mut engine, 9);
    let slow = Event::Slow(Slow { group: GROUP, node: NEXT, behind: 1 });
    assert_eq!(engine.poll_event(), Some(slow));
}

fn run_ms(engine: &mut Rdcm, ms: Range<u64>) {
    let mut out = Vec::new();
    for ms in ms {
        engine.handle_timeout(NOW + Duration::from_millis(ms));
        while engine.poll_transmit(&mut out).is_some() {
            out.clear();
        }
        engine.check();
    }
}

#[test]
fn packets_multicast_again_keep_to_the_senders_rate() {
    const RATE: u64 = 200_000;
    let config = Config { rate: Some(RATE), burst_packets: 2, ..Config::default() };
    let most_per_step = 2 * usize::from(config.path_mtu) + RATE as usize / 100 + 1500;
    let mut engine = Rdcm::new(SENDER, config, 1);
    engine.join(NOW, GROUP, GroupSettings::new("g", Profile::Bulk)).expect("a new group");
    join(&mut engine, 2);
    let payload = Bytes::from(vec![7; 200_000]);
    engine.send(NOW, GROUP, payload, SendOptions::default()).expect("there is room");
    // The only receiver acknowledges nothing, and is not evicted.
    let (mut again, mut out) = (0, Vec::new());
    for ms in (0..10_000).step_by(10) {
        let now = NOW + Duration::from_millis(ms);
        let mut bytes = 0;
        for us in (0..10_000).step_by(500) {
            engine.handle_timeout(now + Duration::from_micros(us));
            while let Some(transmit) = engine.poll_transmit(&mut out) {
                bytes += if out.len() > 1000 { out.len() } else { 0 };
                again += usize::from(transmit.class == Class::Retransmission);
                out.clear();
            }
        }
        assert!(bytes <= most_per_step, "{bytes} bytes within 10 ms, after {ms} ms");
    }
    assert!(again > 50, "{again} packets were multicast again");
}

#[test]
fn confirmation_after_yielding_names_members_with_losses() {
    let (mut engine, now) = sender_of_two();
    assert_eq!(confirmed_after_yielding(&mut engine, now), (1, 1, vec![(NodeId(3), 1)]));
}

#[test]
fn confirmation_after_yielding_names_members_that_left() {
    let (mut engine, now) = sender_of_two();
    send(&mut engine, b"not acknowledged").expect("there is room");
    engine.confirm(now, GROUP);
    let (kind, version) = (ViewChangeKind::Left, 1);
    engine.handle_view(now, &ViewChange { group: GROUP, version, node: NodeId(3), kind });
    assert_eq!(engine.poll_event(), None, "node 2 lacks the last message");
    assert_eq!(confirmed_after_yielding(&mut engine, now), (1, 1, vec![(NodeId(3), 1)]));
}

/// Returns the sender of one message that node 2 has, and the time. Node 3 was never heard.
fn sender_of_two() -> (Rdcm, Time) {
    let mut engine = engine(NodeId(4), [2, 3]);
    send(&mut engine, b"something").expect("there is room");
    let stream = engine.stream(GROUP);
    let mut now = NOW;
    let (mut epoch, mut out) = (0, Vec::new());
    for _ in 0..3000 {
        now = now + Duration::from_millis(1);
        while engine.poll_transmit(&mut out).is_some() {
            let datagram = Datagram::parse(&out).expect("a datagram");
            let body = datagram.body().expect("a body");
            let packet = Packet::decode(datagram.header(), body);
            if let Ok(Packet::Place { receiver: NodeId(2), place }) = packet {
                epoch = place.epoch;
            }
            out.clear();
        }
        let report = Report { epoch, next: 2, limit: 100, by_tree: 0, by_repair: 0 };
        hear_at(&mut engine, now, stream, NodeId(2), &Packet::Report(report));
    }
    while engine.poll_event().is_some() {}
    (engine, now)
}

/// Lets a sender with a smaller id send. Returns what is confirmed then: the last packet, the
/// number of members, and those with losses.
fn confirmed_after_yielding(engine: &mut Rdcm, now: Time) -> (u32, usize, Vec<(NodeId, u32)>) {
    join(engine, 1);
    hear_at(engine, now, 77, SENDER, &Packet::Announce { epoch: 0, end: 1 });
    engine.confirm(now, GROUP);
    let confirmed = core::iter::from_fn(|| engine.poll_event()).find_map(|event| match event {
        Event::Confirmed(it) => Some((it.up_to.0, it.members, it.incomplete)),
        _ => None,
    });
    confirmed.expect("the stream is settled")
}

#[test]
fn branch_that_the_tree_reaches_elsewhere_is_not_cut_off() {
    let (parent, above) = (NodeId(5), NodeId(6));
    let leaf = Seat { ring: 7, predecessor: NEXT, successor: NEXT, parent: NodeId(2) };
    let proxy = Some(Seat { ring: 6, predecessor: parent, successor: parent, parent: above });
    let children = Vec::from([NodeId(2), NEXT]);
    let place = Place { receivers: 4, leaf, proxy, children_ring: 7, children, ..alone() };
    let mut engine = engine(NodeId(2), [1, 3, 5, 6]);
    hear(&mut engine, SENDER, &Packet::Place { receiver: NodeId(2), place });
    let mut acknowledged = |by_tree: u32| {
        let has = SackSet::all_below(1 + u64::from(by_tree));
        let ack = RingAck::new(7, &has, has.next(), FAR, by_tree);
        let now = NOW + Duration::from_millis(u64::from(by_tree));
        hear_at(&mut engine, now, 9, NEXT, &Packet::Ack(vec![ack]));
        engine.handle_timeout(now + Duration::from_millis(1));
        let mut of_branch = Vec::new();
        let mut out = Vec::new();
        while engine.poll_transmit(&mut out).is_some() {
            let datagram = Datagram::parse(&out).expect("a datagram");
            let body = datagram.body().expect("a body");
            if let Ok(Packet::Ack(acks)) = Packet::decode(datagram.header(), body) {
                of_branch.extend(acks.iter().filter(|it| it.ring == 6).map(|it| it.by_tree));
            }
            out.clear();
        }
        of_branch
    };
    assert_eq!(acknowledged(10).last(), Some(&10));
    assert_eq!(acknowledged(20).last(), Some(&20), "only its own link is dead");
}
