//! Tests that could not run say so, although they pass.

use std::io::Write as _;

/// Tells that `test`, or a part of it, did not run.
pub(crate) fn skipped(test: &str, why: &str) {
    // The test harness shows what passing tests print by macro to nobody. In one piece, so that
    // nothing that others write comes in between; nobody is told where standard error is closed.
    let line = format!("skipped: {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Tells that `test` did not run for want of something that could be there.
///
/// # Panics
/// Where everything is to be there: `CAROM_SKIP_NOTHING` says so.
pub(crate) fn lacking(test: &str, why: &str) {
    assert!(std::env::var_os("CAROM_SKIP_NOTHING").is_none(), "{test} cannot run: {why}");
    skipped(test, why);
}
