//! Views: who is in a group, as events that never say who produced them.

use crate::{GroupId, NodeId};

/// One change of one group's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewChange {
    /// The group.
    pub group: GroupId,
    /// The node that came or went; never the engine's own.
    pub node: NodeId,
    /// What happened to it.
    pub kind: ViewChangeKind,
    /// The version of the group's view after this change, as this node counts: it grows by one
    /// with every change and is not comparable between nodes.
    pub version: u32,
}

/// What happened to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewChangeKind {
    /// It is in the group from now on.
    Joined,
    /// It left by its own will.
    Left,
    /// It was found to have failed.
    Failed,
}

/// The other members of one group, in order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    members: Vec<NodeId>,
    version: u32,
}

impl View {
    /// Applies `change`; says whether it changed anything.
    pub fn apply(&mut self, change: &ViewChange) -> bool {
        self.version = change.version;
        match (change.kind, self.members.binary_search(&change.node)) {
            (ViewChangeKind::Joined, Err(place)) => {
                self.members.insert(place, change.node);
                true
            }
            (ViewChangeKind::Left | ViewChangeKind::Failed, Ok(place)) => {
                self.members.remove(place);
                true
            }
            _ => false,
        }
    }

    /// The other members.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// Whether `node` is one of them.
    pub fn contains(&self, node: NodeId) -> bool {
        self.members.binary_search(&node).is_ok()
    }

    /// The version after the last change.
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

impl crate::Safe {
    /// Returns `true` if there was no member to confirm anything: nothing is left open, but nobody
    /// is known to have the messages.
    pub fn is_unconfirmed(&self) -> bool {
        self.members == 0
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
