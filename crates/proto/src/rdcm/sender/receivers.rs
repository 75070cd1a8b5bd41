//! The receivers of a stream, with their progress and their places (sections 3.1 and 3.4).

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::super::config::Config;
use super::super::context::Context;
use super::super::epoch;
use super::super::manager::messages::{Answer, Refusal};
use super::super::manager::{ManagerError, PlaceChange};
use super::super::packet::{Packet, Place, Report};
use super::super::topology::Vertex;
use super::manager_client::{ManagedBy, ManagerClient, ManagerEvent};
use super::receiver_record::{EvictionCause, ReceiverState, Record};
use super::relays::Relays;
use crate::{GroupId, Hops, NodeId, Time};

#[derive(Debug)]
pub(crate) struct Receivers {
    group: GroupId,
    pub(crate) manager: ManagerClient,
    records: BTreeMap<NodeId, Record>,
    pub(super) children: Vec<NodeId>,
    pub(crate) relays: Relays,
    /// Epoch of the latest places. Managers use other epochs, because relays change without them.
    pub(super) epoch: u32,
    send_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Current,
    /// Like `Current`, but the receiver has no place, or has ended the stream and resumed it.
    Restarted,
    /// The node is evicted, or is not a receiver.
    Evicted,
}

impl Receivers {
    pub(super) fn new(cx: &mut Context<'_>) -> Result<Self, ManagerError> {
        let manager = ManagerClient::new(cx)?;
        Ok(Self {
            group: cx.group,
            manager,
            records: BTreeMap::new(),
            children: Vec::new(),
            relays: Relays::new(cx.config.relay_children),
            epoch: cx.config.first_epoch.unwrap_or_else(|| cx.rng.next_u64() as u32),
            send_at: None,
        })
    }

    pub(super) fn join(&mut self, cx: &mut Context<'_>, nodes: &[NodeId], first: u64) {
        let since = epoch::after(self.epoch);
        let records = nodes.iter().map(|node| (*node, Record::new(cx.now, first, since)));
        self.records.extend(records);
        self.manager.join(cx, nodes);
        self.update_places(cx);
    }

    pub(super) fn leave(&mut self, cx: &mut Context<'_>, node: NodeId) {
        if self.records.remove(&node).is_some() {
            self.manager.leave(cx, node);
            self.update_places(cx);
        }
    }

    /// Evicts receivers without a place in the network, and returns them with their first missing
    /// packets. They are tried again, like slow receivers. The last receiver is not evicted.
    pub(super) fn evict_unplaced(&mut self, cx: &mut Context<'_>) -> Vec<(NodeId, u64)> {
        let unplaced = self.unplaced();
        let has_others = self.current().count() > unplaced.len();
        let mut evicted = Vec::new();
        for node in unplaced.into_iter().skip(usize::from(!has_others)) {
            let Some(record) = self.records.get_mut(&node) else { continue };
            record.evict(cx.now, EvictionCause::Unplaced, cx.config);
            cx.counters.left_behind += 1;
            evicted.push((node, record.state.next));
        }
        evicted
    }

    /// Requests a place again for a last receiver without one, which is not evicted.
    pub(super) fn rejoin_unplaced(&mut self, cx: &mut Context<'_>) {
        let mut nodes = self.unplaced();
        nodes.retain(|node| {
            let record = self.records.get_mut(node);
            record.is_some_and(|record| record.retry(cx.now, cx.config))
        });
        if !nodes.is_empty() {
            self.manager.join(cx, &nodes);
            self.update_places(cx);
        }
    }

    /// Returns the current receivers to which the manager has given no place.
    fn unplaced(&self) -> Vec<NodeId> {
        if self.manager.is_waiting() {
            return Vec::new();
        }
        let current = self.records.iter().filter(|(_, record)| record.is_current());
        current.filter(|(_, record)| record.place.is_none()).map(|(node, _)| *node).collect()
    }

    pub(super) fn evict(
        &mut self,
        cx: &mut Context<'_>,
        node: NodeId,
        cause: EvictionCause,
    ) -> bool {
        let record = self.records.get_mut(&node).filter(|record| record.is_current());
        let Some(record) = record else { return false };
        record.evict(cx.now, cause, cx.config);
        self.manager.leave(cx, node);
        cx.counters.left_behind += 1;
        self.update_places(cx);
        true
    }

    /// Announces the end to evicted receivers by unicast, because the tree does not reach them. A
    /// receiver without a place then requests one.
    pub(super) fn announce_to_evicted(&self, cx: &mut Context<'_>, end: u64) {
        for (node, record) in self.records.iter().filter(|(_, record)| !record.is_current()) {
            cx.counters.announces_sent += 1;
            let epoch = record.taken.unwrap_or(self.epoch);
            cx.unicast(*node, &Packet::Announce { epoch, end });
        }
    }

    pub(super) fn may_readmit(&self, now: Time, node: NodeId) -> bool {
        let readmit_at = self.records.get(&node).and_then(Record::readmit_at);
        readmit_at.is_some_and(|at| at <= now)
    }

