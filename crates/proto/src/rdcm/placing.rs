//! The receivers of a stream (sections 3.1 and 3.4): who they are, what place the manager has given
//! each, and how far each of them is.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::around::Around;
use super::asking::{Answer, Refusal};
use super::config::Config;
use super::epochs;
use super::management::{Management, Turn};
use super::multicast_manager::ManagerError;
use super::packet::{Packet, Place};
use super::relays::RelayTree;
use super::seating::Seated;
use super::tree::MulticastTree;
use crate::{Event, GroupId, NodeId, Slow, Time};

mod relaying;
mod reports;

/// The receivers of a stream and their places.
#[derive(Debug)]
pub(super) struct Placing {
    group: GroupId,
    management: Management,
    receivers: BTreeMap<NodeId, Receiver>,
    /// The overlay children of the sender.
    children: Vec<NodeId>,
    /// The receivers that multicast does not reach.
    relays: RelayTree,
    /// Whether multicast reaches others, or there is nobody.
    is_multicast: bool,
    /// When a receiver may be moved in the relay tree.
    move_at: Time,
    /// How often one was moved to where others are below it.
    rough_moves: u32,
    /// When one may be again.
    rough_move_at: Time,
    /// Counts the changes of places, whoever makes them: managers know nothing of relays.
    epoch: u32,
    /// When places are told that are new, or were not taken.
    tell_at: Option<Time>,
}

/// A receiver as the sender knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverState {
    /// The first packet for it.
    pub first: u64,
    /// The first packet that it lacks.
    pub next: u64,
    /// The number after the last packet that it expects.
    pub limit: u64,
    /// Packets that it got by the tree.
    pub by_tree: u64,
    /// Packets that it got as repairs.
    pub by_repair: u64,
    /// When it was left behind; `None` if the others wait for it.
    pub left_behind_at: Option<Time>,
    /// When it was heard last.
    pub heard_at: Time,
}

/// Why a receiver is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is not heard.
    Silent,
    /// It holds the others up.
    Slow,
    /// It has slowed the others down: for so long they waited for it lately.
    Pace(Duration),
}

/// A receiver, and what it was told.
#[derive(Debug)]
struct Receiver {
    /// The first packet that was for it when it became a receiver.
    owed_from: u64,
    state: ReceiverState,
    /// Its place as it is to be told; `None` until the manager has given it one.
    place: Option<Place>,
    /// The epoch of the place that it was told last, and when.
    told: Option<(u32, Time)>,
    /// The epoch of the place that it has taken.
    taken: Option<u32>,
    /// The epoch from which on it is what it is now: what it reports of an earlier place is of a
    /// time before it began anew.
    since: Option<u32>,
    /// When its place was last told in another epoch, because it reported one that it was not told.
    corrected_at: Option<Time>,
    /// How often it held the others up of late: each time it is out for twice as long.
    delays: u32,
    /// It is out for so long after it was left behind.
    out_for: Duration,
    /// When it was let in again, or came.
    admitted_at: Time,
    /// When it was known last that the tree brought it more.
    fed_at: Time,
}

impl Receiver {
    /// Its place, if it has not taken it.
    fn untaken(&self) -> Option<&Place> {
        let is_later =
            |place: &&Place| self.taken.is_none_or(|taken| epochs::is_after(place.epoch, taken));
        self.place.as_ref().filter(is_later)
    }

    /// The epoch of its next place, which is `epoch` of the stream's places. A receiver may have
    /// taken a place of another one, told it in answer to a forged report: a place replaces only
    /// one of a near and earlier epoch.
    fn next_epoch(&self, epoch: u32) -> u32 {
        let replaces = |taken| epochs::is_after(epoch, taken) && epochs::are_near(epoch, taken);
        self.taken.filter(|taken| !replaces(*taken)).map_or(epoch, epochs::after)
    }

    /// How long it is out: each time for twice as long.
    fn pause(&self, config: &Config) -> Duration {
        config.readmit_after * (1 << self.delays.min(MOST_DOUBLINGS))
    }
}

/// A receiver that slowed the others down is out for so many times as long as they waited for it.
const OUT_FOR: u32 = 10;

/// Who has kept up for so many times as long as the others wait for somebody slow is not slow.
const KEPT_UP: u32 = 16;
/// How often the time for which somebody slow is out is doubled, at most.
const MOST_DOUBLINGS: u32 = 12;

