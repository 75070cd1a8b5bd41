//! Tests sessions of nodes, and the detection of nodes that crash, stop, pause or answer no ping.

use carom_proto::membership::service::ServerConfig;
use carom_proto::{Incarnation, ViewChangeKind};

use super::{Rig, agreed, default, endpoint, group, millis, node_id, seconds};

#[test]
fn crashed_node_fails_in_every_view_within_detection_time() {
    for (detection_time, slack) in [(seconds(3), 20), (millis(100), 20)] {
        let config = ServerConfig { detection_time, ..default() };
        let mut rig = agreed(2, 4, 5, config, 7);
        rig.run_for(seconds(1));
        assert!(rig.agrees(), "no live node is declared dead");
        rig.crash(1);
        let start = rig.now();
        assert!(rig.run_until(detection_time + millis(slack), Rig::agrees));
        assert!(rig.now().since(start) > detection_time / 2);
        assert_eq!(rig.node(0).count(ViewChangeKind::Failed), 5);
        rig.check();
    }
}

#[test]
fn a_node_that_stops_has_left_at_once() {
    let mut rig = agreed(2, 3, 5, default(), 8);
    rig.shut_down(1);
    assert!(rig.run_until(millis(20), Rig::agrees));
    assert_eq!(rig.node(0).count(ViewChangeKind::Left), 5);
    rig.check();
}

#[test]
fn memberships_of_a_former_start_end_when_the_next_one_comes() {
    for processes in 1..=3 {
        let mut rig = agreed(processes, 3, 5, default(), 8);
        let again = rig.restart(1, Incarnation(7));
        rig.join_group(again, group(2));
        assert!(rig.run_until(seconds(4), Rig::agrees), "with {processes} processes");
        rig.leave(again, group(2));
        rig.run_for(millis(900));
        assert!(rig.has_recovered());
        rig.check();
    }
}

#[test]
fn a_node_that_was_paused_within_its_lease_comes_back_as_itself() {
    let mut rig = agreed(2, 3, 5, default(), 9);
    rig.run_for(seconds(2));
    rig.pause(1);
    rig.run_for(millis(1900));
    rig.leave(2, group(0));
    rig.run_for(millis(10));
    rig.resume(1);
    rig.run_for(seconds(1));
    assert!(rig.agrees());
    assert_eq!(rig.incarnation(1), 0);
    assert_eq!(rig.process_stat(0, "sessions_expired"), 0);
    let gone = rig.node(0).count(ViewChangeKind::Left) + rig.node(0).count(ViewChangeKind::Failed);
    assert_eq!(gone, 1, "that of node 2");
}

#[test]
fn node_paused_beyond_its_lease_returns_as_new_incarnation() {
    let mut rig = agreed(2, 3, 5, default(), 10);
    rig.pause(1);
    rig.run_for(seconds(4));
    assert_eq!(rig.node(0).views[&group(0)].members(), [node_id(2)]);
    rig.leave(2, group(0));
    rig.resume(1);
    assert!(rig.run_until(seconds(1), Rig::has_recovered));
    assert_eq!(rig.incarnation(1), 1);
    let there_and_back = [ViewChangeKind::Joined, ViewChangeKind::Failed, ViewChangeKind::Joined];
    assert_eq!(rig.node(0).changes_of(node_id(1), group(1)), there_and_back);
    rig.check();
}

fn move_to_host_7(rig: &mut Rig, node: usize) {
    let is_reported = rig.with(node, |node, now| {
        let is_reported = node.membership.set_endpoint(now, endpoint(7));
        node.take_events(now);
        is_reported
    });
    assert!(is_reported, "no node is notified");
}

#[test]
fn node_whose_address_changes_is_met_at_the_new_one() {
    let mut rig = agreed(2, 3, 5, default(), 11);
    rig.leave(1, group(4));
    move_to_host_7(&mut rig, 1);
    let is_moved = |rig: &Rig| {
        [0, 2]
            .iter()
            .all(|other| rig.node(*other).membership.nodes().contains(&(node_id(1), endpoint(7))))
    };
    let done = |rig: &Rig| is_moved(rig) && rig.has_recovered();
    assert!(rig.run_until(seconds(1), done));
    rig.run_for(seconds(10));
    assert!(done(&rig));
    assert_eq!(rig.incarnation(1), 1);
    rig.check();
}

#[test]
fn node_that_has_its_address_back_is_still_there() {
    let mut rig = agreed(2, 3, 5, default(), 11);
    // Nodes do not know their own address at first.
    move_to_host_7(&mut rig, 1);
    rig.run_for(seconds(10));
    let changes = rig.node(0).changes.len();
    move_to_host_7(&mut rig, 1);
    rig.run_for(seconds(10));
    assert_eq!((rig.incarnation(1), rig.node(0).changes.len()), (1, changes));
    assert!(rig.has_recovered());
}

#[test]
fn ring_reports_a_deaf_node_that_still_lives_by_its_link() {
    let config = ServerConfig { ring: true, ..default() };
    let mut rig = agreed(1, 4, 3, config, 17);
    rig.run_for(seconds(10));
    let sum = |rig: &Rig, name: &str| (0..4).map(|node| rig.stat(node, name)).sum::<u64>();
    assert!((36..60).contains(&sum(&rig, "pings_sent")), "{}", sum(&rig, "pings_sent"));
    assert_eq!(sum(&rig, "reports_made"), 0);
    rig.with(2, |node, _| node.is_deaf = true);
    rig.run_for(seconds(10));
    assert!(sum(&rig, "reports_made") > 4);
    assert!(rig.process_stat(0, "reports_contradicted") > 4);
    assert!(rig.agrees(), "its link shows that it is alive");
    rig.crash(2);
    assert!(rig.run_until(millis(3100), Rig::agrees));
    rig.check();
}
