//! Rules for every run of any protocol. Each checker reads the [`Ledger`], the record of the run.

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

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated rule.
    pub rule: &'static str,
    /// Description of the violation.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, what: String) -> Self {
        Self { rule, what }
    }

    /// Returns `true` if the rule holds even when nodes accept forged packets.
    pub(crate) fn concerns_memory(&self) -> bool {
        self.rule == "memory is bounded"
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Returns all violations of a run.
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
