use std::process::Command;

use crate::process::{Running, carom};

/// Returns a command whose flags follow the subcommand of a subcommand.
fn bench(port: &str, args: &[&str]) -> Command {
    let own = ["--interface", "127.0.0.1", "--port", "0", "--multicast-port", port];
    carom(&[&["bench"], args, &own].concat())
}

#[test]
fn bench_measures_every_receiver_by_their_one_clock() {
    let port = "17425";
    let start = || {
        let mut serve = Running::start(bench(port, &["serve"]));
        serve.said.wait_for("joined bench");
        serve
    };
    let mut serves = [start(), start()];
    let args = ["--rate", "500", "--messages", "200", "--wait-for", "2", "--json", "--histogram"];
    let sender = Running::start(bench(port, &args)).ended_with(0);
    let report = sender.json();
    let run = &report["runs"][0];
    assert_eq!((&run["messages"], &run["rate"]), (&200.into(), &500.0.into()), "{report}");
    let receivers = run["receivers"].as_array().expect("it is a list");
    assert_eq!(receivers.len(), 2, "{report}");
    for receiver in receivers {
        let counts = [&receiver["delivered"], &receiver["missing"], &receiver["duplicates"]];
        assert_eq!(counts, [200, 0, 0], "{receiver}");
        assert_eq!(receiver["method"], "one clock", "{receiver}");
        let latency = &receiver["latency_ms"];
        assert_eq!(latency["count"], 200, "{receiver}");
        assert!(latency["p50"].as_f64() > Some(0.0), "{receiver}");
        let histogram = receiver["histogram"].as_array().expect("it is a list");
        let sum: u64 = histogram.iter().filter_map(|bucket| bucket[1].as_u64()).sum();
        assert_eq!(sum, 200, "{receiver}");
    }
    serves.iter_mut().for_each(Running::stop);
}

#[test]
fn bench_without_receivers_is_refused_with_a_fix() {
    let alone = Running::start(bench("17426", &["--wait-timeout", "600ms"]));
    alone.assert_refused("0 of 1 receiver joined bench in time", "carom bench serve");
}

#[test]
fn bench_with_another_profile_is_refused_with_a_fix() {
    let port = "17427";
    let mut serve = Running::start(bench(port, &["serve"]));
    serve.said.wait_for("joined bench");
    let other = Running::start(bench(port, &["--profile", "bulk"]));
    other.assert_refused("bench", "--profile");
    serve.stop();
}

#[test]
fn bench_that_is_interrupted_reports_what_it_has() {
    let port = "17428";
    let mut serve = Running::start(bench(port, &["serve"]));
    serve.said.wait_for("joined bench");
    let mut sender = Running::start(bench(port, &["--rate", "100", "--messages", "9000"]));
    sender.said.wait_for("sent");
    sender.interrupt();
    sender.end_with(130);
    serve.stop();
}
