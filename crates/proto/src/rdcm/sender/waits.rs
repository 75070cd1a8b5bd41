//! Waits of the sender for individual receivers, which are the input of the policy for the slowest
//! receiver.
//!
//! A wait is a time in which there is data to send that the window does not permit. Short waits are
//! normal for a window. A wait that is longer than the time within which all receivers report is
//! charged to the receiver that is furthest behind among those that expect no more, if at least
//! half of the receivers do expect more. A receiver that is silent for that long, while the sender
//! uses up its window, is charged for all waits since its previous report. The sender paces the
//! last packets of a window, so that it is slowed down before it waits. The charge therefore
//! includes up to `Config::late_after` before the waits.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use super::super::slowest::LONGEST_WAIT;
use super::receiver_record::ReceiverState;
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Waits {
    waits_since: Option<Time>,
    /// Sum of all waits before `waits_since`.
    waited: Duration,
    /// Sum of all waits before the latest report of each receiver.
    waited_at_report: BTreeMap<NodeId, Duration>,
    suspects: Vec<NodeId>,
    search_at: Time,
    /// Time within which all receivers report.
    settled_after: Duration,
    receivers: BTreeMap<NodeId, Recent>,
}

#[derive(Debug)]
struct Recent {
    since: Time,
    waits: VecDeque<(Time, Duration)>,
    reported_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delay {
    pub(super) node: NodeId,
    /// Time for which the other receivers waited for this one, within the span of the policy.
    pub(super) total: Duration,
    pub(super) lately: Duration,
    pub(super) since: Time,
    pub(super) is_news: bool,
}

impl Waits {
    /// Begins a wait, or ends it and charges the suspects. Receivers report within `settled_after`.
    pub(super) fn update(&mut self, now: Time, is_waiting: bool, settled_after: Duration) {
        self.settled_after = settled_after;
        match (self.waits_since, is_waiting) {
            (None, true) => self.begin(now),
            (Some(since), false) => {
                for node in core::mem::take(&mut self.suspects) {
                    self.charge(now, node, now.since(since));
                }
                self.waited = self.waited(now);
                self.waits_since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    pub(super) fn find_suspects<'a>(
        &mut self,
        now: Time,
        next: u64,
        receivers: impl Iterator<Item = (NodeId, &'a ReceiverState)>,
    ) {
        if self.waits_since.is_none() || now < self.search_at {
            return;
        }
        self.search_at = now + SEARCH_EVERY;
        let (mut suspects, mut count, mut is_any_silent) = (Vec::new(), 0, false);
        for (node, state) in receivers {
            count += 1;
            is_any_silent |= now.since(state.heard_at) >= self.settled_after;
            if state.limit <= next {
                suspects.push((state.next, node));
            }
        }
        // A receiver that has more may have no room because it keeps packets for one with less.
        let least = suspects.iter().map(|(next, _)| *next).min();
        let furthest_behind = suspects.iter().filter(|(next, _)| Some(*next) == least);
        self.suspects = furthest_behind.map(|(_, node)| *node).collect();
        if suspects.len() * 2 > count || is_any_silent {
            // The network or most receivers are slow. A silent receiver is charged separately.
            self.begin(now);
        }
    }

    /// Begins a wait. No receiver is charged for the previous one if it has not ended.
    fn begin(&mut self, now: Time) {
        self.waited = self.waited(now);
        self.waits_since = Some(now);
        self.search_at = now + self.settled_after;
        self.suspects.clear();
    }

    fn waited(&self, now: Time) -> Duration {
        self.waited + self.waits_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Records a report. If a costly silence of the receiver ends, it is charged for the waits
    /// since its previous report, and for `slowed` before them.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        node: NodeId,
        silence: Option<Duration>,
        slowed: Duration,
    ) {
        let waited = self.waited(now);
        let before = self.waited_at_report.insert(node, waited);
        let wait = before.map_or(Duration::ZERO, |before| waited - before);
        if let Some(silence) = silence.filter(|_| !wait.is_zero()) {
            self.charge(now, node, silence.min(wait + slowed));
            // The windows of the receivers that kept packets for it may be full as well.
            if self.waits_since.is_some() {
                self.begin(now);
            }
        }
    }

    pub(super) fn forget(&mut self, node: NodeId) {
        self.waited_at_report.remove(&node);
    }

    fn charge(&mut self, now: Time, node: NodeId, wait: Duration) {
        let since = now.before(wait);
        let new = Recent { since, waits: VecDeque::new(), reported_at: None };
        let recent = self.receivers.entry(node).or_insert(new);
        recent.waits.push_back((now, wait.min(LONGEST_WAIT)));
    }

    pub(super) fn delays(&mut self, now: Time, span: Duration) -> Vec<Delay> {
        for recent in self.receivers.values_mut() {
            while recent.waits.front().is_some_and(|(end, _)| now.since(*end) > span) {
                recent.waits.pop_front();
            }
        }
        self.receivers.retain(|_, recent| !recent.waits.is_empty());
        let of = |(node, it): (&NodeId, &Recent)| {
            let within = |span: Duration| {
                let waits = it.waits.iter().rev().take_while(|(end, _)| now.since(*end) <= span);
                waits.map(|(_, wait)| *wait).sum::<Duration>().min(span)
            };
            let (total, lately) = (within(span), within(LATELY));
            let is_due = it.reported_at.is_none_or(|at| now.since(at) >= REPORT_EVERY);
            let is_news = lately >= LATELY / REPORTED_PART && is_due;
            Delay { node: *node, total, lately, since: it.since, is_news }
        };
        let mut delays: Vec<Delay> = self.receivers.iter().map(of).collect();
        delays.sort_by_key(|it| (core::cmp::Reverse(it.total), it.node));
        delays
    }

    pub(super) fn on_reported(&mut self, now: Time, node: NodeId) {
        if let Some(recent) = self.receivers.get_mut(&node) {
            recent.reported_at = Some(now);
        }
    }
}

/// Returns the silence of a receiver that is heard now, if it reached `settled_after`, the window
/// was almost used up, and at least half of `receivers` were heard. `next` is to be sent next.
pub(super) fn costly_silence<'a>(
    now: Time,
    next: u64,
    settled_after: Duration,
    state: &ReceiverState,
    receivers: impl Iterator<Item = (NodeId, &'a ReceiverState)>,
) -> Option<Duration> {
    let silence = now.since(state.heard_at);
    if silence < settled_after {
        return None;
    }
    let window = state.limit.saturating_sub(state.next);
    let left = state.limit.saturating_sub(next);
    let (mut silent, mut count) = (0, 0);
    for (_, state) in receivers {
        silent += usize::from(state.heard_at + settled_after <= now);
        count += 1;
    }
    (silent * 2 <= count && left * USED_UP <= window).then_some(silence)
}

pub(super) const LATELY: Duration = Duration::from_secs(1);
/// A receiver is reported if it caused waits of [`LATELY`] divided by this number.
const REPORTED_PART: u32 = 5;
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// A window counts as used up if less than its size divided by this number remains.
const USED_UP: u64 = 8;
const SEARCH_EVERY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SPAN: Duration = Duration::from_secs(4);

    fn state(limit: u64, heard_at: Time) -> ReceiverState {
        ReceiverState { first: 1, next: 1, limit, heard_at, ..ReceiverState::default() }
    }

    fn wait(waits: &mut Waits, from: Time, ms: u32, limits: [u64; 4]) -> Time {
        waits.update(from, true, 25 * MS);
        let end = from + ms * MS;
        let states = limits.map(|limit| state(limit, end.before(2 * MS)));
        let named = (1..).map(NodeId).zip(&states);
        waits.find_suspects(end.before(MS), 100, named);
        waits.update(end, false, 25 * MS);
        end
    }

    #[test]
    fn long_waits_are_charged_to_the_one_that_expects_no_more() {
        let mut waits = Waits::default();
        let mut now = Time::ZERO;
        for _ in 0..4 {
            now = wait(&mut waits, now + 25 * MS, 75, [200, 100, 300, 200]);
        }
        let [it] = waits.delays(now, SPAN)[..] else { panic!("{waits:?}") };
        assert_eq!((it.node, it.total), (NodeId(2), 300 * MS));
        assert_eq!(it.lately, 300 * MS);
        assert!(it.is_news);
        waits.on_reported(now, NodeId(2));
        assert!(!waits.delays(now, SPAN)[0].is_news, "once");
        let [later] = waits.delays(now + 2 * LATELY, SPAN)[..] else { panic!("{waits:?}") };
        assert_eq!((later.total, later.lately), (300 * MS, Duration::ZERO));
        assert_eq!(waits.delays(now + 2 * SPAN, SPAN), []);
    }

    #[test]
    fn short_waits_and_waits_for_most_are_charged_to_nobody() {
        let mut waits = Waits::default();
        let now = wait(&mut waits, Time::ZERO, 20, [200, 100, 300, 200]);
        let now = wait(&mut waits, now, 300, [90, 100, 100, 200]);
        assert_eq!(waits.delays(now, SPAN), []);
    }

    #[test]
    fn costly_silence_is_charged_for_the_waits_since_a_report() {
        let total = |silence: u32, slowed: u32| {
            let mut waits = Waits::default();
            waits.update(Time::ZERO, true, 25 * MS);
            let mut now = Time::ZERO + 10 * MS;
            waits.on_report(now, NodeId(2), None, slowed * MS);
            waits.on_report(now, NodeId(3), Some(silence * MS), slowed * MS);
            now = now + 15 * MS;
            waits.update(now, false, 25 * MS);
            waits.update(now + 30 * MS, true, 25 * MS);
            now = now + 40 * MS;
            waits.on_report(now, NodeId(2), Some(silence * MS), slowed * MS);
            let [it] = waits.delays(now, SPAN)[..] else { panic!("{waits:?}") };
            assert_eq!(it.node, NodeId(2), "the other has not been waited for since its report");
            it.total
        };
        assert_eq!(total(55, 0), 25 * MS);
        assert_eq!(total(55, 20), 45 * MS, "the sender was slowed down before it waited");
        assert_eq!(total(40, 20), 40 * MS, "not for longer than the silence");
    }

    #[test]
    fn one_long_wait_is_no_slow_pace() {
        let mut waits = Waits::default();
        let now = wait(&mut waits, Time::ZERO, 900, [200, 100, 300, 200]);
        assert_eq!(waits.delays(now, SPAN)[0].total, LONGEST_WAIT);
    }
}
