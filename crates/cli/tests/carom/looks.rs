//! `carom members` and `carom doctor`.

use std::process::Stdio;

use serde_json::Value;

use crate::ports::free_port;
use crate::running::{Running, alone, run, run_with};

#[test]
fn members_command_shows_the_members() {
    let ports = alone(17_419);
    let mut sub = Running::start(&["sub", "here"], &ports, Stdio::null());
    let joined = sub.await_line("joined");
    let output = run_with(&["members", "--json"], &ports);
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let endpoint = report["members"][0]["endpoint"].as_str().expect("somebody is there");
    assert!(joined.contains(endpoint), "{joined} {report}");
    assert!(output.status.success());
}

#[test]
fn two_doctors_report_the_traffic_between_them() {
    let port = free_port();
    let args = ["doctor", "--listen", "--port", &port.to_string()];
    let mut listener = Running::start(&args, &[], Stdio::null());
    listener.await_line("listening");
    let output = run(&["doctor", &format!("127.0.0.1:{port}"), "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let findings = report["findings"].as_array().expect("it is a list");
    let of = |check| findings.iter().find(|finding| finding["check"] == check);
    assert_eq!(of("unicast").expect("it was looked at")["level"], "ok");
    assert_eq!(of("datagram size").expect("it was looked at")["level"], "ok");
    assert!(of("multicast to").is_some() && of("multicast from").is_some(), "{report}");
    assert_eq!(output.status.code(), Some(i32::from(report["worst"] == "bad")));
    listener.interrupt();
    assert!(listener.end().success());
}

#[test]
fn doctor_gives_each_finding_a_cause_and_each_problem_a_fix() {
    let output = run(&["doctor", "--interface", "127.0.0.1", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let findings = report["findings"].as_array().expect("it is a list");
    assert!(findings.len() >= 8, "{report}");
    for finding in findings {
        assert!(finding["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{finding}");
        assert_eq!(finding["fix"].is_string(), finding["level"] != "ok", "{finding}");
    }
    assert_eq!(output.status.code(), Some(i32::from(report["worst"] == "bad")));
}
