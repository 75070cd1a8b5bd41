//! Members that join, leave, return or crash in the middle of a message.

use std::time::Duration;

use carom_proto::lateral::Config;
use carom_proto::loss::Loss;
use carom_proto::*;

use super::{message_of, told_lost};
use crate::rig::{GROUP, KIND, MILLISECOND, OPEN, SECOND, World};

#[test]
fn joiner_in_mid_message_gets_no_part_and_reports_no_loss() {
    for seed in 0..20 {
        for loss in [Loss::None, Loss::Uniform(0.1)] {
            let mut world = World::new(4, &Config::default(), loss, seed);
            (0..3).for_each(|host| world.join(host, GROUP));
            let large = message_of(1, 400);
            world.send(0, &large);
            world.run_for(Duration::from_micros(100 + 400 * seed));
            world.join(3, GROUP);
            let after = message_of(2, 20);
            assert_eq!(world.send(0, &after), SeqNo(401));
            world.run_for(20 * SECOND);
            let late = &world.hosts[3];
            assert_eq!((late.got(NodeId(1)), late.lost.len()), (vec![401], 0), "{seed}");
            assert!(late.messages[0].payload[..] == after[..]);
            assert_eq!(world.hosts[1].got(NodeId(1)), [1, 401]);
            late.engine.check();
        }
    }
}

#[test]
fn unanswered_joiner_reports_no_loss_of_earlier_messages() {
    let config = Config { give_up_after: SECOND, ..Config::default() };
    let mut world = World::new(3, &config, Loss::None, 1);
    (0..2).for_each(|host| world.join(host, GROUP));
    world.filter = Box::new(|_, _, _, datagram| datagram[KIND] != OPEN);
    world.send(0, &message_of(1, 400));
    world.run_for(3 * MILLISECOND);
    world.join(2, GROUP);
    world.run_for(3 * SECOND);
    assert_eq!((world.hosts[2].messages.len(), world.hosts[2].lost.len()), (0, 0));
    assert_eq!(world.hosts[2].engine.counters().messages_joined_late, 1);
    let held = world.hosts[2].engine.held_bytes() - world.hosts[2].engine.buffer_bytes();
    assert_eq!(held, 0, "nothing is kept for it");
}

#[test]
fn half_sent_message_of_a_crashed_sender_is_reported_lost() {
    let mut world = World::of_members(4, &Config::default(), Loss::Uniform(0.05), 3);
    let message = message_of(1, 1000);
    world.send(0, &message);
    world.run_for(10 * MILLISECOND);
    world.crash(0);
    world.announce(0, GROUP, ViewChangeKind::Failed);
    world.run_for(SECOND);
    let kept = |world: &World, host: usize| {
        let engine = &world.hosts[host].engine;
        engine.held_bytes() - engine.buffer_bytes()
    };
    assert!(kept(&world, 1) > message.len(), "all of it fits");
    world.run_for(15 * SECOND);
    for host in 1..4 {
        assert_eq!(told_lost(&world, host), [(1, 1000, LossCause::DeadlinePassed)]);
        assert_eq!((world.hosts[host].messages.len(), kept(&world, host)), (0, 0));
        world.hosts[host].engine.check();
    }
}

#[test]
fn group_can_be_left_and_rejoined_in_the_middle_of_messages() {
    for seed in 0..10 {
        let mut world = World::of_members(4, &Config::default(), Loss::Uniform(0.05), seed);
        let mut rng = Rng::new(seed);
        let mut numbers: Vec<Vec<u32>> = vec![Vec::new(); 2];
        for round in 0..6 {
            for (host, numbers) in numbers.iter_mut().enumerate() {
                let packets = 1 + rng.below(200);
                numbers.push(world.send(host, &message_of(round, packets)).0);
            }
            world.run_for(Duration::from_micros(rng.below(9_000) as u64));
            let host = 1 + rng.below(2);
            world.leave(host, GROUP);
            world.run_for(Duration::from_micros(rng.below(9_000) as u64));
            world.join(host, GROUP);
        }
        world.run_for(25 * SECOND);
        for (sender, numbers) in numbers.iter().enumerate() {
            for host in (0..4).filter(|host| *host != sender) {
                let host = &world.hosts[host];
                let mut got = host.got(NodeId(sender as u64 + 1));
                assert!(got.iter().all(|number| numbers.contains(number)), "seed {seed}");
                got.dedup();
                assert_eq!(got.len(), host.got(NodeId(sender as u64 + 1)).len());
                host.engine.check();
            }
        }
        // Host 3, which never left, has every message of host 0, which never left either.
        assert_eq!(world.hosts[3].got(NodeId(1)), numbers[0], "seed {seed}");
    }
}
