//! Reports to a sender about its members that are confirmed, are incomplete, or hold it back.

use carom_proto::lateral::Config;
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{GROUP, MILLISECOND, SECOND, World, payload};

#[test]
fn confirmation_comes_when_every_member_has_everything() {
    let mut world = World::of_members(4, &Config::default(), Loss::Uniform(0.3), 9);
    world.send_all(0, 0..100);
    world.confirm(0);
    assert_eq!(world.hosts[0].safe, []);
    world.run_for(10 * SECOND);
    let safe = Confirmed { group: GROUP, up_to: SeqNo(100), members: 3, incomplete: Vec::new() };
    assert_eq!(world.hosts[0].safe, [safe]);
    assert_eq!(world.hosts[0].engine.unconfirmed(GROUP), []);
    world.assert_got(1..4, 100);
}

#[test]
fn a_member_that_lost_something_and_left_is_named_as_incomplete() {
    let config = Config { nak: None, give_up_after: SECOND, ..Config::default() };
    let mut world = World::of_members(3, &config, Loss::None, 9);
    world.send(0, b"all get this");
    world.run_for(SECOND);
    // Node 2 receives neither the second message nor a repair of it.
    world.filter = Box::new(|_, to, _, datagram| to != NodeId(2) || datagram[4] > 2);
    world.send(0, b"one does not");
    world.run_for(3 * SECOND);
    world.leave(1, GROUP);
    world.run_for(SECOND);
    world.confirm(0);
    world.run_for(SECOND);
    let incomplete = vec![(NodeId(2), 1)];
    let safe = Confirmed { group: GROUP, up_to: SeqNo(2), members: 1, incomplete };
    assert_eq!(world.hosts[0].safe, [safe]);
}

#[test]
fn a_dead_member_is_named_while_it_is_waited_for() {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 9);
    world.crash(2);
    world.send(0, b"x");
    world.confirm(0);
    world.run_for(SECOND);
    assert_eq!(world.hosts[0].engine.unconfirmed(GROUP), [NodeId(3)]);
    world.announce(2, GROUP, ViewChangeKind::Failed);
    assert_eq!(world.hosts[0].safe.len(), 1);
}

#[test]
fn dead_member_holds_a_sender_back_for_its_patience_only() {
    let config = Config { window: 64, ..Config::default() };
    let mut world = World::of_members(3, &config, Loss::None, 9);
    world.crash(2);
    let (mut sent, mut refused) = (0, 0);
    for number in 0..1200 {
        match world.try_send(0, GROUP, &payload(number)) {
            Ok(_) => sent += 1,
            Err(error) => {
                assert_eq!(error, SendError::HeldBack { by: NodeId(3), behind: 64 });
                refused += 1;
            }
        }
        world.run_for(MILLISECOND);
    }
    assert_eq!(refused, 500, "the default patience is half a second");
    assert_eq!(world.hosts[0].slow, [Slow { group: GROUP, node: NodeId(3), behind: 64 }]);
    assert_eq!(world.hosts[1].got(NodeId(1)).len(), sent);
}

/// Cuts host 2 off while host 0 sends and confirms, and restores the network after 15 s. If
/// `rejoins` is `true`, the other hosts are notified that host 2 is back.
fn cut_off_while_confirmed(rejoins: bool) -> World {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 9);
    world.send_all(0, 0..30);
    world.filter = Box::new(|from, to, _, _| from != NodeId(3) && to != NodeId(3));
    world.send_all(0, 0..30);
    world.announce(2, GROUP, ViewChangeKind::Failed);
    world.confirm(0);
    world.run_for(15 * SECOND);
    assert_eq!(world.hosts[0].safe.len(), 1, "host 2 is not waited for");
    world.filter = Box::new(|_, _, _, _| true);
    if rejoins {
        world.announce(2, GROUP, ViewChangeKind::Joined);
    }
    world
}

#[test]
fn joiner_learns_the_end_of_a_confirmed_stream() {
    let mut world = cut_off_while_confirmed(true);
    world.run_for(10 * SECOND);
    let host = &world.hosts[2];
    assert_eq!(host.got(NodeId(1)), Vec::from_iter(1..=30));
    let mut lost: Vec<_> = host.lost.iter().map(|lost| (lost.first.0, lost.last.0)).collect();
    lost.sort_unstable();
    let each: Vec<_> = (31..=60).map(|number| (number, number)).collect();
    assert_eq!(lost, each, "the others keep packets for ten seconds");
}

#[test]
fn joiner_learns_the_end_despite_lost_heartbeats() {
    let mut world = cut_off_while_confirmed(false);
    let heartbeats = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = heartbeats.clone();
    world.filter = Box::new(move |_, to, _, datagram| {
        let is_heartbeat = to == NodeId(3) && datagram[4] == 6;
        count.set(count.get() + i32::from(is_heartbeat));
        !is_heartbeat || count.get() > 3
    });
    world.announce(2, GROUP, ViewChangeKind::Joined);
    world.run_for(20 * SECOND);
    assert_eq!(world.hosts[2].lost_count(), 30);
    let told = heartbeats.get();
    world.run_for(100 * SECOND);
    assert_eq!(heartbeats.get(), told, "a member that knows the end gets no more heartbeats");
}

#[test]
fn heartbeats_end_when_every_member_knows_the_end() {
    for hosts in [1, 2, 5] {
        let mut world = World::of_members(hosts, &Config::default(), Loss::Uniform(0.3), 9);
        for host in 0..hosts {
            world.send(host, b"x");
        }
        world.run_for(120 * SECOND);
        let sent = |world: &World| -> u64 {
            let counters = world.hosts.iter().map(|host| host.engine.counters());
            counters.map(|it| it.heartbeats_sent + it.acks_sent).sum()
        };
        let before = sent(&world);
        assert_eq!(before == 0, hosts == 1, "{before} of {hosts}");
        world.run_for(1_000 * SECOND);
        assert_eq!(sent(&world), before);
    }
}
