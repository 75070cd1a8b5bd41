//! The sender's record of one receiver, with its progress, its place, and its evictions.
//!
//! The epochs of places are known only to receivers to which places were sent. A report with an
//! epoch that is far away is therefore not trusted.

use core::time::Duration;

use super::super::config::Config;
use super::super::epoch;
use super::super::packet::{Place, Report};
use crate::{NodeId, Time};

/// State of a receiver, as recorded by the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverState {
    /// First packet that the receiver gets.
    pub first: u64,
    /// First packet that the receiver lacks.
    pub next: u64,
    /// Number after the last packet that the receiver expects.
    pub limit: u64,
    /// Number of packets that the receiver got through the tree.
    pub by_tree: u64,
    /// Number of packets that the receiver got as repairs or that were multicast again.
    pub by_repair: u64,
    /// Time at which the receiver was evicted, or `None` if the other receivers wait for it.
    pub evicted_at: Option<Time>,
    /// Time at which the receiver was last heard.
    pub heard_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionCause {
    Unplaced,
    Silent,
    Stall,
    /// The receiver has slowed down the other receivers. They recently waited for it for this time.
    Pace(Duration),
}

#[derive(Debug, Default)]
pub(super) struct Record {
    owed_from: u64,
    pub(super) state: ReceiverState,
    pub(super) place: Option<Place>,
    sent: Option<(u32, Time)>,
    pub(super) taken: Option<u32>,
    /// Reports with an earlier epoch are from before the receiver rejoined or was readmitted.
    since: Option<u32>,
    /// Time at which the place was last sent again in response to an unknown epoch.
    corrected_at: Option<Time>,
    /// Recent evictions for a stall or lack of a place. Each one doubles the next pause.
    delays: u32,
    out_for: Duration,
    admitted_at: Time,
    fed_at: Time,
}

impl Record {
    pub(super) fn new(now: Time, first: u64, since: u32) -> Self {
        let state = ReceiverState {
            first,
            next: first,
            limit: first,
            heard_at: now,
            ..ReceiverState::default()
        };
        Self {
            owed_from: first,
            state,
            since: Some(since),
            admitted_at: now,
            fed_at: now,
            ..Self::default()
        }
    }

    pub(super) fn is_current(&self) -> bool {
        self.state.evicted_at.is_none()
    }

    /// Returns `true` if the receiver has all packets before `end` and is entitled to some of them.
    pub(super) fn has_all_before(&self, end: u64) -> bool {
        self.owed_from < end && self.state.next >= end
    }

    pub(super) fn is_fed(&self, now: Time, lately: Duration) -> bool {
        now.since(self.fed_at) < lately
    }

    pub(super) fn untaken(&self) -> Option<&Place> {
        let is_later =
            |place: &&Place| self.taken.is_none_or(|taken| epoch::is_after(place.epoch, taken));
        self.place.as_ref().filter(is_later)
    }

    /// Returns the epoch of the receiver's next place, which is usually `epoch`, the epoch of the
    /// stream's places. A place replaces only one with a near and earlier epoch. The receiver may
    /// have taken a place with another epoch that was sent in response to a forged report.
    fn next_epoch(&self, epoch: u32) -> u32 {
        let replaces = |taken| epoch::is_after(epoch, taken) && epoch::are_near(epoch, taken);
        self.taken.filter(|taken| !replaces(*taken)).map_or(epoch, epoch::after)
    }

    /// Adopts the manager's place, unless the receiver was evicted meanwhile.
    pub(super) fn adopt(&mut self, epoch: u32, receivers: u32, place: Option<Place>) {
        let (first, epoch) = (self.state.first, self.next_epoch(epoch));
        let owed_from = self.owed_from.min(first);
        let place = place.filter(|_| self.is_current());
        self.place = place.map(|it| Place { epoch, first, owed_from, receivers, ..it });
        // A correction in response to a forged report may have sent a later epoch to the receiver.
        if self.since.is_some_and(|since| epoch::is_after(since, epoch)) {
            self.since = Some(epoch);
        }
    }

    pub(super) fn set_relays(&mut self, epoch: u32, relays: &[NodeId]) -> bool {
        let epoch = self.next_epoch(epoch);
        let place = self.place.as_mut().filter(|place| place.relays != relays);
        let Some(place) = place else { return false };
        place.relays = relays.to_vec();
        place.epoch = epoch;
        true
    }

    /// Returns the place if it is new, or if the receiver has not taken it within `again_after`.
    pub(super) fn poll_place(&mut self, now: Time, again_after: Duration) -> Option<Place> {
        let place = self.untaken()?;
        let is_new = self.sent.is_none_or(|(epoch, _)| epoch != place.epoch);
        let is_due = is_new || self.sent.is_some_and(|(_, at)| at + again_after <= now);
        let place = is_due.then(|| place.clone())?;
        self.sent = Some((place.epoch, now));
        Some(place)
    }

    pub(super) fn untaken_sent_at(&self) -> Option<Time> {
        self.untaken()?;
        self.sent.map(|(_, at)| at)
    }

