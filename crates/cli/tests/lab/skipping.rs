//! Reports of tests that could not run, although they pass.

use std::io::Write as _;

pub(crate) fn skipped(why: &str) {
    // The harness hides what macros print in passing tests. One write keeps the line together.
    let line = format!("skipped: {}: {why}\n", test());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Reports that the test did not run because this machine lacks something. Panics if
/// `CAROM_SKIP_NOTHING` is set, which requires every test to run.
pub(crate) fn lacking(why: &str) {
    assert!(std::env::var_os("CAROM_SKIP_NOTHING").is_none(), "{} cannot run: {why}", test());
    skipped(why);
}

fn test() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}
