//! Somebody whom a receiver repairs for, and what is known of it (section 3.3).
//!
//! What a successor is known to lack (it acknowledged later packets) is due after the time to
//! detect a loss. Of what lies beyond all that it acknowledged nothing is known: that is due when
//! its acknowledgement would have come.

use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;

use super::epochs;
use super::having::Having;
use super::packet::RingAck;
use super::round_trip::RoundTrip;
use super::under_way::UnderWay;
use crate::{NodeId, Time, Timers};

/// Somebody whom a receiver repairs for in one ring.
#[derive(Debug)]
pub struct Successor {
    /// Who it is.
    pub node: NodeId,
    /// The ring that both are in.
    pub ring: u32,
    has: Having,
    /// Below this number it is known what it lacks.
    known_to: u64,
    /// What its acknowledgements take, from when a packet came here.
    round_trip: RoundTrip,
    /// Packets of which nothing is known, by when they came here, the oldest first.
    unknown: VecDeque<(Time, u64)>,
    /// Packets that it lacks and that are not under way, and when each is to be sent.
    missing: Timers<u64>,
    under_way: UnderWay,
    heard_at: Time,
    /// Whether it was silent when that was looked at, and was not heard since.
    is_given_up: bool,
    watch: Watch,
    /// If somebody else serves it by now.
    lingering: Option<Lingering>,
    /// The epoch of places in which it is served, and not by somebody else.
    epoch: u32,
    /// From this packet on somebody else serves it, as it says.
    released_from: Option<u64>,
}

/// Whether the tree reaches a successor.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    since: Time,
    /// What it has got by the tree, as it says.
    by_tree: u32,
    /// What its predecessor had got at the same time.
    own_by_tree: u64,
    /// Repairs that it was sent since.
    repairs: u32,
}

/// How long a former successor is served.
#[derive(Clone, Copy, Debug)]
struct Lingering {
    /// After it was heard last.
    after: Duration,
    /// Whatever it says.
    at_most: Time,
}

/// How long a receiver waits for its successors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Before what a successor is known to lack is sent to it.
    pub detect_after: Duration,
    /// Before what it has said nothing of is taken to be lacking.
    pub silent_after: Duration,
    /// Before what it was sent is sent again, at most: less when its round trip is known.
    pub resend_after: Duration,
    /// Repairs that are under way to it, at most.
    pub under_way: u32,
}

/// What was lost on its way is sent again before anything else: the window waits for it.
const FIRST_OF_ALL: Time = Time::ZERO;
/// A former successor is served for so many times the time for which it may be silent.
const LINGERING: u32 = 10;
/// A link is not dead because of a few losses.
const REPAIRS_BEFORE_CUT: u32 = 8;

impl Successor {
    /// A successor of which nothing is known but that it does not need packets below `base`.
    pub(super) fn new(now: Time, ring: u32, node: NodeId, base: u64) -> Self {
        Self {
            node,
            ring,
            has: Having::all_below(base),
            known_to: base,
            round_trip: RoundTrip::default(),
            unknown: VecDeque::new(),
            missing: Timers::new(),
            under_way: UnderWay::new(now),
            heard_at: now,
            is_given_up: false,
            watch: Watch { since: now, ..Watch::default() },
            lingering: None,
            epoch: 0,
            released_from: None,
        }
    }

    /// What its acknowledgements take.
    pub(super) fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    /// It has nothing to acknowledge any more: what it does not say tells nothing.
    pub(super) fn is_not_asked(&mut self) {
        self.round_trip.forget_probe();
    }

    /// When it was heard, or had nothing to acknowledge.
    pub(super) fn heard_at_mut(&mut self) -> &mut Time {
        &mut self.heard_at
    }

    /// Whether it has a packet.
    pub(super) fn has(&self, number: u64) -> bool {
        self.has.contains(number)
    }

    /// Until when it is served; `None` if nobody else serves it.
    pub(super) fn until(&self) -> Option<Time> {
        let Lingering { after, at_most } = self.lingering?;
        Some(at_most.min(self.heard_at + after))
    }

