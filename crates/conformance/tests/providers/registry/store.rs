//! Tests a store that is full, fails, does not answer, refuses an owner, or is followed by a
//! process.

use carom_proto::membership::service::{Change, CommitFailure, Server, ServerConfig, Unserved};
use carom_proto::{JoinError, NodeId, Time};

use super::{
    PARTITIONS, Rig, agreed, default, group, member, millis, partition, seconds, settings,
};

#[test]
fn a_full_store_refuses_joins_with_a_reason_and_keeps_leaves() {
    let mut rig = agreed(1, 3, 2, default(), 6);
    rig.store().failing = Some(CommitFailure::Full);
    let before = rig.store().members();
    rig.leave(0, group(0));
    rig.join_group(1, group(7));
    rig.run_for(seconds(2));
    let error = JoinError::Unserved { why: Unserved::StoreFull };
    assert_eq!(rig.node(1).refused, [(group(7), error)]);
    assert_eq!(rig.store().members(), before, "no change is partly stored");
    assert_eq!(rig.node(2).views[&group(0)].members().len(), 2, "no member heard of the leave");
    assert!(rig.process_stat(0, "commits_failed") > 2);
    rig.store().failing = None;
    rig.join_group(1, group(7));
    assert!(rig.run_until(seconds(2), Rig::agrees));
    rig.check();
}

#[test]
fn flapping_node_is_removed_once_while_the_store_fails() {
    const GROUPS: usize = 50;
    let mut rig = agreed(1, 2, GROUPS, default(), 18);
    rig.store().failing = Some(CommitFailure::Failed);
    for _ in 0..8 {
        rig.pause(1);
        rig.run_for(seconds(4));
        rig.resume(1);
        rig.run_for(seconds(1));
    }
    assert!(rig.process_stat(0, "sessions_expired") >= 8);
    let open = rig.server(0).open_requests();
    assert!(open <= 2 * GROUPS, "{open} requests for {GROUPS} removals and as many joins");
    rig.store().failing = None;
    assert!(rig.run_until(seconds(5), Rig::has_recovered));
    rig.check();
}

#[test]
fn unanswered_commits_are_repeated_until_their_fate_is_known() {
    let mut repeated = 0;
    for seed in 0..20 {
        let mut rig = Rig::with_registry(2, default(), seed);
        rig.store().lost_answers = 0.4;
        for node in 0..4 {
            rig.add_node();
            (0..10).for_each(|it| rig.join_group(node, group(it)));
        }
        assert!(rig.run_until(seconds(20), Rig::has_recovered), "seed {seed}");
        repeated += rig.process_stat(0, "commits_repeated");
        rig.check();
    }
    assert!(repeated > 20, "{repeated} commits were tried again");
}

#[test]
fn of_two_owners_of_a_partition_the_store_refuses_one() {
    let mut rig = agreed(2, 4, 8, default(), 12);
    let (it, old) = (group(0), rig.owner(partition(group(0))));
    // The store has another owner. The old one is not notified, and its members still use it.
    let own = (0..PARTITIONS).find(|own| rig.owner(*own) != old).expect("two owners");
    let new = rig.store().owner(own).expect("an owner");
    rig.store().give(partition(it), new);
    rig.leave(2, it);
    rig.run_for(millis(50));
    assert_eq!(rig.process_stat(old, "partitions_lost"), 1, "the store has refused it");
    assert!(rig.stat(2, "sent_elsewhere") > 0);
    assert!(rig.run_until(seconds(2), Rig::agrees));
    rig.check();
}

#[test]
fn follower_applies_watch_events_until_a_gap() {
    let part = partition(group(0));
    let mut rig = agreed(1, 2, 4, default(), 13);
    let state = rig.store().state(part).clone();
    let mut follower = Server::new(ServerConfig { partitions: PARTITIONS, ..default() }, 1);
    assert!(follower.state(part).is_none());
    follower.load(part, state.clone());
    let change =
        Change::Join { group: group(0), settings: settings(8), member: member(NodeId(5), 5) };
    let version = state.version();
    assert!(follower.handle_applied(Time(1), part, version, &[change]));
    assert_eq!(follower.state(part).unwrap().version(), version + 1);
    assert!(follower.handle_applied(Time(1), part, version, &[change]), "known already");
    assert_eq!(follower.state(part).unwrap().version(), version + 1);
    assert!(!follower.handle_applied(Time(1), part, version + 2, &[change]), "a gap");
    assert!(follower.state(part).is_none(), "it must be loaded again");
}
