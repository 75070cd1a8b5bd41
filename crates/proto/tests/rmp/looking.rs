//! Ring queries by a node that is in no ring. They have no effect on the rings.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::ring::{
    JoinOptions, LockName, Qos, QueryError, QueryId, QueryOptions, QueryResult, Quorum, RingStatus,
};
use carom_proto::rmp::packet::{NewList, Packet};
use carom_proto::{Engine, NodeId};

use crate::rig::{GROUP, MS, Told, World, packet};

const OPTIONS: QueryOptions =
    QueryOptions { name_check: 0, patience: MS.saturating_mul(2000), via: None };
const NIGHTLY: LockName = LockName(77);

fn seen(world: &mut World, number: usize, id: QueryId) -> Vec<RingStatus> {
    for _ in 0..3000 {
        if let Some(looked) = world.hosts[number].engine.poll_query() {
            assert_eq!((looked.id, looked.group), (id, GROUP));
            return looked.rings;
        }
        world.run_for(MS);
    }
    panic!("the query does not end");
}

fn look(world: &mut World, number: usize) -> Vec<RingStatus> {
    let id = world.look(number, OPTIONS);
    seen(world, number, id)
}

fn nodes(sight: &RingStatus) -> Vec<NodeId> {
    sight.view.processes().map(|process| process.node).collect()
}

#[test]
fn a_look_shows_view_turn_and_locks_and_the_ring_is_as_it_was() {
    let mut world = World::joined(3, 1, 1);
    world.lock(1, NIGHTLY, true);
    world.lock_and_run(2, NIGHTLY, 2000 * MS);
    let story = |world: &World| (0..3).map(|it| world.hosts[it].story.len()).collect::<Vec<_>>();
    let (told, sent) = (story(&world), world.datagrams_by_kind.clone());
    let view = world.hosts[0].engine.view(GROUP).cloned().expect("it is in a ring");
    let rings = look(&mut world, 3);
    let token = world.hosts[0].engine.token(GROUP).expect("it is in a ring");
    assert_eq!(rings, [RingStatus { view: view.clone(), token, is_working: true }]);
    let holder = rings[0].view.locks.holder(NIGHTLY).map(|process| process.node);
    assert_eq!(holder, Some(NodeId(2)));
    world.run_for(2000 * MS);
    assert_eq!(story(&world), told, "a member received an event");
    for number in 0..3 {
        assert_eq!(world.hosts[number].engine.view(GROUP), Some(&view));
    }
    // Apart from queries and replies, nothing was sent, in particular no round of the token.
    let others = |kinds: &BTreeMap<u8, u64>| {
        kinds.iter().filter(|(kind, _)| ![5, 6].contains(*kind)).map(|it| *it.1).sum::<u64>()
    };
    assert_eq!(others(&world.datagrams_by_kind), others(&sent));
    assert!(!world.hosts[3].engine.has(GROUP) && !world.hosts[3].engine.calls(GROUP));
}

#[test]
fn missing_group_is_seen_as_none_after_the_patience() {
    let mut world = World::new(1, Quorum::Majority, 1);
    let start = world.now;
    assert_eq!(look(&mut world, 0), []);
    assert_eq!(world.now.since(start), OPTIONS.patience);
    assert_eq!(world.hosts[0].engine.poll_timeout(), None, "the query has ended");
}

#[test]
fn a_ring_that_is_busy_is_seen_although_packets_are_lost() {
    for seed in 0..20 {
        let mut world = World::joined(5, 1, seed);
        world.loss = 0.2;
        for turn in 0..20 {
            world.send(turn % 5, Qos::TotallyOrdered, 200);
        }
        let rings = look(&mut world, 5);
        assert_eq!(rings.len(), 1, "seed {seed}");
        assert_eq!(nodes(&rings[0]).len(), 5, "seed {seed}");
    }
}

#[test]
fn each_part_of_a_split_group_is_seen_with_its_state() {
    let mut world = World::joined(5, 1, 1);
    (3..5).for_each(|number| world.part[number] = 1);
    world.send(0, Qos::TotallyOrdered, 50);
    world.send_and_run(3, Qos::TotallyOrdered, 50, 3000 * MS);
    assert!(world.hosts[3].story.contains(&Told::Minority));
    // The observer receives from one part, and then from the other.
    let id = world.look(5, OPTIONS);
    world.run_for(30 * MS);
    world.part[5] = 1;
    let rings = seen(&mut world, 5, id);
    let shown: Vec<(usize, bool)> = rings.iter().map(|it| (it.view.len(), it.is_working)).collect();
    assert_eq!(shown, [(5, false), (3, true)], "{rings:?}");
}

