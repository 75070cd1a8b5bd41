//! Packets that are malformed, old or for another group. They are counted and have no other effect.

use std::time::Duration;

use carom_proto::ring::{
    Epoch, ListChangeKind, LockName, Member, Process, Qos, Quorum, RingView, Timestamp,
};
use carom_proto::rmp::packet::{NewList, Packet, Position, Snapshot, SourceState};
use carom_proto::rmp::{Config, Rmp, Round, What};
use carom_proto::wire::Datagram;
use carom_proto::{
    Engine, GroupSettings, JoinError, NodeId, Profile, RateOfFire, SendError, SendOptions, SeqNo,
    ViewChange, ViewChangeKind,
};

use crate::checks;
use crate::rig::{GROUP, MS, World, packet};

fn busy(seed: u64) -> World {
    let mut world = World::new(4, Quorum::Majority, seed);
    world.record = Some(Vec::new());
    (0..3).for_each(|number| world.join(number));
    world.run_for(1500 * MS);
    for turn in 0..40 {
        world.send(turn % 3, Qos::TotallyOrdered, 50 + turn * 50);
        world.call(3, None, 2, 50);
        world.run_for(MS);
    }
    world.run_for(1000 * MS);
    world
}

#[test]
fn packets_that_are_replayed_change_nothing() {
    let mut world = busy(1);
    let record = world.record.take().expect("it was kept");
    let told: Vec<usize> = world.hosts.iter().map(|host| host.story.len()).collect();
    let views: Vec<_> =
        (0..3).map(|number| world.hosts[number].engine.view(GROUP).cloned()).collect();
    for datagram in &record {
        (0..4).for_each(|number| world.arrive(number, datagram));
    }
    world.run_for(1000 * MS);
    let after: Vec<usize> = world.hosts.iter().map(|host| host.story.len()).collect();
    assert_eq!(after, told, "a member received an event again");
    for (number, view) in views.iter().enumerate() {
        assert_eq!(world.hosts[number].engine.view(GROUP), view.as_ref());
        assert!(world.hosts[number].engine.counters().data_duplicate > 0);
    }
    world.send_and_run(0, Qos::TotallyResilient, 50, 500 * MS);
    checks::check_safety(&world);
}

#[test]
fn packets_of_a_ring_that_was_reformed_are_foreign() {
    let mut world = busy(2);
    let record = world.record.take().expect("it was kept");
    world.crash(2);
    world.send_and_run(0, Qos::TotallyOrdered, 50, 2000 * MS);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(2));
    let told = world.hosts[0].story.len();
    let before = world.hosts[0].engine.counters().foreign;
    for datagram in &record {
        world.arrive(0, datagram);
    }
    world.run_for(2000 * MS);
    assert!(world.hosts[0].engine.counters().foreign > before);
    assert_eq!(world.hosts[0].story.len(), told);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(2));
}

#[test]
fn two_groups_with_one_id_have_nothing_to_do_with_each_other() {
    let mut world = World::ring_of(Quorum::Majority, 1, 1, 3, 1000 * MS);
    let settings = GroupSettings { profile: world.profile, name_check: 99 };
    world.hosts[1].engine.join(world.now, GROUP, settings).expect("it is new to it");
    world.hosts[1].is_joined = true;
    world.tell_views();
    world.run_for(5000 * MS);
    for number in 0..2 {
        assert_eq!(world.ring(number).map(|ring| ring.len()), Some(1), "host {number}");
        assert!(world.hosts[number].engine.counters().name_collisions > 0, "host {number}");
    }
}

#[test]
fn joiner_with_another_quorum_is_refused_and_founds_no_ring() {
    let mut world = World::ring_of(Quorum::Majority, 1, 1, 3, 1000 * MS);
    let told = world.hosts[0].story.len();
    world.profile = Profile::Ordered(Quorum::All);
    world.join(1);
    world.run_for(5000 * MS);
    assert_eq!(world.ring(0), Some(vec![world.hosts[0].id]));
    assert_eq!(world.hosts[0].story.len(), told);
    assert!(world.hosts[0].engine.counters().joins_contradicting > 0);
    assert_eq!(world.ring(1), None);
}

#[test]
fn a_member_with_a_wrong_clock_is_a_member_like_others() {
    let mut world = World::new(4, Quorum::Majority, 4);
    world.hosts[1].ahead = Duration::from_secs(365 * 24 * 3600);
    world.hosts[2].ahead = Duration::from_millis(1234);
    (0..3).for_each(|number| world.join(number));
    world.run_for(1500 * MS);
    for turn in 0..60 {
        world.send(turn % 3, Qos::Resilient(2), 500);
        world.call(turn % 4, None, 2, 50);
        world.run_for(2 * MS);
    }
    world.run_for(500 * MS);
    for number in 0..3 {
        assert_eq!(world.ring(number).map(|ring| ring.len()), Some(3));
        assert_eq!(world.hosts[number].engine.counters().delivered, 60);
    }
    checks::check_safety(&world);
}

