use carom_sim::scenario::Violation;

use crate::findings::Findings;

/// The maximum number of bytes that an engine of a run has held, and the limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUse {
    most: usize,
    limit: usize,
}

impl MemoryUse {
    /// Records the number of bytes that an engine holds, and its limit.
    pub fn note(&mut self, bytes: usize, limit: usize) {
        (self.most, self.limit) = (self.most.max(bytes), limit);
    }

    pub(crate) fn check(&self, found: &mut Findings) {
        let Self { most, limit } = self;
        if most > limit {
            found.add(RULE, format!("an engine held {most} bytes: at most {limit} are allowed"));
        }
    }
}

/// Keeps only violations of the memory rule, which holds even when nodes accept forged packets.
pub(crate) fn retain_memory(violations: &mut Vec<Violation>) {
    violations.retain(|violation| violation.rule == RULE);
}

const RULE: &str = "memory is bounded";