#[test]
fn a_ring_that_is_reformed_meanwhile_is_seen_once() {
    let mut told_of_both = 0;
    for wait in (0..200).step_by(4) {
        let mut world = World::joined(4, 1, 1);
        world.crash(3);
        (0..3).for_each(|number| world.suspect(number, 3));
        world.run_for(wait * MS);
        world.record = Some(Vec::new());
        let rings = look(&mut world, 4);
        let sent = world.record.take().expect("it was kept");
        let epochs = sent.iter().filter_map(|datagram| match packet(datagram) {
            Packet::NewList(NewList::Whole(snapshot)) => Some(snapshot.view.epoch),
            _ => None,
        });
        let is_both = epochs.collect::<BTreeSet<_>>().len() > 1;
        told_of_both += u32::from(is_both);
        let shown: Vec<_> = rings.iter().map(|it| (it.view.len(), it.is_working)).collect();
        let is_one = shown == [(3, true)] || (shown == [(4, false)] && !is_both);
        assert!(is_one, "after {wait} ms: {shown:?}");
    }
    assert!(told_of_both > 0, "no query was open at that moment");
}

#[test]
fn a_member_that_is_left_alone_answers_for_its_ring() {
    let mut world = World::joined(3, 1, 1);
    let sight = look(&mut world, 3).remove(0);
    let left = (0..3).rfind(|it| world.hosts[*it].id != sight.token.node).expect("there are three");
    (0..3).filter(|it| *it != left).for_each(|it| world.crash(it));
    world.send_and_run(left, Qos::TotallyOrdered, 50, 3000 * MS);
    let rings = look(&mut world, 3);
    assert_eq!((rings.len(), rings[0].view.len(), rings[0].is_working), (1, 3, false));
}

#[test]
fn a_host_without_multicast_has_its_question_passed_on() {
    let mut world = World::joined(3, 1, 1);
    world.hosts[3].is_without_multicast = true;
    assert_eq!(look(&mut world, 3), []);
    for via in 1..=3 {
        let id = world.look(3, QueryOptions { via: Some(NodeId(via)), ..OPTIONS });
        assert_eq!(seen(&mut world, 3, id).len(), 1, "by {via}");
    }
}

#[test]
fn a_ring_of_another_name_is_not_seen() {
    let mut world = World::joined(2, 1, 1);
    let id = world.look(2, QueryOptions { name_check: 1, ..OPTIONS });
    assert_eq!(seen(&mut world, 2, id), []);
    assert!(world.hosts[2].engine.counters().name_collisions > 0);
}

#[test]
fn member_shows_its_own_ring_without_a_query() {
    let mut world = World::joined(2, 1, 1);
    let sent = world.datagrams_by_kind.clone();
    let id = world.look(0, OPTIONS);
    let QueryResult { id: of, rings, .. } = world.hosts[0].engine.poll_query().expect("it is over");
    assert_eq!((of, rings.len()), (id, 1));
    assert_eq!(Some(&rings[0].view), world.hosts[0].engine.view(GROUP));
    assert_eq!(world.datagrams_by_kind, sent);
}

#[test]
fn node_that_queries_while_joining_is_admitted() {
    for seed in 0..20 {
        let mut world = World::joined(3, 1, seed);
        world.join_with(3, JoinOptions::default());
        let rings = look(&mut world, 3);
        assert_eq!(rings.len(), 1, "seed {seed}");
        world.run_for(1000 * MS);
        assert_eq!(world.ring(3).map(|ring| ring.len()), Some(4), "seed {seed}");
        assert_eq!(world.ring(3), world.ring(0), "seed {seed}");
    }
}

#[test]
fn unrequested_list_is_counted_and_dropped() {
    let mut world = World::joined(3, 1, 1);
    world.record = Some(Vec::new());
    assert_eq!(look(&mut world, 3).len(), 1);
    let record = world.record.take().expect("it was kept");
    let is_list =
        |datagram: &&Vec<u8>| matches!(packet(datagram), Packet::NewList(NewList::Whole(_)));
    let lists: Vec<&Vec<u8>> = record.iter().filter(is_list).collect();
    assert!(!lists.is_empty());
    assert_eq!(world.hosts[3].engine.counters().lists_unasked, 0);
    for (count, list) in (1..).zip(&lists) {
        world.arrive(3, list);
        assert_eq!(world.hosts[3].engine.counters().lists_unasked, count);
    }
    // A caller has no use for a list either.
    world.call(3, None, 2, 50);
    world.arrive(3, lists[0]);
    let counters = world.hosts[3].engine.counters();
    assert_eq!(counters.lists_unasked, lists.len() as u64 + 1);
    assert_eq!(counters.name_collisions, 0);
    assert_eq!(world.hosts[3].engine.poll_query(), None);
    assert!(world.hosts[3].engine.view(GROUP).is_none());
}

#[test]
fn more_looks_than_there_is_room_for_are_refused() {
    let mut world = World::new(1, Quorum::Majority, 1);
    for _ in 0..64 {
        world.look(0, OPTIONS);
    }
    let refused = world.hosts[0].engine.query(world.now, GROUP, OPTIONS);
    assert_eq!(refused, Err(QueryError::TooMany { open: 64 }));
    world.run_for(OPTIONS.patience);
    let refused = world.hosts[0].engine.query(world.now, GROUP, OPTIONS);
    assert_eq!(refused, Err(QueryError::TooMany { open: 64 }), "their results were not fetched");
    assert_eq!(std::iter::from_fn(|| world.hosts[0].engine.poll_query()).count(), 64);
    world.look(0, OPTIONS);
}
