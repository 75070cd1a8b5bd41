//! Tests failure detectors, and the ring of pings. Leases outlast the tests, so only reports count.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{Running, parsed, start};
use crate::service::{Node, Service, assert_refused};

const LONG_LEASE: [&str; 2] = ["--detection", "10min"];

fn detector(service: &Service, rack: &str, detection: &str) -> Running {
    let args = ["registry", "detector", "--rack", rack, "--registry", &service.address];
    let mut running = start(&[&args[..], &["--detection", detection]].concat());
    running.said.wait_for("linked to");
    running
}

fn watched(status: &Value) -> Vec<(String, usize)> {
    let detectors = status["detectors"].as_array().expect("a list");
    let mut watched: Vec<(String, usize)> = detectors
        .iter()
        .map(|detector| {
            let watches = detector["watches"].as_array().expect("a list").len();
            (detector["rack"].as_str().expect("text").to_owned(), watches)
        })
        .collect();
    watched.sort();
    watched
}

fn counter(status: &Value, name: &str) -> u64 {
    status["counters"][name].as_u64().expect("a counter")
}

fn is(watched: &[(String, usize)], wanted: &[(&str, usize)]) -> bool {
    watched.iter().map(|(rack, count)| (rack.as_str(), *count)).eq(wanted.iter().copied())
}

fn kill_one(nodes: &mut Vec<Node>, place: usize) {
    let mut victim = nodes.remove(place);
    victim.running.kill();
    nodes.iter_mut().for_each(|other| other.await_change(&victim.id, "failed"));
}

#[test]
fn killed_node_is_reported_by_the_detector_of_its_rack() {
    let service = Service::start(&LONG_LEASE);
    let _detectors = ["r1", "r2"].map(|rack| detector(&service, rack, "1s"));
    let racks = ["r1", "r1", "r2", "r2"];
    let mut nodes = Vec::from(racks.map(|rack| service.node("numbers", &["--rack", rack])));
    let status = service.await_status("two racks that are watched", |status| {
        is(&watched(status), &[("r1", 2), ("r2", 2)])
    });
    for detector in status["detectors"].as_array().expect("a list") {
        assert!(detector["linked"] == true && detector["next"].is_string(), "{status:#}");
    }
    let told = service.told();
    assert!(told.contains("watched by") && told.contains("2 nodes  \"r1\""), "{told}");
    let metrics = service.get("/metrics");
    for line in ["carom_registry_detectors 2\n", "carom_registry_nodes_watched 4\n"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    kill_one(&mut nodes, 0);
    let status = service.status();
    assert!(counter(&status, "reports_received") >= 1, "{status:#}");
    assert_eq!(counter(&status, "sessions_expired"), 1, "{status:#}");
    assert!(is(&watched(&status), &[("r1", 1), ("r2", 2)]), "{status:#}");
}

#[test]
fn rack_of_a_hung_or_killed_detector_is_watched_by_another() {
    let service = Service::start(&LONG_LEASE);
    let mut hanging = detector(&service, "r1", "1s");
    let other = detector(&service, "r2", "1s");
    let mut nodes = vec![service.node("numbers", &["--rack", "r1"])];
    nodes.push(service.node("numbers", &["--rack", "r2"]));
    nodes.push(service.node("numbers", &["--rack", "r1"]));
    service.await_status("both racks", |status| is(&watched(status), &[("r1", 2), ("r2", 1)]));
    hanging.signal(Signal::SIGSTOP);
    // The link of the stopped detector stays open, so only the other detector can notice.
    let status = service.await_status("one detector for all", |it| is(&watched(it), &[("r2", 3)]));
    assert_eq!(counter(&status, "detectors_failed"), 1, "{status:#}");
    kill_one(&mut nodes, 0);
    hanging.signal(Signal::SIGCONT);
    service.await_status("both again", |it| is(&watched(it), &[("r1", 1), ("r2", 1)]));
    // The detector is killed, which ends its link as well.
    hanging.kill();
    service.await_status("one for all again", |it| watched(it).contains(&("r2".into(), 2)));
    // The other detector stops in an orderly way.
    other.interrupt();
    let status = service.await_status("none", |it| watched(it).iter().all(|(_, all)| *all == 0));
    assert!(status["nodes"][0]["watched_by"].is_null(), "{status:#}");
    assert!(service.told().contains("its lease"), "{}", service.told());
}

#[test]
fn interrupted_detector_says_goodbye() {
    let service = Service::start(&LONG_LEASE);
    let mut running = detector(&service, "r1", "1s");
    service.await_status("a detector", |status| is(&watched(status), &[("r1", 0)]));
    running.stop();
    let status = service.await_status("no detector", |status| watched(status).is_empty());
    assert_eq!(counter(&status, "detectors_failed"), 0, "{status:#}");
    assert!(service.told().contains("no failure detectors: "), "{}", service.told());
}

#[test]
fn detection_can_be_as_short_as_100_ms() {
    let service = Service::start(&LONG_LEASE);
    let _detector = detector(&service, "r1", "100ms");
    let mut nodes: Vec<Node> = (0..2).map(|_| service.node("numbers", &["--rack", "r1"])).collect();
    service.await_status("a rack", |status| is(&watched(status), &[("r1", 2)]));
    kill_one(&mut nodes, 1);
}

#[test]
fn killed_node_is_reported_by_its_predecessor_in_the_ring() {
    let service = Service::start(&[&LONG_LEASE[..], &["--ring", "--ring-time", "1s"]].concat());
    let mut nodes: Vec<Node> = (0..3).map(|_| service.node("numbers", &[])).collect();
    let status = service.await_status("a ring", |status| {
        let nodes = status["nodes"].as_array().expect("a list");
        nodes.len() == 3 && nodes.iter().all(|node| node["next"].is_string())
    });
    assert_eq!(counter(&status, "reports_received"), 0, "{status:#}");
    kill_one(&mut nodes, 1);
    let status = service.status();
    assert!(counter(&status, "reports_received") >= 1, "{status:#}");
    assert_eq!(counter(&status, "sessions_expired"), 1, "{status:#}");
}

#[test]
fn detector_reports_its_state_as_json() {
    let service = Service::start(&LONG_LEASE);
    let args = ["registry", "detector", "--rack", "r1", "--registry", &service.address, "--json"];
    let mut running = start(&args);
    let node = service.node("numbers", &["--rack", "r1"]);
    let line = running.wrote.wait_for(&node.id);
    let status = parsed(&line);
    assert_eq!(status["watched"], Value::from(vec![node.id.clone()]), "{status:#}");
    assert_eq!(status["rack"], "r1");
    assert_eq!(status["processes"][0]["address"], service.address.as_str());
    assert_eq!(status["processes"][0]["linked"], true);
    assert!(status["counters"]["pings_sent"].as_u64() >= Some(1), "{status:#}");
}

#[test]
fn detector_that_cannot_work_reports_the_cause() {
    let service = Service::start(&["--cluster", "lab"]);
    let base = ["registry", "detector", "--registry", &service.address];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    assert_refused(&with(&[]), "--rack");
    assert_refused(&with(&["--rack", "r1"]), "belongs to cluster \"lab\"");
    assert_refused(&with(&["--rack", "r1", "--detection", "50ms"]), "too short");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().expect("it is bound").to_string();
    let listen = [&with(&["--rack", "r1", "--cluster", "lab", "--listen"])[..], &[&taken]].concat();
    assert_refused(&listen, &taken);
    assert_refused(&["registry", "detector", "--rack", "r1"], "--registry");
    assert_refused(&["registry", "detector", "--rack", "r1", "--registry", "x:y"], "x:y");
}
