use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tempfile::TempDir;

use crate::lab::{Cut, Host, RunCarom as _, Running, build_lab, parsed};
use crate::{MTU, assert_wrote, lines_until_enough, number, read_to_the_last, subscribe};

#[test]
fn traffic_continues_while_the_service_is_cut_off() {
    let Some(lab) = build_lab(3, MTU) else { return };
    let [serving, receiver, sender] = lab.hosts() else { panic!("there are three") };
    let (_service, _folder) = serve(serving, &[]);
    let flags = ["--registry", &serving.address().to_string(), "--path", "unicast"];
    let args = [&["sub", "numbers", "--loss", "5%"], &flags[..]].concat();
    let mut sub = receiver.start(&args);
    sub.said.wait_for("joined numbers");
    let (lines, is_enough) = lines_until_enough();
    let args = [&["pub", "numbers", "--rate", "1000/s", "--json"], &flags[..]].concat();
    let mut publisher = sender.pipe(lines, &args);
    sub.wrote.wait_until("some hundred", |line| number(line) >= 500);
    lab.cut(&Cut::Cable(serving.number())).expect("the host exists");
    // By then, the leases have expired as well.
    sub.said.wait_for("the registry is unreachable");
    publisher.said.wait_for("the registry is unreachable");
    let last = sub.wrote.seen.iter().map(|line| number(line)).max().unwrap_or_default();
    sub.wrote.wait_until("more meanwhile", |line| number(line) >= last + 2_000);
    lab.heal(&Cut::Cable(serving.number())).expect("the host exists");
    sub.said.wait_for("the registry is reachable again");
    publisher.said.wait_for("the registry is reachable again");
    is_enough.store(true, Ordering::SeqCst);
    publisher.end_with(0);
    let report = publisher.json();
    assert_eq!((&report["safe"], &report["members"]), (&true.into(), &1.into()), "{report}");
    let said = &publisher.said.seen;
    assert!(!said.iter().any(|line| line.contains("failed")), "{said:#?}");
    let count = report["messages"].as_u64().expect("it is a count");
    assert_eq!(read_to_the_last(&mut sub, count), 1);
    sub.interrupt();
    assert_wrote(&mut sub, 1, count);
}

#[test]
fn partial_views_repair_losses_and_are_refreshed() {
    let Some(lab) = build_lab(9, MTU) else { return };
    let [serving, receivers @ .., sender] = lab.hosts() else { panic!("there are nine") };
    let (_service, _folder) = serve(serving, &["--view-size", "5"]);
    let flags = ["--registry", &serving.address().to_string()];
    let mut witness = serving.start(&[&["sub", "numbers", "--json"], &flags[..]].concat());
    witness.said.wait_for("joined numbers");
    let mut subs = subscribe(receivers, &[&["--json", "--loss", "5%"], &flags[..]].concat());
    // A member that is not in the publisher's view detects a loss by the messages after it.
    let (lines, is_enough) = lines_until_enough();
    let args = [&["pub", "numbers", "--rate", "1000/s", "--wait-for", "5"], &flags[..]].concat();
    let mut publisher = sender.pipe(lines, &args);
    let (mut repaired, mut lost) = (0, 0);
    for sub in &mut subs {
        let (by_sub, not_by_sub) = read_or_lost(sub, 2000);
        (repaired, lost) = (repaired + by_sub, lost + not_by_sub);
    }
    is_enough.store(true, Ordering::SeqCst);
    // A member that does not have the publisher in its view cannot confirm its messages.
    publisher.end();
    for sub in &mut subs {
        sub.interrupt();
        sub.end();
    }
    // Packets that no repair recovered were requested from the publisher, even if it was not in the
    // view.
    assert!(lost == 0 && repaired > 300, "{repaired} repaired, {lost} lost");
    witness.stop();
    assert_partial(&witness.wrote.seen, 5);
}

fn serve(host: &Host, more: &[&str]) -> (Running, TempDir) {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = folder.path().to_str().expect("a UTF-8 path");
    let mut service = host.start(&[&["registry", "--store", store, "--no-http"], more].concat());
    service.said.wait_for(&format!("serving at {}:7402", host.address()));
    (service, folder)
}

/// Returns the number of repaired or retransmitted messages, and the number of lost ones.
fn read_or_lost(sub: &mut Running, last: u64) -> (u64, u64) {
    let (mut settled, mut repaired, mut lost) = (BTreeSet::new(), 0, 0);
    // A stream can begin at any sequence number. The lines begin with 1, and each takes one number.
    let mut begin = None;
    sub.wrote.wait_until("every message, or a report of its loss", |line| {
        let event = parsed(line);
        let seqno = |field: &str| event[field].as_u64().expect("it is a number");
        match event["event"].as_str() {
            Some("message") => {
                assert!(settled.insert(seqno("seqno")), "it arrived twice: {event}");
                let line = event["payload"].as_str().expect("it is text");
                begin = Some(seqno("seqno") + 1 - number(line));
                repaired += u64::from(event["how"] != "direct");
            }
            Some("lost") => {
                settled.extend(seqno("first")..=seqno("last"));
                lost += 1 + seqno("last") - seqno("first");
            }
            _ => {}
        }
        // If the first messages are lost, the stream begins with the next one: only the publisher
        // could report them, and it does not know the members that are not in its view.
        let (Some(begin), Some(first)) = (begin, settled.first().copied()) else { return false };
        let end = begin + last;
        settled.range(first..end.max(first)).count() as u64 == end.saturating_sub(first)
    });
    let (first, begin) = (settled.first().copied(), begin.expect("a message arrived"));
    assert!(first < Some(begin + 99), "it began with {first:?}, not near {begin}");
    (repaired, lost)
}

fn assert_partial(events: &[String], size: usize) {
    let mut shown = BTreeSet::new();
    let mut all = BTreeSet::new();
    for event in events.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(node) = event["node"].as_str().map(str::to_owned) else { continue };
        match event["change"].as_str() {
            Some("joined") => assert!(all.insert(node.clone()) | shown.insert(node), "{event}"),
            _ => assert!(shown.remove(&node), "{event}"),
        }
        assert!(shown.len() <= size, "{shown:?}");
    }
    assert!(all.len() > size, "no member replaced the departed ones: {all:?}");
}
