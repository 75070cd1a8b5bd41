//! A successor for which a receiver repairs, and its known state (section 3.3).
//!
//! A packet that the successor is known to lack, because it acknowledged later ones, is due after
//! the time to detect a loss. The state of packets beyond those that it acknowledged is unknown.
//! Such a packet is due when its acknowledgment is overdue.

use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;

use self::in_flight::InFlight;
use self::round_trip::RoundTrip;
use super::config::Config;
use super::epoch;
use super::packet::RingAck;
use super::sack_set::SackSet;
use crate::{NodeId, Time, Timers};

mod in_flight;
mod round_trip;

#[derive(Debug)]
pub(super) struct Successor {
    pub(super) node: NodeId,
    pub(super) ring: u32,
    pub(super) has: SackSet,
    known_to: u64,
    pub(super) round_trip: RoundTrip,
    /// Packets whose state is unknown, with their time of arrival at this receiver, oldest first.
    unknown: VecDeque<(Time, u64)>,
    /// Packets that the successor lacks and that are not in flight, by the time to send them.
    missing: Timers<u64>,
    in_flight: InFlight,
    heard_at: Time,
    /// `true` if the successor was silent at the last check, and was not heard since.
    pub(super) is_given_up: bool,
    watch: Watch,
    /// Set if the successor has another predecessor.
    lingering: Option<Lingering>,
    epoch: u32,
    released_from: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    since: Time,
    by_tree: u32,
    /// Number of packets that its predecessor had received through the tree some time later.
    own_by_tree: Option<u64>,
    repairs: u32,
}

#[derive(Clone, Copy, Debug)]
struct Lingering {
    after: Duration,
    at_most: Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RepairTiming {
    pub(super) detect_after: Duration,
    /// Time after which a packet that the successor has not acknowledged counts as missing there.
    pub(super) silent_after: Duration,
    /// Maximum time before a repair is sent again, unless acknowledgments are known to take longer.
    pub(super) resend_after: Duration,
    pub(super) in_flight: u32,
}

/// Due time of a lost repair. It is sent before anything else, because the window waits for it.
const FIRST_OF_ALL: Time = Time::ZERO;
/// Maximum time for which a former successor is served, as a multiple of its permitted silence.
const LINGERING: u32 = 10;
/// Maximum delay of an acknowledgment that may still arrive, as a multiple of `ack_delay`.
const SILENT_DELAYS: u32 = 4;
/// Number of repairs before a link can count as dead. A few losses are not sufficient.
const REPAIRS_BEFORE_CUT: u32 = 8;

impl RepairTiming {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            detect_after: config.detect_after,
            silent_after: config.detect_after + SILENT_DELAYS * config.ack_delay,
            resend_after: config.resend_after,
            in_flight: config.repairs_in_flight,
        }
    }
}

impl Successor {
    pub(super) fn new(now: Time, ring: u32, node: NodeId, base: u64) -> Self {
        Self {
            node,
            ring,
            has: SackSet::all_below(base),
            known_to: base,
            round_trip: RoundTrip::default(),
            unknown: VecDeque::new(),
            missing: Timers::new(),
            in_flight: InFlight::new(now),
            heard_at: now,
            is_given_up: false,
            watch: Watch { since: now, ..Watch::default() },
            lingering: None,
            epoch: 0,
            released_from: None,
        }
    }

    pub(super) fn make_up_for_stop(&mut self, now: Time, stopped_for: Duration) {
        self.heard_at = now.min(self.heard_at + stopped_for);
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.has.contains(number)
    }

    pub(super) fn until(&self) -> Option<Time> {
        let Lingering { after, at_most } = self.lingering?;
        Some(at_most.min(self.heard_at + after))
    }

    pub(super) fn serve(&mut self, epoch: u32) {
        (self.epoch, self.released_from) = (epoch, None);
    }

    /// Marks the successor as served by another receiver. It is still served here until it needs
    /// nothing or is silent for `after`, and for at most [`LINGERING`] times as long.
    pub(super) fn linger(&mut self, now: Time, after: Duration) {
        self.lingering.get_or_insert(Lingering { after, at_most: now + LINGERING * after });
        self.forget_released();
    }

    /// Records that another receiver serves the successor from packet `from` on, as it reported in
    /// its place of `epoch`.
    pub(super) fn release(&mut self, epoch: u32, from: u64) {
        if epoch::is_after(epoch, self.epoch) {
            self.released_from = Some(from);
            self.forget_released();
        }
    }

    fn forget_released(&mut self) {
        if let (Some(_), Some(from)) = (self.lingering, self.released_from) {
            self.has.insert_range(from..u64::MAX);
        }
    }

    pub(super) fn is_released(&self) -> bool {
        self.lingering.is_some() && self.has.next() == u64::MAX
    }

    pub(super) fn await_ack(&mut self, now: Time, number: u64, timing: &RepairTiming) {
        if self.has(number) {
            return;
        }
        if !self.awaits_anything() {
            // The successor had nothing to acknowledge until now.
            self.heard_at = now;
        }
        match number < self.known_to {
            true => self.mark_missing(number, now + timing.detect_after),
            false => {
                self.unknown.push_back((now, number));
                self.round_trip.on_sent(now, number);
            }
        }
    }