    pub(super) fn readmit(&mut self, cx: &mut Context<'_>, node: NodeId, first: u64) {
        let Some(record) = self.records.get_mut(&node) else { return };
        record.readmit(cx.now, first, epoch::after(self.epoch));
        self.manager.join(cx, &[node]);
        cx.counters.readmitted += 1;
        self.update_places(cx);
    }

    pub(super) fn on_cut(&mut self, cx: &mut Context<'_>, ring: u32, successor: NodeId) -> bool {
        if cx.unreached.contains(&successor) {
            self.move_relay(cx, successor);
            return false;
        }
        let has_found = self.manager.on_cut(cx, ring, successor);
        self.update_places(cx);
        has_found
    }

    fn move_relay(&mut self, cx: &mut Context<'_>, node: NodeId) {
        let (now, settle) = (cx.now, cx.config.cut_after * 2);
        // The parent must have received data after its child was cut off.
        let lately = cx.config.cut_after / 2 + self.report_interval(cx.config) * 2;
        let is_fed = |parent: NodeId| {
            self.records.get(&parent).is_some_and(|record| record.is_fed(now, lately))
        };
        if self.relays.move_away(now, node, settle, is_fed, cx.rng) {
            cx.counters.relays_moved += 1;
            self.update_places(cx);
        }
    }

    pub(super) fn on_manager(&mut self, cx: &mut Context<'_>, event: ManagerEvent) {
        match event {
            ManagerEvent::Reachable => self.use_service(cx),
            ManagerEvent::Unreachable if self.manager.managed_by() == ManagedBy::Service => {
                cx.manager.lost.insert(self.group);
                self.use_local_manager(cx);
            }
            ManagerEvent::Unreachable => {}
            ManagerEvent::Answer(answer) => self.on_answer(cx, answer),
        }
    }

    fn on_answer(&mut self, cx: &mut Context<'_>, answer: Answer) {
        match self.manager.on_answer(answer) {
            None => cx.counters.manager_late += 1,
            Some(Ok(changes)) => {
                cx.counters.manager_answered += 1;
                self.adopt(cx, &changes);
            }
            Some(Err(refusal)) => {
                let group = self.group;
                tracing::info!(%group, why = %refusal, "the registry does not place the receivers");
                if refusal == Refusal::NoManager {
                    // Nothing was lost, so this is equivalent to having no service.
                    cx.manager.is_reachable = false;
                } else {
                    cx.manager.lost.insert(self.group);
                }
                self.use_local_manager(cx);
                self.manager.retry_later(cx.now);
            }
        }
    }

    fn use_service(&mut self, cx: &mut Context<'_>) {
        let receivers: Vec<NodeId> = self.current().map(|(node, _)| node).collect();
        self.manager.use_service(cx, &receivers);
    }

    fn use_local_manager(&mut self, cx: &mut Context<'_>) {
        if self.manager.managed_by() == ManagedBy::Service {
            tracing::warn!(group = %self.group, "using a local multicast manager");
            let receivers: Vec<NodeId> = self.current().map(|(node, _)| node).collect();
            self.manager.use_local(cx, &receivers);
            self.update_places(cx);
        }
    }

    pub(crate) fn update_places(&mut self, cx: &mut Context<'_>) {
        if self.manager.managed_by() == ManagedBy::Sender {
            let changes = self.manager.poll();
            self.adopt(cx, &changes);
            return;
        }
        // Receivers stay in their rings until the service answers. Only relays are managed locally.
        self.epoch = epoch::after(self.epoch);
        if self.arrange_relays(cx) {
            self.send_at = Some(cx.now);
        }
    }

    fn adopt(&mut self, cx: &mut Context<'_>, changes: &[PlaceChange]) {
        self.epoch = epoch::after(self.epoch);
        let count = self.records.len() as u32;
        for change in changes {
            if let Some(record) = self.records.get_mut(&change.receiver) {
                record.adopt(self.epoch, count, change.place.clone());
            }
        }
        let is_child = |place: &Place| place.seats().any(|seat| seat.parent == cx.node);
        let children =
            self.records.iter().filter(|(_, record)| record.place.as_ref().is_some_and(is_child));
        self.children = children.map(|(node, _)| *node).collect();
        let is_rearranged = self.arrange_relays(cx);
        if is_rearranged || !changes.is_empty() {
            self.send_at = Some(cx.now);
        }
    }

    fn arrange_relays(&mut self, cx: &Context<'_>) -> bool {
        let placed = self.records.iter().filter_map(|(node, record)| {
            // One leaf ring is treated as one rack.
            record.place.as_ref().map(|place| (*node, Vertex(place.leaf.ring)))
        });
        self.relays.arrange(placed, cx.unreached);
        let mut has_changed = false;
        for (node, record) in &mut self.records {
            has_changed |= record.set_relays(self.epoch, self.relays.tree.children(*node));
        }
        has_changed
    }

