use std::fs;

use serde_json::Value;

use crate::{Net, assert_says, noise, objects, summary};

fn with_conflict(port: u16) -> Net {
    let net = Net::with_data(port, &noise(300_000, u64::from(port)));
    fs::create_dir(net.path("a")).expect("a directory");
    net.write("a/data", b"precious");
    net
}

#[test]
fn receiver_with_existing_file_fails_and_the_others_finish() {
    let net = with_conflict(23_103);
    let (refusing, other) = (net.recv("a", &[]), net.recv("b", &[]));
    let sent = net.send(&["--start-after", "3s"]).ended_with(1);
    let refused = refusing.ended_with(2);
    assert_says(&refused, "'data' already exists");
    assert_says(&refused, "--overwrite");
    assert_eq!(net.read("a/data"), b"precious");
    other.ended_with(0);
    let summary = summary(&sent);
    let rows = summary["receivers"].as_array().expect("rows");
    let failed: Vec<&Value> = rows.iter().filter(|row| row["state"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{rows:?}");
    assert!(failed[0]["name"].as_str().expect("a name").starts_with('a'), "{failed:?}");
}

#[test]
fn failed_receiver_is_listed_beside_a_namesake_that_finishes() {
    let net = with_conflict(23_142);
    let recv =
        |dir: &str| net.start(&["recv", "--from", "g", dir, "--name", "same", "--timeout", "50s"]);
    let (refusing, other) = (recv("a"), recv("b"));
    let sent = net.send(&["--receivers", "2"]).ended_with(1);
    refusing.ended_with(2);
    other.ended_with(0);
    let summary = summary(&sent);
    let rows = summary["receivers"].as_array().expect("rows");
    let mut states: Vec<_> = rows.iter().filter_map(|row| row["state"].as_str()).collect();
    states.sort_unstable();
    assert_eq!(states, ["failed", "finished"]);
}

#[test]
fn sender_ends_and_names_receivers_that_all_fail_early() {
    let net = with_conflict(23_143);
    for when in [["--receivers", "1"], ["--start-after", "3s"]] {
        let refusing = net.recv("a", &[]);
        let sent = net.send(&when).ended_with(1);
        let summary = summary(&sent);
        assert_eq!(summary["receivers"][0]["name"], "a");
        assert_eq!(summary["receivers"][0]["state"], "failed");
        let refused = refusing.ended_with(2);
        let errors = objects(&refused, "error");
        assert!(errors.len() == 1, "{refused:?}");
        assert_eq!(errors[0]["cause"], "group 'g': 'data' already exists");
    }
}

#[test]
fn fix_for_a_directory_in_the_way_is_not_overwrite() {
    let net = Net::with_data(23_148, &noise(300_000, 14));
    fs::create_dir_all(net.path("a/data")).expect("a directory");
    let receiver = net.recv("a", &["--overwrite"]);
    net.send(&["--receivers", "1"]).ended_with(1);
    let refused = receiver.ended_with(2);
    assert_says(&refused, "fix: move it away, or use another directory");
}

/// Pieces of two versions are useless, so the fix must not promise that the transfer continues.
#[test]
fn receivers_of_a_changed_source_keep_nothing_and_report_it() {
    let net = Net::with_data(23_157, &noise(300_000, 15));
    let sender = net.send(&["--receivers", "2"]);
    let first = net.recv("a", &[]);
    // The first receiver has the list of pieces, and the stream waits for the second one.
    net.await_folder("a", |it| fs::read_dir(it).is_ok_and(|mut all| all.next().is_some()));
    net.write("data", &noise(300_000, 16));
    let second = net.recv("b", &[]);
    sender.ended_with(2);
    for (name, receiver) in [("a", first), ("b", second)] {
        let ended = receiver.ended_with(2);
        let [error] = &objects(&ended, "error")[..] else { panic!("{ended:?}") };
        let cause = "group 'g': the sender ended the transfer: 'data' has changed since the \
                     transfer began; the received pieces were removed";
        assert_eq!(error["cause"], cause);
        assert_eq!(error["fix"], "start `carom recv` again for another transfer");
        assert_says(&ended, "start `carom recv` again for another transfer");
        let left: Vec<_> = fs::read_dir(net.path(name)).expect("a directory").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
