//! Reports of tests that could not run, although they pass.

use std::io::Write as _;

pub(crate) fn skipped(test: &str, why: &str) {
    // The test harness hides what macros print in passing tests. A single write keeps the line
    // together. A closed standard error is ignored.
    let line = format!("skipped: {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Reports that `test` did not run because this machine lacks something.
///
/// # Panics
/// Panics if `CAROM_SKIP_NOTHING` is set, which means that nothing may be missing.
pub(crate) fn lacking(test: &str, why: &str) {
    assert!(std::env::var_os("CAROM_SKIP_NOTHING").is_none(), "{test} cannot run: {why}");
    skipped(test, why);
}
