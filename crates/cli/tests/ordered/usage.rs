//! What is refused, and what is said then.

use crate::Lan;

#[test]
fn wrong_use_is_a_cause_a_fix_and_code_2() {
    let lan = Lan::new("17451");
    let refused = |args: &[&str], cause: &str, fix: &str| lan.assert_refused(args, cause, fix);
    refused(&["sub", "x", "--partition", "0"], "'0'", "majority, all");
    refused(&["sub", "x", "--ordered", "--rate-of-fire", "8,5"], "--rate-of-fire", "--help");
    refused(&["pub", "x", "--resilience", "0"], "'0'", "1 to 255");
    refused(&["pub", "x", "--order", "source", "--resilience", "2"], "--order source", "total");
    let halves = ["pub", "x", "--partition", "2", "--resilience", "majority"];
    refused(&halves, "a minority goes on", "--partition");
    refused(&["members", "--lock", "y"], "GROUP", "--help");
    refused(&["members", "--timeout", "1s"], "GROUP", "--help");
    refused(&["lock", "x", "y"], "COMMAND", "--help");
    refused(&["lock", "x", "y", "--", "/no/such/program"], "no such file", "after --");
}

#[test]
fn who_joins_otherwise_than_the_members_is_told_with_which_flags_they_did() {
    let lan = Lan::new("17452");
    let mut sub = lan.sub(&["--partition", "all"]);
    // Who only looks need not know.
    assert_eq!(lan.ring(&[])["needed"], 1);
    let fix = "--ordered --partition all";
    lan.assert_refused(&["sub", "accounts", "--ordered"], "all or none go on", fix);
    lan.assert_refused(&["pub", "accounts"], "group accounts", fix);
    lan.assert_refused(&["lock", "accounts", "nightly", "--", "true"], "group accounts", fix);
    sub.interrupt();
    sub.end_with(0);
}
