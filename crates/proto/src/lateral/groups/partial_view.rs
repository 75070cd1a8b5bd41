//! Partial views (Slingshot 3.3): the members of a group to which repairs are sent.

use crate::{NodeId, Rng};

/// A uniformly random subset of a group's members, which is maintained through view changes.
/// Without a limit, it contains all members and stores nothing.
#[derive(Debug)]
pub(super) struct PartialView {
    limit: Option<usize>,
    chosen: Vec<NodeId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetChange {
    pub(crate) added: Option<NodeId>,
    pub(crate) removed: Option<NodeId>,
}

impl PartialView {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self { limit, chosen: Vec::new() }
    }

    pub(super) fn chosen(&self) -> Option<&[NodeId]> {
        self.limit.map(|_| &self.chosen[..])
    }

    /// Admits the new member with the same probability as every earlier one.
    pub(super) fn admit(&mut self, node: NodeId, population: usize, rng: &mut Rng) -> TargetChange {
        let Some(limit) = self.limit else {
            return TargetChange { added: Some(node), removed: None };
        };
        if self.chosen.len() < limit {
            self.chosen.push(node);
            return TargetChange { added: Some(node), removed: None };
        }
        let ticket = rng.below(population);
        if ticket >= limit {
            return TargetChange::default();
        }
        let removed = core::mem::replace(&mut self.chosen[ticket], node);
        TargetChange { added: Some(node), removed: Some(removed) }
    }

    pub(super) fn dismiss(
        &mut self,
        node: NodeId,
        others: &[NodeId],
        rng: &mut Rng,
    ) -> TargetChange {
        if self.limit.is_none() {
            return TargetChange { added: None, removed: Some(node) };
        }
        let Some(place) = self.chosen.iter().position(|chosen| *chosen == node) else {
            return TargetChange::default();
        };
        self.chosen.swap_remove(place);
        // All chosen nodes are among the others.
        let rest = others.len() - self.chosen.len();
        if rest == 0 {
            return TargetChange { added: None, removed: Some(node) };
        }
        let mut chosen = self.chosen.clone();
        chosen.sort_unstable();
        let mut rest_of = others.iter().filter(|other| chosen.binary_search(other).is_err());
        let added = rest_of.nth(rng.below(rest)).copied();
        self.chosen.extend(added);
        TargetChange { added, removed: Some(node) }
    }
}
