//! Each example of this crate runs to its end.

use std::process::{Command, Stdio};

/// Runs an example that Cargo has built beside this test.
fn run(name: &str) {
    let test = std::env::current_exe().expect("this program");
    let target = test.ancestors().nth(2).expect("target/debug/deps/test");
    let program = target.join("examples").join(name);
    let output = Command::new(&program).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}: {errors}", output.status);
    assert!(!output.stdout.is_empty(), "{name} prints its result");
}

#[test]
fn publish_subscribe_runs() {
    run("publish_subscribe");
}

#[test]
fn tokio_tasks_runs() {
    run("tokio_tasks");
}

#[test]
fn several_groups_runs() {
    run("several_groups");
}

#[test]
fn lock_runs() {
    run("lock");
}

#[test]
fn request_reply_runs() {
    run("request_reply");
}

#[test]
fn replicated_map_runs() {
    run("replicated_map");
}

#[test]
fn simulator_test_runs() {
    run("simulator_test");
}

#[test]
fn replicated_counters_runs() {
    run("replicated_counters");
}
