//! Tests failure detection: received datagrams, stalls, and local health.

use std::time::Duration;

use carom_proto::membership::gossip::Config;
use carom_proto::{GroupId, Time, ViewChangeKind};

use super::net::with_seeds;
use super::{Rig, agreed, cluster_of, endpoint, join_all, millis, node_id, seconds};

fn pair(config: &Config, seed: u64) -> Rig {
    let mut net = cluster_of(2, 0.0, seed, config);
    join_all(&mut net, 2, "all");
    assert!(net.run_until(seconds(3), |net| net.agrees_on(&["all"], |_, _| true)));
    net.run_for(seconds(1));
    net
}

fn failures(net: &Rig, host: usize) -> Vec<Time> {
    let changes = net.node(host).changes.iter();
    let failed = changes.filter(|(_, change)| change.kind == ViewChangeKind::Failed);
    failed.map(|(at, _)| *at).collect()
}

#[test]
fn heard_node_is_not_suspected_though_it_does_not_answer() {
    for (heartbeats, seed) in [(true, 1), (true, 2), (false, 3)] {
        let mut net = pair(&Config { heartbeats, ..with_seeds(&[0]) }, seed);
        net.pause(1);
        for _ in 0..120 {
            net.run_for(millis(50));
            net.with(0, |node, now| node.membership.heard(now, endpoint(1), node_id(1)));
            net.with(0, |node, now| node.membership.heard(now, endpoint(9), node_id(9)));
        }
        if !heartbeats {
            assert_eq!(failures(&net, 0).len(), 1, "only answers count");
            continue;
        }
        assert_eq!(failures(&net, 0), []);
        assert_eq!(net.stat(0, "suspicions"), 0);
        assert!(net.stat(0, "probes_answered_otherwise") > 30);
        net.check();
        let last_heard = net.now();
        net.run_for(seconds(4));
        let failed = failures(&net, 0);
        assert!(failed.len() == 1 && failed[0].since(last_heard) < seconds(3), "{failed:?}");
    }
}

#[test]
fn a_suspicion_ends_when_the_suspected_is_heard() {
    let mut net = pair(&with_seeds(&[0]), 4);
    net.pause(1);
    assert!(net.run_until(seconds(1), |net| net.stat(0, "suspicions") > 0));
    net.run_for(millis(1300));
    let now = net.now();
    net.with(0, |node, now| node.membership.heard(now, endpoint(1), node_id(1)));
    net.run_for(seconds(4));
    assert!(net.stat(0, "suspicions_withdrawn") > 0);
    let failed = failures(&net, 0);
    assert!(failed.len() == 1 && failed[0].since(now) > millis(1400), "a new one was needed");
    assert!(failed[0].since(now) < seconds(3), "a new one was found");
}

#[test]
fn paused_node_reads_its_backlog_before_it_suspects_others() {
    for (local_health, wrong) in [(3, 0), (0, 1)] {
        let mut net = pair(&Config { local_health, ..with_seeds(&[0]) }, 5);
        net.pause(1);
        assert!(net.run_until(seconds(1), |net| net.stat(0, "suspicions") > 0));
        net.run_for(millis(100));
        net.pause(0);
        net.run_for(millis(200));
        net.resume(1);
        net.run_for(millis(1220));
        // The suspicion has expired, and the proof of life has not been read.
        net.with(0, |node, now| node.membership.handle_timeout(now));
        net.resume(0);
        net.run_for(Duration::ZERO);
        assert_eq!(net.stat(0, "nodes_failed"), wrong, "local health {local_health}");
        assert_eq!(net.stat(0, "stalls"), u64::from(wrong == 0));
        assert_eq!(net.stat(0, "local_health"), u64::from(local_health), "it distrusts itself");
        if wrong == 0 {
            assert!((1000..1500).contains(&net.stat(0, "stalled_ms")));
            net.run_for(seconds(5));
            assert_eq!((failures(&net, 0), failures(&net, 1)), (vec![], vec![]));
            assert_eq!(net.stat(0, "local_health"), 0, "it has recovered");
        }
    }
}

/// If no other node is left to answer the new identity, the node detects that by itself.
#[test]
fn a_node_with_a_new_identity_finds_the_others_dead() {
    let mut net = pair(&with_seeds(&[0]), 8);
    net.pause(0);
    assert!(net.run_until(seconds(4), |net| !failures(net, 1).is_empty()));
    net.run_for(millis(100));
    net.crash(1);
    net.resume(0);
    net.run_for(seconds(4));
    assert_eq!(net.stat(0, "rejoins"), 1, "it was notified that it was declared dead");
    assert_eq!(net.view(0, "all").members(), []);

    let mut net = pair(&with_seeds(&[0]), 9);
    net.crash(1);
    assert!(net.with(0, |node, now| node.membership.set_endpoint(now, endpoint(7))));
    net.run_for(seconds(4));
    assert_eq!(net.view(0, "all").members(), []);
}

#[test]
fn suspicions_among_many_are_taken_back_and_counted() {
    let mut net = agreed(16, 0.2, 6);
    net.run_for(seconds(10));
    let sum = |name: &str| (0..16).map(|host| net.stat(host, name)).sum::<u64>();
    assert!(sum("suspicions") > 0);
    assert!(sum("hearsay_challenged") > 0, "other nodes confirm the nodes that they hear");
    assert!(sum("suspicions_refuted") > 0 && sum("refutations") > 0);
    assert_eq!((sum("nodes_failed"), sum("rejoins"), sum("stalls")), (0, 0, 0));
}

#[test]
fn quick_rejoin_is_seen_as_a_leave_and_a_join() {
    for loss in [0.0, 0.2] {
        let mut net = agreed(3, loss, 7);
        for round in 1..4 {
            net.leave_name(1, "all");
            net.join_name(1, "all").unwrap();
            net.run_for(seconds(2));
            for host in [0, 2] {
                let kinds = net.node(host).changes_of(node_id(1), GroupId::of_name("all"));
                assert_eq!(kinds.len(), 1 + 2 * round, "{kinds:?}");
                assert_eq!(
                    kinds[kinds.len() - 2..],
                    [ViewChangeKind::Left, ViewChangeKind::Joined]
                );
            }
        }
        net.check();
    }
}
