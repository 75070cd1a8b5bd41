//! What must hold of every run, whatever the protocol. Each checker reads the [`Ledger`] in which
//! the run was written down.

mod accounted;
mod acknowledged;
mod agreement;
mod at_most_once;
pub mod bulk;
mod invention;
mod ledger;
mod liveness;
mod memory;
pub mod ordered;
mod promises;
mod safety;
#[cfg(test)]
mod tests;

use core::fmt;

pub use ledger::{Got, Ledger, OwedFrom, Sent};

/// One thing that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What should have held.
    pub rule: &'static str,
    /// Where and how it did not.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, what: String) -> Self {
        Self { rule, what }
    }

    /// Returns `true` if it holds whatever nodes are made to believe.
    pub(crate) fn concerns_memory(&self) -> bool {
        self.rule == "memory is bounded"
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Everything that does not hold of the run.
pub fn all(ledger: &Ledger) -> Vec<Violation> {
    let mut found = Vec::new();
    at_most_once::check(ledger, &mut found);
    invention::check(ledger, &mut found);
    accounted::check(ledger, &mut found);
    acknowledged::check(ledger, &mut found);
    agreement::check(ledger, &mut found);
    memory::check(ledger, &mut found);
    liveness::check(ledger, &mut found);
    promises::check(ledger, &mut found);
    safety::check(ledger, &mut found);
    found
}
