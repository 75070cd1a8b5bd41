//! Repairs to one successor that are under way: how many there may be, and which of them are lost.
//!
//! Who gets a repair acknowledges it at once, so that the acknowledgement tells the round trip. A
//! repair is lost when one that was sent clearly later has come, or when its acknowledgement is
//! late: by the smoothed round trip and four times its deviation, as in TCP (RFC 6298). How many
//! may be under way follows the losses of repairs as TCP's window does: a successor that lacks
//! much is served as fast as its path carries it, and no faster.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::having::Having;
use crate::Time;

/// Repairs to one successor.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// In the order in which they were sent.
    sent: VecDeque<Sent>,
    /// How many were sent so far.
    count: u64,
    /// What was lost on its way: its next round trip tells nothing.
    again: BTreeSet<u64>,
    /// Repairs that may be under way.
    window: u32,
    /// The window doubles in each round trip up to here.
    threshold: u32,
    /// Repairs that came since the window last grew.
    arrived: u32,
    /// When the window was last reduced: what was sent before says nothing new.
    reduced_at: Time,
    /// The smoothed round trip and its mean deviation.
    round_trip: Option<(Duration, Duration)>,
    /// Timeouts since a repair last came.
    timeouts: u32,
}

/// A repair.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    /// How many were sent before it, and when it was.
    order: u64,
    at: Time,
}

/// Repairs under way to a successor of which nothing is known yet.
const INITIAL: u32 = 32;
/// Repairs that may always be under way.
const LEAST: u32 = 4;
/// Repairs sent after one that has not come, of which the last has: those before it are lost.
const REORDERED: u64 = 3;
/// The same in time, as a part of the round trip.
const REORDERED_PART: u32 = 4;
/// An acknowledgement is never late before it is so much later than usual.
const LEAST_MARGIN: Duration = Duration::from_micros(100);

impl UnderWay {
    pub(super) fn new(now: Time) -> Self {
        Self {
            sent: VecDeque::new(),
            count: 0,
            again: BTreeSet::new(),
            window: INITIAL,
            threshold: u32::MAX,
            arrived: 0,
            reduced_at: now,
            round_trip: None,
            timeouts: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.sent.iter().any(|it| it.number == number)
    }

    /// Whether another may be sent, of `most` at most.
    pub(super) fn has_room(&self, most: u32) -> bool {
        self.sent.len() < self.window.min(most) as usize
    }

    /// A packet is sent.
    pub(super) fn push(&mut self, now: Time, number: u64) {
        self.sent.push_back(Sent { number, order: self.count, at: now });
        self.count += 1;
    }

    /// It has the packet, whether it says so or not.
    pub(super) fn forget(&mut self, number: u64) {
        self.sent.retain(|it| it.number != number);
    }

    /// It has acknowledged that it `has` packets. Returns the repairs that are lost.
    pub(super) fn on_ack(&mut self, now: Time, has: &Having, most: u32) -> Vec<u64> {
        let Some(last) = self.sent.iter().rfind(|it| has.contains(it.number)).copied() else {
            return Vec::new();
        };
        // As long as what arrives may be a first copy that was given up too early, patience stays.
        if !self.again.contains(&last.number) {
            self.timeouts = 0;
            self.sample(now.since(last.at));
        }
        let reordered = self.round_trip.map_or(Duration::MAX, |it| it.0 / REORDERED_PART);
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

    /// A repair whose acknowledgement is late: it is taken to be lost.
    pub(super) fn pop_late(&mut self, now: Time, most: Duration) -> Option<u64> {
        let first = self.sent.front().copied()?;
        if now < first.at + self.patience(most) {
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

    /// When [`UnderWay::pop_late`] is to be asked.
    pub(super) fn next_late(&self, most: Duration) -> Option<Time> {
        Some(self.sent.front()?.at + self.patience(most))
    }

    /// How long an acknowledgement is waited for, at most `most`.
    fn patience(&self, most: Duration) -> Duration {
        let Some((smoothed, deviation)) = self.round_trip else { return most };
        let once = smoothed + (4 * deviation).max(LEAST_MARGIN);
        once.saturating_mul(1 << self.timeouts.min(16)).min(most)
    }

    fn sample(&mut self, after: Duration) {
        self.round_trip = Some(match self.round_trip {
            None => (after, after / 2),
            Some((smoothed, deviation)) => {
                let deviation = (deviation * 3 + smoothed.abs_diff(after)) / 4;
                ((smoothed * 7 + after) / 8, deviation)
            }
        });
    }

    /// Of so many repairs under way some have come.
    fn grow(&mut self, flight: u32, arrived: u32, most: u32) {
        // A window that is not used says nothing about the path.
        if flight < self.window / 2 || self.window >= most {
            return;
        }
        self.arrived += arrived;
        let step = if self.window < self.threshold { 1 } else { self.window };
        self.window = (self.window + self.arrived / step).min(most);
        self.arrived %= step;
    }

    /// Of so many repairs under way some are lost: a part of them is enough.
    fn reduce(&mut self, now: Time, flight: u32, part: u32) {
        let used = self.window.min(flight);
        self.threshold = (used / 2).max(LEAST);
        self.window = (used / part).max(LEAST);
        (self.arrived, self.reduced_at) = (0, now);
    }
}

#[cfg(test)]
#[path = "under_way_tests.rs"]
mod tests;
