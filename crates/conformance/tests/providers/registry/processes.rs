//! Tests registry processes that are paused, partitioned, or killed while groups change.

use std::time::Duration;

use carom_proto::ViewChangeKind;
use carom_sim::Machine as _;

use super::{NODES, Rig, agreed, default, group, ix, millis, seconds};

#[test]
fn paused_process_reads_its_backlog_before_declaring_deaths() {
    let mut rig = agreed(1, 4, 5, default(), 17);
    rig.crash(3);
    rig.pause(NODES);
    rig.run_for(seconds(5));
    rig.world.with(ix(NODES), |process, now| process.handle_timeout(now));
    rig.resume(NODES);
    let resumed = rig.now();
    rig.run_for(millis(500));
    assert_eq!(rig.process_stat(0, "sessions_expired"), 0);
    assert_eq!(rig.process_stat(0, "stalls"), 1);
    // A node that was silent before the pause is still detected.
    assert!(rig.run_until(seconds(10), Rig::agrees));
    assert!(rig.now().since(resumed) <= seconds(4), "{:?} later", rig.now().since(resumed));
    assert_eq!(rig.process_stat(0, "sessions_expired"), 1);
    assert!((0..3).all(|node| rig.incarnation(node) == 0));
    rig.check();
}

#[test]
fn without_the_registry_nodes_keep_their_last_views() {
    let mut rig = agreed(1, 3, 5, default(), 11);
    rig.kill(0);
    rig.run_for(seconds(2));
    assert!(!rig.node(0).is_away, "a short absence is not reported");
    rig.run_for(seconds(2));
    for (host, node) in rig.live().enumerate() {
        assert!(node.is_away && rig.stat(host, "is_away") == 1);
        assert_eq!(node.views[&group(0)].members().len(), 2, "the last view");
    }
    rig.join_group(0, group(9));
    assert!(!rig.node(0).membership.is_settled(), "no process has acknowledged it");
    rig.leave(1, group(1));
    rig.run_for(seconds(60));
    let tried = rig.stat(0, "links_tried");
    assert!((12..40).contains(&tried), "{tried} attempts in a minute");
    rig.start_process(0);
    assert!(rig.run_until(seconds(8), |rig| rig.live().all(|node| !node.is_away)));
    assert!(rig.run_until(seconds(1), Rig::agrees));
    assert_eq!(rig.stat(2, "times_away"), 1);
    assert!(rig.process_stat(0, "resyncs_unchanged") > 0, "unchanged groups are not sent");
    let has_failed = rig.live().any(|node| node.count(ViewChangeKind::Failed) > 0);
    assert!(!has_failed, "a restart of the registry is no failure of nodes");
    rig.check();
}

#[test]
fn a_process_that_is_killed_during_churn_costs_no_update() {
    for seed in 0..30 {
        let mut rig = agreed(2, 6, 12, default(), seed);
        for round in 0..40_usize {
            let (node, it) = (rig.rng.below(6), group(rig.rng.below(12)));
            if rig.node(node).views.contains_key(&it) {
                rig.leave(node, it);
            } else {
                rig.join_group(node, it);
            }
            rig.run_for(Duration::from_micros(400));
            match round {
                10 => rig.kill(0),
                20 => rig.start_process(0),
                30 => rig.kill(1),
                _ => {}
            }
        }
        let done = rig.run_until(seconds(10), Rig::has_recovered);
        assert!(done, "seed {seed}");
        rig.check();
        assert!((0..6).all(|node| rig.incarnation(node) == 0), "seed {seed}");
    }
}