    /// Processes an acknowledgment, and returns the range of packets whose state has become known.
    pub(super) fn on_ack(&mut self, now: Time, ack: &RingAck, timing: &RepairTiming) -> Range<u64> {
        self.has.absorb(&ack.has);
        for number in self.in_flight.on_ack(now, &self.has, timing.in_flight) {
            self.missing.set(number, FIRST_OF_ALL);
        }
        let fresh = self.known_to..ack.known_to.max(self.known_to);
        self.known_to = fresh.end;
        (self.heard_at, self.is_given_up) = (now, false);
        if ack.by_tree == self.watch.by_tree {
            // The packet was repaired after this receiver had waited for it. If the next wait were
            // longer, the pauses of a successor that is cut off from the tree would double.
            self.round_trip.forget_known(fresh.end);
        } else {
            self.round_trip.on_known(now, fresh.end);
            self.watch = Watch { since: now, by_tree: ack.by_tree, ..Watch::default() };
        }
        fresh
    }

    pub(super) fn record_has(&mut self, number: u64) {
        self.has.insert(number);
        self.in_flight.forget(number);
    }

    pub(super) fn mark_missing(&mut self, number: u64, due: Time) {
        if !self.has(number) && !self.is_known_missing(number) {
            self.missing.set(number, due);
        }
    }

    pub(super) fn poll_repair(
        &mut self,
        now: Time,
        timing: &RepairTiming,
        is_kept: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let timing = &self.adapted(timing);
        while let Some(number) = self.in_flight.pop_late(now, timing.resend_after) {
            if !self.has(number) {
                self.missing.set(number, FIRST_OF_ALL);
            }
        }
        if !self.in_flight.has_room(timing.in_flight) {
            return None;
        }
        while let Some(number) = self.missing.pop_due(now) {
            if !self.has(number) && is_kept(number) {
                return Some(self.record_sent(now, number));
            }
        }
        loop {
            self.drop_known();
            let (since, number) = *self.unknown.front()?;
            if now < since + timing.silent_after {
                return None;
            }
            self.unknown.pop_front();
            if is_kept(number) {
                return Some(self.record_sent(now, number));
            }
        }
    }

    fn adapted(&self, timing: &RepairTiming) -> RepairTiming {
        let timeout = self.round_trip.timeout();
        let silent_after = timing.silent_after.max(timeout);
        let resend_after = timing.resend_after.max(timeout);
        RepairTiming { silent_after, resend_after, ..*timing }
    }

    fn record_sent(&mut self, now: Time, number: u64) -> u64 {
        self.in_flight.push(now, number);
        self.watch.repairs = self.watch.repairs.saturating_add(1);
        number
    }

    pub(super) fn next_repair(&mut self, timing: &RepairTiming) -> Option<Time> {
        let timing = self.adapted(timing);
        self.drop_known();
        let late = self.in_flight.next_late(timing.resend_after);
        if !self.in_flight.has_room(timing.in_flight) {
            return late;
        }
        let unknown = self.unknown.front().map(|(since, _)| *since + timing.silent_after);
        [unknown, self.missing.next_due(), late].into_iter().flatten().min()
    }

    /// Returns `true` if a repair that has just arrived is forwarded, and thus counts as sent.
    pub(super) fn pass_on(
        &mut self,
        now: Time,
        number: u64,
        is_news: bool,
        timing: &RepairTiming,
    ) -> bool {
        let is_lacking = !self.has(number) && (number < self.known_to || is_news);
        if !is_lacking || self.in_flight.contains(number) {
            return false;
        }
        let goes = self.in_flight.has_room(timing.in_flight);
        if goes {
            self.missing.cancel(number);
            self.record_sent(now, number);
        } else {
            self.missing.set(number, now);
        }
        goes
    }

    /// Returns `true` if the successor has been silent although it has something to acknowledge.
    pub(super) fn is_silent(&mut self, now: Time, gone_after: Duration) -> bool {
        self.drop_known();
        self.awaits_anything() && now.since(self.heard_at) >= gone_after
    }

    pub(super) fn check_silence(&mut self, now: Time, gone_after: Duration) {
        self.is_given_up = self.is_silent(now, gone_after);
    }

    /// Returns `true`, and restarts the measurement, if the tree has not reached the successor for
    /// the time `cut_after`, but has reached its predecessor. A successor that was not heard lately
    /// may be gone or suspended, and is not cut off: only its acknowledgments prove that it lives.
    pub(super) fn is_cut(&mut self, now: Time, own_by_tree: u64, cut_after: Duration) -> bool {
        let watch = &mut self.watch;
        if watch.repairs == 0 {
            watch.since = now;
        }
        // What its predecessor got earlier may have been sent before the tree failed for both.
        let is_early = now.since(watch.since) < cut_after / 2;
        let own_before = watch.own_by_tree.filter(|_| !is_early).unwrap_or(own_by_tree);
        watch.own_by_tree = Some(own_before);
        let repairs = u64::from(REPAIRS_BEFORE_CUT);
        let is_cut = watch.repairs >= REPAIRS_BEFORE_CUT
            && own_by_tree - own_before >= repairs
            && now.since(watch.since) >= cut_after
            && now.since(self.heard_at) < cut_after / 2;
        if is_cut {
            *watch = Watch { since: now, by_tree: watch.by_tree, ..Watch::default() };
        }
        is_cut
    }

    fn drop_known(&mut self) {
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

    pub(super) fn will_repair(&self, number: u64) -> bool {
        self.is_known_missing(number) || self.unknown.iter().any(|(_, it)| *it == number)
    }

    fn is_known_missing(&self, number: u64) -> bool {
        self.missing.is_set(number) || self.in_flight.contains(number)
    }

    fn awaits_anything(&self) -> bool {
        !(self.unknown.is_empty() && self.missing.is_empty() && self.in_flight.is_empty())
    }
}
