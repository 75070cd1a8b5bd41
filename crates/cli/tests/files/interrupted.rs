use std::thread;
use std::time::Duration;

use crate::{Net, Running, assert_says, has_journal, noise, objects, summary};

#[test]
fn killed_sender_and_receiver_resume_where_they_stopped() {
    let net = Net::new(23_104);
    let big = noise(24_000_000, 3);
    net.write("big.bin", &big);
    let receivers = ["a", "b"].map(|name| net.recv(name, &[]));
    let args = ["send", "big.bin", "--to", "g", "--receivers", "2", "--rate", "60Mbit"];
    let mut sender = net.start(&args);
    net.await_pieces("a");
    net.await_pieces("b");
    sender.kill();
    let [mut first, second] = receivers;
    first.kill();
    let first = net.recv("a", &[]);
    let sent = net.start(&["send", "big.bin", "--to", "g", "--receivers", "2"]).ended_with(0);
    for (name, receiver) in [("a", first), ("b", second)] {
        receiver.ended_with(0);
        assert!(net.read(&format!("{name}/big.bin")) == big, "{name} has other bytes");
    }
    let summary = summary(&sent);
    for row in summary["receivers"].as_array().expect("rows") {
        assert!(row["resumed_bytes"].as_u64().expect("a number") > 0, "{row}");
    }
}

#[test]
fn ctrl_c_ends_a_waiting_receiver_and_an_unheard_sender() {
    let net = Net::with_data(23_107, b"1");
    for args in
        [&["recv", "--from", "g", "a"][..], &["send", "data", "--to", "g", "--receivers", "2"]]
    {
        let running = net.start(args);
        thread::sleep(Duration::from_secs(1));
        running.interrupt();
        running.ended_with(130);
    }
}

#[test]
fn ctrl_c_ends_a_sender_that_reads_its_sources() {
    let net = Net::new(23_158);
    let mut running = Running::start_piped(net.command(&["send", "-", "--to", "g"]));
    // The input stays open.
    let _stdin = running.stdin();
    thread::sleep(Duration::from_secs(1));
    running.interrupt();
    let ended = running.ended_with(130);
    assert_says(&ended, "interrupted before anything was sent");
    assert_eq!(objects(&ended, "interrupted").len(), 1);
}

#[test]
fn interrupted_receiver_reports_kept_data_and_how_to_resume() {
    let net = Net::with_data(23_149, &noise(24_000_000, 15));
    let receiver = net.recv("a", &[]);
    let _sender = net.send(&["--receivers", "1", "--rate", "8Mbit", "--patience", "1s"]);
    net.await_pieces("a");
    receiver.interrupt();
    let ended = receiver.ended_with(130);
    assert_says(&ended, "verified data is kept in a, and the same command resumes the transfer");
    assert_eq!(objects(&ended, "interrupted").len(), 1);
    assert!(has_journal(&net.path("a")), "it is kept");
}
