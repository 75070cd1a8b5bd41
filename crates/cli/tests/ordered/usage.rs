use std::time::{Duration, Instant};

use crate::Lan;

#[test]
fn wrong_use_is_a_cause_a_fix_and_code_2() {
    let lan = Lan::new("17451");
    let refused = |args: &[&str], cause: &str, fix: &str| lan.assert_refused(args, cause, fix);
    refused(&["sub", "x", "--quorum", "0"], "'0'", "majority, all");
    refused(&["sub", "x", "--ordered", "--rate-of-fire", "8,5"], "--rate-of-fire", "--help");
    refused(&["pub", "x", "--resilience", "0"], "'0'", "1 to 255");
    refused(&["pub", "x", "--order", "source", "--resilience", "2"], "--order source", "total");
    let halves = ["pub", "x", "--quorum", "2", "--resilience", "majority"];
    refused(&halves, "--resilience majority", "--quorum");
    refused(&["members", "--lock", "y"], "GROUP", "--help");
    refused(&["members", "--timeout", "1s"], "GROUP", "--help");
    refused(&["lock", "x", "y"], "COMMAND", "--help");
    refused(&["lock", "x", "y", "--", "/no/such/program"], "no such file", "after --");
}

#[test]
fn joiner_with_other_settings_is_shown_the_members_flags() {
    let lan = Lan::new("17452");
    let mut sub = lan.sub(&["--quorum", "all"]);
    // A node that only queries the ring does not need its settings.
    assert_eq!(lan.ring(&[])["needed"], 1);
    let fix = "--ordered --quorum all";
    lan.assert_refused(&["sub", "accounts", "--ordered"], "ordered (all members)", fix);
    lan.assert_refused(&["pub", "accounts"], "group 'accounts'", fix);
    lan.assert_refused(&["lock", "accounts", "nightly", "--", "true"], "group 'accounts'", fix);
    sub.stop();
}

#[test]
fn a_wait_for_a_ring_that_no_voter_is_in_ends_in_time() {
    let lan = Lan::new("17481");
    let lock = "lock accounts nightly --conflict-code 9 --quorum-of 3";
    let cases = [
        (format!("{lock} --try -- true"), 9),
        (format!("{lock} --timeout 300ms -- true"), 9),
        (format!("{lock} --timeout 5s -- true"), 9),
        ("pub accounts --quorum-of 3 --wait-timeout 5s".to_owned(), 2),
    ];
    let started = Instant::now();
    let waits = cases.map(|(command, code)| {
        let waits = lan.start(&command.split(' ').collect::<Vec<_>>());
        (waits, code)
    });
    for (mut waits, code) in waits {
        waits.end_saying("no ring of accounts admitted this node within", code);
        // Far above 5 s, because the machine may be busy, and below the test's own patience.
        let most = Duration::from_secs(30);
        assert!(started.elapsed() < most, "{:?}: {:?}", started.elapsed(), waits.said.seen);
    }
}

#[test]
fn a_promise_without_an_electorate_is_warned_of_in_one_line() {
    let lan = Lan::new("17478");
    let verbs = [
        (&["lock", "accounts", "nightly"][..], &["--", "true"][..], "others may hold this lock"),
        (&["serve", "accounts"], &["--", "cat"], "other servers may reply"),
        (&["pub", "accounts", "--wait-for", "0"], &["--resilience", "majority"], "a majority is"),
    ];
    for (verb, rest, what) in verbs {
        for (electorate, expected) in [(&[][..], 1), (&["--quorum-of", "1", "--voter"], 0)] {
            let mut member = lan.start(&[verb, electorate, rest].concat());
            if verb[0] == "serve" {
                member.said.wait_for("serving handler 0");
                member.interrupt();
            }
            member.end_with(0);
            let said = &member.said.seen;
            let warnings = said.iter().filter(|line| line.starts_with("warning: "));
            let warnings: Vec<&String> = warnings.collect();
            assert_eq!(warnings.len(), expected, "{said:#?}");
            let is_right = |line: &&String| line.contains(what) && line.contains("--quorum-of N");
            assert!(warnings.iter().all(is_right), "{said:#?}");
        }
    }
}
