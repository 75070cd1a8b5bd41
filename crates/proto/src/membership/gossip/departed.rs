//! Nodes that recently sent a goodbye.

use alloc::collections::{BTreeMap, VecDeque};

use crate::{Incarnation, NodeId, Origin, Time};

/// Reports about these nodes are outdated, except those of a later start with another incarnation.
#[derive(Default)]
pub(super) struct Departed {
    nodes: BTreeMap<NodeId, (Incarnation, Time)>,
    order: VecDeque<NodeId>,
}

impl Departed {
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Returns `true` if a datagram of `origin` was sent before its goodbye.
    ///
    /// Another incarnation is a new start of the node, which is then removed from the departed
    /// ones. So is a node that is heard although it left before `since`: another node sent the
    /// goodbye in its name.
    pub(super) fn is_late(&mut self, since: Time, origin: Origin) -> bool {
        let Some((left, at)) = self.nodes.get(&origin.node) else { return false };
        let is_late = *left == origin.incarnation && *at >= since;
        if !is_late {
            self.nodes.remove(&origin.node);
            self.order.retain(|node| *node != origin.node);
        }
        is_late
    }

    /// Adds a node and evicts the oldest beyond `capacity`. Returns `false` if the node was
    /// present.
    pub(super) fn insert(
        &mut self,
        now: Time,
        node: NodeId,
        incarnation: Incarnation,
        capacity: usize,
    ) -> bool {
        if self.nodes.contains_key(&node) {
            return false;
        }
        self.nodes.insert(node, (incarnation, now));
        self.order.push_back(node);
        if self.order.len() > capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.nodes.remove(&oldest);
        }
        true
    }
}
