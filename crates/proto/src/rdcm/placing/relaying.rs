//! The sender's relay tree, for receivers that multicast does not reach.

use alloc::vec::Vec;

use super::super::around::Around;
use super::super::relays::{Moved, RelayTree};
use super::super::topology::Vertex;
use super::Placing;
use crate::{Hops, NodeId};

/// Maximum number of doublings of the pause between moves: up to 25 s by default.
const MAX_DOUBLINGS: u32 = 6;

impl Placing {
    /// Notifies the sender that multicast reaches other nodes than before.
    pub(in super::super) fn on_reach(&mut self, around: &mut Around<'_>) {
        self.tell_changes(around);
    }

    /// Updates the places of unreached receivers in the relay tree. Returns `true` if any place has
    /// changed.
    pub(super) fn arrange_relays(&mut self, around: &Around<'_>) -> bool {
        let place = |(node, receiver): (&NodeId, &super::Receiver)| {
            // One leaf ring is one rack.
            receiver.place.as_ref().map(|place| (*node, Vertex(place.leaf.ring)))
        };
        let placed = self.receivers.iter().filter_map(place);
        let (unreached, reached): (Vec<_>, Vec<_>) =
            placed.partition(|(node, _)| around.unreached.contains(node));
        self.relays.arrange(&unreached.into_iter().collect());
        self.is_multicast = !reached.is_empty() || self.relays.roots().is_empty();
        let mut has_changed = false;
        for (node, receiver) in &mut self.receivers {
            let relays = self.relays.children(*node);
            let epoch = receiver.next_epoch(self.epoch);
            if let Some(place) = receiver.place.as_mut().filter(|place| place.relays != relays) {
                place.relays = relays.to_vec();
                place.epoch = epoch;
                has_changed = true;
            }
        }
        has_changed
    }

    /// Moves a receiver that gets nothing through the relay tree to another parent, unless its
    /// parent gets nothing itself. No receiver is moved again until the last move could have had an
    /// effect. The pause between moves to a position with receivers below it doubles each time, and
    /// is reset after a long time without such a move. Two receivers that do not hear each other
    /// could otherwise displace each other forever.
    pub(super) fn move_relay(&mut self, around: &mut Around<'_>, node: NodeId) {
        let settle = around.config.cut_after * 2;
        // The parent must have received data after its child was cut off.
        let lately = around.config.cut_after / 2 + self.report_interval(around.config) * 2;
        let is_fed = |parent: NodeId| {
            let receiver = self.receivers.get(&parent);
            receiver.is_some_and(|it| around.now.since(it.fed_at) < lately)
        };
        let is_parent_fed = self.relays.parent(node).is_none_or(is_fed);
        if around.now < self.move_at || !is_parent_fed {
            return;
        }
        if around.now.since(self.rough_move_at) > settle * (1 << MAX_DOUBLINGS) {
            self.rough_moves = 0;
        }
        let is_held = around.now < self.rough_move_at;
        let most = if is_held { Moved::ToLeaf } else { Moved::Anywhere };
        let Some(moved) = self.relays.move_away(node, most, around.rng) else { return };
        around.counters.relays_moved += 1;
        self.move_at = around.now + settle;
        if moved == Moved::Anywhere {
            self.rough_moves = (self.rough_moves + 1).min(MAX_DOUBLINGS);
            self.rough_move_at = around.now + settle * (1 << self.rough_moves);
        }
        self.tell_changes(around);
    }

    /// Returns the destinations of data from the sender.
    pub(in super::super) fn hops(&self) -> Hops<'_> {
        Hops { by_multicast: self.is_multicast, relays: self.relays.roots() }
    }

    pub(in super::super) fn relays(&self) -> &RelayTree {
        &self.relays
    }
}
