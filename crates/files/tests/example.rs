//! Runs the example of this crate to its end.

use std::process::{Command, Stdio};

#[test]
fn file_transfer_runs() {
    // Cargo has built the example beside this test.
    let test = std::env::current_exe().expect("this program");
    let target = test.ancestors().nth(2).expect("target/debug/deps/test");
    let example = target.join("examples/file_transfer");
    let output = Command::new(&example).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert!(output.stdout.starts_with(b"4194304 bytes by multicast"), "{output:?}");
}
