use crate::lan::Lan;
use crate::ports::free_port;
use crate::process::start;

#[test]
fn members_command_shows_the_members() {
    let lan = Lan::new("17419");
    let mut sub = lan.start(&["sub", "here"]);
    let joined = sub.said.wait_for("joined");
    let members = lan.start(&["members", "--json"]).ended_with(0);
    let report = members.json();
    let endpoint = report["members"][0]["endpoint"].as_str().expect("another node is online");
    assert!(joined.contains(endpoint), "{joined} {report}");
}

#[test]
fn two_doctors_report_the_traffic_between_them() {
    let port = free_port();
    let mut listener = start(&["doctor", "--listen", "--port", &port.to_string()]);
    listener.said.wait_for("listening");
    let doctor = start(&["doctor", &format!("127.0.0.1:{port}"), "--json"]).ended();
    let report = doctor.json();
    let findings = report["findings"].as_array().expect("it is a list");
    let of = |check| findings.iter().find(|finding| finding["check"] == check);
    assert_eq!(of("unicast").expect("the check was made")["level"], "ok");
    assert_eq!(of("datagram size").expect("the check was made")["level"], "ok");
    assert!(of("multicast to").is_some() && of("multicast from").is_some(), "{report}");
    assert_eq!(doctor.code, Some(i32::from(report["worst"] == "bad")));
    listener.stop();
}

#[test]
fn doctor_gives_each_finding_a_cause_and_each_problem_a_fix() {
    let doctor = start(&["doctor", "--interface", "127.0.0.1", "--json"]).ended();
    let report = doctor.json();
    let findings = report["findings"].as_array().expect("it is a list");
    assert!(findings.len() >= 8, "{report}");
    for finding in findings {
        assert!(finding["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{finding}");
        assert_eq!(finding["fix"].is_string(), finding["level"] != "ok", "{finding}");
    }
    assert_eq!(doctor.code, Some(i32::from(report["worst"] == "bad")));
}
