//! Members that join, leave, return and crash: deliveries and requests to them.

use carom_proto::lateral::Config;
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{GROUP, MILLISECOND, RATE, SECOND, World, payload, payload_of, settings};

#[test]
fn joiner_gets_everything_since_its_join_and_nothing_before() {
    for seed in 0..5 {
        let mut world = World::new(4, &Config::default(), Loss::Uniform(0.2), seed);
        (0..3).for_each(|host| world.join(host, GROUP));
        for number in 0..300 {
            if number == 150 {
                world.join(3, GROUP);
            }
            world.send(0, &payload(number));
            world.run_for(MILLISECOND);
        }
        world.run_for(5 * SECOND);
        world.assert_got([1], 300);
        assert_eq!(world.hosts[3].got(NodeId(1)), Vec::from_iter(151..=300), "seed {seed}");
        assert!(world.hosts.iter().all(|host| host.lost.is_empty()));
    }
}

#[test]
fn joiner_gets_no_naks_for_packets_from_before_its_join() {
    for seed in 0..5 {
        let mut world = World::new(8, &Config::default(), Loss::None, seed);
        (0..4).for_each(|host| world.join(host, GROUP));
        world.send(0, &payload(0));
        world.run_for(SECOND);
        // Nodes 2 to 4 learn of the second message only from heartbeats. All repairs, and all
        // datagrams to node 1, are lost.
        let asked = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let heard = asked.clone();
        world.filter = Box::new(move |from, to, _, datagram| {
            if datagram[4] == 3 {
                heard.borrow_mut().push(to.0);
            }
            let is_beat = datagram[4] == 6 && from == NodeId(1);
            is_beat || (from != NodeId(1) && to != NodeId(1) && datagram[4] != 2)
        });
        world.send(0, &payload(1));
        world.run_for(150 * MILLISECOND);
        (4..8).for_each(|host| world.join(host, GROUP));
        world.run_for(9 * SECOND);
        let asked = asked.borrow();
        assert!(asked.len() > 60, "three members sent each other {} requests", asked.len());
        assert!(asked.iter().all(|node| *node <= 4), "seed {seed}: requests to joiners: {asked:?}");
        assert!((1..4).all(|host| world.hosts[host].lost.len() == 1), "losses are reported");
    }
}

#[test]
fn rejoining_a_group_repeats_no_message() {
    let mut world = World::of_members(3, &Config::default(), Loss::Uniform(0.05), 4);
    for round in 0..4 {
        for number in 0..50 {
            world.send(0, &payload(number));
            world.send(1, &payload(number));
            world.run_for(MILLISECOND);
        }
        world.run_for(2 * SECOND);
        let host = round % 2;
        world.leave(host, GROUP);
        world.run_for(MILLISECOND);
        world.join(host, GROUP);
    }
    let all: Vec<u32> = (1..=200).collect();
    world.assert_got([2], 200);
    assert_eq!(world.hosts[2].got(NodeId(2)), all);
    assert_eq!(world.hosts[0].got(NodeId(2)), all);
}

#[test]
fn packets_of_a_crashed_sender_are_repaired_by_the_others() {
    let mut world = World::of_members(5, &Config::default(), Loss::None, 1);
    world.filter =
        Box::new(|from, to, _, datagram| from != NodeId(1) || to != NodeId(2) || datagram[4] != 1);
    world.send_all(0, 0..20);
    world.crash(0);
    world.announce(0, GROUP, ViewChangeKind::Failed);
    world.run_for(5 * SECOND);
    world.assert_got([2], 20);
    // Node 2 received no data packet from the sender, and learned of the stream from repairs. It
    // has all messages from the first sequence number in these repairs.
    let got = world.hosts[1].got(NodeId(1));
    assert!(got.iter().copied().eq(21 - got.len() as u32..=20), "{got:?}");
    assert!(got.len() >= 12, "{got:?}");
}

/// Host 1 leaves and returns at once while large messages arrive. The others are not notified.
#[test]
fn member_that_rejoins_mid_message_reports_no_packet_twice() {
    let variants = [(0, 1 << 16), (64 << 20, 5), (64 << 20, 1 << 16)];
    for (seed, (buffer_bytes, max_gap)) in (0..60).flat_map(|seed| variants.map(|it| (seed, it))) {
        let config = Config {
            buffer_bytes,
            max_gap,
            flight: 3,
            stagger: 3,
            window: 64,
            pace_bytes_per_second: 1 << 20,
            ..Config::default()
        };
        let mut world = World::of_members(3, &config, Loss::Burst { rate: 0.05, length: 10 }, seed);
        for number in 0..6 {
            world.send(0, &payload_of(number, 20_000));
        }
        world.run_for(23 * MILLISECOND);
        let now = world.now;
        world.hosts[1].engine.leave(now, GROUP);
        world.run_for(MILLISECOND);
        let now = world.now;
        world.hosts[1].engine.join(now, GROUP, settings(RATE)).expect("it is not in the group");
        for other in [0, 2] {
            let node = world.hosts[other].id;
            world.change(1, GROUP, node, ViewChangeKind::Joined);
        }
        world.run_for(30 * SECOND);
        let host = &world.hosts[1];
        let mut told = std::collections::BTreeMap::<u32, u32>::new();
        for lost in &host.lost {
            (lost.first.0..=lost.last.0).for_each(|number| *told.entry(number).or_default() += 1);
        }
        for message in &host.messages {
            *told.entry(message.seqno.0).or_default() += 1;
        }
        assert!(told.values().all(|count| *count == 1), "seed {seed}: {:?}", host.lost);
    }
}