impl Placing {
    /// The receivers of the node's stream in a group: nobody yet.
    ///
    /// # Errors
    /// If the node is not where it could send.
    pub(super) fn new(around: &mut Around<'_>) -> Result<Self, ManagerError> {
        let management = Management::new(around)?;
        Ok(Self {
            group: around.group,
            management,
            receivers: BTreeMap::new(),
            children: Vec::new(),
            relays: RelayTree::new(around.config.relay_children),
            is_multicast: true,
            move_at: Time::ZERO,
            rough_moves: 0,
            rough_move_at: Time::ZERO,
            epoch: around.config.first_epoch.unwrap_or_else(|| epochs::first(around.rng)),
            tell_at: None,
        })
    }

    /// Nodes are in the group: they are receivers, who get what follows `first`.
    pub(super) fn join(&mut self, around: &mut Around<'_>, nodes: &[NodeId], first: u64) {
        for node in nodes {
            let state = ReceiverState {
                first,
                next: first,
                limit: first,
                by_tree: 0,
                by_repair: 0,
                left_behind_at: None,
                heard_at: around.now,
            };
            let receiver = Receiver {
                owed_from: first,
                state,
                place: None,
                told: None,
                taken: None,
                // What a node of that id has reported in an earlier life does not count.
                since: Some(epochs::after(self.epoch)),
                corrected_at: None,
                delays: 0,
                out_for: Duration::ZERO,
                admitted_at: around.now,
                fed_at: around.now,
            };
            self.receivers.insert(*node, receiver);
        }
        self.management.join(around, nodes);
        self.tell_changes(around);
        self.leave_out_unplaced(around);
    }

    /// Nobody waits for who has no place in the network, now that all have been placed. It is tried
    /// again as with somebody slow.
    fn leave_out_unplaced(&mut self, around: &mut Around<'_>) {
        if self.management.waits() {
            return;
        }
        let current = self.receivers.iter_mut().filter(|it| it.1.state.left_behind_at.is_none());
        for (node, receiver) in current.filter(|it| it.1.place.is_none()) {
            receiver.state.left_behind_at = Some(around.now);
            receiver.delays += 1;
            receiver.out_for = receiver.pause(around.config);
            around.counters.left_behind += 1;
            let (group, node) = (self.group, *node);
            around.events.push_back(Event::Slow(Slow { group, node, behind: 0 }));
        }
    }

    /// A node has left the group.
    pub(super) fn leave(&mut self, around: &mut Around<'_>, node: NodeId) {
        if self.receivers.remove(&node).is_none() {
            return;
        }
        self.management.leave(around, node);
        self.tell_changes(around);
    }

    /// The others go on without a receiver; whether they waited for it until now.
    pub(super) fn leave_behind(&mut self, around: &mut Around<'_>, node: NodeId, why: Why) -> bool {
        let Some(receiver) = self.receivers.get_mut(&node) else { return false };
        if receiver.state.left_behind_at.is_some() {
            return false;
        }
        receiver.state.left_behind_at = Some(around.now);
        if why == Why::Slow {
            let kept_up = around.now.since(receiver.admitted_at);
            let is_new = around.config.slow_after.is_some_and(|after| kept_up > KEPT_UP * after);
            receiver.delays = if is_new { 1 } else { receiver.delays + 1 };
        }
        receiver.out_for = match why {
            Why::Silent | Why::Slow => receiver.pause(around.config),
            // However often it comes back, the others keep nine tenths of their rate.
            Why::Pace(held) => (held * OUT_FOR).max(around.config.readmit_after),
        };
        receiver.place = None;
        self.management.leave(around, node);
        around.counters.left_behind += 1;
        self.tell_changes(around);
        true
    }

    /// The tree does not lead to those who were left behind: that somebody sends here they are told
    /// one by one, up to where. Who has no place asks for one then.
    pub(super) fn announce_to_left_behind(&self, around: &mut Around<'_>, end: u64) {
        let left = self.all().filter(|(_, state)| state.left_behind_at.is_some());
        for (node, _) in left {
            around.counters.announces_sent += 1;
            let taken = self.receivers.get(&node).and_then(|receiver| receiver.taken);
            around.unicast(node, &Packet::Announce { epoch: taken.unwrap_or(self.epoch), end });
        }
    }

    /// When a receiver that was left behind may be one again.
    pub(super) fn readmit_at(&self, node: NodeId) -> Time {
        let Some(receiver) = self.receivers.get(&node) else { return Time::MAX };
        receiver.state.left_behind_at.map_or(Time::MAX, |at| at + receiver.out_for)
    }

