//! Tests hosts that start separately: with an electorate, none of them orders or locks alone.

use crate::MTU;
use crate::lab::{Cut, Host, RunCarom as _, Running, build_lab};

const QUORUM: [&str; 2] = ["--quorum-of", "3"];

fn start(host: &Host, args: &[&str]) -> Running {
    host.start(&[args, &QUORUM].concat())
}

fn lock(host: &Host) -> Running {
    let args = ["lock", "sr", "L"];
    let rest = ["--timeout", "2s", "--", "echo", "locked"];
    host.start(&[&args[..], &QUORUM, &rest].concat())
}

#[test]
fn machines_started_apart_order_and_lock_only_after_meeting() {
    let Some(lab) = build_lab(2, MTU) else { return };
    lab.cut(&Cut::Cable(2)).expect("the host exists");
    let mut subs: Vec<Running> =
        lab.hosts().iter().map(|host| start(host, &["sub", "sr"])).collect();
    for sub in &mut subs {
        sub.said.wait_for("waiting for quorum: 1 of 2");
    }
    let mut locks: Vec<Running> = lab.hosts().iter().map(lock).collect();
    let publish = ["pub", "sr", "--resilience", "majority", "--linger", "50s"];
    let mut publishers: Vec<Running> = (1..=2)
        .map(|number| {
            let line = std::iter::once(format!("from {number}"));
            lab.host(number).pipe(line, &[&publish[..], &QUORUM].concat())
        })
        .collect();
    for lock in &mut locks {
        lock.end_with(1);
        assert!(lock.wrote.seen.is_empty(), "both sides ran the command");
    }
    lab.heal(&Cut::Cable(2)).expect("the host exists");
    for publisher in &mut publishers {
        publisher.end_with(0);
    }
    let order: Vec<Vec<String>> = subs
        .iter_mut()
        .map(|sub| {
            let first = sub.wrote.wait_for("from");
            vec![first, sub.wrote.wait_for("from")]
        })
        .collect();
    assert_eq!(order[0], order[1]);
    let mut locks: Vec<Running> = lab.hosts().iter().map(lock).collect();
    for lock in &mut locks {
        lock.end_with(0);
        assert_eq!(lock.wrote.seen, ["locked"]);
    }
    subs.iter_mut().for_each(Running::stop);
}

#[test]
fn a_lost_majority_is_forced_by_naming_it() {
    let Some(lab) = build_lab(3, MTU) else { return };
    let mut subs: Vec<Running> =
        lab.hosts().iter().map(|host| start(host, &["sub", "sr"])).collect();
    for sub in &mut subs {
        sub.said.wait_for("3 members now");
    }
    subs[1].kill();
    subs[2].kill();
    subs[0].said.wait_for("waiting for quorum: 1 of 2");
    // The membership needs some seconds to detect the dead members.
    let is_known = |report: &serde_json::Value| report["lost"].as_array().map(Vec::len) == Some(2);
    let report = (0..30).find_map(|_| {
        let shown = lab.host(1).start(&["ring", "force-quorum", "sr", "--json"]).ended_with(1);
        Some(shown.json()).filter(is_known)
    });
    let report = report.expect("the two killed voters are detected");
    let view = report["view"].as_str().expect("it is named");
    let lost: Vec<&str> =
        report["lost"].as_array().into_iter().flatten().filter_map(|it| it.as_str()).collect();
    let force = ["ring", "force-quorum", "sr", "--view", view, "--yes", "--timeout", "3s"];
    let wrong = lab.host(1).start(&[&force[..], &["--lost", lost[0]]].concat()).ended_with(2);
    let right =
        lab.host(1).start(&[&force[..], &["--lost", &lost.join(",")]].concat()).ended_with(0);
    let warning = "warning: forcing the quorum of sr: if a lost voter still works elsewhere, order \
                   and locks are split";
    for forced in [&wrong, &right] {
        let is_warned = forced.said.seen.iter().any(|line| line.starts_with(warning));
        assert!(is_warned, "{:#?}", forced.said.seen);
    }
    subs[0].said.wait_for("an operator has forced the quorum");
    let line = std::iter::once("alone".to_owned());
    let mut publisher =
        lab.host(1).pipe(line, &[&["pub", "sr", "--order", "total"], &QUORUM[..]].concat());
    publisher.end_with(0);
    subs[0].wrote.wait_for("alone");
}
