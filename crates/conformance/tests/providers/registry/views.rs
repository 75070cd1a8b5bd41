//! Tests the delivery of joins and leaves to the views of all members: fast, in order, and in
//! parts.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use carom_proto::NodeId;
use carom_proto::membership::link::{LinkEvent, LinkId};
use carom_proto::membership::service::frame::{ChangeKind, MemberChange, Update};
use carom_proto::membership::service::{Change, Frame, ServerConfig};
use carom_sim::Machine as _;

use super::{
    Rig, START, agreed, default, encoded, endpoint, group, member, millis, node_id, partition,
    seconds, settings,
};

#[test]
fn eight_nodes_in_100_groups_agree_in_a_few_round_trips() {
    for processes in [1, 2] {
        let mut rig = agreed(processes, 8, 100, default(), 1);
        assert!(rig.now() < START + millis(30), "it took {:?}", rig.now().since(START));
        // Changes during a commit form the next one.
        assert!(rig.store().commits() < 60, "{} commits for 800 joins", rig.store().commits());
        assert!(rig.store().largest_commit() >= 25, "{}", rig.store().largest_commit());
        assert_eq!(rig.stat(3, "joins_sent"), 100);
        assert_eq!(rig.stat(3, "gaps"), 0);
        let nodes = rig.node(3).membership.nodes();
        assert!(nodes.contains(&(node_id(5), endpoint(5))), "addresses are those of the links");
    }
}

#[test]
fn a_thousand_joins_take_no_thousand_round_trips() {
    let mut rig = Rig::with_registry(1, default(), 2);
    rig.add_node();
    (0..1000).for_each(|it| rig.join_group(0, group(it)));
    assert!(!rig.node(0).membership.is_settled());
    assert!(rig.run_until(seconds(5), Rig::all_settled));
    assert!(rig.now() < START + millis(20), "it took {:?}", rig.now().since(START));
    assert!(rig.agrees());
}

#[test]
fn last_joins_and_leaves_decide_the_views() {
    let mut rig = agreed(2, 4, 8, default(), 3);
    for round in 0..20 {
        for node in 0..4 {
            let group = group((round + node) % 8);
            rig.leave(node, group);
            if round % 2 == 0 {
                rig.join_group(node, group);
                rig.leave(node, group);
            }
            rig.join_group(node, group);
        }
        rig.run_for(Duration::from_micros(300));
    }
    (0..4).for_each(|node| rig.leave(node, group(node)));
    assert!(rig.run_until(seconds(1), Rig::agrees));
    rig.check();
}

#[test]
fn gap_in_updates_is_noticed_and_the_group_is_resynced() {
    let mut rig = agreed(1, 2, 1, default(), 19);
    let it = group(0);
    let version = rig.store().state(partition(it)).version();
    let joined = MemberChange { kind: ChangeKind::Joined, member: member(NodeId(77), 77) };
    let changes = vec![joined];
    let update = Update { group: it, after: version + 1, version: version + 2, changes };
    let bytes = encoded(&Frame::Update(update));
    rig.with(0, |node, now| node.handle_link(now, LinkId(1), LinkEvent::Received(&bytes)));
    rig.check();
    assert_eq!(rig.stat(0, "gaps"), 1);
    assert!(!rig.node(0).views[&it].contains(NodeId(77)), "the missing changes may undo it");
    // The node answers when its timer fires.
    rig.run_for(seconds(2));
    assert_eq!(rig.process_stat(0, "resyncs_received"), 1);
    assert!(rig.has_recovered());
}

#[test]
fn partial_view_has_its_size_and_is_a_uniform_sample() {
    let view_size = NonZeroUsize::new(4);
    let mut shown: BTreeMap<NodeId, usize> = BTreeMap::new();
    let seeds = 150;
    for seed in 0..seeds {
        let config = ServerConfig { view_size, ..default() };
        let mut rig = Rig::with_registry(1, config, seed);
        for node in 0..12 {
            rig.add_node();
            rig.join_group(node, group(0));
            rig.run_for(millis(5));
        }
        rig.shut_down(11);
        rig.run_for(millis(5));
        let gone = node_id(11);
        for (node, host) in rig.live().enumerate() {
            let view = &host.views[&group(0)];
            assert_eq!(view.members().len(), 4, "node {node}, seed {seed}");
            assert!(!view.contains(gone), "the member that has left is replaced");
        }
        for node in rig.node(0).views[&group(0)].members() {
            *shown.entry(*node).or_default() += 1;
        }
        rig.check();
    }
    // Four of ten other members are shown: each 60 times in 150, with a standard deviation of 6.
    assert_eq!(shown.len(), 10);
    let counts: Vec<usize> = shown.into_values().collect();
    assert!(counts.iter().all(|count| (36..=84).contains(count)), "{counts:?}");
}

#[test]
fn a_large_group_comes_in_parts() {
    let mut rig = Rig::with_registry(1, default(), 16);
    let it = group(0);
    let state = rig.store().state_mut(partition(it));
    for node in 1..=9000 {
        let member = member(NodeId(node), 50);
        state.apply(&Change::Join { group: it, settings: settings(8), member });
    }
    rig.kill(0);
    rig.start_process(0);
    rig.add_node();
    rig.join_group(0, it);
    assert!(rig.run_until(seconds(1), Rig::all_settled));
    assert_eq!(rig.node(0).views[&it].members().len(), 9000);
    rig.check();
}
