use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use carom_proto::NodeId;
use carom_proto::membership::service::frame::Frame;
use nix::sys::signal::Signal;

use crate::process::{Running, carom};
use crate::raw::{RawNode, group_name};
use crate::service::Service;

const WINDOW: u32 = 256;
/// Number of HTTP connections that the service keeps open with a limit of 256 descriptors.
const SERVED: usize = 32;
/// Number of connections in the listener's queue, which the service has not accepted yet.
const QUEUED: usize = 128;

#[test]
fn acknowledged_joins_survive_the_kill_of_the_service() {
    let mut service = Service::start(&["--detection", "10min"]);
    let mut node = RawNode::open(&service.address, NodeId(0xA11));
    (0..WINDOW).for_each(|number| node.join(number));
    let mut asked = WINDOW;
    let mut acknowledged = BTreeSet::new();
    // The service is killed with joins in flight. Replies that it sent before may still be read.
    while let Some(frame) = node.next() {
        if let Frame::Joined { request, .. } = frame {
            acknowledged.insert(request);
            node.join(asked);
            asked += 1;
            if acknowledged.len() == 700 {
                service.running.kill();
            }
        }
    }
    assert!(acknowledged.len() >= 700 && acknowledged.len() < asked as usize);
    service.start_again(&["--detection", "10min"]);
    let id = node.id.to_string();
    for number in acknowledged {
        let members = service.get(&format!("/members?group={}", group_name(number)));
        assert!(members.contains(&id), "group {number} was acknowledged: {members}");
    }
}

fn half_request(http: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&http, Duration::from_secs(2))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").expect("the connection accepts a line");
    Ok(stream)
}

#[test]
fn half_open_requests_do_not_keep_nodes_out() {
    let service = Service::start_with_descriptors(256);
    let http = service.http.parse().expect("it is an address");
    let attempts: Vec<_> = (0..400).map(|_| thread::spawn(move || half_request(http))).collect();
    let mut half_open = Vec::new();
    for attempt in attempts {
        match attempt.join().expect("its request is sent") {
            Ok(stream) => half_open.push(stream),
            // The queue of the listener is full.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}"),
        }
    }
    assert!(half_open.len() >= SERVED + QUEUED, "{} connections", half_open.len());
    let mut node = RawNode::open(&service.address, NodeId(0xA11));
    (0..10).for_each(|number| node.join(number));
    let mut joined = 0;
    while joined < 10 {
        let answer = node.next().expect("the link is open");
        joined += u32::from(matches!(answer, Frame::Joined { .. }));
    }
    drop(half_open);
}

fn publisher(service: &Service, group: &str) -> (Running, std::process::ChildStdin) {
    let flags = ["pub", group, "--registry", &service.address, "--interface", "127.0.0.1"];
    let mut running = Running::start_piped(carom(&[&flags[..], &["--json"]].concat()));
    let stdin = running.stdin();
    (running, stdin)
}

#[test]
fn nodes_continue_and_report_it_when_the_service_is_killed() {
    let mut service = Service::start(&[]);
    let mut sub = service.node("numbers", &[]);
    let (mut publisher, mut lines) = publisher(&service, "numbers");
    writeln!(lines, "before").expect("carom reads its input");
    sub.running.wrote.wait_for("before");
    service.running.kill();
    publisher.said.wait_for("the registry is unreachable");
    sub.running.wrote.wait_for("\"state\":\"away\"");
    sub.running.said.wait_for("the registry is unreachable");
    writeln!(lines, "meanwhile").expect("carom reads its input");
    sub.running.wrote.wait_for("meanwhile");
    service.start_again(&[]);
    sub.running.wrote.wait_for("\"state\":\"back\"");
    publisher.said.wait_for("the registry is reachable again");
    writeln!(lines, "after").expect("carom reads its input");
    sub.running.wrote.wait_for("after");
    drop(lines);
    publisher.end_with(0);
    let report = publisher.json();
    let wanted = (&true.into(), &1.into(), &false.into());
    assert_eq!((&report["safe"], &report["members"], &report["service_away"]), wanted, "{report}");
    let failed = sub.running.wrote.seen.iter().any(|line| line.contains("failed"));
    assert!(!failed, "{:#?}", sub.running.wrote.seen);
}

#[test]
fn node_paused_within_its_lease_returns_as_itself() {
    let service = Service::start(&["--detection", "10min"]);
    let mut sub = service.node("numbers", &[]);
    let (mut publisher, mut lines) = publisher(&service, "numbers");
    writeln!(lines, "before").expect("carom reads its input");
    sub.running.wrote.wait_for("before");
    sub.running.signal(Signal::SIGSTOP);
    // This takes longer than short leases take to expire.
    thread::sleep(Duration::from_secs(1));
    sub.running.signal(Signal::SIGCONT);
    writeln!(lines, "after").expect("carom reads its input");
    sub.running.wrote.wait_for("after");
    drop(lines);
    publisher.end_with(0);
    let status = service.status();
    let is_itself = |node: &serde_json::Value| {
        node["node"] != sub.id.as_str() || (node["incarnation"] == 0 && node["linked"] == true)
    };
    let nodes = status["nodes"].as_array().expect("a list");
    assert!(nodes.iter().all(is_itself), "{status:#}");
    assert_eq!(status["counters"]["sessions_expired"], 0, "{status:#}");
}

#[test]
fn node_paused_beyond_its_lease_returns_as_later_incarnation() {
    let service = Service::start(&["--detection", "1s"]);
    let mut witness = service.node("numbers", &[]);
    let sleeper = service.node("numbers", &[]);
    witness.await_change(&sleeper.id, "joined");
    sleeper.running.signal(Signal::SIGSTOP);
    witness.await_change(&sleeper.id, "failed");
    sleeper.running.signal(Signal::SIGCONT);
    witness.await_change(&sleeper.id, "joined");
    let status = service.status();
    let nodes = status["nodes"].as_array().expect("a list");
    let back = nodes.iter().find(|node| node["node"] == sleeper.id.as_str());
    assert!(back.is_some_and(|it| it["incarnation"].as_u64() >= Some(1)), "{status:#}");
}
