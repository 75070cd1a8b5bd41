//! The rule that no engine holds more bytes than its settings allow.

use carom_sim::scenario::Violation;

use crate::findings::Findings;

/// Memory of the engines of a run: the maximum bytes that one was observed to hold, and the limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUse {
    most: usize,
    limit: usize,
}

impl MemoryUse {
    /// Records that an engine holds `bytes`, and its limit.
    pub fn note(&mut self, bytes: usize, limit: usize) {
        (self.most, self.limit) = (self.most.max(bytes), limit);
    }

    pub(crate) fn check(&self, found: &mut Findings) {
        let Self { most, limit } = self;
        if most > limit {
            found.add(RULE, format!("{most} bytes are held: at most {limit} are allowed"));
        }
    }
}

/// Keeps the violations of rules that hold even when nodes accept forged packets.
pub(crate) fn retain_memory(violations: &mut Vec<Violation>) {
    violations.retain(|violation| violation.rule == RULE);
}

const RULE: &str = "memory is bounded";
