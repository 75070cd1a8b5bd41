//! Receivers' reports to the sender. The epoch of a place is known only to the receiver to which it
//! was sent, so a report with another epoch is not trusted.

use super::super::around::Around;
use super::super::epochs;
use super::super::packet::Report;
use super::{Placing, Receiver};
use crate::NodeId;

impl Receiver {
    /// Returns `true` if a report refers to the place that the receiver was last sent, or to one
    /// near it.
    fn knows(&self, report: &Report) -> bool {
        let is_near = |(epoch, _)| epochs::are_near(epoch, report.epoch);
        report.epoch != epochs::NONE && self.told.is_some_and(is_near)
    }
}

impl Placing {
    /// Returns the number of receivers that have all packets before `mark`. A receiver that joined
    /// later is not entitled to any of them and does not count. An evicted receiver counts if it
    /// has them all by now.
    pub(in super::super) fn confirmed(&self, mark: u64) -> usize {
        let all = self.receivers.values();
        all.filter(|it| it.owed_from < mark && it.state.next >= mark).count()
    }

    /// Handles a report. Returns `true` if the others wait for the receiver.
    pub(in super::super) fn on_report(
        &mut self,
        around: &mut Around<'_>,
        node: NodeId,
        report: &Report,
    ) -> bool {
        let Some(receiver) = self.receivers.get_mut(&node) else { return false };
        let is_current = receiver.state.left_behind_at.is_none();
        if report.epoch == epochs::NONE {
            // The receiver has no place. If it was sent one and does not report that it has taken
            // it, it is evicted in time and then gets another one.
            return is_current;
        }
        if !receiver.knows(report) {
            around.counters.implausible += 1;
            self.correct(around, node, report.epoch);
            return is_current;
        }
        let state = &mut receiver.state;
        state.heard_at = around.now;
        if receiver.since.is_some_and(|since| epochs::is_after(since, report.epoch)) {
            return is_current;
        }
        if report.by_tree > state.by_tree {
            receiver.fed_at = around.now;
        }
        state.next = state.next.max(report.next);
        state.limit = report.limit;
        (state.by_tree, state.by_repair) = (report.by_tree, report.by_repair);
        if receiver.taken.is_none_or(|taken| epochs::is_after(report.epoch, taken)) {
            receiver.taken = Some(report.epoch);
        }
        is_current
    }

    /// Returns `true` if a receiver has ended the stream and resumed it in a new place. It then
    /// lacks packets that it had reported, because it drops an incomplete message when it ends a
    /// stream.
    pub(in super::super) fn has_restarted(&self, node: NodeId, report: &Report) -> bool {
        self.receivers.get(&node).is_some_and(|receiver| {
            let is_new = |taken| epochs::is_after(report.epoch, taken);
            let counts = |since| !epochs::is_after(since, report.epoch);
            receiver.knows(report)
                && receiver.taken.is_some_and(is_new)
                && receiver.since.is_none_or(counts)
                && report.next < receiver.state.next
        })
    }

    /// Sends a receiver its place again, with an epoch above the one that it reported. It seems to
    /// have taken a place that was not sent by this node, or has got no place for a long time.
    fn correct(&mut self, around: &Around<'_>, node: NodeId, epoch: u32) {
        let every = around.config.report_every;
        let Some(receiver) = self.receivers.get_mut(&node) else { return };
        let is_recent = receiver.corrected_at.is_some_and(|at| around.now < at + every);
        let Some(place) = receiver.place.as_mut().filter(|_| !is_recent) else { return };
        receiver.corrected_at = Some(around.now);
        // A restarted receiver may have taken a place meant for its previous incarnation. An epoch
        // that was used before would not replace that place.
        if epochs::is_after(epoch, self.epoch) {
            place.epoch = epochs::after(epoch);
        } else {
            self.epoch = epochs::after(self.epoch);
            place.epoch = self.epoch;
        }
        (receiver.taken, receiver.since) = (None, Some(place.epoch));
        self.tell_at = Some(around.now);
    }

    /// Assigns a receiver again a place that it had taken, in which it continues with packet
    /// `first`. Returns `true` if it had taken one.
    pub(in super::super) fn tell_again(
        &mut self,
        around: &Around<'_>,
        node: NodeId,
        first: u64,
    ) -> bool {
        let Some(receiver) = self.receivers.get_mut(&node) else { return false };
        if receiver.untaken().is_some() {
            return false;
        }
        self.epoch = epochs::after(self.epoch);
        let epoch = receiver.next_epoch(self.epoch);
        let Some(place) = receiver.place.as_mut() else { return false };
        (place.epoch, place.first, receiver.since) = (epoch, first, Some(epoch));
        place.owed_from = place.owed_from.min(first);
        (receiver.state.first, receiver.state.next) = (first, first);
        self.tell_at = Some(around.now);
        true
    }

    /// Returns the first packet that a receiver lacks, according to its report. A report without a
    /// place, or with one that it was not sent, may be forged and does not advance the receiver.
    pub(in super::super) fn reported(&self, node: NodeId, report: &Report) -> u64 {
        let receiver = self.receivers.get(&node);
        match receiver.filter(|it| !it.knows(report)) {
            Some(receiver) => report.next.min(receiver.state.next),
            None => report.next,
        }
    }
}
