//! Acknowledgments of a receiver to its neighbors in the rings, and reports to the sender.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::super::around::Around;
use super::super::config::Config;
use super::super::packet::{Packet, Report, RingAck};
use super::Reception;
use crate::{NodeId, Time};

impl Reception {
    /// Schedules acknowledgments to the neighbors in the rings, together with those of packets that
    /// follow soon.
    pub(super) fn tell_soon(&mut self, around: &Around<'_>) {
        let (every, delay) = (around.config.ack_every, around.config.ack_delay);
        let is_proxy = self.place.proxy.is_some();
        let branch = is_proxy.then_some(&mut self.branch_acks);
        for acks in [&mut self.acks, &mut self.parent_acks].into_iter().chain(branch) {
            acks.on_packet(around.now, every, delay);
        }
    }

    pub(super) fn tell_at_once(&mut self, now: Time) {
        self.tell_gap(now);
        if self.place.proxy.is_some() {
            self.branch_acks.at_once(now);
        }
    }

    /// Schedules an immediate report of a gap at this receiver. Acknowledgments of the branch are
    /// not affected.
    pub(super) fn tell_gap(&mut self, now: Time) {
        self.acks.at_once(now);
        self.parent_acks.at_once(now);
    }

    /// Schedules the acknowledgment of a repair. Predecessors get it at once, because they wait for
    /// it and may be about to send the repair, too. The parent in the leaf ring gets it later.
    pub(super) fn tell_repaired(&mut self, around: &Around<'_>) {
        self.acks.at_once(around.now);
        self.parent_acks.within(around.now, around.config.ack_delay);
        if self.place.proxy.is_some() {
            self.branch_acks.at_once(around.now);
        }
    }

    /// Schedules acknowledgments of the branch, after one of a child. Packets that the branch is
    /// now known to lack are reported at once.
    pub(super) fn on_child(&mut self, around: &Around<'_>) {
        if self.place.proxy.is_none() {
            return;
        }
        let known_to = self.branch_known_to();
        let fresh = self.branch_told_to..known_to;
        self.branch_told_to = known_to.max(fresh.start);
        match self.window.branch().is_none_or(|branch| branch.contains_all(fresh)) {
            true => self.branch_acks.within(around.now, around.config.ack_delay),
            false => self.branch_acks.at_once(around.now),
        }
    }

    /// Sends the acknowledgments that are due, in one packet per neighbor.
    pub(super) fn acknowledge(&mut self, around: &mut Around<'_>) {
        let (now, config) = (around.now, around.config);
        let mut to: BTreeMap<NodeId, Vec<RingAck>> = BTreeMap::new();
        let seat = self.place.leaf;
        let told = [(&mut self.acks, seat.predecessor), (&mut self.parent_acks, seat.parent)];
        let due = told.map(|(acks, node)| acks.take_due(now).then_some(node));
        if seat.predecessor == seat.parent && due.iter().any(Option::is_some) {
            (self.acks, self.parent_acks) = Default::default();
        }
        let branch_due = self.place.proxy.filter(|_| self.branch_acks.take_due(now));
        for node in due.into_iter().flatten() {
            to.insert(node, alloc::vec![self.own_ack(self.place.leaf.ring, config)]);
        }
        if let Some(seat) = branch_due {
            let ack = self.branch_ack(seat.ring, config);
            for node in BTreeSet::from([seat.predecessor, seat.parent]) {
                to.entry(node).or_default().push(ack.clone());
            }
        }
        to.remove(&around.node);
        for (node, acks) in to {
            around.counters.acks_sent += 1;
            around.unicast(node, &Packet::Ack(acks));
        }
        self.tell_formers(around, due[0].is_some(), branch_due.is_some());
    }

    pub(super) fn own_ack(&self, ring: u32, config: &Config) -> RingAck {
        let (limit, by_tree) = (self.limit(config), self.by_tree as u32);
        RingAck::new(ring, self.window.own(), self.known_to, limit, by_tree)
    }

    pub(super) fn branch_ack(&self, ring: u32, config: &Config) -> RingAck {
        let has = self.window.branch().unwrap_or_else(|| self.window.own().clone());
        let limits = self.heard_children().map(|child| child.limit);
        let limit = limits.fold(self.limit(config), u64::min);
        RingAck::new(ring, &has, self.branch_known_to(), limit, self.by_tree as u32)
    }

    pub(super) fn report(&mut self, around: &mut Around<'_>) {
        let next = self.window.own().next();
        self.reported_next = next;
        self.report_at = around.now + around.config.report_interval(self.place.receivers);
        let report = Report {
            epoch: self.place.epoch,
            next,
            limit: self.limit(around.config),
            by_tree: self.by_tree,
            by_repair: self.by_repair,
        };
        around.counters.reports_sent += 1;
        around.unicast(self.sender, &Packet::Report(report));
    }

    /// Reports successors that are silent, or that the tree does not reach.
    pub(super) fn watch(&mut self, around: &mut Around<'_>) {
        let (now, config) = (around.now, around.config);
        let mut packets = Vec::new();
        for successor in self.window.successors_mut() {
            if successor.until().is_some() {
                continue;
            }
            if successor.is_cut(now, self.by_tree, config.cut_after) {
                around.counters.cuts_reported += 1;
                let (ring, successor) = (successor.ring, successor.node);
                packets.push(Packet::Cut { ring, successor });
            } else if successor.is_silent(now, config.gone_after) {
                around.counters.silences_reported += 1;
                packets.push(Packet::Silent { successor: successor.node });
            }
        }
        packets.iter().for_each(|packet| around.unicast(self.sender, packet));
    }

    /// Returns the number after the last packet that this receiver expects.
    fn limit(&self, config: &Config) -> u64 {
        let room = self.window.end();
        let Some(bic) = &self.bic else { return room };
        let mut limit = bic.highest_expected(self.known_to);
        if config.repairs_share_path {
            let lost: u64 = self.missing_below(self.known_to);
            limit = limit.saturating_sub(lost).max(self.window.own().next() + 2);
        }
        limit.min(room)
    }

    fn missing_below(&self, end: u64) -> u64 {
        let own = self.window.own();
        let inside: u64 = own.missing().map(|range| range.end - range.start).sum();
        inside + end.saturating_sub(own.end())
    }
}
