//! Regression tests for earlier faults, each with the shortest history that shows the fault.

use crate::rig::{
    GROUP, MILLISECOND, RATE, SECOND, World, data, datagram, heartbeat, payload, settings,
};
use carom_proto::lateral::packet::symbol::{Arena, SYMBOL_HEADER_BYTES, Symbol};
use carom_proto::lateral::packet::{DATA_BYTES, Packet, WireId};
use carom_proto::lateral::{Config, Lateral};
use carom_proto::loss::Loss;
use carom_proto::wire::Datagram;
use carom_proto::*;

fn ids(sender: u64, numbers: &[u32]) -> Vec<WireId> {
    let id = |n: &u32| PacketId { sender: NodeId(sender), group: GROUP, seqno: SeqNo(*n) };
    numbers.iter().map(|n| WireId::from(id(n))).collect()
}

fn nonce_of(engine: &mut Lateral) -> u64 {
    let (mut nonce, mut out) = (0, Vec::new());
    while engine.poll_transmit(&mut out).is_some() {
        if let Ok((_, Packet::Open { nonce: sent })) = Packet::decode(&out) {
            nonce = sent;
        }
        out.clear();
    }
    nonce
}

#[test]
fn data_packet_of_the_largest_udp_size_causes_no_panic() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    let longest = 65_507 - DATA_BYTES - SYMBOL_HEADER_BYTES;
    let data = data(world.now, NodeId(2), SeqNo(1), &vec![7; longest]);
    world.inject(0, &data);
    world.run_for(SECOND);
}

#[test]
fn repair_that_names_a_packet_twice_causes_no_panic() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    world.run_for(MILLISECOND);
    let (next, first) = (SeqNo(9), Some(SeqNo(1)));
    let beat = Packet::Heartbeat { next, first, nonce: 0, confirm: false };
    world.inject(0, &datagram(beat, NodeId(2), GROUP));
    for numbers in [&[1, 1][..], &[1, 1, 1, 1], &[1, 2], &[3, 4]] {
        let packet = Packet::Repair { ids: &ids(2, numbers), sum: &[0; 40] };
        world.inject(0, &datagram(packet, NodeId(3), GroupId::NONE));
    }
    world.hosts[0].engine.check();
}

#[test]
fn loss_by_deadline_is_reported_to_the_sender() {
    let mut world = World::of_members(2, &Config::default(), Loss::None, 1);
    world.filter = Box::new(|_, _, _, datagram| datagram[4] != 1);
    world.send_within(0, b"late", 10 * MILLISECOND);
    world.confirm(0);
    world.run_for(5 * SECOND);
    let lost = world.hosts[1].lost.len();
    assert_eq!(lost, 1, "{:?}", world.hosts[1].messages);
    assert_eq!(world.hosts[0].safe[0].incomplete, [(NodeId(2), 1)]);
}

#[test]
fn member_with_everything_is_not_slow_at_a_window_of_one() {
    let config = Config { window: 1, ..Config::default() };
    let mut world = World::of_members(3, &config, Loss::None, 1);
    world.crash(2);
    for number in 0..2 {
        let _ = world.try_send(0, GROUP, &payload(number));
    }
    world.run_for(SECOND);
    assert_eq!(world.hosts[0].slow, [Slow { group: GROUP, node: NodeId(3), behind: 1 }]);
}

#[test]
fn late_packet_is_not_both_reported_and_delivered() {
    let config = Config { max_gap: 50, ..Config::default() };
    let now = Time(1_000_000_000);
    let mut engine = engine(now, &config);
    for seqno in [1000, 10, 11, 990] {
        arrive(&mut engine, now, &data(now, NodeId(2), SeqNo(seqno), b"x"));
    }
    let (next, first, nonce) = (SeqNo(1001), Some(SeqNo(1)), nonce_of(&mut engine));
    let beat = Packet::Heartbeat { next, first, nonce, confirm: false };
    arrive(&mut engine, now, &datagram(beat, NodeId(2), GROUP));
    let mut account = vec![0; 1001];
    while let Some(event) = engine.poll_event() {
        match event {
            Event::Message(message) => account[message.seqno.0 as usize] += 1,
            Event::Lost(lost) => {
                (lost.first.0..=lost.last.0).for_each(|n| account[n as usize] += 1);
            }
            _ => {}
        }
    }
    let twice = account.iter().position(|count| *count > 1);
    assert_eq!(twice, None);
}

