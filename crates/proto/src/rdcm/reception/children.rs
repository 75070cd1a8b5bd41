//! Acknowledgments from successors and overlay children (section 3.3).

use super::super::around::Around;
use super::super::config::Config;
use super::super::packet::RingAck;
use super::Reception;
use crate::{NodeId, Time};

/// An overlay child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    /// Number below which all losses of its branch are known.
    pub(super) known_to: u64,
    /// Number after the last packet that its branch expects.
    pub(super) limit: u64,
    /// When it was last heard, or had nothing to report.
    pub(super) heard_at: Time,
    pub(super) is_silent: bool,
}

impl Reception {
    /// Handles acknowledgments of other members of the rings.
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

    /// Returns the number below which all losses of the whole branch are known. If both this
    /// receiver and a child elsewhere below the branch lack a packet, it was lost above both, or
    /// twice, which is rare. To wait for all children would take as long as the slowest of them, in
    /// each ring on the way up.
    pub(super) fn branch_known_to(&self) -> u64 {
        let told = self.heard_children().map(|child| Some(child.known_to));
        let (most, second) = told.fold((None, None), |(most, second), told| match told > most {
            true => (told, most),
            false => (most, second.max(told)),
        });
        // A receiver that is not a child itself shares its path with one of them.
        let is_child = self.children.len() < self.place.children.len();
        let enough = if is_child { most } else { second };
        enough.unwrap_or(u64::MAX).min(self.known_to)
    }

    /// Returns the children that are not silent. A silent child requests packets from the sender,
    /// and does not delay the others.
    pub(super) fn heard_children(&self) -> impl Iterator<Item = &Child> {
        self.children.values().filter(|child| !child.is_silent)
    }

    /// Determines which successors and children are silent.
    pub(super) fn look_for_silent(&mut self, now: Time, config: &Config) {
        // A child that has accounted for all packets has nothing to report, unless the branch lacks
        // some. A child that has left the ring unnoticed would otherwise hold packets forever.
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

    /// Releases the packets from `from` on, which a former successor no longer needs from this
    /// receiver.
    pub(in super::super) fn on_release(&mut self, node: NodeId, ring: u32, epoch: u32, from: u64) {
        self.window.on_release(node, ring, epoch, from);
    }
}
