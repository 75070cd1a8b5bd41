//! Losses: only packets that are late or given up are reported, each with its cause.

use carom_proto::lateral::Config;
use carom_proto::lateral::packet::Packet;
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{self, GROUP, MILLISECOND, SECOND, World, datagram, heartbeat, payload};

#[test]
fn a_message_past_its_deadline_is_reported_not_delivered() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    world.filter = Box::new(|_, to, _, datagram| to != NodeId(2) || datagram[4] != 1);
    world.send_within(0, b"late", 10 * MILLISECOND);
    world.send(0, b"no hurry");
    world.run_for(5 * SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1)), [2]);
    let cause = LossCause::DeadlinePassed;
    let (first, last) = (SeqNo(1), SeqNo(1));
    let lost = Lost { group: GROUP, sender: NodeId(1), first, last, cause };
    assert_eq!(world.hosts[1].lost, [lost]);
    assert_eq!(world.hosts[2].got(NodeId(1)), [1, 2]);
}

#[test]
fn node_too_far_behind_reports_losses_and_continues() {
    let config = Config { max_gap: 50, window: 0, ..Config::default() };
    let mut world = World::of_members(3, &config, Loss::None, 1);
    let mut number = 0;
    let mut send = |world: &mut World, count| {
        for _ in 0..count {
            number += 1;
            world.send(0, &payload(number));
            world.run_for(MILLISECOND);
        }
    };
    send(&mut world, 10);
    world.filter = Box::new(|_, to, _, _| to != NodeId(2));
    send(&mut world, 100);
    world.filter = Box::new(|_, _, _, _| true);
    send(&mut world, 30);
    world.run_for(5 * SECOND);
    let host = &world.hosts[1];
    let lost: u32 = host.lost_count();
    assert!(host.lost.iter().all(|lost| lost.cause == LossCause::TooFarBehind));
    assert_eq!(host.messages.len() + lost as usize, 140, "delivered or reported lost");
    assert!(lost > 50, "{lost} lost");
}

#[test]
fn losses_from_before_that_expire_together_are_reported_once() {
    let config = Config { nak: None, ..Config::default() };
    let mut world = cut_off_with(&config);
    let next = SeqNo(5_001);
    inject(&mut world, heartbeat(next));
    world.answer(0, NodeId(2), next, SeqNo(1));
    assert_eq!(world.hosts[0].engine.bins_and_missing().1, 5_000);
    world.run_for(20 * SECOND);
    let told: Vec<_> =
        world.hosts[0].lost.iter().map(|lost| (lost.first, lost.last, lost.cause)).collect();
    assert_eq!(told, [(SeqNo(1), SeqNo(5_000), LossCause::DeadlinePassed)]);
}

#[test]
fn packets_before_the_first_heard_wait_for_the_senders_answer() {
    let mut world = cut_off();
    [200_000, 1, 2, 3].into_iter().for_each(|number| data(&mut world, number));
    assert_eq!(world.hosts[0].lost, [], "no heartbeat has announced them");
    world.answer(0, NodeId(2), SeqNo(200_001), SeqNo(10));
    let told = world.hosts[0].lost_ranges();
    assert_eq!(told, [(10, 199_999)]);
    assert_eq!(world.hosts[0].got(NodeId(2)), [200_000]);
}

fn cut_off() -> World {
    cut_off_with(&Config::default())
}

fn cut_off_with(config: &Config) -> World {
    let mut world = World::of_members(2, config, Loss::None, 1);
    world.filter = Box::new(|_, _, _, _| false);
    world
}

fn inject(world: &mut World, packet: Packet<'_>) {
    world.inject(0, &datagram(packet, NodeId(2), GROUP));
}

/// Passes the message with this number to host 0 in the name of host 1.
fn data(world: &mut World, number: u32) {
    let datagram = rig::data(world.now, NodeId(2), SeqNo(number), &payload(number));
    world.inject(0, &datagram);
}