#[test]
fn member_that_rejoins_unnoticed_receives_nothing_twice() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    world.send_all(0, 0..50);
    world.run_for(SECOND);
    let now = world.now;
    let engine = &mut world.hosts[2].engine;
    engine.leave(now, GROUP);
    engine.join(now, GROUP, settings(RATE)).expect("it left");
    [1, 2].into_iter().for_each(|node| admit(engine, now, node));
    world.send(0, b"after");
    world.run_for(5 * SECOND);
    world.assert_got([2], 51);
}

#[test]
fn packets_waiting_for_the_nak_limit_do_not_keep_node_busy() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    let (now, engine) = (world.now, &mut world.hosts[0].engine);
    let mut beat = |first, nonce| {
        let packet = Packet::Heartbeat { next: SeqNo(60_000), first, nonce, confirm: false };
        arrive(engine, now, &datagram(packet, NodeId(2), GROUP));
        nonce_of(engine)
    };
    let nonce = beat(None, 0);
    beat(Some(SeqNo(1)), nonce);
    let (mut calls, mut out) = (0, Vec::new());
    while let Some(due) = engine.poll_timeout().filter(|due| due.at < now + SECOND) {
        assert!(calls < 20_000, "50000 requests per second need no more calls");
        engine.handle_timeout(due.at);
        calls += 1;
        while engine.poll_transmit(&mut out).is_some() {
            out.clear();
        }
    }
    engine.check();
    let asked = engine.counters().ids_asked;
    assert!((50_000..56_000).contains(&asked), "{asked} requests in a second");
}

#[test]
fn senders_that_have_gone_make_room_for_new_ones() {
    let config = Config { streams_per_group: 8, ..Config::default() };
    let mut now = Time(1_000_000_000);
    let mut engine = engine(now, &config);
    for node in 2..30 {
        let view = |kind| ViewChange { group: GROUP, node: NodeId(node), kind, version: 1 };
        engine.handle_view(now, &view(ViewChangeKind::Joined));
        arrive(&mut engine, now, &data(now, NodeId(node), SeqNo(1), b"x"));
        engine.handle_view(now, &view(ViewChangeKind::Left));
        let event = engine.poll_event();
        assert!(matches!(event, Some(Event::Message(_))), "message of sender {node}: {event:?}");
        for _ in 0..60 {
            now = now + SECOND;
            engine.handle_timeout(now);
        }
        engine.check();
    }
}

#[test]
fn sender_held_back_requests_acks_although_all_is_confirmed() {
    let config = Config { window: 8, ..Config::default() };
    let mut world = World::of_members(3, &config, Loss::None, 1);
    world.crash(1);
    world.crash(2);
    let fill = |world: &mut World| while world.try_send(0, GROUP, b"x").is_ok() {};
    let ack = |world: &mut World, node, settled_to| {
        let (to, settled_to) = (Origin::from(NodeId(1)), SeqNo(settled_to));
        let packet = Packet::Ack { to, settled_to, lost: 0 };
        world.inject(0, &datagram(packet, NodeId(node), GROUP));
    };
    fill(&mut world);
    ack(&mut world, 2, 9);
    world.run_for(SECOND);
    assert_eq!(world.hosts[0].slow, [Slow { group: GROUP, node: NodeId(3), behind: 8 }]);
    world.confirm(0);
    // The sender then waits only for node 2, which holds it back. The acknowledgment of node 3
    // confirms the requested messages.
    fill(&mut world);
    ack(&mut world, 3, 9);
    assert_eq!(world.hosts[0].safe.len(), 1);
    let asked = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = asked.clone();
    world.filter = Box::new(move |_, _, _, datagram| {
        counted.set(counted.get() + u32::from(datagram[4] == 6 && datagram[5] == 1));
        true
    });
    world.run_for(400 * MILLISECOND);
    assert!(asked.get() > 0, "no member was asked to confirm");
}

#[test]
fn long_cut_off_member_learns_its_losses_without_new_packets() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    world.send(0, b"first");
    world.run_for(20 * SECOND);
    world.filter = Box::new(|_, to, _, _| to != NodeId(2));
    world.send(0, b"second");
    world.run_for(14 * SECOND);
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(30 * SECOND);
    let host = &world.hosts[1];
    assert_eq!((host.messages.len(), host.lost.len()), (1, 1));
}