#[test]
fn a_message_that_is_too_large_or_promised_too_much_is_refused() {
    let mut world = World::ring_of(Quorum::AtLeast(1), 1, 0, 5, 1000 * MS);
    let now = world.now;
    let engine = &mut world.hosts[0].engine;
    let mut send = |bytes: usize, qos: Qos| {
        let options = SendOptions { qos: Some(qos), ..SendOptions::default() };
        engine.send(now, GROUP, vec![0; bytes].into(), options)
    };
    let limit = 16 << 20;
    let bytes = limit + 1;
    assert_eq!(send(bytes, Qos::TotallyOrdered), Err(SendError::TooLarge { bytes, limit }));
    assert!(matches!(send(2000, Qos::Unreliable), Err(SendError::TooLarge { .. })));
    let asked = Qos::MajorityResilient;
    assert_eq!(send(10, asked), Err(SendError::Qos { asked }), "a minority may continue");
    let profile = Profile::TimeCritical(RateOfFire::default());
    let settings = GroupSettings { profile, name_check: 0 };
    let joined = engine.join(now, carom_proto::GroupId(8), settings);
    assert_eq!(joined, Err(JoinError::NoEngine { profile }));
}

#[test]
fn request_promised_more_than_the_group_gives_is_dropped() {
    let mut world = World::ring_of(Quorum::AtLeast(1), 1, 1, 6, 1000 * MS);
    world.call_for(1, None, 5, 50, Duration::from_secs(1));
    world.run_for(3000 * MS);
    assert!(world.hosts[0].engine.counters().calls_refused > 0);
    assert_eq!(world.hosts[0].engine.counters().requests_delivered, 0);
    assert_eq!(world.hosts[1].engine.counters().calls_unanswered, 1);
}

#[test]
fn snapshot_of_a_foreign_ring_makes_no_member() {
    let world = busy(7);
    let record = world.record.as_ref().expect("it was kept");
    let snapshots = record
        .iter()
        .filter(|datagram| matches!(packet(datagram), Packet::NewList(NewList::Whole(_))));
    let mut stranger = Rmp::new(NodeId(99), Config::default(), 1);
    let settings = GroupSettings { profile: world.profile, name_check: 0 };
    stranger.join(world.now, GROUP, settings).expect("it is new to it");
    let mut count = 0;
    for datagram in snapshots {
        if let Ok(datagram) = Datagram::parse(datagram) {
            stranger.handle_datagram(world.now, &datagram);
        }
        assert_eq!(stranger.view(GROUP), None);
        count += 1;
    }
    assert!(count > 0, "no member has sent one");
}

/// No later ballot could exceed the highest possible version.
#[test]
fn forged_highest_version_does_not_end_all_reformations() {
    for is_abort in [false, true] {
        let mut world = World::ring_of(Quorum::Majority, 3, 0, 1, 1000 * MS);
        let epoch = world.process(2).map(|creator| Epoch { version: u32::MAX, creator });
        let (ballot, ring) = (epoch.expect("it is in"), world.hosts[0].engine.view(GROUP));
        let start = Packet::RecoveryStart {
            epoch: ring.expect("it is in a ring").epoch,
            ballot,
            position: Position { next: Timestamp(1), is_whole: true, received: Vec::new() },
            refuted: Vec::new(),
            released: Vec::new(),
        };
        let abort = Packet::RecoveryAbort { ballot, seen: ballot };
        for number in 0..2 {
            world.forge(2, number, if is_abort { &abort } else { &start });
        }
        world.crash(2);
        world.send_and_run(0, Qos::TotallyOrdered, 50, 10_000 * MS);
        assert_eq!(world.ring(0), Some(vec![NodeId(1), NodeId(2)]), "abort: {is_abort}");
    }
}

/// A node has left its ring for a larger ring, which stops at once and never continues.
#[test]
fn node_waiting_in_vain_for_a_larger_ring_joins_a_smaller_one() {
    let mut world = World::ring_of(Quorum::Majority, 1, 2, 1, 1000 * MS);
    let mut ring = largest_ring(process(3), process(4));
    meet(&mut world, NodeId(3));
    world.forge(2, 0, &Packet::NewList(NewList::Whole(ring.clone())));
    world.run_for(20 * MS);
    assert_eq!(world.ring(0), None, "it has left its own ring for the larger one");
    ring.is_working = false;
    world.join(1);
    for _ in 0..600 {
        world.forge(2, 0, &Packet::NewList(NewList::Whole(ring.clone())));
        world.run_for(50 * MS);
    }
    assert_eq!(world.ring(0), Some(vec![NodeId(2), NodeId(1)]));
}

