//! Tests failure detectors of two racks with one registry process.

use std::collections::BTreeSet;
use std::time::Duration;

use carom_conformance::providers::Resident;
use carom_proto::membership::service::{
    Client as _, Detector, DetectorConfig, ServerConfig, ServiceConfig,
};
use carom_proto::{GroupId, NodeId, ViewChangeKind};
use carom_sim::Fault;

use super::rig::{Rig, counter, ix, millis, node_id, seconds, settings};

const PROCESS: usize = 16;
const DETECTORS: [usize; 2] = [17, 18];

fn rig(nodes: usize, detection_time: Option<Duration>) -> Rig {
    // The default lease of 3 s is longer than any detection time, so detectors report first.
    let mut rig = Rig::with_registry(1, ServerConfig::default(), 1);
    for node in 0..nodes {
        let config = ServiceConfig { rack: rack(node), ..rig.service_config() };
        rig.add_node_with(config);
        rig.join(node, GroupId(1), settings("all")).unwrap();
    }
    for (number, host) in DETECTORS.into_iter().enumerate() {
        let (rack, addresses) = (rack(number), rig.service_config().addresses);
        let config =
            DetectorConfig { addresses, rack, detection_time, ..DetectorConfig::default() };
        let Rig { world, services, .. } = &mut rig;
        services.as_mut().unwrap().start_detector(world, ix(host), config);
    }
    rig
}

fn rack(number: usize) -> String {
    format!("r{}", number % 2)
}

fn detector(rig: &Rig, number: usize) -> &Detector {
    match rig.world.machine(ix(DETECTORS[number])) {
        Some(Resident::Detector(detector)) => detector,
        _ => panic!("detector {number} is gone"),
    }
}

fn watched(rig: &Rig, number: usize) -> BTreeSet<NodeId> {
    detector(rig, number).watched().collect()
}

fn ids<const N: usize>(nodes: [usize; N]) -> BTreeSet<NodeId> {
    nodes.map(node_id).into()
}

fn shut_down(rig: &mut Rig, number: usize) {
    rig.world.with(ix(DETECTORS[number]), |resident, _| match resident {
        Resident::Detector(detector) => detector.shut_down(),
        _ => panic!("another machine"),
    });
}

fn failed(rig: &Rig) -> Vec<NodeId> {
    let changes = rig.live().flat_map(|node| &node.changes).map(|(_, change)| change);
    let failed = changes.filter(|change| change.kind == ViewChangeKind::Failed);
    failed.map(|change| change.node).collect()
}

#[test]
fn a_process_that_is_cut_off_from_all_nodes_takes_none_for_dead() {
    let mut rig = rig(4, None);
    (0..2).for_each(|number| shut_down(&mut rig, number));
    rig.run_for(seconds(5));
    rig.world.apply(&Fault::Partition(vec![ix(PROCESS)]));
    rig.run_for(seconds(60));
    assert_eq!(rig.process_stat(0, "times_cut_off"), 1);
    assert!(rig.live().all(|node| node.is_away));
    // One of the nodes actually crashes in the meantime.
    rig.crash(3);
    rig.world.apply(&Fault::Heal);
    rig.run_for(seconds(5));
    assert_eq!(failed(&rig), []);
    assert!((0..3).all(|node| !rig.node(node).is_away && rig.stat(node, "incarnation") == 0));
    rig.run_for(seconds(5));
    assert_eq!(failed(&rig), [node_id(3); 3], "only the node that did not return");
    assert_eq!(rig.process_stat(0, "sessions_expired"), 1);
    rig.check();
}

#[test]
fn each_detector_watches_its_rack_and_the_next_detector() {
    let mut rig = rig(4, None);
    rig.run_for(seconds(20));
    let [first, second] = DETECTORS.map(|host| rig.world.node_id(ix(host)).unwrap());
    assert_eq!(watched(&rig, 0), &ids([0, 2]) | &[second].into());
    assert_eq!(watched(&rig, 1), &ids([1, 3]) | &[first].into());
    for number in 0..2 {
        let stats = detector(&rig, number).stats();
        assert_eq!(counter(&stats, "reports_made"), 0);
        assert_eq!(counter(&stats, "suspicions"), 0);
        assert!(counter(&stats, "pongs_received") >= 55, "{stats:?}");
        assert_eq!(counter(&stats, "links_welcomed"), 1, "{stats:?}");
    }
    assert_eq!(failed(&rig), []);
    rig.check();
}

#[test]
fn a_detector_that_failed_is_replaced_by_the_one_before_it() {
    let mut rig = rig(4, None);
    rig.run_for(seconds(5));
    rig.crash(DETECTORS[1]);
    rig.run_for(seconds(5));
    assert_eq!(watched(&rig, 0), ids([0, 1, 2, 3]), "both racks, and no other detector");
    assert_eq!(rig.process_stat(0, "detectors_failed"), 1);
    assert_eq!(failed(&rig), []);
    rig.check();
}

#[test]
fn silent_node_leaves_all_views_before_its_lease_ends() {
    for detection_time in [millis(100), millis(500)] {
        let mut rig = rig(4, Some(detection_time));
        rig.run_for(seconds(5));
        assert_eq!(failed(&rig), []);
        rig.crash(1);
        rig.run_for(detection_time + millis(10));
        assert_eq!(failed(&rig), [node_id(1); 3], "after {detection_time:?}");
        assert_eq!(rig.process_stat(0, "sessions_expired"), 1);
        assert!(rig.process_stat(0, "reports_received") > 0);
        rig.check();
    }
}

#[test]
fn a_detector_that_stops_hands_its_rack_over_at_once() {
    let mut rig = rig(2, None);
    rig.run_for(seconds(2));
    shut_down(&mut rig, 0);
    rig.run_for(millis(10));
    assert_eq!(watched(&rig, 1), ids([0, 1]));
    assert_eq!(watched(&rig, 0), ids([]));
    assert_eq!(rig.process_stat(0, "detectors_failed"), 0);
}
