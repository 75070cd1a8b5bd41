//! Registry processes that are paused, away, or killed while groups change.

use std::time::Duration;

use carom_proto::ViewChangeKind;
use carom_proto::membership::Membership;

use super::rig::{self, Rig, group};
use super::{agreed, all_settled, default, millis, seconds};

#[test]
fn paused_process_reads_its_backlog_before_declaring_deaths() {
    let mut rig = agreed(1, 4, 5, default(), 17);
    rig.nodes[3].is_crashed = true;
    rig.stop(0);
    rig.run_for(seconds(5));
    rig.go_on(0);
    let resumed = rig.now;
    rig.run_for(millis(500));
    assert_eq!(rig.process_stat(0, "sessions_expired"), 0);
    assert_eq!(rig.process_stat(0, "stalls"), 1);
    // A node that was silent before the pause is still detected.
    assert!(rig.run_until(seconds(10), Rig::agrees));
    assert!(rig.now.since(resumed) <= seconds(4), "{:?} later", rig.now.since(resumed));
    assert_eq!(rig.process_stat(0, "sessions_expired"), 1);
    assert!((0..3).all(|node| rig.nodes[node].service.incarnation() == 0));
    rig.check();
}

#[test]
fn without_the_service_nodes_keep_their_last_views() {
    let mut rig = agreed(1, 3, 5, default(), 11);
    rig.kill(0);
    rig.run_for(seconds(2));
    assert!(!rig.nodes[0].is_away, "a short absence is not worth a word");
    rig.run_for(seconds(2));
    for host in &rig.nodes {
        assert!(host.is_away && host.service.is_away());
        assert_eq!(host.views[&group(0)].members().len(), 2, "the last view");
    }
    rig.join(0, group(9));
    assert!(!rig.nodes[0].service.is_settled(), "nobody has acknowledged it");
    rig.leave(1, group(1));
    rig.run_for(seconds(60));
    let tried = rig.stat(0, "links_tried");
    assert!((12..40).contains(&tried), "{tried} attempts in a minute");
    rig.start_process(0);
    rig.share_partitions();
    assert!(rig.run_until(seconds(8), |rig| rig.nodes.iter().all(|host| !host.is_away)));
    assert!(rig.run_until(seconds(1), Rig::agrees));
    assert_eq!(rig.stat(2, "times_away"), 1);
    assert!(rig.process_stat(0, "resyncs_unchanged") > 0, "what did not change is not sent");
    let failed =
        |host: &rig::Host| host.changes.iter().any(|change| change.kind == ViewChangeKind::Failed);
    assert!(!rig.nodes.iter().any(failed), "a restart of the service is no failure of nodes");
    rig.check();
}

#[test]
fn a_process_that_is_killed_during_churn_costs_no_update() {
    for seed in 0..30 {
        let mut rig = agreed(2, 6, 12, default(), seed);
        for round in 0..40_usize {
            let (node, it) = (rig.rng.below(6), group(rig.rng.below(12)));
            if rig.nodes[node].groups.contains(&it) {
                rig.leave(node, it);
            } else {
                rig.join(node, it);
            }
            rig.run_for(Duration::from_micros(400));
            match round {
                10 => rig.kill(0),
                20 => {
                    rig.share_partitions();
                    rig.start_process(0);
                }
                30 => {
                    rig.kill(1);
                    rig.share_partitions();
                }
                _ => {}
            }
        }
        let done = rig.run_until(seconds(10), |rig| rig.agrees() && all_settled(rig));
        assert!(done, "seed {seed}");
        rig.check();
        assert!(rig.nodes.iter().all(|host| host.service.incarnation() == 0), "seed {seed}");
    }
}