fn process(node: u64) -> Process {
    Process { node: NodeId(node), life: 1 }
}

fn meet(world: &mut World, node: NodeId) {
    let change = ViewChange { group: GROUP, node, kind: ViewChangeKind::Joined, version: 1 };
    world.hosts[0].engine.handle_view(world.now, &change);
}

fn largest_ring(founder: Process, last: Process) -> Snapshot {
    let member =
        |process| Member { process, quorum: Quorum::Majority, is_multicast: true, is_voter: true };
    let mut view = RingView::founded_by(member(founder), 0);
    let others = (1..RingView::MAX_MEMBERS as u64 - 1).map(|number| member(process(1000 + number)));
    view.members.extend(others.chain([member(last)]));
    (0..4096).for_each(|name| view.locks.ask(LockName(name), founder));
    let sources = view.processes().map(|source| SourceState {
        source,
        open_from: SeqNo(1),
        ordered_to: SeqNo(1),
        request: 0,
    });
    Snapshot {
        sources: sources.collect(),
        next: Timestamp(1),
        ordered: Timestamp(0),
        token: last,
        is_working: true,
        guests: Vec::new(),
        seen: Vec::new(),
        view,
    }
}

/// A node of another network can have an address that a member had before.
#[test]
fn larger_ring_of_a_node_that_is_not_in_the_group_is_not_joined() {
    for is_known in [false, true] {
        let mut world = World::ring_of(Quorum::Majority, 2, 1, 1, 1000 * MS);
        let others = world.ring(0);
        if is_known {
            meet(&mut world, NodeId(3));
        }
        let ring = largest_ring(process(3), process(4));
        world.forge(2, 0, &Packet::NewList(NewList::Whole(ring)));
        world.run_for(20 * MS);
        assert_eq!(world.ring(0) == others, !is_known);
    }
}

#[test]
fn refused_joiner_of_the_largest_ring_founds_no_ring() {
    let mut world = World::new(3, Quorum::Majority, 1);
    world.held_back = Some(Vec::new());
    world.record = Some(Vec::new());
    world.join(0);
    world.join(1);
    let is_join = |packet: &Packet| {
        matches!(packet, Packet::ListChangeRequest { change, .. }
            if matches!(change.kind, ListChangeKind::Join { .. }))
    };
    let sent = world.record.take().expect("it was kept");
    let me = sent.iter().find_map(|datagram| match packet(datagram) {
        Packet::ListChangeRequest { change, .. } if change.process.node == NodeId(1) => {
            Some(change.process)
        }
        _ => None,
    });
    let (me, founder) = (me.expect("it asks"), process(3));
    let ring = largest_ring(founder, me);
    let epoch = ring.view.epoch;
    world.forge(2, 0, &Packet::NewList(NewList::Whole(ring)));
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(RingView::MAX_MEMBERS));
    world.hand_over(1, 0, is_join);
    world.held_back = Some(Vec::new());
    // The host has passed the token on, and receives it again.
    let at = world.hosts[0].engine.reached(GROUP).expect("it is in a ring").at.0 + 1;
    let what = What::Order(Vec::new());
    let round = Round { at: Timestamp(at), site: founder, next: me, what };
    world.forge(2, 0, &Packet::Ack { epoch, round });
    assert_eq!(world.hosts[0].engine.counters().members_refused, 1);
    assert_eq!(world.ring(0).map(|ring| ring.len()), Some(RingView::MAX_MEMBERS));
    // The list is sent in parts. Together they exceed the size of a datagram.
    let sent = world.held_back.take().expect("datagrams are held back");
    let parts = sent
        .iter()
        .filter(|(_, to, datagram)| *to == 1 && matches!(packet(datagram), Packet::Part(_)));
    let parts: Vec<&Vec<u8>> = parts.map(|(_, _, datagram)| datagram).collect();
    assert!(parts.iter().map(|datagram| datagram.len()).sum::<usize>() > 1 << 16);
    parts.into_iter().for_each(|datagram| world.arrive(1, datagram));
    world.crash(0);
    world.run_for(2000 * MS);
    assert_eq!(world.ring(1), None, "it knows of the ring, and begins none of its own");
}
