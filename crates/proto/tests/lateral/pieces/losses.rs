//! Losses of large messages: a message that lacks a fragment is reported as lost once, as a whole.

use std::time::Duration;

use carom_proto::lateral::Config;
use carom_proto::loss::Loss;
use carom_proto::*;

use super::{accounts, message_of, seqno_of, told_lost};
use crate::rig::{DATA, GROUP, KIND, MILLISECOND, REPAIR, SECOND, World, datagram, heartbeat};

#[test]
fn message_with_a_given_up_piece_is_reported_lost_once() {
    let settings = Config { nak: None, give_up_after: SECOND, ..Config::default() };
    for lost in [[1, 1], [3, 5], [1, 9], [9, 9], [1, 10]] {
        let mut world = World::of_members(3, &settings, Loss::None, 1);
        world.send(0, b"before");
        world.run_for(SECOND);
        world.filter = Box::new(move |_, to, _, datagram| {
            let number = seqno_of(datagram);
            let is_lost = datagram[KIND] == DATA && (1 + lost[0]..=1 + lost[1]).contains(&number);
            to != NodeId(2) || (datagram[KIND] != REPAIR && !is_lost)
        });
        world.send(0, &message_of(1, 10));
        world.send(0, b"after");
        world.run_for(5 * SECOND);
        assert_eq!(told_lost(&world, 1), [(2, 11, LossCause::DeadlinePassed)], "{lost:?}");
        assert_eq!(world.hosts[1].got(NodeId(1)), [1, 12]);
        assert_eq!(world.hosts[2].got(NodeId(1)), [1, 2, 12]);
        world.confirm(0);
        world.run_for(SECOND);
        assert_eq!(world.hosts[0].safe[0].incomplete, [(NodeId(2), 10)]);
        world.check();
    }
}

#[test]
fn late_pieces_of_a_given_up_message_report_the_rest_as_lost() {
    let settings = Config { nak: None, give_up_after: SECOND, ..Config::default() };
    let mut world = World::of_members(3, &settings, Loss::None, 1);
    world.send(0, b"before");
    world.run_for(SECOND);
    let kept = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let caught = kept.clone();
    world.filter = Box::new(move |_, to, _, datagram| {
        let passes = to != NodeId(2) || (datagram[KIND] != REPAIR && datagram[KIND] != DATA);
        if !passes && datagram[KIND] == DATA {
            caught.borrow_mut().push(datagram.to_vec());
        }
        passes
    });
    world.send(0, &message_of(1, 10));
    // The heartbeat reveals half of the message's sequence numbers, which are then given up.
    world.filter = Box::new(|_, to, _, _| to != NodeId(2));
    world.inject(1, &datagram(heartbeat(SeqNo(7)), NodeId(1), GROUP));
    // Nothing arrives from the sender, so the receiver considers it silent.
    world.run_for(5 * SECOND);
    assert_eq!(told_lost(&world, 1), [(2, 6, LossCause::DeadlinePassed)]);
    let late = kept.borrow().clone();
    assert_eq!(late.len(), 10);
    late[6..].iter().for_each(|datagram| world.inject(1, datagram));
    let told: u32 = world.hosts[1].lost_count();
    assert_eq!((told, world.hosts[1].messages.len()), (10, 1));
    assert_eq!(world.hosts[1].engine.counters().messages_broken, 1);
    world.hosts[1].engine.check();
    // Lost sequence numbers are not requested, and the next message is delivered.
    world.filter = Box::new(|_, _, _, _| true);
    world.send(0, b"after");
    world.run_for(2 * SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1)), [1, 12]);
    assert_eq!(told, world.hosts[1].lost_count());
}

#[test]
fn a_deadline_is_that_of_all_pieces_of_a_message() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    world.filter = Box::new(|_, to, _, datagram| {
        to != NodeId(2) || datagram[KIND] != DATA || seqno_of(datagram) != 4
    });
    world.send_within(0, &message_of(1, 6), 3 * MILLISECOND);
    world.send(0, b"no hurry");
    world.run_for(5 * SECOND);
    assert_eq!(told_lost(&world, 1), [(1, 6, LossCause::DeadlinePassed)]);
    assert_eq!(world.hosts[1].got(NodeId(1)), [7]);
    assert_eq!(world.hosts[2].got(NodeId(1)), [1, 7]);
    // A message that takes longer to send than its deadline is useless to all members.
    world.send_within(0, &message_of(1, 2000), 20 * MILLISECOND);
    world.run_for(5 * SECOND);
    let late = (8, 2007, LossCause::DeadlinePassed);
    assert_eq!(
        (told_lost(&world, 1)[1..].to_vec(), told_lost(&world, 2)),
        (vec![late], vec![late])
    );
    world.check();
}

#[test]
fn node_too_far_behind_accounts_for_each_message_once() {
    for seed in 0..20 {
        let config = Config { max_gap: 50, window: 0, ..Config::default() };
        let mut world = World::of_members(3, &config, Loss::Uniform(0.02), seed);
        let mut rng = Rng::new(seed);
        let mut numbers = Vec::new();
        for round in 0..60 {
            if round % 20 == 10 {
                world.filter = Box::new(|_, to, _, _| to != NodeId(2));
            } else if round % 20 == 16 {
                world.filter = Box::new(|_, _, _, _| true);
            }
            let packets = 1 + rng.below(40);
            numbers.push(world.send(0, &message_of(round, packets)).0);
            world.run_for(Duration::from_micros(rng.below(8_000) as u64));
        }
        world.run_for(15 * SECOND);
        assert!(!world.hosts[1].lost.is_empty());
        assert_eq!(accounts(&world, 1, &numbers), vec![1; numbers.len()], "seed {seed}");
        world.hosts[1].engine.check();
    }
}
