//! Tests observers, with two registry processes that share the partitions.

use std::num::NonZeroUsize;

use carom_conformance::providers::Resident;
use carom_proto::membership::service::frame::ChangeKind;
use carom_proto::membership::service::{Observer, ObserverConfig, ServerConfig};
use carom_proto::{GroupId, NodeId};
use carom_sim::Fault;

use super::rig::{Rig, ix, millis, node_id, seconds};

/// Host of the first registry process, which owns the partitions of even groups.
const FIRST: usize = 16;
const OBSERVER: usize = 19;
const SECOND_GROUP: GroupId = GroupId(2);

/// Creates an observer of one group or all groups, which has the address of one process.
fn rig(group: Option<GroupId>, view_size: Option<usize>) -> Rig {
    let view_size = view_size.and_then(NonZeroUsize::new);
    let mut rig = Rig::with_registry(2, ServerConfig { view_size, ..ServerConfig::default() }, 7);
    (0..4).for_each(|partition| rig.give(partition, usize::from(partition % 2)));
    rig.run_for(millis(10));
    let addresses = rig.service_config().addresses[..1].to_vec();
    let config = ObserverConfig { addresses, group, ..ObserverConfig::default() };
    let observer = Box::new(Observer::new(config, 7));
    rig.world.spawn(ix(OBSERVER), NodeId(7 << 32), Resident::Observer(observer));
    (0..5).for_each(|_| assert!(rig.add_node() < 5));
    rig
}

fn join(rig: &mut Rig, node: usize, group: u32) {
    rig.join_group(node, GroupId(group));
    rig.run_for(millis(10));
}

fn leave(rig: &mut Rig, node: usize, group: u32) {
    rig.leave(node, GroupId(group));
    rig.run_for(millis(10));
}

fn observer(rig: &Rig) -> &Observer {
    match rig.world.machine(ix(OBSERVER)) {
        Some(Resident::Observer(observer)) => observer,
        _ => panic!("the observer is gone"),
    }
}

fn seen(rig: &Rig) -> Vec<(u32, Vec<NodeId>)> {
    let groups = observer(rig).groups().iter();
    groups.map(|(group, it)| (group.0, it.members.keys().copied().collect())).collect()
}

fn members<const N: usize>(nodes: [usize; N]) -> Vec<NodeId> {
    let mut ids = nodes.map(node_id).to_vec();
    ids.sort_unstable();
    ids
}

fn new_changes(rig: &mut Rig) -> Vec<(u32, ChangeKind, NodeId)> {
    let changes = rig.world.with(ix(OBSERVER), |resident, _| match resident {
        Resident::Observer(observer) => core::iter::from_fn(|| observer.poll_change()).collect(),
        _ => Vec::new(),
    });
    let changes = changes.expect("the observer").into_iter();
    changes.map(|(group, change)| (group.0, change.kind, change.member.node)).collect()
}

fn cut_off(rig: &mut Rig, process: usize) {
    rig.world.apply(&Fault::OneWay(vec![ix(OBSERVER)], vec![ix(FIRST + process)]));
    rig.run_for(seconds(5));
}

#[test]
fn observer_sees_all_members_of_all_groups_and_each_change() {
    // Each node receives one other member in its view. An observer receives all members.
    let mut rig = rig(None, Some(1));
    assert!(!observer(&rig).is_current());
    [1, 2, 3].into_iter().for_each(|node| join(&mut rig, node, 2));
    rig.run_for(millis(100));
    assert!(observer(&rig).is_current());
    assert_eq!(seen(&rig), [(2, members([1, 2, 3]))]);
    new_changes(&mut rig);
    join(&mut rig, 4, 3);
    leave(&mut rig, 2, 2);
    let changes = [(3, ChangeKind::Joined, node_id(4)), (2, ChangeKind::Left, node_id(2))];
    assert_eq!(new_changes(&mut rig), changes);
    rig.crash(3);
    rig.run_for(seconds(4));
    assert_eq!(new_changes(&mut rig), [(2, ChangeKind::Failed, node_id(3))]);
    // The last member leaves and joins again. The group is then a new group.
    leave(&mut rig, 4, 3);
    assert_eq!(seen(&rig), [(2, members([1]))]);
    join(&mut rig, 4, 3);
    let again = [(3, ChangeKind::Left, node_id(4)), (3, ChangeKind::Joined, node_id(4))];
    assert_eq!(new_changes(&mut rig), again);
    assert_eq!(seen(&rig), [(2, members([1])), (3, members([4]))]);
    rig.check();
}

#[test]
fn observer_of_one_group_sees_no_other() {
    let mut rig = rig(Some(SECOND_GROUP), None);
    rig.run_for(millis(100));
    assert!(observer(&rig).is_current(), "a group without members is known, too");
    join(&mut rig, 1, 4);
    assert_eq!(seen(&rig), []);
    join(&mut rig, 1, 2);
    assert_eq!(seen(&rig), [(2, members([1]))]);
    cut_off(&mut rig, 1);
    assert!(observer(&rig).is_current(), "the other process does not own the group");
}

#[test]
fn observer_keeps_an_old_view_until_the_process_returns() {
    let mut rig = rig(None, None);
    for node in [1, 2] {
        join(&mut rig, node, 2);
        join(&mut rig, node, 4);
    }
    rig.run_for(millis(100));
    new_changes(&mut rig);
    cut_off(&mut rig, 0);
    assert!(!observer(&rig).is_current());
    leave(&mut rig, 1, 2);
    leave(&mut rig, 1, 4);
    leave(&mut rig, 2, 4);
    join(&mut rig, 2, 6);
    assert_eq!(seen(&rig), [(2, members([1, 2])), (4, members([1, 2]))]);
    rig.world.apply(&Fault::Heal);
    rig.run_for(seconds(5));
    assert!(observer(&rig).is_current());
    assert_eq!(seen(&rig), [(2, members([2])), (6, members([2]))]);
    let mut changes = new_changes(&mut rig);
    changes.sort_unstable();
    let left = |group, node| (group, ChangeKind::Left, node_id(node));
    let mut expected = [left(2, 1), left(4, 1), left(4, 2), (6, ChangeKind::Joined, node_id(2))];
    expected.sort_unstable();
    assert_eq!(changes, expected);
    rig.check();
}

#[test]
fn moved_partition_is_reported_by_its_new_process() {
    let mut rig = rig(None, None);
    join(&mut rig, 1, 2);
    rig.run_for(millis(100));
    new_changes(&mut rig);
    rig.give(2, 1);
    rig.run_for(millis(100));
    assert!(observer(&rig).is_current());
    assert_eq!(new_changes(&mut rig), [], "the same view is sent again");
    join(&mut rig, 3, 2);
    assert_eq!(new_changes(&mut rig), [(2, ChangeKind::Joined, node_id(3))]);
    assert_eq!(seen(&rig), [(2, members([1, 3]))]);
}

#[test]
fn observer_that_is_silent_for_a_lease_is_dropped() {
    let mut rig = rig(None, None);
    rig.run_for(seconds(10));
    assert_eq!(rig.process_stat(0, "observers_opened"), 1);
    rig.pause(OBSERVER);
    rig.run_for(seconds(5));
    assert_eq!(rig.process_stat(0, "observers_silent"), 1);
    rig.check();
}
