//! Waits of the sender for individual receivers, which are the input of the policy for the slowest
//! receiver.
//!
//! A wait is a time in which there is data to send that the window does not permit. Short waits are
//! normal for a window. A wait that is longer than the time within which all receivers report is
//! charged to the receivers that expect no more, if at least half of the receivers do expect more.
//! A receiver that is silent for that long, while the sender uses up its window, is charged for the
//! whole silence. The sender paces the last packets of the window, and therefore waits for less
//! time than it is slowed down.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use super::super::slowest::LONGEST_WAIT;
use super::receiver_record::ReceiverState;
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Waits {
    waits_since: Option<Time>,
    suspects: Vec<NodeId>,
    search_at: Time,
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
        match (self.waits_since, is_waiting) {
            (None, true) => {
                self.waits_since = Some(now);
                self.search_at = now + settled_after;
            }
            (Some(since), false) => {
                for node in core::mem::take(&mut self.suspects) {
                    self.charge(now, node, now.since(since));
                }
                self.waits_since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    pub(super) fn find_suspects<'a>(
        &mut self,
        now: Time,
        next: u64,
        settled_after: Duration,
        receivers: impl Iterator<Item = (NodeId, &'a ReceiverState)>,
    ) {
        if self.waits_since.is_none() || now < self.search_at {
            return;
        }
        self.search_at = now + SEARCH_EVERY;
        self.suspects.clear();
        let (mut count, mut is_any_silent) = (0, false);
        for (node, state) in receivers {
            count += 1;
            is_any_silent |= now.since(state.heard_at) >= settled_after;
            if state.limit <= next {
                self.suspects.push(node);
            }
        }
        if self.suspects.len() * 2 > count || is_any_silent {
            // The network or most receivers are slow. A silent receiver is charged separately.
            self.suspects.clear();
            self.waits_since = Some(now);
            self.search_at = now + settled_after;
        }
    }

    pub(super) fn charge(&mut self, now: Time, node: NodeId, wait: Duration) {
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

    fn state(limit: u64) -> ReceiverState {
        ReceiverState { first: 1, next: 1, limit, ..ReceiverState::default() }
    }

    fn wait(waits: &mut Waits, from: Time, ms: u32, limits: [u64; 4]) -> Time {
        let states = limits.map(state);
        let named = (1..).map(NodeId).zip(&states);
        waits.update(from, true, 25 * MS);
        let end = from + ms * MS;
        waits.find_suspects(end.before(MS), 100, LATELY, named);
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
    fn one_long_wait_is_no_slow_pace() {
        let mut waits = Waits::default();
        let now = wait(&mut waits, Time::ZERO, 900, [200, 100, 300, 200]);
        assert_eq!(waits.delays(now, SPAN)[0].total, LONGEST_WAIT);
    }
}