    /// A receiver that was left behind is a receiver again, of what follows `first`.
    pub(super) fn readmit(&mut self, around: &mut Around<'_>, node: NodeId, first: u64) {
        let Some(receiver) = self.receivers.get_mut(&node) else { return };
        receiver.state.left_behind_at = None;
        receiver.admitted_at = around.now;
        receiver.state.heard_at = around.now;
        receiver.state.first = first;
        receiver.state.next = first;
        receiver.since = Some(epochs::after(self.epoch));
        self.management.join(around, &[node]);
        around.counters.readmitted += 1;
        self.tell_changes(around);
        self.leave_out_unplaced(around);
    }

    /// The tree does not reach a receiver; whether links are believed dead now.
    pub(super) fn on_cut(&mut self, around: &mut Around<'_>, ring: u32, successor: NodeId) -> bool {
        if around.unreached.contains(&successor) {
            self.move_relay(around, successor);
            return false;
        }
        let has_found = self.management.on_cut(around, ring, successor);
        self.tell_changes(around);
        has_found
    }

    /// The service that manages the multicast has answered; whether places have changed.
    pub(super) fn on_answer(&mut self, around: &mut Around<'_>, answer: Answer) -> bool {
        match self.management.on_answer(answer) {
            None => {
                around.counters.manager_late += 1;
                false
            }
            Some(Ok(seated)) => {
                around.counters.manager_answered += 1;
                self.take(around, &seated);
                self.leave_out_unplaced(around);
                true
            }
            Some(Err(why)) => {
                tracing::info!(group = %self.group, %why, "the service does not place receivers");
                if why == Refusal::NoManager {
                    // As where there is no service: nothing was lost.
                    around.line.is_there = false;
                } else {
                    around.line.note_lost(self.group);
                }
                self.turn_beside(around);
                self.management.retry_later(around.now);
                true
            }
        }
    }

    /// The service that manages the multicast can be asked.
    pub(super) fn turn_to_service(&mut self, around: &mut Around<'_>) {
        let receivers = self.placed();
        self.management.turn_to_service(around, &receivers);
    }

    /// The service that manages the multicast is not reached, or does not answer: the sender has a
    /// manager of its own.
    pub(super) fn turn_beside(&mut self, around: &mut Around<'_>) {
        if self.management.is_at_service() {
            tracing::warn!(group = %self.group, "goes on with a multicast manager of its own");
            let receivers = self.placed();
            self.management.turn_beside(around, &receivers);
            self.tell_changes(around);
        }
    }

    /// Whether the membership service manages the multicast.
    pub(super) fn is_at_service(&self) -> bool {
        self.management.is_at_service()
    }

    /// The stream is over.
    pub(super) fn close(&mut self, around: &mut Around<'_>) {
        self.management.close(around);
    }

    /// The receivers that are to have places.
    fn placed(&self) -> Vec<NodeId> {
        self.waited_for().map(|(node, _)| node).collect()
    }

    /// Tells all places that have changed.
    fn tell_changes(&mut self, around: &mut Around<'_>) {
        if self.management.is_at_service() {
            // Until it answers all stay in their rings; who relays to whom is decided here.
            self.epoch = epochs::after(self.epoch);
            if self.arrange_relays(around) {
                self.tell_at = Some(around.now);
            }
            return;
        }
        let changed = self.management.poll();
        self.take(around, &changed);
    }

    /// Takes places that have changed, and tells them.
    fn take(&mut self, around: &mut Around<'_>, changed: &[Seated]) {
        let (count, epoch) = (self.receivers.len() as u32, epochs::after(self.epoch));
        self.epoch = epoch;
        for seated in changed {
            let Some(receiver) = self.receivers.get_mut(&seated.receiver) else { continue };
            // What the manager says of somebody who was left behind meanwhile comes too late.
            let is_waited_for = receiver.state.left_behind_at.is_none();
            let place = seated.place.clone().filter(|_| is_waited_for);
            let (first, epoch) = (receiver.state.first, receiver.next_epoch(epoch));
            let owed_from = receiver.owed_from.min(first);
            let place = place.map(|it| Place { epoch, first, owed_from, receivers: count, ..it });
            receiver.place = place;
            // A correction may have told it a later epoch, after one that was forged.
            if receiver.since.is_some_and(|since| epochs::is_after(since, epoch)) {
                receiver.since = Some(epoch);
            }
        }
        self.children = self.find_children(around.node);
        let is_rearranged = self.arrange_relays(around);
        if is_rearranged || !changed.is_empty() {
            self.tell_at = Some(around.now);
        }
    }