    /// The first packet that it lacks from `from` on.
    pub(super) fn next_from(&self, from: u64) -> u64 {
        self.has.next_from(from)
    }

    /// It is served in an epoch of places.
    pub(super) fn serve(&mut self, epoch: u32) {
        (self.epoch, self.released_from) = (epoch, None);
    }

    /// Somebody else serves it from now on. It is served for the time `after` after it was heard
    /// last, or until it needs nothing of here.
    pub(super) fn linger(&mut self, now: Time, after: Duration) {
        self.lingering.get_or_insert(Lingering { after, at_most: now + LINGERING * after });
        self.forget_released();
    }

    /// Somebody else serves it from a packet on, as it says in its place of an epoch.
    pub(super) fn release(&mut self, epoch: u32, from: u64) {
        if epochs::is_after(epoch, self.epoch) {
            self.released_from = Some(from);
            self.forget_released();
        }
    }

    fn forget_released(&mut self) {
        if let (Some(_), Some(from)) = (self.lingering, self.released_from) {
            self.has.insert_range(from..u64::MAX);
        }
    }

    /// Whether it needs nothing of here any more.
    pub(super) fn is_released(&self) -> bool {
        self.lingering.is_some() && self.has.next() == u64::MAX
    }

    /// A packet has come that is to be acknowledged, or repaired.
    pub(super) fn await_ack(&mut self, now: Time, number: u64, patience: &Patience) {
        if self.has(number) {
            return;
        }
        if !self.awaits_anything() {
            // It had nothing to acknowledge until now.
            self.heard_at = now;
        }
        match number < self.known_to {
            true => self.misses(number, now + patience.detect_after),
            false => {
                self.unknown.push_back((now, number));
                self.round_trip.on_sent(now, number);
            }
        }
    }

    /// It has acknowledged packets. Returns the range in which it is known since now what it lacks.
    pub(super) fn on_ack(&mut self, now: Time, ack: &RingAck, patience: &Patience) -> Range<u64> {
        self.has.absorb(&ack.has);
        for number in self.under_way.on_ack(now, &self.has, patience.under_way) {
            self.missing.set(number, FIRST_OF_ALL);
        }
        let fresh = self.known_to..ack.known_to.max(self.known_to);
        self.known_to = fresh.end;
        (self.heard_at, self.is_given_up) = (now, false);
        if ack.by_tree == self.watch.by_tree {
            // It was repaired, after we had waited for it. To wait longer the next time would
            // double the pauses of who is cut off from the tree.
            self.round_trip.forget_known(fresh.end);
        } else {
            self.round_trip.on_known(now, fresh.end);
            self.watch.by_tree = ack.by_tree;
            (self.watch.since, self.watch.repairs) = (now, 0);
        }
        fresh
    }

    /// It has a packet, though it has not acknowledged it yet.
    pub(super) fn note_has(&mut self, number: u64) {
        self.has.insert(number);
        self.under_way.forget(number);
    }

    /// A packet that is kept turns out to be missing there, unless it has it.
    pub(super) fn misses(&mut self, number: u64, due: Time) {
        if !self.has(number) && !self.is_known_missing(number) {
            self.missing.set(number, due);
        }
    }

    /// A packet that is to be sent to it.
    pub(super) fn poll_repair(
        &mut self,
        now: Time,
        patience: &Patience,
        is_kept: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let patience = &self.adapted(patience);
        while let Some(number) = self.under_way.pop_late(now, patience.resend_after) {
            if !self.has(number) {
                self.missing.set(number, FIRST_OF_ALL);
            }
        }
        if !self.under_way.has_room(patience.under_way) {
            return None;
        }
        while let Some(number) = self.missing.pop_due(now) {
            if !self.has(number) && is_kept(number) {
                return Some(self.sent(now, number));
            }
        }
        loop {
            self.forget_known();
            let (since, number) = *self.unknown.front()?;
            if now < since + patience.silent_after {
                return None;
            }
            self.unknown.pop_front();
            if is_kept(number) {
                return Some(self.sent(now, number));
            }
        }
    }

