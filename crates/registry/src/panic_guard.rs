//! Converts panics of the database into errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::error::StoreError;

thread_local! {
    /// `true` while this thread accesses the database.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `work` on the database and converts a panic into [`StoreError::Damaged`].
///
/// Such a panic is caused by damage that the verification of the pages did not find. It is not
/// printed, and the database must not be used after it.
pub(crate) fn catch_panics<T>(
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    HOOK.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                report(panic);
            }
        }));
    });
    IS_GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(false);
    result.unwrap_or_else(|_| {
        Err(StoreError::Damaged { what: "an internal check of the database failed".into() })
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn panic_of_the_database_is_damage() {
        let result = catch_panics::<()>(|| panic!("of the database"));
        assert!(matches!(result, Err(StoreError::Damaged { .. })), "{result:?}");
        assert!(catch_unwind(|| panic!("of our own")).is_err());
    }

    #[test]
    fn panic_of_the_database_prints_nothing() {
        let mut child = Command::new(std::env::current_exe().expect("this test"));
        child.args([
            "--exact",
            "panic_guard::tests::panic_of_the_database_is_damage",
            "--nocapture",
        ]);
        let output = child.output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("of our own") && !told.contains("of the database\n"), "{told}");
        assert_eq!(told.matches("panicked").count(), 1, "{told}");
    }
}
