//! Guarantees specific to a protocol, as seen in its counters.

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (node, promise) in &ledger.broken {
        found.push(Violation::new("protocol guarantees", format!("{node}: {promise}")));
    }
}
