//! Datagrams forged by an attacker that receives the group's multicast but no unicast.
//!
//! They settle no packets, and little is sent in return.

use std::time::Duration;

use carom_proto::lateral::Config;
use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::packet::{Packet, WireId};
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{GROUP, MILLISECOND, RATE, SECOND, World, data, datagram, heartbeat, settings};

fn world(count: u32) -> World {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 7);
    world.send_all(0, 0..count);
    world
}

fn forge(world: &mut World, packet: Packet<'_>) {
    inject(world, &datagram(packet, NodeId(1), GROUP));
}

fn inject(world: &mut World, datagram: &[u8]) {
    (1..3).for_each(|host| world.inject(host, datagram));
}

fn sent_bytes(world: &World) -> u64 {
    world.hosts.iter().map(|host| host.engine.counters().bytes_sent).sum()
}

fn assert_more_arrive(world: &mut World, more: u32, count: u32) {
    world.send_all(0, 0..more);
    world.run_for(20 * SECOND);
    world.assert_got(1..3, count);
    (1..3).for_each(|host| assert_eq!(world.hosts[host].lost, []));
}

#[test]
fn forged_heartbeat_within_the_gap_settles_and_asks_nothing() {
    for ahead in [200, 65_000] {
        let mut world = world(100);
        world.run_for(200 * SECOND);
        let before = sent_bytes(&world);
        forge(&mut world, heartbeat(SeqNo(101 + ahead)));
        world.run_for(60 * SECOND);
        let sent = sent_bytes(&world) - before;
        assert!(sent < 1_000, "{sent} bytes for a heartbeat {ahead} ahead");
        assert_more_arrive(&mut world, 400, 500);
    }
}

#[test]
fn forged_heartbeat_of_a_few_numbers_settles_nothing() {
    let mut world = world(100);
    forge(&mut world, heartbeat(SeqNo(150)));
    world.run_for(60 * SECOND);
    assert_more_arrive(&mut world, 100, 200);
}

#[test]
fn forged_packets_half_the_circle_ahead_skip_nothing() {
    for forge_one in [|world: &mut World, seqno| forge(world, heartbeat(seqno)), forge_data] {
        let mut world = world(100);
        for count in 0..3 {
            forge_one(&mut world, SeqNo(101 + count).plus((1 << 31) - 10));
            world.run_for(100 * MILLISECOND);
        }
        assert_more_arrive(&mut world, 100, 200);
    }
}

#[test]
fn answer_with_another_nonce_opens_and_settles_nothing() {
    let mut world = world(100);
    for nonce in [0, 1, u64::MAX] {
        let (next, first) = (SeqNo(1 << 30), Some(SeqNo(1 << 29)));
        forge(&mut world, Packet::Heartbeat { next, first, nonce, confirm: true });
    }
    assert_more_arrive(&mut world, 100, 200);
}

#[test]
fn forged_incarnation_ends_no_stream() {
    let mut world = world(100);
    for count in 0..10 {
        let origin = Origin { node: NodeId(1), incarnation: Incarnation(666) };
        let forged = data(world.now, origin, SeqNo(5 + count), b"forged");
        inject(&mut world, &forged);
        world.run_for(MILLISECOND);
    }
    assert_eq!(world.hosts[1].engine.counters().other_incarnations, 10);
    assert_more_arrive(&mut world, 100, 200);
}

#[test]
fn restarted_sender_is_heard_from_its_first_message_on() {
    let mut world = world(100);
    world.restart(0, 3);
    for number in 0..50_u32 {
        world.send(0, &number.to_be_bytes());
        world.run_for(MILLISECOND);
    }
    world.run_for(20 * SECOND);
    for host in 1..3 {
        let host = &world.hosts[host];
        assert_eq!((host.messages.len(), host.lost.len()), (150, 0));
        let mut last: Vec<_> = host.messages[100..].iter().map(|it| it.payload.to_vec()).collect();
        last.sort();
        assert!(last.into_iter().eq((0..50_u32).map(|number| number.to_be_bytes().to_vec())));
        assert_eq!(host.engine.counters().streams_restarted, 1);
    }
}

