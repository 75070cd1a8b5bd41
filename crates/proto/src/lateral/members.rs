//! The other members of one group, and since when this node knows of each.

use crate::{NodeId, Time};

/// Members in the order of their ids.
#[derive(Debug, Default)]
pub(super) struct Members {
    ids: Vec<NodeId>,
    /// When each was last seen to join.
    since: Vec<Time>,
}

impl Members {
    /// `node` is a member from `now` on; says whether it was none before.
    pub(super) fn insert(&mut self, now: Time, node: NodeId) -> bool {
        let Err(place) = self.ids.binary_search(&node) else { return false };
        self.ids.insert(place, node);
        self.since.insert(place, now);
        true
    }

    /// `node` is no longer a member; says whether it was one.
    pub(super) fn remove(&mut self, node: NodeId) -> bool {
        let Ok(place) = self.ids.binary_search(&node) else { return false };
        self.ids.remove(place);
        self.since.remove(place);
        true
    }

    /// All of them, in order.
    pub(super) fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    /// Whether `node` is one.
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.ids.binary_search(&node).is_ok()
    }

    /// The first from `start` on, all around, that was a member at `then` already; the one at
    /// `start` if none was.
    pub(super) fn first_since(&self, then: Time, start: usize) -> NodeId {
        let all_around = (start..self.ids.len()).chain(0..start);
        let mut older = all_around.filter(|place| self.since[*place] <= then);
        self.ids[older.next().unwrap_or(start)]
    }

    pub(super) fn check(&self) {
        assert!(self.ids.is_sorted(), "members are out of order");
        assert_eq!(self.ids.len(), self.since.len(), "a member came at no time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_late_is_chosen_only_if_all_did() {
        let mut members = Members::default();
        for (node, at) in [(3, 10), (1, 10), (2, 20)] {
            assert!(members.insert(Time(at), NodeId(node)));
        }
        assert!(!members.insert(Time(30), NodeId(3)), "it is one already");
        assert_eq!(members.ids(), [NodeId(1), NodeId(2), NodeId(3)]);
        let chosen = |then| [0, 1, 2].map(|start| members.first_since(Time(then), start).0);
        assert_eq!(chosen(20), [1, 2, 3]);
        assert_eq!(chosen(19), [1, 3, 3]);
        assert_eq!(chosen(9), [1, 2, 3]);
        assert!(members.remove(NodeId(3)) && !members.remove(NodeId(3)));
        members.insert(Time(30), NodeId(3));
        assert_eq!(members.first_since(Time(29), 2), NodeId(1), "who came back came late");
        members.check();
    }
}