    /// Who takes long to acknowledge, because its machine or link is busy, is waited for longer.
    fn adapted(&self, patience: &Patience) -> Patience {
        let timeout = self.round_trip.timeout();
        let silent_after = patience.silent_after.max(timeout);
        let resend_after = patience.resend_after.max(timeout);
        Patience { silent_after, resend_after, ..*patience }
    }

    fn sent(&mut self, now: Time, number: u64) -> u64 {
        self.under_way.push(now, number);
        self.watch.repairs = self.watch.repairs.saturating_add(1);
        number
    }

    /// When [`Successor::poll_repair`] is to be called.
    pub(super) fn next_repair(&mut self, patience: &Patience) -> Option<Time> {
        let patience = self.adapted(patience);
        self.forget_known();
        let late = self.under_way.next_late(patience.resend_after);
        if !self.under_way.has_room(patience.under_way) {
            return late;
        }
        let unknown = self.unknown.front().map(|(since, _)| *since + patience.silent_after);
        [unknown, self.missing.next_due(), late].into_iter().flatten().min()
    }

    /// Whether a repair that has just come is to be sent to it at once; it counts as sent then.
    pub(super) fn pass_on(
        &mut self,
        now: Time,
        number: u64,
        is_news: bool,
        patience: &Patience,
    ) -> bool {
        let is_lacking = !self.has(number) && (number < self.known_to || is_news);
        if !is_lacking || self.under_way.contains(number) {
            return false;
        }
        let goes = self.under_way.has_room(patience.under_way);
        if goes {
            self.missing.cancel(number);
            self.sent(now, number);
        } else {
            self.missing.set(number, now);
        }
        goes
    }

    /// Whether it has not been heard for so long, though it has something to acknowledge.
    pub(super) fn is_silent(&mut self, now: Time, gone_after: Duration) -> bool {
        self.forget_known();
        self.awaits_anything() && now.since(self.heard_at) >= gone_after
    }

    /// Nothing is kept for it any more if it is silent.
    pub(super) fn look_for_silence(&mut self, now: Time, gone_after: Duration) {
        self.is_given_up = self.is_silent(now, gone_after);
    }

    /// Whether nothing is kept for it.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Whether the tree has not reached it for the time `cut_after`, though it has reached its
    /// predecessor, who has got `own_by_tree` packets by it. If so it is asked again after the same
    /// time.
    pub(super) fn is_cut(&mut self, now: Time, own_by_tree: u64, cut_after: Duration) -> bool {
        let watch = &mut self.watch;
        if watch.repairs == 0 {
            (watch.since, watch.own_by_tree) = (now, own_by_tree);
        }
        let repairs = u64::from(REPAIRS_BEFORE_CUT);
        let is_cut = watch.repairs >= REPAIRS_BEFORE_CUT
            && own_by_tree - watch.own_by_tree >= repairs
            && now.since(watch.since) >= cut_after;
        if is_cut {
            (watch.since, watch.own_by_tree, watch.repairs) = (now, own_by_tree, 0);
        }
        is_cut
    }

    /// What it has is not waited for any more, and what it is known to lack is not unknown.
    fn forget_known(&mut self) {
        while let Some((_, number)) = self.unknown.front()
            && (*number < self.known_to || self.has(*number) || self.is_known_missing(*number))
        {
            self.unknown.pop_front();
        }
        while let Some(due) = self.missing.next_due()
            && let Some(number) = self.missing.pop_due(due)
        {
            if !self.has(number) {
                self.missing.set(number, due);
                break;
            }
        }
    }

    /// Whether a packet that it lacks will be sent to it.
    pub(super) fn awaits(&self, number: u64) -> bool {
        self.is_known_missing(number) || self.unknown.iter().any(|(_, it)| *it == number)
    }

    /// Whether a packet is known to be missing, or was sent.
    fn is_known_missing(&self, number: u64) -> bool {
        self.missing.is_set(number) || self.under_way.contains(number)
    }

    fn awaits_anything(&self) -> bool {
        !(self.unknown.is_empty() && self.missing.is_empty() && self.under_way.is_empty())
    }
}
