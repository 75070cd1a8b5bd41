//! The receivers of a stream (sections 3.1 and 3.4), with the places that the manager has given
//! them and their progress.

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

#[derive(Debug)]
pub(super) struct Placing {
    group: GroupId,
    management: Management,
    receivers: BTreeMap<NodeId, Receiver>,
    children: Vec<NodeId>,
    /// Relay tree of the receivers that multicast does not reach.
    relays: RelayTree,
    /// `true` if multicast reaches a receiver, or if there are no receivers.
    is_multicast: bool,
    /// When a receiver may next be moved in the relay tree.
    move_at: Time,
    /// Number of recent moves to a position with receivers below it.
    rough_moves: u32,
    /// When the next such move is allowed.
    rough_move_at: Time,
    /// Epoch of the latest places. It is independent of the managers' epochs, because relays change
    /// without a manager.
    epoch: u32,
    /// When places that are new, or were not taken, are next sent.
    tell_at: Option<Time>,
}

/// The sender's record of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverState {
    /// First packet that it gets.
    pub first: u64,
    /// First packet that it lacks.
    pub next: u64,
    /// Number after the last packet that it expects.
    pub limit: u64,
    /// Packets that it received through the tree.
    pub by_tree: u64,
    /// Packets that it received as repairs.
    pub by_repair: u64,
    /// When it was evicted. `None` if the others wait for it.
    pub left_behind_at: Option<Time>,
    /// When it was last heard.
    pub heard_at: Time,
}

/// Reason for which a receiver is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Silent,
    /// The receiver stalls the others.
    Slow,
    /// The receiver has slowed the others down. The value is the time for which they recently
    /// waited for it.
    Pace(Duration),
}

/// A receiver and the places that it was sent.
#[derive(Debug)]
struct Receiver {
    /// First packet to which it was entitled when it became a receiver.
    owed_from: u64,
    state: ReceiverState,
    /// Its current place. `None` until the manager has given it one.
    place: Option<Place>,
    /// Epoch of the place that it was last sent, and when.
    told: Option<(u32, Time)>,
    /// Epoch of the place that it has taken.
    taken: Option<u32>,
    /// First epoch of its current state. Reports with an earlier epoch are from before it rejoined
    /// or was readmitted, and are ignored.
    since: Option<u32>,
    /// When its place was last sent with another epoch, because it reported an epoch that it was
    /// not sent.
    corrected_at: Option<Time>,
    /// Number of recent evictions for stalling the others or for lack of a place. Each one doubles
    /// the next pause.
    delays: u32,
    /// Pause between its eviction and readmission.
    out_for: Duration,
    admitted_at: Time,
    /// When it last reported more packets from the tree.
    fed_at: Time,
}

impl Receiver {
    /// Returns its place, if it has not taken it.
    fn untaken(&self) -> Option<&Place> {
        let is_later =
            |place: &&Place| self.taken.is_none_or(|taken| epochs::is_after(place.epoch, taken));
        self.place.as_ref().filter(is_later)
    }

    /// Returns the epoch of its next place, which is usually `epoch`, that of the stream's places.
    /// A place replaces only one with a near and earlier epoch, and the receiver may have taken a
    /// place with another one, sent in response to a forged report.
    fn next_epoch(&self, epoch: u32) -> u32 {
        let replaces = |taken| epochs::is_after(epoch, taken) && epochs::are_near(epoch, taken);
        self.taken.filter(|taken| !replaces(*taken)).map_or(epoch, epochs::after)
    }

    /// Returns the pause until it is readmitted. It doubles with each eviction for stalling the
    /// others.
    fn pause(&self, config: &Config) -> Duration {
        config.readmit_after * (1 << self.delays.min(MOST_DOUBLINGS))
    }
}

/// Pause of an evicted receiver, as a multiple of the time for which the others waited for it.
const OUT_FOR: u32 = 10;

/// Time after which a receiver no longer counts as slow, as a multiple of `slow_after`.
const KEPT_UP: u32 = 16;
/// Maximum number of doublings of the pause of a slow receiver.
const MOST_DOUBLINGS: u32 = 12;

impl Placing {
    /// Creates the set of receivers of the node's stream in a group, which is initially empty.
    ///
    /// # Errors
    /// Fails if the node is at no host from which it could send.
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

    /// Adds nodes that have joined the group as receivers of the packets from `first` on.
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
                // Reports of a node with that id before it joined do not count.
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

    /// Evicts receivers that have no place in the network, once all have been placed. They are
    /// tried again, like slow receivers.
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

    pub(super) fn leave(&mut self, around: &mut Around<'_>, node: NodeId) {
        if self.receivers.remove(&node).is_none() {
            return;
        }
        self.management.leave(around, node);
        self.tell_changes(around);
    }

