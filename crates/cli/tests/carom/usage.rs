use crate::lan::Lan;
use crate::process::{run, start};

#[test]
fn every_help_has_an_example() {
    for verb in
        ["demo", "pub", "sub", "lock", "serve", "call", "bench", "doctor", "members", "completions"]
    {
        let text = run(&[verb, "--help"], 0).wrote.seen.join("\n");
        assert!(text.contains("Example") && text.contains(&format!("carom {verb}")), "{text}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell], 0).wrote.seen.join("\n");
        assert!(script.contains("rate-of-fire"), "{shell}");
    }
}

fn assert_refused(args: &[&str], cause: &str) -> String {
    start(args).assert_refused(cause, "").join("\n")
}

#[test]
fn wrong_use_is_a_cause_a_fix_and_code_2() {
    assert_refused(&[], "subcommand");
    assert_refused(&["pub"], "GROUP");
    assert_refused(&["demo", "--rate", "-5/s"], "-5/s");
    assert_refused(&["pub", "x", "--rate", "-5/s"], "-5/s");
    assert_refused(&["sub", "x", "--loss", "-5%"], "-5%");
    assert_refused(&["sub", "x", "--loss", "5"], "5");
    assert_refused(&["sub", "x", "--rate-of-fire", "99,5"], "99");
    assert_refused(&["pub", "x", "--linger", "10"], "unit");
    assert_refused(&["demo", "--nodes", "1"], "--nodes");
    assert_refused(&["demo", "--payload", "17MiB", "--nodes", "2"], "17825792");
    assert_refused(&["sub", "x", "--path", "pigeon"], "pigeon");
    for verb in [&["sub", "x"][..], &["pub", "x"], &["demo"], &["doctor"], &["members"]] {
        let args = [verb, &["--interface", "nosuch0"]].concat();
        assert_refused(&args, "nosuch0");
    }
    assert_refused(&["bench", "--size", "31"], "--size 31");
    assert_refused(&["doctor", "no.such.host.invalid"], "no.such.host.invalid");
}

#[test]
fn a_seed_that_does_not_answer_is_refused() {
    // The port belongs to this test, and does not answer.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let seed = silent.local_addr().expect("it is bound").to_string();
    for verb in [&["sub", "x"][..], &["pub", "x"], &["members"]] {
        let args = [verb, &["--seed", &seed]].concat();
        Lan::new("17411").start(&args).assert_refused(&seed, "");
    }
}

#[test]
fn a_seed_of_another_multicast_port_is_refused_with_this_ones() {
    let mut sub = Lan::new("17421").start(&["sub", "x"]);
    let joined = sub.said.wait_for("joined");
    let seed = joined.split([' ', ',']).find(|word| word.starts_with("127.0.0.1:"));
    let args = ["sub", "x", "--seed", seed.expect("it reports its address")];
    let fix = "with the same --multicast-port 17422";
    Lan::new("17422").start(&args).assert_refused("did not answer", fix);
}

#[test]
fn no_error_has_the_number_of_the_system() {
    let taken = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = folder.path().to_str().expect("a UTF-8 path");
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
        let text = start(&args).ended().said.seen.join("\n");
        assert!(text.contains("error: ") && text.contains(cause), "{args:?}: {text}");
        assert!(!text.contains("(os error"), "{args:?}: {text}");
    }
}

#[test]
fn a_group_named_like_a_pattern_is_taken_literally_and_says_so() {
    let mut sub = Lan::new("17424").start(&["sub", "prices.*"]);
    let note = sub.said.wait_for("no wildcards");
    assert!(note.starts_with("note: ") && note.contains("prices.*"), "{note}");
    sub.said.wait_for("joined prices.*");
    sub.stop();
}

#[test]
fn every_verb_says_that_a_group_has_no_wildcards() {
    let verbs: [&[&str]; 8] = [
        &["pub", "prices.*"],
        &["sub", "prices.*"],
        &["send", "Cargo.toml", "--to", "prices.*"],
        &["recv", "--from", "prices.*", "."],
        &["lock", "prices.*", "l", "--", "true"],
        &["serve", "prices.*", "--", "cat"],
        &["call", "prices.*"],
        &["bench", "prices.*"],
    ];
    for verb in verbs {
        // The note comes before any error, such as that of a missing interface.
        let place = verb.iter().position(|arg| *arg == "--").unwrap_or(verb.len());
        let (flags, rest) = verb.split_at(place);
        let args = [flags, &["--interface", "nosuch0"], rest].concat();
        let text = assert_refused(&args, "nosuch0");
        let notes = text.lines().filter(|line| line.starts_with("note: group names have no"));
        assert_eq!(notes.count(), 1, "{verb:?}: {text}");
    }
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let taken = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    for verb in [&["sub", "x"][..], &["pub", "x"], &["members"], &["doctor", "--listen"]] {
        assert_refused(&[verb, &["--port", &port]].concat(), &port);
    }
}

#[test]
fn a_group_with_another_r_is_refused() {
    let lan = Lan::new("17412");
    let mut sub = lan.start(&["sub", "fire"]);
    sub.said.wait_for("joined");
    let other = lan.start(&["sub", "fire", "--rate-of-fire", "4,3"]);
    let text = other.assert_refused("fire", "").join("\n");
    assert!(text.contains("(8,5)") && text.contains("(4,3)"), "{text}");
}

#[test]
fn a_line_too_long_is_refused_and_the_lines_before_it_arrive() {
    let lan = Lan::new("17413");
    let mut sub = lan.start(&["sub", "long", "--count", "2"]);
    sub.said.wait_for("joined");
    let mut publisher = lan.start_piped(&["pub", "long"]);
    let lines = ["one".to_owned(), "two".to_owned(), "x".repeat(17_000_000), "never".to_owned()];
    publisher.feed(lines.into_iter());
    let error = publisher.said.wait_for("error: ");
    assert!(error.contains("line 3") && error.contains("17000000 bytes"), "{error}");
    let fix = publisher.said.wait_for("fix: ");
    assert!(fix.contains("split it, for example with `fold -b`"), "{fix}");
    publisher.end_with(2);
    sub.end_with(0);
    sub.wrote.seen.sort_unstable();
    assert_eq!(sub.wrote.seen, ["one", "two"]);
}
