//! What a protocol promises besides: its counters keep to it.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (node, promise) in &ledger.broken {
        found.push(Violation::new("the protocol's own promises", format!("{node}: {promise}")));
    }
}
