//! Timers of a group, derived from the measured round-trip time to the next token site (4.6).
//!
//! Each member passes the token in turn, and the next site answers soon, with a round or with a
//! Confirm. Every member therefore measures a round trip each time the token goes around.

use alloc::collections::{BTreeSet, VecDeque};
use core::time::Duration;

use super::config::Config;
use super::flow::{MOST_LATE, Timeouts};
use crate::ring::{Epoch, Process, Timestamp};
use crate::transport::RttEstimator;
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Timing {
    trip: RttEstimator,
    next: Option<Process>,
    /// The last site that has accepted the token. Any other site may be farther away.
    reached: Option<Process>,
    passed_at: Time,
    passed_again_at: Option<Time>,
    /// Passes whose answers may arrive after this member has formed a ring without those sites.
    unaccepted: VecDeque<(Epoch, Timestamp, NodeId, Time)>,
    /// Number of answers after a repeated pass. They are not samples (Karn's rule).
    unclear: u32,
    /// Longest time of an answer that came too late to be a sample.
    floor: Duration,
    floor_at: Time,
    ballot: Option<(Epoch, Time)>,
    voters: BTreeSet<NodeId>,
    last_vote: Duration,
    vote_floor: Duration,
}

impl Timing {
    pub(super) fn on_passed(&mut self, now: Time, epoch: Epoch, at: Timestamp, next: Process) {
        (self.passed_at, self.passed_again_at, self.next) = (now, None, Some(next));
        self.unaccepted.truncate(MOST_UNACCEPTED - 1);
        self.unaccepted.push_front((epoch, at, next.node, now));
    }

    // `node` has accepted the last round before `end` in a ring that this member has given up.
    pub(super) fn on_late_answer(&mut self, now: Time, epoch: Epoch, end: Timestamp, node: NodeId) {
        let is_that =
            |it: &&(Epoch, Timestamp, NodeId, Time)| (it.0, it.2) == (epoch, node) && it.1 < end;
        if let Some((.., passed_at)) = self.unaccepted.iter().find(is_that) {
            let after = now.since(*passed_at);
            self.unaccepted.clear();
            // A later answer shows nothing about the path, because a node was suspended.
            if after <= MOST_LATE {
                self.raise_floor(now, after);
            }
        }
    }

    pub(super) fn on_passed_again(&mut self, now: Time) {
        self.passed_again_at = Some(now);
    }

    pub(super) fn on_accepted(&mut self, now: Time, config: &Config) {
        self.reached = self.next;
        self.unaccepted.clear();
        let after = now.since(self.passed_at);
        let Some(again_at) = self.passed_again_at else {
            // A longer time means only that this member was suspended and therefore did not repeat
            // the pass.
            if after <= self.timeout(config, 0) {
                self.trip.on_sample(after);
                (self.unclear, self.floor) = (0, Duration::ZERO);
            }
            return;
        };
        self.unclear += 1;
        // If only the first pass was lost, the answer to the last one arrives in time.
        let in_time = config.timeouts().timeout(&self.trip, 0);
        let is_lost = self.trip.smoothed().is_some() && now.since(again_at) < in_time;
        if !is_lost || self.unclear >= MOST_UNCLEAR {
            self.raise_floor(now, after);
        }
    }

    /// Measures the first of consecutive ballots without votes, because its votes may be late.
    pub(super) fn on_ballot(&mut self, now: Time, ballot: Epoch) {
        self.forget_old_floor(now);
        let is_unanswered = self.voters.is_empty();
        let is_young = self.ballot.is_some_and(|(_, begun)| now.since(begun) < MOST_LATE);
        if !(is_unanswered && is_young) {
            self.ballot = Some((ballot, now));
            self.vote_floor = core::mem::take(&mut self.last_vote).min(MOST_LATE);
            self.voters.clear();
        }
    }

    /// Measures the time to a vote, because the voter may be farther away than the next token site.
    pub(super) fn on_vote(&mut self, now: Time, voter: NodeId, ballot: Epoch, config: &Config) {
        let Some((_, begun)) = self.ballot.filter(|(epoch, _)| *epoch == ballot) else { return };
        if !self.voters.insert(voter) {
            return;
        }
        let after = now.since(begun);
        if after > MOST_LATE {
            // This shows nothing about the path: the voter or this member was suspended.
            return;
        }
        self.last_vote = after;
        if self.last_vote > self.recovery_retry(config) {
            self.raise_floor(now, self.last_vote);
        }
    }

    fn raise_floor(&mut self, now: Time, after: Duration) {
        self.floor = self.floor.max(after);
        self.floor_at = now;
    }

