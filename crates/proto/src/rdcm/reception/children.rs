//! What a receiver hears of others: of its successors, and of its overlay children (section 3.3).

use super::super::around::Around;
use super::super::config::Config;
use super::super::packet::RingAck;
use super::Reception;
use crate::{NodeId, Time};

/// An overlay child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    /// Up to where it is known what its branch lacks.
    pub(super) known_to: u64,
    /// The number after the last packet that its branch expects.
    pub(super) limit: u64,
    /// When it was heard, or had nothing to say.
    pub(super) heard_at: Time,
    pub(super) is_silent: bool,
}

impl Reception {
    /// Others of a ring have acknowledged packets.
    pub(in super::super) fn on_ack(
        &mut self,
        around: &mut Around<'_>,
        from: NodeId,
        acks: &[RingAck],
    ) {
        for ack in acks {
            let child = self.children.get_mut(&from);
            let child = child.filter(|_| ack.ring == self.place.children_ring);
            let is_child = child.is_some();
            if let Some(child) = child {
                child.known_to = child.known_to.max(ack.known_to.min(self.window.end()));
                child.limit = ack.limit;
                (child.heard_at, child.is_silent) = (around.now, false);
            }
            self.window.on_ack(around.now, from, ack, is_child);
            if is_child {
                self.on_child(around);
            }
        }
        self.send_repairs(around);
    }

    /// Up to where it is known what nobody of the branch has: what this receiver lacks and a child
    /// elsewhere below the branch lacks was lost above both, or by each, which is rare. To hear it
    /// of all children would take as long as the last of them, in each ring on the way up.
    pub(super) fn branch_known_to(&self) -> u64 {
        let told = self.heard_children().map(|child| Some(child.known_to));
        let (most, second) = told.fold((None, None), |(most, second), told| match told > most {
            true => (told, most),
            false => (most, second.max(told)),
        });
        // Who is no child itself shares its own way with one of them.
        let is_child = self.children.len() < self.place.children.len();
        let enough = if is_child { most } else { second };
        enough.unwrap_or(u64::MAX).min(self.known_to)
    }

    /// The children who are not silent: who cannot be heard is served by the sender, which it asks,
    /// and holds nobody up.
    pub(super) fn heard_children(&self) -> impl Iterator<Item = &Child> {
        self.children.values().filter(|child| !child.is_silent)
    }

    /// Looks who of those that this node hears of is silent.
    pub(super) fn look_for_silent(&mut self, now: Time, config: &Config) {
        // A child that knows of all has nothing to say, unless the branch lacks something: one that
        // has left the ring without our hearing of it would hold that for ever.
        let is_whole = !self.window.branch_lacks();
        for child in self.children.values_mut() {
            if is_whole && child.known_to >= self.known_to {
                child.heard_at = now;
            }
            child.is_silent = now.since(child.heard_at) >= config.gone_after;
        }
        let is_branch_heard = self.heard_children().next().is_some();
        self.window.look_for_silent(now, config.gone_after, is_branch_heard);
    }

    /// A former successor needs no packets from `from` on of this receiver.
    pub(in super::super) fn on_release(&mut self, node: NodeId, ring: u32, epoch: u32, from: u64) {
        self.window.on_release(node, ring, epoch, from);
    }
}