#[test]
fn losses_of_a_restarted_sender_are_reported() {
    let mut world = world(100);
    world.filter = Box::new(|_, to, _, datagram| to != NodeId(2) || datagram[4] != 1);
    world.send_all(0, 0..1);
    world.filter = Box::new(|from, to, _, _| from != NodeId(1) && to != NodeId(2));
    world.run_for(5 * MILLISECOND);
    forge(&mut world, heartbeat(SeqNo(102)));
    world.restart(0, 4);
    world.filter = Box::new(|_, to, _, datagram| to != NodeId(2) || datagram[4] != 2);
    world.send(0, b"again");
    world.run_for(20 * SECOND);
    let told = world.hosts[1].lost_ranges();
    assert_eq!(told, [(101, 101)]);
    assert_eq!(world.hosts[1].messages.last().map(|it| &it.payload[..]), Some(&b"again"[..]));
}

#[test]
fn returning_after_many_groups_were_left_repeats_no_number() {
    let mut world = world(100);
    world.run_for(SECOND);
    world.leave(0, GROUP);
    for number in 0..70_000 {
        let (now, engine) = (world.now, &mut world.hosts[0].engine);
        let passing = GroupId(1_000 + number);
        engine.join(now, passing, settings(RATE)).expect("the group is new");
        engine.leave(now, passing);
    }
    world.join(0, GROUP);
    world.send_all(0, 0..50);
    world.run_for(20 * SECOND);
    for host in 1..3 {
        assert_eq!(world.hosts[host].messages.len(), 150);
    }
    assert!(world.hosts[0].engine.held_bytes() < 32 << 20);
}

#[test]
fn naks_in_the_name_of_another_bring_it_no_packets() {
    let mut world = world(100);
    world.run_for(SECOND);
    let ids: Vec<WireId> = (1..=85)
        .map(|number| PacketId { sender: NodeId(1), group: GROUP, seqno: SeqNo(number) }.into())
        .collect();
    let sent = |world: &World| -> (u64, u64) {
        let counters = world.hosts[0].engine.counters();
        (counters.retransmissions_sent, counters.bytes_sent)
    };
    let before = sent(&world);
    let mut forged_bytes = 0;
    for cookie in 0..400 {
        let mut datagram = Vec::new();
        Packet::Nak { cookie, ids: &ids }.encode(NodeId(2), GroupId::NONE, 1, &mut datagram);
        forged_bytes += datagram.len() as u64;
        world.inject(0, &datagram);
    }
    // At most as many bytes are sent at once as were received, and nothing later.
    let answered = sent(&world).1 - before.1;
    assert!(answered <= forged_bytes, "{answered} bytes for {forged_bytes}");
    world.run_for(5 * SECOND);
    assert_eq!(sent(&world).0, before.0);
}

#[test]
fn flood_of_unknown_senders_keeps_bounded_state() {
    const SENDERS: u64 = 5_000;
    let mut world = world(100);
    let limit = Config::default().streams_per_group as u64;
    let symbol = Symbol::of_message(&mut Arena::default(), world.now, None, b"a stranger's");
    for sender in (10_000..).map(NodeId).take(SENDERS as usize) {
        let packet = Packet::Data { seqno: SeqNo(9), confirm: true, symbol: symbol.bytes() };
        inject(&mut world, &datagram(packet, sender, GROUP));
    }
    for host in 1..3 {
        let engine = &world.hosts[host].engine;
        assert!(engine.counters().streams_refused >= SENDERS - limit);
        assert!(engine.held_bytes() < 2 << 20, "{} bytes", engine.held_bytes());
    }
    world.run_for(60 * SECOND);
    assert_more_arrive(&mut world, 100, 200);
}

