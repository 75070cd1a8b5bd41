//! The pace of a group's timers: the measured round trip to the next token site (4.6).
//!
//! Each member passes the token in turn, and the next site answers at once, by a round or by a
//! Confirm. So every member measures a round trip each time that the token goes round. All timers
//! that wait for an answer follow it.

use alloc::collections::{BTreeSet, VecDeque};
use core::time::Duration;

use super::config::Config;
use super::flow::{MOST_LATE, RoundTrip, Timeouts};
use super::names::{Epoch, Process, Timestamp};
use crate::{NodeId, Time};

/// The round trip to the next token site, and what it is measured by.
#[derive(Debug, Default)]
pub(super) struct Pace {
    trip: RoundTrip,
    /// The next token site.
    next: Option<Process>,
    /// The last one that has accepted the token. Another may be farther away than was measured.
    reached: Option<Process>,
    /// When the token was passed.
    passed_at: Time,
    /// When it was passed again, the last time.
    passed_again_at: Option<Time>,
    /// Recent token passes that were not accepted: ring, round, receiver and time. Their answers
    /// may come after this member has given up waiting and formed a ring without those sites.
    unaccepted: VecDeque<(Epoch, Timestamp, NodeId, Time)>,
    /// Answers in a row after the token was passed again. They are no samples, because they may
    /// answer either (Karn's rule).
    unclear: u32,
    /// No round trip since the last sample was longer than this, as far as answers came too late to
    /// be samples. The next first timeout is longer, so that the next answer is one.
    floor: Duration,
    /// When an answer was last so late.
    floor_at: Time,
    /// A ballot of this member's own, and when it was begun.
    ballot: Option<(Epoch, Time)>,
    /// Members that have voted for it.
    voters: BTreeSet<NodeId>,
    /// The time until the last of them did so first.
    last_vote: Duration,
    /// That of the ballot before.
    vote_floor: Duration,
}

impl Pace {
    /// The token was passed to `next` in the ring of `epoch`, by the round `at`.
    pub(super) fn on_passed(&mut self, now: Time, epoch: Epoch, at: Timestamp, next: Process) {
        (self.passed_at, self.passed_again_at, self.next) = (now, None, Some(next));
        self.unaccepted.truncate(MOST_UNACCEPTED - 1);
        self.unaccepted.push_front((epoch, at, next.node, now));
    }

    /// `node` has accepted the last round before `end` in the ring of `epoch`, which this member
    /// has given up.
    pub(super) fn on_late_answer(&mut self, now: Time, epoch: Epoch, end: Timestamp, node: NodeId) {
        let is_that =
            |it: &&(Epoch, Timestamp, NodeId, Time)| (it.0, it.2) == (epoch, node) && it.1 < end;
        if let Some((.., passed_at)) = self.unaccepted.iter().find(is_that) {
            let after = now.since(*passed_at);
            self.unaccepted.clear();
            // Later it says nothing about the path: somebody was suspended.
            if after <= MOST_LATE {
                self.raise_floor(now, after);
            }
        }
    }

    /// The token was passed again.
    pub(super) fn on_passed_again(&mut self, now: Time) {
        self.passed_again_at = Some(now);
    }

    /// The token was accepted.
    pub(super) fn on_accepted(&mut self, now: Time, config: &Config) {
        self.reached = self.next;
        self.unaccepted.clear();
        let after = now.since(self.passed_at);
        let Some(again_at) = self.passed_again_at else {
            // Later it is only by chance that the token was not passed again: this member was
            // suspended, or the ring was reformed meanwhile.
            if after <= self.timeout(config, 0) {
                self.trip.sample(after);
                (self.unclear, self.floor) = (0, Duration::ZERO);
            }
            return;
        };
        self.unclear += 1;
        // If the first one was only lost, the answer to the last one comes in time.
        let in_time = self.trip.timeout(config.timeouts(), 0);
        let is_lost = self.trip.is_measured() && now.since(again_at) < in_time;
        if !is_lost || self.unclear >= MOST_UNCLEAR {
            self.raise_floor(now, after);
        }
    }

    /// This member begins a ballot. Of several in a row the first is measured until it is answered:
    /// votes may come after the next one has begun.
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