    /// Those whose overlay parent the sender is.
    fn find_children(&self, sender: NodeId) -> Vec<NodeId> {
        let is_child = |place: &Place| {
            place.leaf.parent == sender
                || place.proxy.as_ref().is_some_and(|seat| seat.parent == sender)
        };
        let placed = self
            .receivers
            .iter()
            .filter(|(_, receiver)| receiver.place.as_ref().is_some_and(is_child));
        placed.map(|(node, _)| *node).collect()
    }

    /// Tells places that were not taken yet: those that are new, and again those that were told a
    /// while ago. It is done once for all that changes in one turn.
    fn tell(&mut self, around: &mut Around<'_>) {
        let untaken = self.receivers.values().filter(|it| it.untaken().is_some()).count();
        let again_after = around.config.report_interval(untaken as u32);
        self.tell_at = None;
        for (node, receiver) in &mut self.receivers {
            let Some(place) = receiver.untaken() else { continue };
            let is_new = receiver.told.is_none_or(|(epoch, _)| epoch != place.epoch);
            if is_new || receiver.told.is_some_and(|(_, at)| at + again_after <= around.now) {
                around.counters.places_sent += 1;
                around.unicast(*node, &Packet::Place { receiver: *node, place: place.clone() });
                receiver.told = Some((place.epoch, around.now));
            }
            let again_at = receiver.told.map(|(_, at)| at + again_after);
            self.tell_at = [self.tell_at, again_at].into_iter().flatten().min();
        }
    }

    /// Time has passed; whether another manager is asked from now on.
    pub(super) fn handle_timeout(&mut self, around: &mut Around<'_>) -> bool {
        let was_at_service = self.is_at_service();
        match self.management.handle_timeout(around.now) {
            Some(Turn::ToService) if around.line.is_there => self.turn_to_service(around),
            Some(Turn::Beside) => {
                around.line.note_lost(self.group);
                self.turn_beside(around);
                self.management.retry_later(around.now);
            }
            Some(Turn::ToService) | None => {}
        }
        if self.tell_at.is_some_and(|at| at <= around.now) {
            self.tell(around);
        }
        self.is_at_service() != was_at_service
    }

    /// When [`Placing::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Time {
        self.management.poll_timeout().min(self.tell_at.unwrap_or(Time::MAX))
    }

    /// Whether all receivers have taken their places.
    pub(super) fn is_settled(&self) -> bool {
        !self.management.waits()
            && self.waited_for().all(|(_, receiver)| receiver.untaken().is_none())
    }

    fn waited_for(&self) -> impl Iterator<Item = (NodeId, &Receiver)> {
        let waits = |it: &(&NodeId, &Receiver)| it.1.state.left_behind_at.is_none();
        self.receivers.iter().filter(waits).map(|(node, receiver)| (*node, receiver))
    }

    /// The receivers whom the others wait for.
    pub(super) fn current(&self) -> impl Iterator<Item = (NodeId, &ReceiverState)> {
        self.waited_for().map(|(node, receiver)| (node, &receiver.state))
    }

    /// All receivers.
    pub(super) fn all(&self) -> impl Iterator<Item = (NodeId, &ReceiverState)> {
        self.receivers.iter().map(|(node, receiver)| (*node, &receiver.state))
    }

    /// One receiver.
    pub(super) fn receiver(&self, node: NodeId) -> Option<&ReceiverState> {
        self.receivers.get(&node).map(|receiver| &receiver.state)
    }

    /// The epoch of the places that were made last.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The overlay children of the sender.
    pub(super) fn children(&self) -> &[NodeId] {
        &self.children
    }

    /// The multicast tree; `None` if it is known to the membership service alone.
    pub(super) fn tree(&self) -> Option<&MulticastTree> {
        self.management.tree()
    }

    /// The sender stood still: it can have heard nobody meanwhile.
    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        for receiver in self.receivers.values_mut() {
            let heard_at = &mut receiver.state.heard_at;
            *heard_at = now.min(*heard_at + stopped_for);
        }
    }

    /// How often each receiver reports.
    pub(super) fn report_interval(&self, config: &Config) -> Duration {
        config.report_interval(self.receivers.len() as u32)
    }

    pub(super) fn check(&self) {
        for (node, receiver) in &self.receivers {
            let is_waited_for = receiver.state.left_behind_at.is_none();
            assert!(receiver.place.is_none() || is_waited_for, "{node} has a place and is out");
            let relays = receiver.place.as_ref().map_or(&[][..], |place| &place.relays);
            assert_eq!(relays, self.relays.children(*node), "{node} passes on to others");
        }
        self.relays.check();
    }
}
