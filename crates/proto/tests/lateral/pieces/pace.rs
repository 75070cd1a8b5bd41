//! The pace of large messages: at the configured rate, as fast as members receive, and before the
//! messages queued behind them.

use carom_proto::lateral::Config;
use carom_proto::loss::Loss;
use carom_proto::*;

use super::message_of;
use crate::rig::{GROUP, MILLISECOND, SECOND, World};

#[test]
fn paced_pieces_do_not_delay_other_groups() {
    const OTHER: GroupId = GroupId(101);
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    (0..3).for_each(|host| world.join(host, OTHER));
    world.send(0, &message_of(1, 4000));
    let mut sent = world.total("pieces_sent");
    assert!(sent < 120, "{sent} packets at once");
    let mut rounds = 0;
    while sent < 4000 {
        world.try_send(0, OTHER, b"small").expect("no member holds back");
        world.run_for(MILLISECOND);
        let now_sent = world.total("pieces_sent");
        assert!(now_sent - sent < 40, "{} in a millisecond", now_sent - sent);
        sent = now_sent;
        rounds += 1;
        assert_eq!(world.hosts[1].got_in(OTHER, NodeId(1)).len(), rounds, "it does not wait");
    }
    let slowest = 4000 * 1300 / (32 << 10) + 10;
    assert!(rounds < slowest, "{rounds} ms");
}

#[test]
fn queue_behind_a_large_message_is_bounded() {
    let config = Config { queue_bytes: 100_000, ..Config::default() };
    let mut world = World::of_members(2, &config, Loss::None, 1);
    let large = message_of(1, 400);
    assert_eq!(world.send(0, &large), SeqNo(1), "one message of any size is accepted");
    let refused = world.try_send(0, GROUP, b"small").expect_err("the queue is full");
    assert_eq!(refused, SendError::QueueFull { waiting_bytes: large.len() });
    assert_eq!(world.hosts[0].engine.held_bytes() / large.len(), 1);
    world.run_for(SECOND);
    assert_eq!(world.send(0, &message_of(2, 150)), SeqNo(401));
    assert_eq!(
        world.try_send(0, GROUP, b"small"),
        Err(SendError::QueueFull { waiting_bytes: 191_399 })
    );
    world.run_for(SECOND);
    assert_eq!(world.send(0, b"small"), SeqNo(551));
    world.run_for(SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1)), [1, 401, 551]);
}

#[test]
fn dead_member_delays_a_large_message_for_its_patience_only() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 1);
    world.crash(2);
    let message = message_of(1, 3000);
    world.send(0, &message);
    world.run_for(400 * MILLISECOND);
    assert_eq!(world.total("pieces_sent"), 1024, "the flight is as long");
    world.run_for(SECOND);
    let slow = Slow { group: GROUP, node: NodeId(3), behind: 1024 };
    assert_eq!(world.hosts[0].slow, [slow]);
    assert!(world.hosts[1].messages[0].payload[..] == message[..]);
    world.confirm(0);
    world.announce(2, GROUP, ViewChangeKind::Failed);
    world.run_for(SECOND);
    let up_to = SeqNo(3000);
    let safe = Confirmed { group: GROUP, up_to, members: 1, incomplete: Vec::new() };
    assert_eq!(world.hosts[0].safe, [safe]);
}

#[test]
fn confirmation_covers_messages_that_are_still_queued() {
    let mut world = World::of_members(3, &Config::default(), Loss::Uniform(0.05), 1);
    world.send(0, &message_of(1, 3000));
    world.confirm(0);
    assert_eq!(world.hosts[0].engine.unconfirmed(GROUP), [NodeId(2), NodeId(3)]);
    world.run_for(5 * SECOND);
    let up_to = SeqNo(3000);
    let safe = Confirmed { group: GROUP, up_to, members: 2, incomplete: Vec::new() };
    assert_eq!(world.hosts[0].safe, [safe]);
    assert!((1..3).all(|host| world.hosts[host].messages.len() == 1));
}
