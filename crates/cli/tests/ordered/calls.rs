//! Tests `carom serve` and `carom call`: each request gets one reply, whichever server dies.

use std::fs;
use std::path::Path;

use crate::process::Running;
use crate::{Lan, output};

/// Starts a server with this command. The first server of a group serves, and the others stand by.
fn serve(lan: &Lan, flags: &[&str], command: &str) -> Running {
    let args = [&["serve", "quotes"], flags, &["--", "sh", "-c", command]].concat();
    let mut server = lan.start(&args);
    server.said.wait_for("standing by for handler");
    server
}

fn call(lan: &Lan, question: &str, flags: &[&str]) -> Running {
    let mut caller = lan.start_piped(&[&["call", "quotes"], flags].concat());
    caller.feed(std::iter::once(question.to_owned()));
    caller
}

#[test]
fn the_output_of_the_handlers_command_is_the_reply() {
    let lan = Lan::new("17471");
    let mut upper = serve(&lan, &[], "tr a-z A-Z");
    let mut failing = serve(&lan, &["--handler", "2"], "cat; echo so what; exit 3");
    upper.said.wait_for("serving handler 0 of quotes");
    failing.said.wait_for("serving handler 2 of quotes");
    assert_eq!(output(call(&lan, "hello", &[]), 0), ["HELLO"]);
    let mut failed = call(&lan, "hello", &["--handler", "2"]);
    failed.said.wait_for("the command that serves quotes failed with code 3");
    assert_eq!(output(failed, 1), ["hello", "so what"]);
    let mut unanswered = call(&lan, "hello", &["--handler", "5", "--timeout", "500ms"]);
    unanswered
        .said
        .wait_for("handler 5 of quotes: the request was not answered, and may have been executed");
    assert_eq!(output(unanswered, 3), [""; 0]);
    for (mut server, failures) in [(upper, 0), (failing, 1)] {
        server.interrupt();
        let times = if failures == 1 { "1 time" } else { "0 times" };
        let words = format!("replied to 1 request of quotes: the command failed {times}");
        server.end_saying(&words, 0);
    }
}

#[test]
fn every_call_gets_one_reply_although_its_server_is_killed() {
    let lan = Lan::new("17472");
    let command = "echo began >&2; sleep 0.3; cat";
    let mut first = serve(&lan, &["--jobs", "2"], command);
    first.said.wait_for("serving handler 0 of quotes");
    let mut others = [(); 2].map(|()| serve(&lan, &["--jobs", "2"], command));
    let ask = |from: u32, to: u32| -> Vec<(String, Running)> {
        let questions = (from..to).map(|number| format!("question {number}"));
        questions.map(|it| (it.clone(), call(&lan, &it, &["--timeout", "50s"]))).collect()
    };
    let mut calls = ask(0, 6);
    first.said.wait_for("began");
    first.kill();
    calls.extend(ask(6, 8));
    for (question, caller) in calls {
        assert_eq!(output(caller, 0), [question]);
    }
    for server in &mut others {
        server.interrupt();
    }
    // These servers processed the requests that were unfinished when the first server was killed.
    let replied: u64 = others
        .iter_mut()
        .map(|server| {
            let line = server.said.wait_for("replied to ");
            let count = line.split(' ').nth(2).expect("it has words");
            server.end_with(0);
            count.parse::<u64>().expect("it is a number")
        })
        .sum();
    assert!((2..=8).contains(&replied), "{replied} replies");
}

#[test]
fn server_and_caller_continue_with_a_full_standard_error() {
    let lan = Lan::new("17479");
    let server = ["serve", "quotes", "--", "sh", "-c", "cat; exit 3"];
    let mut server = lan.start_unheard(&server);
    let mut caller = lan.start_unheard(&["call", "quotes", "--timeout", "50s"]);
    caller.feed(std::iter::once("hello".to_owned()));
    assert_eq!(output(caller, 1), ["hello"]);
    server.stop();
}

