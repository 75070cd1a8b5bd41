//! Help, completions, and rejected command lines.

use std::io::Write as _;
use std::process::{Output, Stdio};

use crate::running::{Running, alone, run, run_with};

#[test]
fn every_help_has_an_example() {
    for verb in ["demo", "pub", "sub", "lock", "serve", "call", "doctor", "members", "completions"]
    {
        let output = run(&[verb, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{verb}");
        assert!(text.contains("Example") && text.contains(&format!("carom {verb}")), "{text}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("rate-of-fire"), "{shell}");
    }
}

/// Asserts that the error consists of a cause that contains `cause` and a fix, with code 2.
fn assert_refused(output: &Output, cause: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    let error = text.find("error: ").unwrap_or_else(|| panic!("no error in {text}"));
    let lines: Vec<&str> = text[error..].lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains(cause), "{text}");
    assert!(lines[1].starts_with("fix: ") && lines[1].len() > 10, "{text}");
    assert_eq!(output.status.code(), Some(2), "{text}");
}

#[test]
fn wrong_use_is_a_cause_a_fix_and_code_2() {
    assert_refused(&run(&[]), "subcommand");
    assert_refused(&run(&["pub"]), "GROUP");
    assert_refused(&run(&["demo", "--rate", "-5/s"]), "-5/s");
    assert_refused(&run(&["pub", "x", "--rate", "-5/s"]), "-5/s");
    assert_refused(&run(&["sub", "x", "--loss", "-5%"]), "-5%");
    assert_refused(&run(&["sub", "x", "--loss", "5"]), "5");
    assert_refused(&run(&["sub", "x", "--rate-of-fire", "99,5"]), "99");
    assert_refused(&run(&["pub", "x", "--linger", "10"]), "unit");
    assert_refused(&run(&["demo", "--nodes", "1"]), "--nodes");
    assert_refused(&run(&["demo", "--payload", "17MiB", "--nodes", "2"]), "17825792");
    assert_refused(&run(&["sub", "x", "--path", "pigeon"]), "pigeon");
    for verb in [&["sub", "x"][..], &["pub", "x"], &["demo"], &["doctor"], &["members"]] {
        let args = [verb, &["--interface", "nosuch0"]].concat();
        assert_refused(&run(&args), "nosuch0");
    }
    assert_refused(&run(&["doctor", "no.such.host.invalid"]), "no.such.host.invalid");
}

#[test]
fn a_seed_that_does_not_answer_is_refused() {
    // The port belongs to this test, and does not answer.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let seed = silent.local_addr().expect("it is bound").to_string();
    for verb in [&["sub", "x"][..], &["pub", "x"], &["members"]] {
        let output = run_with(&[verb, &["--seed", &seed]].concat(), &alone(17_411));
        assert_refused(&output, &seed);
    }
}

#[test]
fn a_seed_of_another_multicast_port_is_refused_with_this_ones() {
    let mut sub = Running::start(&["sub", "x"], &alone(17_421), Stdio::null());
    let joined = sub.await_line("joined");
    let seed = joined.split([' ', ',']).find(|word| word.starts_with("127.0.0.1:"));
    let args = ["sub", "x", "--seed", seed.expect("it says where it is")];
    let output = run_with(&args, &alone(17_422));
    assert_refused(&output, "did not answer");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("with the same --multicast-port 17422"), "{text}");
}

#[test]
fn no_error_has_the_number_of_the_system() {
    let taken = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = folder.path().to_str().expect("it has a plain name");
    let registry = ["registry", "--no-http", "--listen", "127.0.0.1:0"];
    let here = ["--interface", "127.0.0.1", "--multicast-port", "17423"];
    let missing = "no/such/file";
    let cases: [(Vec<&str>, &str); 8] = [
        (
            [&["send", "Cargo.toml", "--to", "g", "--topology", missing], &here[..]].concat(),
            missing,
        ),
        ([&["send", missing, "--to", "g"], &here[..]].concat(), missing),
        ([&["recv", "--from", "g", "/proc/carom"], &here[..]].concat(), "/proc"),
        ([&registry[..], &["--store", "/proc/carom"]].concat(), "/proc/carom"),
        ([&registry[..], &["--store", store, "--topology", missing]].concat(), missing),
        (vec!["sub", "x", "--port", &port], &port),
        (vec!["doctor", "--listen", "--port", &port], &port),
        ([&["lock", "g", "l", "--", "/no/such/program"], &here[..]].concat(), "/no/such/program"),
    ];
    for (args, cause) in cases {
        let output = run(&args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("error: ") && text.contains(cause), "{args:?}: {text}");
        assert!(!text.contains("(os error"), "{args:?}: {text}");
    }
}

#[test]
fn a_group_named_like_a_pattern_is_taken_literally_and_says_so() {
    let mut sub = Running::start(&["sub", "prices.*"], &alone(17_424), Stdio::null());
    let note = sub.await_line("no wildcards");
    assert!(note.starts_with("note: ") && note.contains("prices.*"), "{note}");
    sub.await_line("joined prices.*");
    sub.interrupt();
    assert!(sub.end().success());
}

#[test]
fn every_verb_says_that_a_group_has_no_wildcards() {
    let verbs: [&[&str]; 7] = [
        &["pub", "prices.*"],
        &["sub", "prices.*"],
        &["send", "Cargo.toml", "--to", "prices.*"],
        &["recv", "--from", "prices.*", "."],
        &["lock", "prices.*", "l", "--", "true"],
        &["serve", "prices.*", "--", "cat"],
        &["call", "prices.*"],
    ];
    for verb in verbs {
        // The note comes before any error, such as that of a missing interface.
        let place = verb.iter().position(|arg| *arg == "--").unwrap_or(verb.len());
        let (flags, rest) = verb.split_at(place);
        let output = run(&[flags, &["--interface", "nosuch0"], rest].concat());
        assert_refused(&output, "nosuch0");
        let text = String::from_utf8_lossy(&output.stderr);
        let notes = text.lines().filter(|line| line.starts_with("note: group names have no"));
        assert_eq!(notes.count(), 1, "{verb:?}: {text}");
    }
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let taken = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    for verb in [&["sub", "x"][..], &["pub", "x"], &["members"], &["doctor", "--listen"]] {
        assert_refused(&run(&[verb, &["--port", &port]].concat()), &port);
    }
}

#[test]
fn a_group_with_another_r_is_refused() {
    let ports = alone(17_412);
    let mut sub = Running::start(&["sub", "fire"], &ports, Stdio::null());
    sub.await_line("joined");
    let output = run_with(&["sub", "fire", "--rate-of-fire", "4,3"], &ports);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("(8,5)") && text.contains("(4,3)"), "{text}");
    assert_refused(&output, "fire");
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_line_too_long_is_refused_and_the_lines_before_it_arrive() {
    let ports = alone(17_413);
    let mut sub = Running::start(&["sub", "long", "--count", "2"], &ports, Stdio::null());
    let received = sub.stdout();
    sub.await_line("joined");
    let mut publisher = Running::start(&["pub", "long"], &ports, Stdio::piped());
    let mut stdin = publisher.child.stdin.take().expect("it is piped");
    let text = format!("one\ntwo\n{}\nnever\n", "x".repeat(17_000_000));
    stdin.write_all(text.as_bytes()).expect("carom reads its input");
    drop(stdin);
    let error = publisher.await_line("error: ");
    assert!(error.contains("line 3") && error.contains("17000000 bytes"), "{error}");
    let fix = publisher.await_line("fix: ");
    assert!(fix.contains("split it, for example with `fold -b`"), "{fix}");
    assert_eq!(publisher.end().code(), Some(2));
    assert!(sub.end().success(), "{:#?}", sub.seen);
    let received = received.join().expect("the reader does not panic");
    assert_eq!(sorted(&received), ["one", "two"]);
}
