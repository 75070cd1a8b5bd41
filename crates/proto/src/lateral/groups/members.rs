use crate::{IdMap, NodeId, Time};

/// Members in arbitrary order, so that one is added or removed in constant time.
#[derive(Debug)]
pub(crate) struct Members {
    ids: Vec<NodeId>,
    since: Vec<Time>,
    places: IdMap<NodeId, u32>,
}

impl Members {
    pub(crate) fn new(seed: u64) -> Self {
        Self { ids: Vec::new(), since: Vec::new(), places: IdMap::new(seed) }
    }

    pub(crate) fn insert(&mut self, now: Time, node: NodeId) -> bool {
        if self.contains(node) {
            return false;
        }
        self.places.insert(node, self.ids.len() as u32);
        self.ids.push(node);
        self.since.push(now);
        true
    }

    pub(crate) fn remove(&mut self, node: NodeId) -> bool {
        let Some(place) = self.places.remove(&node) else { return false };
        self.ids.swap_remove(place as usize);
        self.since.swap_remove(place as usize);
        if let Some(moved) = self.ids.get(place as usize) {
            self.places.insert(*moved, place);
        }
        true
    }

    pub(crate) fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.places.contains(&node)
    }

    /// Returns the first member that had joined by `then`, searching cyclically from index `start`,
    /// or the member at `start` if none had.
    pub(crate) fn first_since(&self, then: Time, start: usize) -> NodeId {
        let all_around = (start..self.ids.len()).chain(0..start);
        let mut older = all_around.filter(|place| self.since[*place] <= then);
        self.ids[older.next().unwrap_or(start)]
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.ids.len(), self.places.len(), "a member has no place");
        for (node, place) in self.ids.iter().zip(0..) {
            assert_eq!(self.places.get(node), Some(&place), "a member is misplaced");
        }
        assert_eq!(self.ids.len(), self.since.len(), "a member has no join time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_member_is_chosen_only_if_all_are_late() {
        let mut members = Members::new(1);
        for (node, at) in [(1, 10), (2, 20), (3, 10)] {
            assert!(members.insert(Time(at), NodeId(node)));
        }
        assert!(!members.insert(Time(30), NodeId(3)), "node 3 is a member already");
        assert_eq!(members.ids(), [NodeId(1), NodeId(2), NodeId(3)]);
        let chosen = |then| [0, 1, 2].map(|start| members.first_since(Time(then), start).0);
        assert_eq!(chosen(20), [1, 2, 3]);
        assert_eq!(chosen(19), [1, 3, 3]);
        assert_eq!(chosen(9), [1, 2, 3]);
        assert!(members.remove(NodeId(3)) && !members.remove(NodeId(3)));
        members.insert(Time(30), NodeId(3));
        assert_eq!(members.first_since(Time(29), 2), NodeId(1), "a rejoined member is late");
        members.check();
    }
}
