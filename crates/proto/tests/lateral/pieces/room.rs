//! Nodes without memory for whole messages. Each message without room is reported as lost once.

use std::time::Duration;

use carom_proto::lateral::Config;
use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::packet::symbol::{Arena, Fragment, Symbol};
use carom_proto::loss::Loss;
use carom_proto::*;

use super::{accounts, message_of, told_lost};
use crate::rig::{GROUP, MILLISECOND, SECOND, World, datagram, payload_of};

#[test]
fn partial_messages_stay_within_their_share_of_the_buffer() {
    let config = Config { buffer_bytes: 200_000, window: 0, nak: None, ..Config::default() };
    let mut world = World::of_members(2, &config, Loss::None, 1);
    // Nothing is carried, so that host 1 cannot answer that it has sent nothing.
    world.filter = Box::new(|_, _, _, _| false);
    let mut rng = Rng::new(1);
    let mut next = 1_u32;
    for number in 0..300 {
        let message = payload_of(number, 2_000 + rng.below(60_000));
        let fragment =
            Fragment { index: 0, fragment_bytes: 1000, message_bytes: message.len() as u32 };
        // Only every third fragment arrives, so that no message becomes whole.
        for index in (0..fragment.count()).step_by(3) {
            let fragment = Fragment { index, ..fragment };
            let symbol =
                Symbol::of_fragment(&mut Arena::default(), world.now, None, fragment, &message);
            let seqno = SeqNo(next + index);
            let packet = Packet::Data { seqno, confirm: false, symbol: symbol.bytes() };
            world.inject(0, &datagram(packet, NodeId(2), GROUP));
        }
        next += fragment.count();
        let engine = &world.hosts[0].engine;
        assert!(engine.held_bytes() <= 200_000, "{} bytes", engine.held_bytes());
        engine.check();
    }
    world.answer(0, NodeId(2), SeqNo(next), SeqNo(1));
    assert!(world.hosts[0].engine.counters().messages_without_room > 200);
    assert!(world.hosts[0].lost.iter().any(|lost| lost.cause == LossCause::NoRoom));
    world.run_for(30 * SECOND);
    let told: u32 = world.hosts[0].lost_count();
    assert!(next - 1 - told <= 2, "{told} of {} are reported as lost", next - 1);
    assert_eq!(world.hosts[0].engine.held_bytes(), 0);
}

#[test]
fn node_without_room_reports_losses_before_messages_are_safe() {
    for seed in 0..60 {
        let assembly_bytes = [2_000, 6_000][seed as usize % 2];
        let config = Config { assembly_bytes, ..Config::default() };
        let mut world = World::of_members(3, &config, Loss::Uniform(0.2), seed);
        let message = |number: u32| message_of(number, 2 + (number as usize + seed as usize) % 4);
        let sent: Vec<u32> = (0..6).map(|it| world.send(0, &message(it)).0).collect();
        world.confirm(0);
        while world.hosts[0].safe.is_empty() {
            world.run_for(MILLISECOND);
        }
        (1..3).for_each(|host| assert_eq!(accounts(&world, host, &sent), [1; 6], "seed {seed}"));
        world.run_for(15 * SECOND);
        (1..3).for_each(|host| assert_eq!(accounts(&world, host, &sent), [1; 6], "seed {seed}"));
        world.check();
    }
}

#[test]
fn losses_reported_before_leaving_are_not_repeated_on_return() {
    let config = Config { assembly_bytes: 2_000, nak: None, ..Config::default() };
    let slow = Config { pace_bytes_per_second: 1 << 20, ..config };
    for seed in 0..10 {
        let mut world = World::of_members(3, &slow, Loss::Uniform(0.1), seed);
        world.send(0, b"before");
        world.run_for(SECOND);
        world.send(0, &message_of(1, 30));
        world.run_for(Duration::from_micros(2_000 + 2_000 * seed));
        assert_eq!(told_lost(&world, 1).last(), Some(&(2, 31, LossCause::NoRoom)));
        world.leave(1, GROUP);
        world.join(1, GROUP);
        world.run_for(30 * SECOND);
        let numbers: Vec<u32> = (2..=31).collect();
        assert_eq!(accounts(&world, 1, &numbers), [1; 30], "seed {seed}");
    }
}