#[test]
fn packets_from_before_a_long_partition_are_owed_after_it() {
    // Found by the simulator: a receiver whose opens were not answered for 3 s mistook the first
    // packet that it had received for the start of the stream.
    let mut world = World::of_members(2, &Config::default(), Loss::None, 1);
    world.filter = Box::new(|_, _, _, _| false);
    (0..3).for_each(|number| _ = world.send(0, &payload(number)));
    world.filter = Box::new(|_, to, _, datagram| to == NodeId(2) && datagram[4] == 1);
    world.send(0, &payload(3));
    world.run_for(9 * SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1)), [4]);
    world.filter = Box::new(|_, _, _, _| true);
    world.send(0, &payload(4));
    world.run_for(9 * SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1)), [1, 2, 3, 4, 5]);
}

#[test]
fn packet_that_reveals_a_doubted_jump_is_delivered() {
    // Found by the simulator: packets after the jump were given up together with those before it.
    let config = Config { max_gap: 5, ..Config::default() };
    let mut world = World::of_members(2, &config, Loss::None, 1);
    world.send(0, &payload(0));
    world.run_for(SECOND);
    world.filter = Box::new(|_, _, _, _| false);
    (1..9).for_each(|number| _ = world.send(0, &payload(number)));
    world.filter = Box::new(|_, _, _, _| true);
    world.send(0, &payload(9));
    world.run_for(9 * SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1)), [1, 10]);
    let lost = world.hosts[1].lost.clone();
    assert_eq!((lost.len(), lost[0].first, lost[0].last), (1, SeqNo(2), SeqNo(9)));
}

#[test]
fn believed_jump_adds_only_as_many_missing_as_there_is_room() {
    let config = Config { nak: None, ..Config::default() };
    let mut world = World::of_members(7, &config, Loss::None, 1);
    let mut beat = |sender, next| {
        let next = SeqNo(next);
        world.inject(0, &datagram(heartbeat(next), NodeId(sender), GROUP));
        world.answer(0, NodeId(sender), next, SeqNo(1));
    };
    // Four streams use all space for missing packets. A fifth stream claims packets far ahead.
    let gap = config.max_gap;
    (2..6).for_each(|sender| beat(sender, 1 + gap));
    (2..4).for_each(|times| beat(6, 1 + gap * times));
    let (_, missing) = world.hosts[0].engine.bins_and_missing();
    assert_eq!(missing, 4 * gap as usize, "{:?}", world.hosts[0].lost);
    assert_eq!(world.hosts[0].lost.last().map(|lost| lost.last), Some(SeqNo(3 * gap)));
}

fn engine(now: Time, config: &Config) -> Lateral {
    let mut engine = Lateral::new(NodeId(1), config.clone(), 1);
    engine.join(now, GROUP, settings(RATE)).expect("the settings are right");
    engine
}

fn arrive(engine: &mut Lateral, now: Time, datagram: &[u8]) {
    engine.handle_datagram(now, &Datagram::parse(datagram).expect("a datagram"));
}

fn engine_with_two_members(now: Time, config: &Config) -> Lateral {
    let mut engine = engine(now, config);
    (2..4).for_each(|node| admit(&mut engine, now, node));
    engine
}

fn admit(engine: &mut Lateral, now: Time, node: u64) {
    let (node, kind) = (NodeId(node), ViewChangeKind::Joined);
    engine.handle_view(now, &ViewChange { group: GROUP, node, kind, version: 1 });
}

#[test]
fn packet_overtaken_by_its_repair_is_binned_as_no_duplicate() {
    let now = Time(1_000_000_000);
    let mut engine = engine_with_two_members(now, &Config::default());
    let symbol = Symbol::of_message(&mut Arena::default(), now, None, b"x");
    let data = |seqno| data(now, NodeId(2), SeqNo(seqno), b"x");
    arrive(&mut engine, now, &data(1));
    arrive(&mut engine, now, &data(3));
    let repair = Packet::Repair { ids: &ids(2, &[2]), sum: symbol.bytes() };
    arrive(&mut engine, now, &datagram(repair, NodeId(3), GroupId::NONE));
    let counted = |engine: &Lateral| {
        let it = engine.counters();
        [it.recovered, it.overtaken, it.duplicates, it.data_received, it.packets_binned]
    };
    assert_eq!(counted(&engine), [1, 0, 0, 2, 2]);
    arrive(&mut engine, now, &data(2));
    assert_eq!(counted(&engine), [1, 1, 0, 3, 3]);
    arrive(&mut engine, now, &data(2));
    assert_eq!(counted(&engine), [1, 1, 1, 3, 3]);
    let events = std::iter::from_fn(|| engine.poll_event());
    assert_eq!(events.filter(|event| matches!(event, Event::Message(_))).count(), 3);
}