/// Reports host 0, which has sent 100 messages, as failed, and later as joined again.
///
/// In the meantime, a forged heartbeat claims that host 0 has sent `ahead` more messages.
fn claimed_while_no_member(mut world: World, ahead: u32, span: Duration) -> World {
    world.announce(0, GROUP, ViewChangeKind::Failed);
    world.run_for(SECOND);
    forge(&mut world, heartbeat(SeqNo(101 + ahead)));
    world.run_for(span);
    world.announce(0, GROUP, ViewChangeKind::Joined);
    world
}

#[test]
fn numbers_forged_while_the_sender_was_gone_are_taken_back() {
    for ahead in [50, 200, 5_000] {
        let mut world = claimed_while_no_member(world(100), ahead, 60 * SECOND);
        world.run_for(SECOND);
        world.send_all(0, 0..100);
        world.run_for(20 * SECOND);
        for host in 1..3 {
            let got = world.hosts[host].got(NodeId(1));
            assert_eq!(got.len(), 200, "host {host}, {ahead} numbers ahead");
        }
    }
}

fn forge_data(world: &mut World, seqno: SeqNo) {
    let forged = data(world.now, NodeId(1), seqno, b"forged");
    inject(world, &forged);
}

/// Nothing is evicted from the data buffer in the meantime, so the window does not move.
#[test]
fn packets_forged_after_each_question_make_no_claim_true() {
    for count in 0..4 {
        let config = Config { buffer_age: 1000 * SECOND, ..Config::default() };
        let mut world = World::of_members(3, &config, Loss::None, 7);
        world.send_all(0, 0..100);
        let mut world = claimed_while_no_member(world, 200, 13 * SECOND);
        for number in 301..301 + count {
            world.run_for(MILLISECOND / 20);
            forge_data(&mut world, SeqNo(number));
            world.run_for(MILLISECOND / 4);
        }
        world.run_for(SECOND);
        world.send_all(0, 0..300);
        world.run_for(40 * SECOND);
        let got = world.hosts[1].got(NodeId(1));
        let honest = got.iter().filter(|number| (101..=300).contains(*number)).count();
        assert_eq!(honest, 200, "{count} packets forged");
    }
}

/// A packet that arrives after an open was sent does not contradict the answer.
#[test]
fn packet_forged_while_the_sender_is_asked_makes_no_claim_true() {
    for ahead in [50, 200, 5_000] {
        let mut world = claimed_while_no_member(world(100), ahead, 60 * SECOND);
        forge_data(&mut world, SeqNo(101 + ahead));
        world.run_for(SECOND);
        world.send_all(0, 0..100);
        world.run_for(20 * SECOND);
        for host in 1..3 {
            let mut got = world.hosts[host].got(NodeId(1));
            got.retain(|number| *number <= 200);
            got.dedup();
            assert_eq!(got.len(), 200, "host {host}, {ahead} numbers ahead");
        }
    }
    for first in [1_000, 65_009, 1_000_000] {
        let mut world = world(0);
        forge_data(&mut world, SeqNo(first));
        world.send_all(0, 0..400);
        world.run_for(20 * SECOND);
        for host in 1..3 {
            let mut got = world.hosts[host].got(NodeId(1));
            got.retain(|number| *number <= 400);
            assert_eq!(got.len(), 400, "host {host}, first {first}");
            assert_eq!(world.hosts[host].lost, [], "host {host}, first {first}");
        }
    }
}

#[test]
fn numbers_forged_before_a_stream_was_heard_vouch_for_nothing() {
    let mut world = world(0);
    forge(&mut world, heartbeat(SeqNo(65_009)));
    world.send_all(0, 0..19);
    world.run_for(SECOND);
    forge(&mut world, heartbeat(SeqNo(320)));
    world.run_for(60 * SECOND);
    assert_more_arrive(&mut world, 400, 19 + 400);
}
