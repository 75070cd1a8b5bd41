//! Who holds the others up, and for how long: what the policy for the slowest receiver goes by.
//!
//! A wait is a time in which there is something to send that the window does not let out. Short
//! waits are how a window works. A wait that is longer than it takes all receivers to report is
//! charged to those that expect no more, if at least half of the receivers do expect more. A
//! receiver that is silent for as long, while the sender uses up its window, is charged for all of
//! its silence: the sender paces what is left of the window, and waits less than it is slowed down.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::super::placing::ReceiverState;
use super::super::slowest::LONGEST_WAIT;
use crate::{NodeId, Time};

/// The waits of a sender for its receivers.
#[derive(Debug, Default)]
pub(super) struct Holdups {
    /// Since when the sender waits, if it does.
    waits_since: Option<Time>,
    /// Who holds the others up in this wait.
    suspects: Vec<NodeId>,
    /// When suspects are looked for next.
    look_at: Time,
    held: BTreeMap<NodeId, Held>,
}

/// The waits for one receiver.
#[derive(Debug)]
struct Held {
    since: Time,
    /// When each wait of late ended, and how long it was.
    waits: VecDeque<(Time, Duration)>,
    named_at: Option<Time>,
}

/// By how much a receiver holds the others up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holdup {
    pub(super) node: NodeId,
    /// How long the others waited for it in the time that the policy looks at.
    pub(super) held: Duration,
    /// The same in the last [`LATELY`].
    pub(super) held_lately: Duration,
    /// When they first waited for it.
    pub(super) since: Time,
    /// Whether it is to be named now, if nothing else happens.
    pub(super) is_news: bool,
}

impl Holdups {
    /// Whether the sender waits for its receivers now. `settled_after` is the time in which all of
    /// them report.
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

    /// Looks for whom the sender waits, if it is time. `next` is the packet that it cannot send.
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
            // It is the network, or the pace of most of them. Who is silent holds up those who keep
            // packets for it, and is charged for that itself.
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

    /// The others waited for a receiver, up to now.
    pub(super) fn charge(&mut self, now: Time, node: NodeId, wait: Duration) {
        let since = now.before(wait);
        let new = Held { since, waits: VecDeque::new(), named_at: None };
        let held = self.held.entry(node).or_insert(new);
        held.waits.push_back((now, wait.min(LONGEST_WAIT)));
    }

    /// The receivers that have held the others up within `span`, the worst first.
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

    /// A receiver was named.
    pub(super) fn on_named(&mut self, now: Time, node: NodeId) {
        if let Some(held) = self.held.get_mut(&node) {
            held.named_at = Some(now);
        }
    }
}

/// The time over which waits are added up for those that are named.
pub(super) const LATELY: Duration = Duration::from_secs(1);
/// A receiver that takes a fifth of the time is named.
const NAMED_PART: u32 = 5;
/// A receiver is named again after this time.
const NAME_EVERY: Duration = Duration::from_secs(5);
/// How often suspects are looked for, at most.
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

    /// One wait of so many milliseconds in which packet 100 is not expected by some of four.
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