    pub(super) fn evict(&mut self, now: Time, cause: EvictionCause, config: &Config) {
        self.state.evicted_at = Some(now);
        match cause {
            EvictionCause::Unplaced => self.delays += 1,
            EvictionCause::Stall => {
                let kept_up = now.since(self.admitted_at);
                let is_new = config.slow_after.is_some_and(|after| kept_up > KEPT_UP * after);
                self.delays = if is_new { 1 } else { self.delays + 1 };
            }
            EvictionCause::Silent | EvictionCause::Pace(_) => {}
        }
        self.out_for = match cause {
            // The other receivers keep nine tenths of their rate despite readmissions.
            EvictionCause::Pace(waited) => (waited * OUT_FOR).max(config.readmit_after),
            _ => config.readmit_after * (1 << self.delays.min(MAX_DOUBLINGS)),
        };
        self.place = None;
    }

    pub(super) fn readmit_at(&self) -> Option<Time> {
        self.state.evicted_at.map(|at| at + self.out_for)
    }

    /// Returns `true` if a receiver that cannot be evicted is to be placed again now.
    pub(super) fn retry(&mut self, now: Time, config: &Config) -> bool {
        let is_due = now >= self.admitted_at + config.readmit_after;
        if is_due {
            self.admitted_at = now;
        }
        is_due
    }

    pub(super) fn readmit(&mut self, now: Time, first: u64, since: u32) {
        self.state.evicted_at = None;
        self.admitted_at = now;
        self.state.heard_at = now;
        (self.state.first, self.state.next) = (first, first);
        self.since = Some(since);
    }

    /// Returns `true` if a report refers to the place that was last sent, or to one near it.
    pub(super) fn knows(&self, report: &Report) -> bool {
        let is_near = |(epoch, _)| epoch::are_near(epoch, report.epoch);
        report.epoch != epoch::NONE && self.sent.is_some_and(is_near)
    }

    fn is_outdated(&self, report: &Report) -> bool {
        self.since.is_some_and(|since| epoch::is_after(since, report.epoch))
    }

    /// Returns `true` if the receiver has ended the stream and resumed it in a new place. It then
    /// lacks reported packets, because it has dropped an incomplete message.
    pub(super) fn has_restarted(&self, report: &Report) -> bool {
        self.knows(report)
            && self.taken.is_some_and(|taken| epoch::is_after(report.epoch, taken))
            && !self.is_outdated(report)
            && report.next < self.state.next
    }

    pub(super) fn on_report(&mut self, now: Time, report: &Report) {
        self.state.heard_at = now;
        if self.is_outdated(report) {
            return;
        }
        let state = &mut self.state;
        if report.by_tree > state.by_tree {
            self.fed_at = now;
        }
        state.next = state.next.max(report.next);
        state.limit = report.limit;
        (state.by_tree, state.by_repair) = (report.by_tree, report.by_repair);
        if self.taken.is_none_or(|taken| epoch::is_after(report.epoch, taken)) {
            self.taken = Some(report.epoch);
        }
    }

    /// Returns the first missing packet. A report that may be forged does not advance it.
    pub(super) fn reported_next(&self, report: &Report) -> u64 {
        match self.knows(report) {
            true => report.next,
            false => report.next.min(self.state.next),
        }
    }

    /// Changes the epoch of the place of a receiver that seems to have taken a place that this node
    /// did not send. Returns `true` if the place has to be sent again.
    pub(super) fn correct(
        &mut self,
        now: Time,
        reported: u32,
        epoch: &mut u32,
        every: Duration,
    ) -> bool {
        let is_recent = self.corrected_at.is_some_and(|at| now < at + every);
        let Some(place) = self.place.as_mut().filter(|_| !is_recent) else { return false };
        self.corrected_at = Some(now);
        // The new epoch must replace a place that was meant for a previous incarnation.
        if epoch::is_after(reported, *epoch) {
            place.epoch = epoch::after(reported);
        } else {
            *epoch = epoch::after(*epoch);
            place.epoch = *epoch;
        }
        (self.taken, self.since) = (None, Some(place.epoch));
        true
    }

    /// Assigns the receiver its place again, from packet `first` on. Returns `true` if it has one.
    pub(super) fn resume(&mut self, epoch: u32, first: u64) -> bool {
        let epoch = self.next_epoch(epoch);
        let Some(place) = self.place.as_mut() else { return false };
        (place.epoch, place.first, self.since) = (epoch, first, Some(epoch));
        place.owed_from = place.owed_from.min(first);
        (self.state.first, self.state.next) = (first, first);
        true
    }

    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        self.state.heard_at = now.min(self.state.heard_at + stopped_for);
    }
}

/// Pause of an evicted receiver, as a multiple of the time for which others waited for it.
const OUT_FOR: u32 = 10;
/// Time after which a receiver no longer counts as slow, as a multiple of `slow_after`.
const KEPT_UP: u32 = 16;
const MAX_DOUBLINGS: u32 = 12;