#[test]
fn answer_about_queued_messages_makes_nothing_arrive_twice() {
    let mut world = cut_off();
    inject(&mut world, heartbeat(SeqNo(101)));
    // The sender has accepted messages up to 119 that are still queued, and owes none of them.
    world.answer(0, NodeId(2), SeqNo(101), SeqNo(120));
    inject(&mut world, heartbeat(SeqNo(1_000)));
    world.run_for(MILLISECOND);
    // A packet that was sent after the answer overtakes it.
    data(&mut world, 122);
    world.answer(0, NodeId(2), SeqNo(110), SeqNo(120));
    (120..124).for_each(|number| data(&mut world, number));
    let mut got = world.hosts[0].got(NodeId(2));
    got.sort_unstable();
    assert_eq!(got, [120, 121, 122, 123]);
}

/// A delivered packet counts as sent even after the data buffer has evicted it.
#[test]
fn answer_after_later_packets_makes_nothing_arrive_twice() {
    for buffer_bytes in [0, 1 << 20] {
        let mut world = cut_off_with(&Config { buffer_bytes, ..Config::default() });
        inject(&mut world, heartbeat(SeqNo(101)));
        world.answer(0, NodeId(2), SeqNo(101), SeqNo(120));
        inject(&mut world, heartbeat(SeqNo(1_000)));
        world.run_for(MILLISECOND);
        (120..130).for_each(|number| data(&mut world, number));
        world.answer(0, NodeId(2), SeqNo(110), SeqNo(120));
        (120..132).for_each(|number| data(&mut world, number));
        inject(&mut world, heartbeat(SeqNo(132)));
        world.run_for(20 * SECOND);
        let expected: Vec<u32> = (120..132).collect();
        assert_eq!(world.hosts[0].got(NodeId(2)), expected, "{buffer_bytes} bytes");
        assert_eq!(world.hosts[0].lost, [], "{buffer_bytes} bytes");
    }
}

/// Only packets that were settled before the open was sent contradict the answer.
#[test]
fn answers_that_are_overtaken_twice_make_nothing_come_twice() {
    for buffer_bytes in [0, 1 << 20] {
        let mut world = cut_off_with(&Config { buffer_bytes, ..Config::default() });
        let answer = |world: &mut World, next| {
            world.answer(0, NodeId(2), SeqNo(next), SeqNo(101));
        };
        inject(&mut world, heartbeat(SeqNo(101)));
        answer(&mut world, 101);
        inject(&mut world, heartbeat(SeqNo(300)));
        world.run_for(50 * MILLISECOND);
        (101..106).for_each(|number| data(&mut world, number));
        answer(&mut world, 103);
        (106..111).for_each(|number| data(&mut world, number));
        answer(&mut world, 108);
        (101..112).for_each(|number| data(&mut world, number));
        world.run_for(MILLISECOND);
        answer(&mut world, 112);
        world.run_for(20 * SECOND);
        let expected: Vec<u32> = (101..112).collect();
        assert_eq!(world.hosts[0].got(NodeId(2)), expected, "{buffer_bytes} bytes");
        assert_eq!(world.hosts[0].lost, [], "{buffer_bytes} bytes");
    }
}

#[test]
fn claims_about_messages_that_wait_at_their_sender_are_refuted() {
    let mut world = cut_off();
    data(&mut world, 100);
    world.answer(0, NodeId(2), SeqNo(101), SeqNo(500));
    inject(&mut world, heartbeat(SeqNo(300)));
    assert_eq!(world.hosts[0].engine.bins_and_missing().1, 199);
    world.run_for(100 * MILLISECOND);
    world.answer(0, NodeId(2), SeqNo(101), SeqNo(500));
    assert_eq!(world.hosts[0].engine.bins_and_missing().1, 0);
    world.run_for(20 * SECOND);
    assert_eq!(world.hosts[0].lost, []);
}