    /// A member has voted for a ballot of this member's own. It may be any of the others, and so
    /// may be farther away than the next token site.
    pub(super) fn on_vote(&mut self, now: Time, voter: NodeId, ballot: Epoch, config: &Config) {
        let Some((_, begun)) = self.ballot.filter(|(epoch, _)| *epoch == ballot) else { return };
        if !self.voters.insert(voter) {
            return;
        }
        let after = now.since(begun);
        if after > MOST_LATE {
            // It says nothing about the path: the voter or this member was suspended.
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

    /// A ballot begins. Answers that were late long ago say nothing about it: somebody was
    /// suspended then.
    pub(super) fn forget_old_floor(&mut self, now: Time) {
        if now.since(self.floor_at) > FLOOR_LASTS {
            self.floor = Duration::ZERO;
        }
    }

    /// Returns the time to wait for an answer after so many tries in vain.
    pub(super) fn timeout(&self, config: &Config, tries: u32) -> Duration {
        self.timeout_within(config, tries, self.trip.is_measured())
    }

    /// Returns the time to wait until the next token site has accepted the token, after so many
    /// tries in vain.
    pub(super) fn pass_timeout(&self, config: &Config, tries: u32) -> Duration {
        self.timeout_within(config, tries, self.is_next_measured())
    }

    /// As long as a path was not measured it may be 500 ms long, and timeouts grow further.
    fn timeout_within(&self, config: &Config, tries: u32, is_measured: bool) -> Duration {
        let bounds = config.timeouts();
        let first = self.trip.timeout(bounds, 0).max(self.floor(config.least_timeout));
        let largest = self.trip.largest_timeout(bounds);
        let largest = if is_measured { largest } else { largest.max(MOST_UNMEASURED) };
        match tries {
            0 => first,
            _ => first.saturating_mul(1 << tries.min(16)).min(largest),
        }
    }

    fn is_next_measured(&self) -> bool {
        self.next.is_some() && self.next == self.reached
    }

    /// Returns the longest time to wait for any answer.
    pub(super) fn longest(&self, config: &Config) -> Duration {
        self.timeout(config, u32::MAX).max(self.timeout(config, 0))
    }

    /// Returns the least time to wait for the place of a packet after so many tries in vain. It may
    /// reach a member that has just passed the token, and then waits for that way as well.
    pub(super) fn place_timeout(&self, config: &Config, tries: u32) -> Duration {
        let tries = if self.trip.is_measured() { 0 } else { tries };
        self.timeout(config, tries) + self.trip.smoothed()
    }

    /// Returns the time to wait for what is missing before it is requested: it may only be late,
    /// and on a long path by more.
    pub(super) fn nack_delay(&self, config: &Config) -> Duration {
        config.nack_delay.max(self.trip.smoothed() / LATE_PART)
    }

    /// Returns the pause between two tries of the initiator of a reformation.
    pub(super) fn recovery_retry(&self, config: &Config) -> Duration {
        let bounds = Timeouts { least: config.recovery_retry, ..config.timeouts() };
        let retry = self.trip.timeout(bounds, 0).max(self.vote_floor);
        retry.max(self.floor(config.recovery_retry))
    }

    /// Returns the pause between two requests to be let in.
    pub(super) fn join_retry(&self, config: &Config) -> Duration {
        config.join_retry.max(self.trip.smoothed())
    }

    /// Returns `least`, or the time in which the token goes round among so many members if that is
    /// longer, and four round trips for what comes before and after.
    pub(super) fn round(&self, least: Duration, members: usize) -> Duration {
        least.max(self.trip.smoothed() * (members as u32 + 4))
    }

    /// Returns the number of packets that one ACK may order: as many as come while the token is on
    /// its way, so that a long path does not limit the throughput.
    pub(super) fn batch(&self, config: &Config) -> usize {
        let spans = self.trip.smoothed().as_nanos() / BATCH_SPAN.as_nanos();
        config.batch * (spans as usize).clamp(1, MAX_SPANS)
    }

    fn floor(&self, margin: Duration) -> Duration {
        match self.floor {
            Duration::ZERO => Duration::ZERO,
            floor => floor.min(MOST_LATE) + margin,
        }
    }
}

/// Packets overtake each other by less than this part of a round trip.
const LATE_PART: u32 = 16;
/// Passes of the token that are remembered until they are accepted.
const MOST_UNACCEPTED: usize = 64;
/// After so many answers in a row that are no samples the path is taken to be longer.
const MOST_UNCLEAR: u32 = 3;
/// A late answer counts for so long.
const FLOOR_LASTS: Duration = Duration::from_secs(5);
/// The longest timeout of a path that was not measured. Timeouts from 20 ms to this take 1.26 s
/// together: longer than a round trip over 500 ms.
const MOST_UNMEASURED: Duration = Duration::from_millis(640);
/// A batch is ordered for each such part of a round trip.
const BATCH_SPAN: Duration = Duration::from_millis(10);
/// At most so many batches are ordered at once.
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
            let mut pace = Pace::default();
            pace.on_ballot(Time(0), ballot(2));
            pace.on_vote(Time(0) + late, NodeId(2), ballot(2), &config);
            pace.on_ballot(Time(0) + late, ballot(3));
            pace.recovery_retry(&config)
        };
        let usual = Pace::default().recovery_retry(&config);
        assert!(retry_after(MOST_LATE) >= MOST_LATE);
        assert_eq!(retry_after(MOST_LATE + Duration::from_millis(1)), usual);
    }
}
