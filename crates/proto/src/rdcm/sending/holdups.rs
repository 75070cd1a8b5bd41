//! Waits of the sender for individual receivers: the input of the policy for the slowest receiver.
//!
//! A wait is a time in which there is data to send that the window does not allow. Short waits are
//! normal for a window. A wait that is longer than the time within which all receivers report is
//! charged to the receivers that expect no more, if at least half of the receivers do expect more.
//! A receiver that is silent for as long, while the sender uses up its window, is charged for its
//! whole silence: the sender paces the rest of the window, and therefore waits less than it is
//! slowed down.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::super::placing::ReceiverState;
use super::super::slowest::LONGEST_WAIT;
use crate::{NodeId, Time};

/// The sender's waits for its receivers.
#[derive(Debug, Default)]
pub(super) struct Holdups {
    /// Start of the current wait.
    waits_since: Option<Time>,
    /// Receivers that cause the current wait.
    suspects: Vec<NodeId>,
    /// When suspects are next determined.
    look_at: Time,
    held: BTreeMap<NodeId, Held>,
}

/// Waits for one receiver.
#[derive(Debug)]
struct Held {
    since: Time,
    /// Recent waits: the end of each, and its length.
    waits: VecDeque<(Time, Duration)>,
    named_at: Option<Time>,
}

/// Delay that a receiver causes to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holdup {
    pub(super) node: NodeId,
    /// Time for which the others waited for it, within the span of the policy.
    pub(super) held: Duration,
    /// Time for which the others waited for it, within [`LATELY`].
    pub(super) held_lately: Duration,
    /// Start of the first wait for it.
    pub(super) since: Time,
    /// `true` if the application is to be notified of it now.
    pub(super) is_news: bool,
}

impl Holdups {
    /// Records whether the sender waits for its receivers. `settled_after` is the time within which
    /// all of them report.
    pub(super) fn note(&mut self, now: Time, waits: bool, settled_after: Duration) {
        match (self.waits_since, waits) {
            (None, true) => {
                self.waits_since = Some(now);
                self.look_at = now + settled_after;
            }
            (Some(since), false) => {
                self.charge_suspects(now, now.since(since));
                self.waits_since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Determines the receivers for which the sender waits, if this is due. `next` is the packet
    /// that it cannot send.
    pub(super) fn look<'a>(
        &mut self,
        now: Time,
        next: u64,
        settled_after: Duration,
        receivers: impl Iterator<Item = (NodeId, &'a ReceiverState)>,
    ) {
        if self.waits_since.is_none() || now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_EVERY;
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
            // The network is slow, or most receivers are. A silent receiver delays those that keep
            // packets for it, and is charged for its own silence.
            self.suspects.clear();
            self.waits_since = Some(now);
            self.look_at = now + settled_after;
        }
    }

    fn charge_suspects(&mut self, now: Time, wait: Duration) {
        for node in core::mem::take(&mut self.suspects) {
            self.charge(now, node, wait);
        }
    }

    /// Charges a receiver for a wait that ends now.
    pub(super) fn charge(&mut self, now: Time, node: NodeId, wait: Duration) {
        let since = now.before(wait);
        let new = Held { since, waits: VecDeque::new(), named_at: None };
        let held = self.held.entry(node).or_insert(new);
        held.waits.push_back((now, wait.min(LONGEST_WAIT)));
    }

    /// Returns the receivers for which the others waited within `span`, the slowest first.
    pub(super) fn of_late(&mut self, now: Time, span: Duration) -> Vec<Holdup> {
        for held in self.held.values_mut() {
            while held.waits.front().is_some_and(|(end, _)| now.since(*end) > span) {
                held.waits.pop_front();
            }
        }
        self.held.retain(|_, held| !held.waits.is_empty());
        let of = |(node, it): (&NodeId, &Held)| {
            let within = |span: Duration| {
                let waits = it.waits.iter().rev().take_while(|(end, _)| now.since(*end) <= span);
                waits.map(|(_, wait)| *wait).sum::<Duration>().min(span)
            };
            let (held, held_lately) = (within(span), within(LATELY));
            let is_due = it.named_at.is_none_or(|at| now.since(at) >= NAME_EVERY);
            let is_news = held_lately >= LATELY / NAMED_PART && is_due;
            Holdup { node: *node, held, held_lately, since: it.since, is_news }
        };
        let mut late: Vec<Holdup> = self.held.iter().map(of).collect();
        late.sort_by_key(|it| (core::cmp::Reverse(it.held), it.node));
        late
    }

    /// Records that the application was notified of a receiver.
    pub(super) fn on_named(&mut self, now: Time, node: NodeId) {
        if let Some(held) = self.held.get_mut(&node) {
            held.named_at = Some(now);
        }
    }
}

/// Time over which waits are summed for notifications.
pub(super) const LATELY: Duration = Duration::from_secs(1);
/// Inverse of the part of [`LATELY`] for which the others must wait for a receiver before it is
/// reported.
const NAMED_PART: u32 = 5;
/// Minimum time between two notifications of one receiver.
const NAME_EVERY: Duration = Duration::from_secs(5);
/// Minimum time between two searches for suspects.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SPAN: Duration = Duration::from_secs(4);

    fn state(limit: u64) -> ReceiverState {
        ReceiverState {
            first: 1,
            next: 1,
            limit,
            by_tree: 0,
            by_repair: 0,
            left_behind_at: None,
            heard_at: Time::ZERO,
        }
    }

    /// One wait of `ms` milliseconds for packet 100, with the limits of four receivers.
    fn wait(holdups: &mut Holdups, from: Time, ms: u32, limits: [u64; 4]) -> Time {
        let states = limits.map(state);
        let named = (1..).map(NodeId).zip(&states);
        holdups.note(from, true, 25 * MS);
        let end = from + ms * MS;
        holdups.look(end.before(MS), 100, LATELY, named);
        holdups.note(end, false, 25 * MS);
        end
    }

    #[test]
    fn long_waits_are_charged_to_the_one_that_expects_no_more() {
        let mut holdups = Holdups::default();
        let mut now = Time::ZERO;
        for _ in 0..4 {
            now = wait(&mut holdups, now + 25 * MS, 75, [200, 100, 300, 200]);
        }
        let [it] = holdups.of_late(now, SPAN)[..] else { panic!("{holdups:?}") };
        assert_eq!((it.node, it.held), (NodeId(2), 300 * MS));
        assert_eq!(it.held_lately, 300 * MS);
        assert!(it.is_news);
        holdups.on_named(now, NodeId(2));
        assert!(!holdups.of_late(now, SPAN)[0].is_news, "once");
        let [later] = holdups.of_late(now + 2 * LATELY, SPAN)[..] else { panic!("{holdups:?}") };
        assert_eq!((later.held, later.held_lately), (300 * MS, Duration::ZERO));
        assert_eq!(holdups.of_late(now + 2 * SPAN, SPAN), []);
    }

    #[test]
    fn short_waits_and_waits_for_most_are_charged_to_nobody() {
        let mut holdups = Holdups::default();
        let now = wait(&mut holdups, Time::ZERO, 20, [200, 100, 300, 200]);
        let now = wait(&mut holdups, now, 300, [90, 100, 100, 200]);
        assert_eq!(holdups.of_late(now, SPAN), []);
    }

    #[test]
    fn one_long_wait_is_no_slow_pace() {
        let mut holdups = Holdups::default();
        let now = wait(&mut holdups, Time::ZERO, 900, [200, 100, 300, 200]);
        assert_eq!(holdups.of_late(now, SPAN)[0].held, LONGEST_WAIT);
    }
}
