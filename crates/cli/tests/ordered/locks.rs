use std::process::ChildStdin;

use nix::sys::signal::Signal;

use crate::process::Running;
use crate::{Lan, output};

/// Command that prints its fence, and runs until its standard input ends.
const HOLD: &str = "echo held $CAROM_FENCE; exec cat";

/// Starts a command that holds the lock until the returned standard input is dropped.
fn hold(lan: &Lan, flags: &[&str]) -> (Running, ChildStdin, u64) {
    let args = [&["lock", "accounts", "nightly"], flags, &["--", "sh", "-c", HOLD]].concat();
    let mut holder = lan.start_piped(&args);
    let stdin = holder.stdin();
    let fence = fence(&holder.wrote.wait_for("held "));
    (holder, stdin, fence)
}

fn fence(line: &str) -> u64 {
    let number = line.strip_prefix("held ").unwrap_or_else(|| panic!("no fence in {line:?}"));
    number.parse().unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

#[test]
fn the_command_knows_its_lock_and_its_exit_code_is_passed_on() {
    let lan = Lan::new("17461");
    let command = "echo $CAROM_GROUP $CAROM_LOCK $CAROM_FENCE; exit 7";
    let wrote = output(lan.start(&["lock", "accounts", "nightly", "--", "sh", "-c", command]), 7);
    let fence = wrote[0].strip_prefix("accounts nightly ").expect("it has its names");
    assert!(fence.parse::<u64>().is_ok(), "{fence}");
    let killed = lan.start(&["lock", "accounts", "nightly", "--", "sh", "-c", "kill -9 $$"]);
    output(killed, 137);
}

#[test]
fn a_lock_whose_holder_is_killed_is_the_next_ones() {
    let lan = Lan::new("17462");
    let mut sub = lan.sub(&[]);
    let (mut holder, held, first) = hold(&lan, &["--wait-for", "1"]);
    let args = ["lock", "accounts", "nightly", "--", "sh", "-c", "echo held $CAROM_FENCE"];
    let mut next = lan.start(&args);
    // A query of the ring shows the lock by its name, with its holder and its queue.
    let lock = loop {
        let ring = lan.ring(&["--lock", "nightly"]);
        let lock = ring["locks"][0].clone();
        if lock["waiting"].as_array().is_some_and(|waiting| waiting.len() == 1) {
            break lock;
        }
    };
    assert_eq!(lock["name"], "nightly", "{lock}");
    assert_ne!(lock["holder"], lock["waiting"][0], "{lock}");
    holder.kill();
    let second = fence(&next.wrote.wait_for("held "));
    assert!(second > first, "{second} after {first}");
    next.end_with(0);
    drop(held);
    sub.stop();
}

#[test]
fn impatient_request_is_refused_with_the_holder() {
    let lan = Lan::new("17463");
    let (mut holder, held, _) = hold(&lan, &[]);
    let mut tried = lan.start(&["lock", "accounts", "nightly", "--try", "--", "echo", "ran"]);
    tried.said.wait_for("holds the lock");
    assert_eq!(output(tried, 1), [""; 0]);
    let flags = ["--timeout", "300ms", "--conflict-code", "9"];
    let args = [&["lock", "accounts", "nightly"], &flags[..], &["--", "echo", "ran"]].concat();
    assert_eq!(output(lan.start(&args), 9), [""; 0]);
    assert_eq!(output(lan.start(&["lock", "accounts", "hourly", "--", "echo", "ran"]), 0), ["ran"]);
    drop(held);
    holder.end_with(0);
}

#[test]
fn ctrl_c_ends_the_command_and_gives_the_lock_back() {
    let lan = Lan::new("17464");
    let command = "trap 'echo bye; exit 5' TERM; echo held 0; while :; do sleep 0.1; done";
    let mut holder = lan.start(&["lock", "accounts", "nightly", "--", "sh", "-c", command]);
    holder.wrote.wait_for("held");
    let args = ["lock", "accounts", "nightly", "--verbose", "--", "echo", "ran"];
    let mut waits = lan.start(&args);
    waits.said.wait_for("joined");
    // A process that was only waiting runs nothing, and reports this by its code.
    waits.interrupt();
    assert_eq!(output(waits, 130), [""; 0]);
    holder.interrupt();
    holder.wrote.wait_for("bye");
    holder.end_with(5);
    let next = lan.start(&["lock", "accounts", "nightly", "--try", "--", "echo", "ran"]);
    assert_eq!(output(next, 0), ["ran"]);
}

#[test]
fn command_that_lost_its_lock_ends_unless_kept_running() {
    for (port, flag, code) in [("17465", "--kill-after=5s", 143), ("17466", "--keep-running", 0)] {
        let lan = Lan::new(port);
        let mut subs: [Running; 2] = lan.subs(&[]);
        let (mut holder, held, first) = hold(&lan, &[flag]);
        holder.signal(Signal::SIGSTOP);
        subs[0].said.wait_for(" failed, decided by ");
        // The lock is free, but its previous holder does not know that yet.
        let (mut next, next_held, second) = hold(&lan, &[]);
        assert!(second > first, "{second} after {first}");
        holder.signal(Signal::SIGCONT);
        // The lock is in doubt if the holder detects its isolation before the others notify it.
        holder.said.wait_for("lock nightly of accounts is ");
        if flag == "--keep-running" {
            drop(held);
        }
        holder.end_with(code);
        drop(next_held);
        next.end_with(0);
        subs.iter_mut().for_each(Running::stop);
    }
}

#[test]
fn command_that_lost_its_lock_ends_with_full_standard_error() {
    let lan = Lan::new("17468");
    let mut subs: [Running; 2] = lan.subs(&[]);
    let args = ["lock", "accounts", "nightly", "--", "sh", "-c", HOLD];
    let mut holder = lan.start_unheard(&args);
    let held = holder.stdin();
    let first = fence(&holder.wrote.wait_for("held "));
    holder.signal(Signal::SIGSTOP);
    subs[0].said.wait_for(" failed, decided by ");
    let (mut next, next_held, second) = hold(&lan, &[]);
    assert!(second > first, "{second} after {first}");
    holder.signal(Signal::SIGCONT);
    // The standard input of the command is still open, so only SIGTERM ends it.
    holder.end_with(143);
    drop((held, next_held));
    next.end_with(0);
    subs.iter_mut().for_each(Running::stop);
}

#[test]
fn command_without_terminal_ends_with_its_child_processes() {
    let lan = Lan::new("17467");
    let child = "trap 'echo child ended; exit' TERM; echo held 0; while :; do sleep 0.1; done";
    let command = format!("sh -c \"{child}\" & wait");
    let mut holder = lan.start(&["lock", "accounts", "nightly", "--", "sh", "-c", &command]);
    holder.wrote.wait_for("held");
    holder.signal(Signal::SIGTERM);
    holder.wrote.wait_for("child ended");
    holder.end_with(143);
}
