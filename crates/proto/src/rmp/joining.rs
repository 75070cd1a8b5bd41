//! Joining a ring, and creating one where none exists (4.3).

use super::around::{Around, Timer};
use super::flow::MOST_LATE;
use super::group::Group;
use super::log::{ListChange, ListChangeKind};
use super::names::Process;
use super::packet::Packet;
use super::reforming::Reforming;
use super::ring::Ring;
use crate::{NodeId, Time};

impl Group {
    /// Requests to join until a ring admits this node, or creates a ring if there is no answer.
    pub(super) fn begin_joining(&mut self, cx: &mut Around<'_>) {
        (self.tries.join, self.tries.in_line) = (0, 0);
        self.refresh_reach(cx);
        self.ask_to_join(cx);
    }

    pub(super) fn ask_to_join(&mut self, cx: &mut Around<'_>) {
        let name_check = self.terms.name_check;
        let kind = ListChangeKind::Join { member: self.member(), name_check };
        let change = ListChange { process: self.me, request: 0, kind };
        cx.counters.requests_sent += 1;
        cx.multicast(&Packet::ListChangeRequest { epoch: self.target, change });
        let retry = self.pace.join_retry(cx.config);
        let mut wait = retry + cx.random(retry / 4);
        if core::mem::take(&mut self.is_in_line) {
            // The ring has the request. It is repeated only in case it gets lost there. The ring
            // may never continue, and many nodes may wait for it.
            self.tries.in_line = self.tries.in_line.saturating_add(1);
            let doublings = (self.tries.in_line / TRIES_PER_DOUBLING).min(MOST_DOUBLINGS);
            wait *= PAUSE_IN_LINE;
            wait = wait.max((wait * (1 << doublings)).min(MOST_LATE / 2));
        }
        cx.set(Timer::Join, wait);
    }

    /// Repeats the request to join. A join without an answer creates the ring (4.3).
    pub(super) fn on_join_timer(&mut self, cx: &mut Around<'_>) {
        if self.ring.is_some() {
            return;
        }
        self.tries.join += 1;
        if self.tries.join < cx.config.join_tries {
            return self.ask_to_join(cx);
        }
        // One answer may get lost. A ring that does not answer `join_tries` requests is no
        // obstacle.
        self.tries.in_line = 0;
        let patience = cx.config.patience;
        let is_elsewhere = self.elsewhere.is_some_and(|at| cx.now.since(at) < patience)
            && !self.is_first_of_joiners(cx.now);
        if self.target.take().is_some() || is_elsewhere {
            // The ring that this node requested to join is another one by now, or does not receive
            // its packets.
            self.tries.join = 0;
            return self.ask_to_join(cx);
        }
        if !self.may_begin_ring() {
            self.tries.join = 0;
            self.tell_shortage(cx);
            return self.ask_to_join(cx);
        }
        // A ring may have admitted this node without its knowledge. That ring waits for a life that
        // is over from here on.
        *cx.lives += 1;
        self.me = Process { node: cx.node, life: *cx.lives };
        self.wishes.iter_mut().for_each(|wish| wish.process = self.me);
        tracing::info!(me = ?self.me, group = %cx.group, "starts a ring");
        let first = cx.config.first_number;
        let ring = Ring::founded_by(self.member(), self.terms.name_check, first);
        self.enter(cx, ring);
    }

    /// Handles the request of another node to join, while this one joins.
    pub(super) fn on_other_joiner(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        change: ListChange,
    ) {
        // Of several nodes that start at the same time, the one with the smallest id creates the
        // ring.
        let begins = matches!(change.kind, ListChangeKind::Join { member, .. }
            if member.is_voter || member.partition.quorum().is_none());
        if begins && sender < cx.node {
            self.tries.join = 0;
        } else if self.known.contains(&sender) {
            self.joiners.insert(sender, cx.now);
        }
    }

    /// Returns `true` if all known nodes wait for a ring that is gone, and this node has the
    /// smallest id.
    fn is_first_of_joiners(&self, now: Time) -> bool {
        let is_joining = |node| self.joiners.get(node).is_some_and(|at| now.since(*at) < MOST_LATE);
        !self.known.is_empty() && self.known.iter().all(is_joining)
    }

    /// Enters a ring.
    pub(super) fn enter(&mut self, cx: &mut Around<'_>, ring: Ring) {
        cx.version = ring.view().epoch.version;
        self.reforming = Reforming::of(ring.view().epoch);
        self.must_speak = ring.view().len() > 1;
        self.ring = Some(ring);
        self.refresh_reach(cx);
        cx.cancel(Timer::Join);
        self.watch_strangers(cx);
        if !self.wishes.is_empty() {
            self.ask_for_change(cx);
        }
        self.advance(cx, None);
    }
}

/// Number of requests to a ring that does not work after which a joiner doubles the interval.
const TRIES_PER_DOUBLING: u32 = 16;
/// Maximum number of doublings of the interval between requests.
const MOST_DOUBLINGS: u32 = 5;
/// Factor by which a joiner waits longer before it repeats a request that a ring has received.
const PAUSE_IN_LINE: u32 = 4;
