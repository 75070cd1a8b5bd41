use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Instant;

use serde_json::Value;

use crate::process::{parsed, unheard};
use crate::{Net, Running, assert_says, noise};

#[test]
fn waiting_sender_reports_how_many_receivers_are_ready() {
    let net = Net::with_data(23_144, &noise(300_000, 11));
    let first = net.recv("a", &[]);
    let mut sender = net.send(&["--receivers", "2"]);
    let waiting = sender.wrote.wait_until("that one is ready", |line| {
        let it = parsed(line);
        it["event"] == "waiting" && it["ready"] == 1
    });
    let waiting = parsed(&waiting);
    let before = sender.wrote.seen.len();
    assert_eq!((&waiting["of"], &waiting["failed"]), (&2.into(), &0.into()));
    let second = net.recv("b", &[]);
    let sent = sender.ended_with(0);
    let rest: Vec<Value> = sent.wrote.seen[before..].iter().map(|line| parsed(line)).collect();
    let began = rest.iter().find(|it| it["event"] == "began").expect("it began");
    assert_eq!(began["receivers"], 2, "{began}");
    assert_eq!(rest.last().expect("a line")["event"], "summary");
    assert_says(&sent, "waiting: 1 of 2 ready, 0 failed");
    first.ended_with(0);
    second.ended_with(0);
}

#[test]
fn progress_counts_multicast_bytes_and_kept_data_is_reported() {
    let net = Net::with_data(23_146, &noise(24_000_000, 13));
    let receiver = net.recv("a", &[]);
    let began = Instant::now();
    let mut sender = net.send(&["--receivers", "1", "--rate", "8Mbit"]);
    let progress = sender.wrote.wait_until("progress", |line| {
        let it = parsed(line);
        it["event"] == "progress" && it["bytes"].as_u64() > Some(0)
    });
    let bytes = parsed(&progress)["bytes"].as_u64().expect("a number");
    // One megabyte per second, plus the initial burst. A slow machine needs longer.
    let most = began.elapsed().as_secs() * 1_000_000 + 2_000_000;
    assert!(bytes <= most, "{bytes} bytes were sent: expected at most {most}");
    sender.interrupt();
    let sent = sender.ended_with(130);
    let ended = sent.wrote.seen.last().expect("a line");
    assert!(ended.contains("interrupted"), "{ended}");
    assert_says(&sent, "they keep verified data");
    let received = receiver.ended_with(2);
    assert_says(&received, "the sender ended the transfer: the transfer was canceled");
    assert_says(&received, "it resumes from the kept data");
}

#[test]
fn transfer_continues_with_a_full_standard_error() {
    let net = Net::with_data(23_141, &noise(300_000, 8));
    let start = |args: &[&str]| Running::start(unheard(&net.command(args)));
    let receiver = start(&["recv", "--from", "g", "a", "--timeout", "50s"]);
    start(&["send", "data", "--to", "g", "--receivers", "1"]).ended_with(0);
    receiver.ended_with(0);
    assert_eq!(net.read("a/data"), net.read("data"));
}

#[test]
fn unsendable_entries_are_refused_or_skipped_by_name() {
    let net = Net::new(23_156);
    fs::create_dir(net.path("d")).expect("a directory");
    net.write("d/data", b"some");
    symlink("/etc/passwd", net.path("d/leaving")).expect("a symlink");
    let refused = net.start(&["send", "d", "--to", "g", "--start-after", "1s"]).ended_with(2);
    assert_says(&refused, "d/leaving");
    assert_says(&refused, "fix: remove them, or leave them out with --skip-unsendable");
    let receiver = net.recv("a", &[]);
    let args = ["send", "d", "--to", "g", "--receivers", "1", "--skip-unsendable"];
    let sent = net.start(&args).ended_with(0);
    receiver.ended_with(0);
    assert_says(&sent, "note: not sent: d/leaving (");
    assert_eq!(net.read("a/d/data"), b"some");
    assert!(!net.path("a/d/leaving").is_symlink(), "it should have been skipped");
}

#[test]
fn a_setuid_bit_is_not_sent_and_its_file_is_named() {
    let net = Net::new(23_157);
    net.write("program", b"some");
    fs::set_permissions(net.path("program"), Permissions::from_mode(0o4755))
        .expect("the test created it");
    let receiver = net.recv("a", &[]);
    let sent = net.start(&["send", "program", "--to", "g", "--receivers", "1"]).ended_with(0);
    receiver.ended_with(0);
    assert_says(&sent, "note: receivers do not set the setuid, setgid or sticky bit of program");
    let received = fs::metadata(net.path("a/program")).expect("the file exists");
    assert_eq!(received.permissions().mode() & 0o7777, 0o755);
}