    /// Forgets late answers after some time. They show nothing about a new ballot, because a node
    /// may have been suspended at the time.
    pub(super) fn forget_old_floor(&mut self, now: Time) {
        if now.since(self.floor_at) > FLOOR_LASTS {
            self.floor = Duration::ZERO;
        }
    }

    pub(super) fn timeout(&self, config: &Config, tries: u32) -> Duration {
        self.timeout_within(config, tries, self.trip.smoothed().is_some())
    }

    pub(super) fn pass_timeout(&self, config: &Config, tries: u32) -> Duration {
        let is_measured = self.next.is_some() && self.next == self.reached;
        self.timeout_within(config, tries, is_measured)
    }

    // A path that was not measured may take 500 ms one way, so its timeouts grow further.
    fn timeout_within(&self, config: &Config, tries: u32, is_measured: bool) -> Duration {
        let bounds = config.timeouts();
        let first = bounds.timeout(&self.trip, 0).max(self.floor(config.least_timeout));
        let largest = bounds.largest_timeout(&self.trip);
        let largest = if is_measured { largest } else { largest.max(MOST_UNMEASURED) };
        match tries {
            0 => first,
            _ => first.saturating_mul(1 << tries.min(16)).min(largest),
        }
    }

    pub(super) fn longest(&self, config: &Config) -> Duration {
        self.timeout(config, u32::MAX).max(self.timeout(config, 0))
    }

    /// Includes the time of one pass, because the packet may arrive just after the token has left.
    pub(super) fn place_timeout(&self, config: &Config, tries: u32) -> Duration {
        let tries = if self.trip.smoothed().is_some() { 0 } else { tries };
        self.timeout(config, tries) + self.smoothed()
    }

    pub(super) fn nack_delay(&self, config: &Config) -> Duration {
        config.nack_delay.max(self.smoothed() / LATE_PART)
    }

    pub(super) fn recovery_retry(&self, config: &Config) -> Duration {
        let bounds = Timeouts { least: config.recovery_retry, ..config.timeouts() };
        let retry = bounds.timeout(&self.trip, 0).max(self.vote_floor);
        retry.max(self.floor(config.recovery_retry))
    }

    pub(super) fn join_retry(&self, config: &Config) -> Duration {
        config.join_retry.max(self.smoothed())
    }

    // One round trip per member, and four for the packets before and after the rotation.
    pub(super) fn round(&self, least: Duration, members: usize) -> Duration {
        least.max(self.smoothed() * (members as u32 + 4))
    }

    /// Returns the maximum number of packets of an ACK, which grows with the round-trip time.
    pub(super) fn batch(&self, config: &Config) -> usize {
        let spans = self.smoothed().as_nanos() / BATCH_SPAN.as_nanos();
        config.batch * (spans as usize).clamp(1, MAX_SPANS)
    }

    fn smoothed(&self) -> Duration {
        self.trip.smoothed().unwrap_or_default()
    }

    fn floor(&self, margin: Duration) -> Duration {
        match self.floor {
            Duration::ZERO => Duration::ZERO,
            floor => floor.min(MOST_LATE) + margin,
        }
    }
}

/// Divisor of the round-trip time that gives the time by which packets may overtake each other.
const LATE_PART: u32 = 16;
const MOST_UNACCEPTED: usize = 64;
const MOST_UNCLEAR: u32 = 3;
const FLOOR_LASTS: Duration = Duration::from_secs(5);
/// Maximum timeout on a path that was not measured. The timeouts from 20 ms up to this one add up
/// to 1.26 s, more than a round trip of 1 s.
const MOST_UNMEASURED: Duration = Duration::from_millis(640);
const BATCH_SPAN: Duration = Duration::from_millis(10);
pub(super) const MAX_SPANS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vote_of_a_suspended_member_does_not_slow_ballots() {
        let config = Config::default();
        let me = Process { node: NodeId(1), life: 1 };
        let ballot = |version| Epoch { version, creator: me };
        let retry_after = |late: Duration| {
            let mut timing = Timing::default();
            timing.on_ballot(Time(0), ballot(2));
            timing.on_vote(Time(0) + late, NodeId(2), ballot(2), &config);
            timing.on_ballot(Time(0) + late, ballot(3));
            timing.recovery_retry(&config)
        };
        let usual = Timing::default().recovery_retry(&config);
        assert!(retry_after(MOST_LATE) >= MOST_LATE);
        assert_eq!(retry_after(MOST_LATE + Duration::from_millis(1)), usual);
    }
}
