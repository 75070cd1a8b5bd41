//! Repairs in flight to one successor, with the limit on their number and the detection of losses.
//!
//! A receiver acknowledges a repair at once, so that the acknowledgment measures the round-trip
//! time. A repair counts as lost in two cases: a repair that was sent clearly later has arrived, or
//! its acknowledgment takes longer than the smoothed round-trip time plus four times its deviation,
//! as in TCP (RFC 6298). The limit follows the losses of repairs like TCP's window. A successor
//! that lacks many packets is served as fast as its path permits, and no faster.

use alloc::collections::{BTreeSet, VecDeque};
use core::time::Duration;

use super::super::sack_set::SackSet;
use crate::Time;
use crate::transport::RttEstimator;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    sent: VecDeque<Sent>,
    count: u64,
    /// Packets of which a repair was lost. The next round trip of such a packet is ambiguous.
    again: BTreeSet<u64>,
    window: u32,
    /// Window up to which the current window doubles in each round trip.
    threshold: u32,
    arrived: u32,
    /// Time at which the window was last reduced. Losses of earlier repairs do not reduce it.
    reduced_at: Time,
    rtt: RttEstimator,
    timeouts: u32,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    /// Number of repairs sent before this one, and the time at which it was sent.
    order: u64,
    at: Time,
}

const INITIAL: u32 = 32;
const LEAST: u32 = 4;
/// Number of later repairs after which the arrival of one shows that an earlier repair is lost.
const REORDERED: u64 = 3;
/// Like [`REORDERED`], but as a time: the round-trip time divided by this number.
const REORDERED_PART: u32 = 4;
/// Minimum margin over the smoothed round-trip time after which an acknowledgment counts as late.
const LEAST_MARGIN: Duration = Duration::from_micros(100);

impl InFlight {
    pub(super) fn new(now: Time) -> Self {
        Self { window: INITIAL, threshold: u32::MAX, reduced_at: now, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.sent.iter().any(|it| it.number == number)
    }

    pub(super) fn has_room(&self, most: u32) -> bool {
        self.sent.len() < self.window.min(most) as usize
    }

    pub(super) fn push(&mut self, now: Time, number: u64) {
        self.sent.push_back(Sent { number, order: self.count, at: now });
        self.count += 1;
    }

    pub(super) fn forget(&mut self, number: u64) {
        self.sent.retain(|it| it.number != number);
    }

    pub(super) fn on_ack(&mut self, now: Time, has: &SackSet, most: u32) -> Vec<u64> {
        let Some(last) = self.sent.iter().rfind(|it| has.contains(it.number)).copied() else {
            return Vec::new();
        };
        // The timeout is kept if the acknowledged packet may be an earlier copy that arrived late.
        if !self.again.contains(&last.number) {
            self.timeouts = 0;
            self.rtt.on_sample(now.since(last.at));
        }
        let reordered = self.rtt.smoothed().map_or(Duration::MAX, |rtt| rtt / REORDERED_PART);
        let (flight, mut arrived, mut lost) = (self.sent.len() as u32, 0, Vec::new());
        self.sent.retain(|it| {
            if has.contains(it.number) {
                arrived += 1;
                return false;
            }
            let is_lost = last.order >= it.order + REORDERED
                || last.order > it.order && last.at.since(it.at) >= reordered;
            if is_lost {
                lost.push(*it);
            }
            !is_lost
        });
        self.again = self.again.split_off(&has.next());
        match lost.iter().any(|it| it.at > self.reduced_at) {
            true => self.reduce(now, flight, 2),
            false => self.grow(flight, arrived, most),
        }
        self.again.extend(lost.iter().map(|it| it.number));
        lost.into_iter().map(|it| it.number).collect()
    }

    pub(super) fn pop_late(&mut self, now: Time, most: Duration) -> Option<u64> {
        let first = self.sent.front().copied()?;
        if now < first.at + self.ack_timeout(most) {
            return None;
        }
        let flight = self.sent.len() as u32;
        self.sent.pop_front();
        if first.at > self.reduced_at {
            self.timeouts += 1;
            self.reduce(now, flight, flight);
        }
        self.again.insert(first.number);
        Some(first.number)
    }

    pub(super) fn next_late(&self, most: Duration) -> Option<Time> {
        Some(self.sent.front()?.at + self.ack_timeout(most))
    }

    fn ack_timeout(&self, most: Duration) -> Duration {
        let Some(smoothed) = self.rtt.smoothed() else { return most };
        let once = smoothed + (4 * self.rtt.deviation()).max(LEAST_MARGIN);
        once.saturating_mul(1 << self.timeouts.min(16)).min(most)
    }

    fn grow(&mut self, flight: u32, arrived: u32, most: u32) {
        // The size of an unused window says nothing about the path.
        if flight < self.window / 2 || self.window >= most {
            return;
        }
        self.arrived += arrived;
        let step = if self.window < self.threshold { 1 } else { self.window };
        self.window = (self.window + self.arrived / step).min(most);
        self.arrived %= step;
    }

    fn reduce(&mut self, now: Time, flight: u32, part: u32) {
        let used = self.window.min(flight);
        self.threshold = (used / 2).max(LEAST);
        self.window = (used / part).max(LEAST);
        (self.arrived, self.reduced_at) = (0, now);
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
