use crate::{GroupId, NodeId};

/// A change in the membership of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewChange {
    /// Group whose view changed.
    pub group: GroupId,
    /// The member that joined, left or failed. It is never the engine's own node.
    pub node: NodeId,
    /// Kind of the change.
    pub kind: ViewChangeKind,
    /// Version of the group's view after this change. It is counted locally and grows by one with
    /// every change. Versions of different nodes cannot be compared.
    pub version: u32,
}

/// Kind of a view change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewChangeKind {
    /// The node joined the group.
    Joined,
    /// The node left on its own initiative.
    Left,
    /// The node was found to have failed.
    Failed,
}

/// The other members of one group, in order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    members: Vec<NodeId>,
    version: u32,
}

impl View {
    /// Applies `change`. Returns `true` if the set of members has changed.
    pub fn apply(&mut self, change: &ViewChange) -> bool {
        self.version = change.version;
        match (change.kind, self.members.binary_search(&change.node)) {
            (ViewChangeKind::Joined, Err(place)) => self.members.insert(place, change.node),
            (ViewChangeKind::Left | ViewChangeKind::Failed, Ok(place)) => {
                self.members.remove(place);
            }
            _ => return false,
        }
        true
    }

    /// Returns the other members, in order of their ids.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// Returns `true` if `node` is a member.
    pub fn contains(&self, node: NodeId) -> bool {
        self.members.binary_search(&node).is_ok()
    }

    /// Returns the version of the view after the last change.
    pub fn version(&self) -> u32 {
        self.version
    }
}

impl FromIterator<NodeId> for View {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut members: Vec<NodeId> = nodes.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        Self { members, version: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_applies_each_change_once() {
        let change = |node, kind, version| ViewChange {
            group: GroupId(1),
            node: NodeId(node),
            kind,
            version,
        };
        let mut view = View::from_iter([]);
        assert!(view.apply(&change(7, ViewChangeKind::Joined, 1)));
        assert!(view.apply(&change(3, ViewChangeKind::Joined, 2)));
        assert!(!view.apply(&change(7, ViewChangeKind::Joined, 3)));
        assert_eq!(view.members(), [NodeId(3), NodeId(7)]);
        assert!(view.apply(&change(7, ViewChangeKind::Failed, 4)));
        assert!(!view.apply(&change(7, ViewChangeKind::Left, 5)));
        assert_eq!(view.members(), [NodeId(3)]);
        assert_eq!(view.version(), 5);
    }
}