    /// Evicts a receiver. Returns `true` if the others waited for it until now.
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
            // The others keep nine tenths of their rate, however often it is readmitted.
            Why::Pace(held) => (held * OUT_FOR).max(around.config.readmit_after),
        };
        receiver.place = None;
        self.management.leave(around, node);
        around.counters.left_behind += 1;
        self.tell_changes(around);
        true
    }

    /// Sends the end of the stream to each evicted receiver, which the tree does not reach. A
    /// receiver without a place then requests one.
    pub(super) fn announce_to_left_behind(&self, around: &mut Around<'_>, end: u64) {
        let left = self.all().filter(|(_, state)| state.left_behind_at.is_some());
        for (node, _) in left {
            around.counters.announces_sent += 1;
            let taken = self.receivers.get(&node).and_then(|receiver| receiver.taken);
            around.unicast(node, &Packet::Announce { epoch: taken.unwrap_or(self.epoch), end });
        }
    }

    /// Returns when an evicted receiver may be readmitted.
    pub(super) fn readmit_at(&self, node: NodeId) -> Time {
        let Some(receiver) = self.receivers.get(&node) else { return Time::MAX };
        receiver.state.left_behind_at.map_or(Time::MAX, |at| at + receiver.out_for)
    }

    /// Readmits an evicted receiver, which gets the packets from `first` on.
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

    /// Handles a report that the tree does not reach a receiver. Returns `true` if links are now
    /// believed dead.
    pub(super) fn on_cut(&mut self, around: &mut Around<'_>, ring: u32, successor: NodeId) -> bool {
        if around.unreached.contains(&successor) {
            self.move_relay(around, successor);
            return false;
        }
        let has_found = self.management.on_cut(around, ring, successor);
        self.tell_changes(around);
        has_found
    }

    /// Handles an answer of the service that manages the multicast. Returns `true` if places may
    /// have changed.
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
                    // Equivalent to having no service: nothing was lost.
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

    /// Uses the manager in the membership service from now on.
    pub(super) fn turn_to_service(&mut self, around: &mut Around<'_>) {
        let receivers = self.placed();
        self.management.turn_to_service(around, &receivers);
    }

    /// Uses the sender's own manager from now on, because the service is unreachable, refuses, or
    /// does not answer.
    pub(super) fn turn_beside(&mut self, around: &mut Around<'_>) {
        if self.management.is_at_service() {
            tracing::warn!(group = %self.group, "continues with a local multicast manager");
            let receivers = self.placed();
            self.management.turn_beside(around, &receivers);
            self.tell_changes(around);
        }
    }

    /// Returns `true` if the membership service manages the multicast.
    pub(super) fn is_at_service(&self) -> bool {
        self.management.is_at_service()
    }

    pub(super) fn close(&mut self, around: &mut Around<'_>) {
        self.management.close(around);
    }

    /// Returns the receivers that need places.
    fn placed(&self) -> Vec<NodeId> {
        self.waited_for().map(|(node, _)| node).collect()
    }

    /// Updates the places that have changed.
    fn tell_changes(&mut self, around: &mut Around<'_>) {
        if self.management.is_at_service() {
            // All receivers stay in their rings until the service answers. The relay tree is
            // managed here.
            self.epoch = epochs::after(self.epoch);
            if self.arrange_relays(around) {
                self.tell_at = Some(around.now);
            }
            return;
        }
        let changed = self.management.poll();
        self.take(around, &changed);
    }

    /// Adopts changed places and schedules their transmission.
    fn take(&mut self, around: &mut Around<'_>, changed: &[Seated]) {
        let (count, epoch) = (self.receivers.len() as u32, epochs::after(self.epoch));
        self.epoch = epoch;
        for seated in changed {
            let Some(receiver) = self.receivers.get_mut(&seated.receiver) else { continue };
            // The manager's place for a receiver that was evicted meanwhile is outdated.
            let is_waited_for = receiver.state.left_behind_at.is_none();
            let place = seated.place.clone().filter(|_| is_waited_for);
            let (first, epoch) = (receiver.state.first, receiver.next_epoch(epoch));
            let owed_from = receiver.owed_from.min(first);
            let place = place.map(|it| Place { epoch, first, owed_from, receivers: count, ..it });
            receiver.place = place;
            // A correction in response to a forged report may have sent it a later epoch.
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

    /// Returns the receivers whose overlay parent is the sender.
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

    /// Sends new places, and repeats those that were sent a while ago and not taken. All changes of
    /// one turn are sent together.
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

    /// Handles due timers. Returns `true` if another manager is used from now on.
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

    /// Returns when [`Placing::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Time {
        self.management.poll_timeout().min(self.tell_at.unwrap_or(Time::MAX))
    }

    /// Returns `true` if all receivers have taken their places.
    pub(super) fn is_settled(&self) -> bool {
        !self.management.waits()
            && self.waited_for().all(|(_, receiver)| receiver.untaken().is_none())
    }

    fn waited_for(&self) -> impl Iterator<Item = (NodeId, &Receiver)> {
        let waits = |it: &(&NodeId, &Receiver)| it.1.state.left_behind_at.is_none();
        self.receivers.iter().filter(waits).map(|(node, receiver)| (*node, receiver))
    }

    /// Returns the receivers for which the others wait.
    pub(super) fn current(&self) -> impl Iterator<Item = (NodeId, &ReceiverState)> {
        self.waited_for().map(|(node, receiver)| (node, &receiver.state))
    }

    /// Returns all receivers, including evicted ones.
    pub(super) fn all(&self) -> impl Iterator<Item = (NodeId, &ReceiverState)> {
        self.receivers.iter().map(|(node, receiver)| (*node, &receiver.state))
    }

    pub(super) fn receiver(&self, node: NodeId) -> Option<&ReceiverState> {
        self.receivers.get(&node).map(|receiver| &receiver.state)
    }

    /// Returns the epoch of the latest places.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the overlay children of the sender.
    pub(super) fn children(&self) -> &[NodeId] {
        &self.children
    }

    /// Returns the multicast tree. Returns `None` if the membership service manages the multicast.
    pub(super) fn tree(&self) -> Option<&MulticastTree> {
        self.management.tree()
    }

    /// Compensates for a time in which the sender stood still and could hear no receiver.
    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        for receiver in self.receivers.values_mut() {
            let heard_at = &mut receiver.state.heard_at;
            *heard_at = now.min(*heard_at + stopped_for);
        }
    }

    /// Returns the interval between reports of each receiver.
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