fn reasons(engine: &mut Lateral, now: Time) -> Vec<&'static str> {
    let mut reasons = std::collections::BTreeSet::new();
    while let Some(due) = engine.poll_timeout().filter(|due| due.at < now + SECOND) {
        reasons.insert(due.reason);
        engine.handle_timeout(due.at);
    }
    reasons.into_iter().collect()
}

/// Each of the six timers of `TimerKey` is due in one of the histories. A heartbeat follows each
/// message that is sent.
#[test]
fn a_wakeup_names_the_timer_that_is_due() {
    let now = Time(1_000_000_000);
    let send = |engine: &mut Lateral, bytes: usize| {
        engine.send(now, GROUP, vec![7; bytes].into(), SendOptions::default())
    };
    let slow = Config {
        pace_bytes_per_second: 1 << 20,
        flush_after: None,
        nak: None,
        give_up_after: 500 * MILLISECOND,
        window: 1,
        ..Config::default()
    };
    let member = || engine_with_two_members(now, &slow);

    let mut opening = member();
    arrive(&mut opening, now, &data(now, NodeId(2), SeqNo(1), b"x"));
    assert_eq!(reasons(&mut opening, now), ["open a stream"]);

    let mut sending = member();
    send(&mut sending, 10).expect("no member holds back");
    assert_eq!(reasons(&mut sending, now), ["heartbeat"]);
    assert!(matches!(send(&mut sending, 10), Err(SendError::HeldBack { .. })));
    assert_eq!(reasons(&mut sending, now), ["heartbeat", "lagging members"]);

    let mut welcoming = member();
    send(&mut welcoming, 10).expect("no member holds back");
    admit(&mut welcoming, now, 4);
    assert_eq!(reasons(&mut welcoming, now), ["end of the stream for joiners", "heartbeat"]);

    let mut assembling = member();
    let mut other = Lateral::new(NodeId(2), slow.clone(), 2);
    other.join(now, GROUP, settings(RATE)).expect("the settings are right");
    send(&mut other, 100_000).expect("no member holds back");
    let mut fragment = Vec::new();
    other.poll_transmit(&mut fragment).expect("a fragment");
    arrive(&mut assembling, now, &fragment);
    assert_eq!(reasons(&mut assembling, now), ["open a stream", "reassembly of a message"]);

    // The window is so wide that the sender does not wait for a member.
    let mut cutting = engine_with_two_members(now, &Config { window: 1000, ..slow.clone() });
    send(&mut cutting, 100_000).expect("no member holds back");
    assert_eq!(reasons(&mut cutting, now), ["heartbeat", "pacing of fragments"]);
}

/// The acknowledgment arrives late, and is for the process that had this address before.
#[test]
fn acknowledgement_for_another_start_confirms_nothing() {
    let mut world = World::of_members(2, &Config::default(), Loss::None, 1);
    world.filter = Box::new(|_, to, _, _| to != NodeId(1));
    world.send(0, b"x");
    world.confirm(0);
    let ack = |world: &mut World, to: Origin| {
        let packet = Packet::Ack { to, settled_to: SeqNo(2), lost: 0 };
        world.inject(0, &datagram(packet, NodeId(2), GROUP));
        world.hosts[0].safe.len()
    };
    let own = Origin::from(NodeId(1));
    assert_eq!(ack(&mut world, Origin { incarnation: Incarnation(9), ..own }), 0);
    assert_eq!(ack(&mut world, Origin { node: NodeId(9), ..own }), 0);
    assert_eq!(world.hosts[0].engine.counters().other_incarnations, 2);
    assert_eq!(ack(&mut world, own), 1);
}
