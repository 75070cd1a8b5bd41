use crate::recent::Recent;
use crate::{Incarnation, NodeId, Origin, Time};

/// Nodes that recently sent a goodbye. Reports about them are outdated, except those of a later
/// start with another incarnation.
#[derive(Default)]
pub(super) struct Departed(Recent<NodeId, (Incarnation, Time)>);

impl Departed {
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.0.get(node).is_some()
    }

    /// Returns `true` if a datagram of `origin` was sent before the goodbye of `origin`.
    ///
    /// If the node has started again, or if the goodbye is older than `since`, the node no longer
    /// counts as departed. In the second case, another node sent the goodbye in its name.
    pub(super) fn is_late(&mut self, since: Time, origin: Origin) -> bool {
        let Some((left, at)) = self.0.get(origin.node) else { return false };
        let is_late = *left == origin.incarnation && *at >= since;
        if !is_late {
            self.0.remove(origin.node);
        }
        is_late
    }

    /// Adds a node. Returns `false` and changes nothing if the node was already present.
    pub(super) fn insert(
        &mut self,
        now: Time,
        node: NodeId,
        incarnation: Incarnation,
        capacity: usize,
    ) -> bool {
        let is_new = !self.contains(node);
        if is_new {
            self.0.insert(node, (incarnation, now), capacity);
        }
        is_new
    }
}
