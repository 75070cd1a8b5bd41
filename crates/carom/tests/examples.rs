//! Runs each example of this crate to its end.

use std::process::{Command, Stdio};
use std::thread;

/// Runs an example, which Cargo has built beside this test.
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
fn every_example_runs() {
    let names = [
        "publish_subscribe",
        "tokio_tasks",
        "several_groups",
        "lock",
        "request_reply",
        "replicated_map",
        "simulator_test",
        "replicated_counters",
    ];
    thread::scope(|scope| names.map(|name| drop(scope.spawn(move || run(name)))));
}