#[test]
fn interrupted_server_replies_to_running_requests() {
    let lan = Lan::new("17473");
    let mut server = serve(&lan, &[], "echo began >&2; sleep 0.5; cat");
    server.said.wait_for("serving handler 0 of quotes");
    let caller = call(&lan, "still there?", &[]);
    server.said.wait_for("began");
    server.interrupt();
    assert_eq!(output(caller, 0), ["still there?"]);
    server.end_saying("replied to 1 request of quotes", 0);
}

#[test]
fn wrong_use_of_serve_and_call_is_refused() {
    let lan = Lan::new("17474");
    lan.assert_refused(&["serve", "quotes", "--handler", "6", "--", "cat"], "'6'", "0 to 5");
    lan.assert_refused(&["serve", "quotes"], "COMMAND", "--help");
    lan.assert_refused(&["call", "quotes", "--handler", "first"], "'first'", "0 to 5");
    let nowhere = ["serve", "quotes", "--", "/nonexistent"];
    lan.assert_refused(&nowhere, "cannot run '/nonexistent': program not found", "after `--`");
    lan.assert_refused(&["call", "two\nlines"], "control character", "1 to 255 bytes");
    let long = "x".repeat(256);
    lan.assert_refused(&["serve", &long, "--", "cat"], "256 bytes", "1 to 255 bytes");
}

#[test]
fn call_to_a_group_without_members_reports_it() {
    let lan = Lan::new("17476");
    let mut alone = call(&lan, "anybody?", &["--timeout", "300ms"]);
    alone.said.wait_for("group 'quotes' has no members: the request was not executed");
    assert_eq!(output(alone, 3), [""; 0]);
}

#[test]
fn call_to_a_killed_server_admits_possible_execution() {
    let lan = Lan::new("17483");
    let mut server = serve(&lan, &[], "echo began >&2; sleep 12");
    server.said.wait_for("serving handler 0 of quotes");
    let mut caller = call(&lan, "do it", &["--timeout", "10s"]);
    server.said.wait_for("began");
    server.kill();
    caller.end_saying("group 'quotes' has no members now: the request may have been executed", 3);
}

/// Asserts that a server ends with this error at a request after `spoil`, and the next replies.
fn assert_yields(lan: &Lan, program: &Path, spoil: impl FnOnce(), error: &str) {
    let name = program.to_str().expect("a UTF-8 path");
    let mut first = lan.start(&["serve", "quotes", "--", name]);
    first.said.wait_for("serving handler 0 of quotes");
    let mut second = serve(lan, &[], "tr a-z A-Z");
    spoil();
    let caller = call(lan, "hello", &["--timeout", "50s"]);
    first.end_saying(error, 2);
    assert_eq!(output(caller, 0), ["HELLO"]);
    second.stop();
}

#[test]
fn a_server_whose_program_is_gone_leaves_its_place_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let program = folder.path().join("cat");
    std::os::unix::fs::symlink("/bin/cat", &program).expect("the directory belongs to the test");
    let remove = || fs::remove_file(&program).expect("the directory belongs to the test");
    assert_yields(&Lan::new("17477"), &program, remove, "program not found");
}

#[test]
fn server_with_an_unrunnable_program_yields_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let program = folder.path().join("reply");
    fs::write(&program, "cat\n").expect("the directory belongs to the test");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).expect("the directory belongs to the test");
    let error = "neither a program for this machine nor a script";
    assert_yields(&Lan::new("17482"), &program, || {}, error);
}

#[test]
fn timed_out_command_is_killed_with_its_children() {
    let lan = Lan::new("17475");
    // A child process of the command holds its output open.
    let commands = ["echo so far; sleep 1000 & wait", "trap '' TERM; sleep 1000 & wait"];
    for (handler, command) in ["1", "2"].into_iter().zip(commands) {
        let flags = ["--handler", handler, "--timeout", "300ms"];
        let mut server = serve(&lan, &flags, command);
        let mut asked = call(&lan, "how long?", &["--handler", handler, "--timeout", "50s"]);
        asked.said.wait_for("failed with code 124");
        let replied = output(asked, 1);
        let killed = "the command took longer than 300ms and did not end: killed";
        assert_eq!(replied, [if handler == "1" { "so far" } else { killed }]);
        server.interrupt();
        server.end_saying("the command failed 1 time (1 timed out)", 0);
    }
}