    /// Sends all new places together, and resends those that their receivers have not taken in
    /// time.
    fn send_places(&mut self, cx: &mut Context<'_>) {
        let untaken = self.records.values().filter(|it| it.untaken().is_some()).count();
        let again_after = cx.config.report_interval(untaken as u32);
        self.send_at = None;
        for (node, record) in &mut self.records {
            if let Some(place) = record.poll_place(cx.now, again_after) {
                cx.counters.places_sent += 1;
                cx.unicast(*node, &Packet::Place { receiver: *node, place });
            }
            let again_at = record.untaken_sent_at().map(|at| at + again_after);
            self.send_at = [self.send_at, again_at].into_iter().flatten().min();
        }
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.manager.managed_by();
        match self.manager.handle_timeout(cx.now) {
            Some(ManagedBy::Service) if cx.manager.is_reachable => self.use_service(cx),
            Some(ManagedBy::Sender) => {
                cx.manager.lost.insert(self.group);
                self.use_local_manager(cx);
                self.manager.retry_later(cx.now);
            }
            Some(ManagedBy::Service) | None => {}
        }
        if self.send_at.is_some_and(|at| at <= cx.now) {
            self.send_places(cx);
        }
        self.manager.managed_by() != before
    }

    pub(super) fn poll_timeout(&self) -> Time {
        self.manager.poll_timeout().min(self.send_at.unwrap_or(Time::MAX))
    }

    /// Returns the number of receivers that are entitled to a packet before `end` and lack none.
    pub(super) fn confirmed(&self, end: u64) -> usize {
        self.records.values().filter(|record| record.has_all_before(end)).count()
    }

    pub(super) fn on_report(
        &mut self,
        cx: &mut Context<'_>,
        node: NodeId,
        report: &Report,
    ) -> Standing {
        let Some(record) = self.records.get_mut(&node) else { return Standing::Evicted };
        let has_restarted = report.epoch == epoch::NONE || record.has_restarted(report);
        let standing = match record.is_current() {
            true if has_restarted => Standing::Restarted,
            true => Standing::Current,
            false => Standing::Evicted,
        };
        if record.knows(report) {
            record.on_report(cx.now, report);
        } else if report.epoch != epoch::NONE {
            cx.counters.implausible += 1;
            let every = cx.config.report_every;
            if record.correct(cx.now, report.epoch, &mut self.epoch, every) {
                self.send_at = Some(cx.now);
            }
        }
        // A receiver that does not take its place is evicted later, and then gets another one.
        standing
    }

    /// Resumes the stream with packet `first` if the receiver had taken a place, and then returns
    /// `true`.
    pub(super) fn resume(&mut self, now: Time, node: NodeId, first: u64) -> bool {
        let record = self.records.get_mut(&node).filter(|record| record.untaken().is_none());
        let Some(record) = record else { return false };
        self.epoch = epoch::after(self.epoch);
        let has_place = record.resume(self.epoch, first);
        if has_place {
            self.send_at = Some(now);
        }
        has_place
    }

    pub(super) fn reported_next(&self, node: NodeId, report: &Report) -> u64 {
        self.records.get(&node).map_or(report.next, |record| record.reported_next(report))
    }

    pub(crate) fn are_settled(&self) -> bool {
        let mut current = self.records.values().filter(|record| record.is_current());
        !self.manager.is_waiting() && current.all(|record| record.untaken().is_none())
    }

    pub(super) fn current(&self) -> impl Iterator<Item = (NodeId, &ReceiverState)> {
        self.all().filter(|(_, state)| state.evicted_at.is_none())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (NodeId, &ReceiverState)> {
        self.records.iter().map(|(node, record)| (*node, &record.state))
    }

    /// Returns the evicted receivers with their first missing packets.
    pub(super) fn evicted(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let evicted = self.all().filter(|(_, state)| state.evicted_at.is_some());
        evicted.map(|(node, state)| (node, state.next))
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&ReceiverState> {
        self.records.get(&node).map(|record| &record.state)
    }

    pub(crate) fn hops(&self) -> Hops {
        self.relays.hops.clone()
    }

    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        self.records.values_mut().for_each(|record| record.make_up_for_stop(now, stopped_for));
    }

    pub(super) fn report_interval(&self, config: &Config) -> Duration {
        config.report_interval(self.records.len() as u32)
    }

    pub(super) fn settled_after(&self, config: &Config) -> Duration {
        let interval = self.report_interval(config);
        interval + interval / 4
    }

    pub(super) fn check(&self, base: u64) {
        for (node, record) in &self.records {
            let is_current = record.is_current();
            assert!(record.place.is_none() || is_current, "evicted {node} has a place");
            assert!(!is_current || record.state.next >= base, "{node} lacks released packets");
            let relays = record.place.as_ref().map_or(&[][..], |place| &place.relays);
            assert_eq!(relays, self.relays.tree.children(*node), "{node} has wrong relays");
        }
        self.relays.tree.check();
    }
}
