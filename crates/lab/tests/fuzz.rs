//! Tests `carom-lab sim fuzz` from the user's view.

use std::process::{Command, Output};

use serde_json::Value;

fn fuzz(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-lab"));
    command.args(["sim", "fuzz"]).args(args).output().expect("the command runs")
}

fn report(args: &[&str]) -> Value {
    let output = fuzz(args);
    let report = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(output.status.success(), "{report:#}");
    report
}

#[test]
fn fuzz_finds_nothing_and_ignores_the_number_of_jobs() {
    for (protocol, seeds) in [
        ("lateral", "60"),
        ("rmp", "32"),
        ("rdcm", "32"),
        ("srm", "16"),
        ("bimodal", "16"),
        ("fec", "16"),
        ("ack", "16"),
        ("rmtp", "16"),
        ("lbrm", "16"),
        ("tmtp", "16"),
    ] {
        let args = ["--protocol", protocol, "--seeds", seeds, "--json", "--jobs"];
        let one = report(&[&args[..], &["1"]].concat());
        let two = report(&[&args[..], &["3"]].concat());
        assert_eq!(one["seeds"].to_string(), seeds);
        assert_eq!((&one["history"], &one["steps"]), (&two["history"], &two["steps"]));
        assert_eq!(one["failures"], Value::Array(Vec::new()));
    }
}

#[test]
fn wrong_use_is_refused_with_a_fix() {
    for (args, cause, fix) in [
        (&["--protocol", "smoke"][..], "unknown protocol 'smoke'", "use one of lateral, rmp"),
        (&["--seeds", "0"], "'0'", "use a whole number from 1"),
        (&["--from", "18446744073709551615"], "exceeds 64 bits", "smaller --from"),
        (&["--seeds", "1", "--trace", "/nowhere/x.pcapng"], "--trace /nowhere", "a writable file"),
    ] {
        let output = fuzz(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(cause) && text.contains(fix), "{text}");
    }
}

#[test]
fn sim_without_a_verb_lists_its_verbs() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_carom-lab")).arg("sim").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("carom-lab sim fuzz"), "{text}");
}

#[test]
fn a_trace_of_a_seed_is_a_pcapng_file() {
    let path = std::env::temp_dir().join(format!("carom-fuzz-{}.pcapng", std::process::id()));
    let path_text = path.to_str().expect("plain characters");
    report(&["--seeds", "1", "--from", "7", "--json", "--trace", path_text]);
    let bytes = std::fs::read(&path).expect("it was written");
    std::fs::remove_file(&path).expect("the test created it");
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section header");
    assert!(bytes.len() > 10_000, "{} bytes", bytes.len());
}
