//! Progress of a member, and the packets and rounds that it lacks.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::super::delivery::ViewEvent;
use super::super::log::{Round, Run};
use super::super::names::{Epoch, Place, Process, Timestamp};
use super::super::packet::Position;
use super::super::stream::Stream;
use super::super::view::{Member, Partition, RingView};
use super::Ring;
use crate::SeqNo;

/// Rounds and packets that a member has to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::rmp) struct Lacks {
    /// First missing round.
    pub(in crate::rmp) from: Timestamp,
    /// End of the missing rounds.
    pub(in crate::rmp) to: Timestamp,
    /// Missing packets.
    pub(in crate::rmp) runs: Vec<Run>,
}

/// A ring from which this node was removed.
#[derive(Clone, Copy, Debug)]
pub(in crate::rmp) struct Former {
    epoch: Epoch,
    origin: Epoch,
    /// Last place that was delivered here.
    delivered: Timestamp,
}

/// Maximum number of packets that are requested at once.
const LACKS_LIMIT: usize = 256;

impl Lacks {
    /// Returns `true` if nothing is missing.
    pub(in crate::rmp) fn is_empty(&self) -> bool {
        self.from == self.to && self.runs.is_empty()
    }

    /// Returns `true` if a round or packet is missing in both.
    pub(in crate::rmp) fn overlaps(&self, other: &Self) -> bool {
        let overlap = |run: &Run, other: &Run| {
            run.source == other.source
                && other.end().is_after(run.first)
                && run.end().is_after(other.first)
        };
        self.from.max(other.from) < self.to.min(other.to)
            || self.runs.iter().any(|run| other.runs.iter().any(|it| overlap(run, it)))
    }
}

impl Former {
    /// Returns the number of places before the first view of another ring that were not delivered
    /// here. `None` if that ring may have an order of its own.
    pub(in crate::rmp) fn missed_before(&self, first: &ViewEvent) -> Option<u64> {
        let view = &first.view;
        // Several parts of such a ring may have continued.
        let has_parts = |it: &Member| matches!(it.partition, Partition::AtLeast(_));
        let is_one = view.origin == self.origin && !view.members.iter().any(has_parts);
        let missed = first.place.at.0.saturating_sub(self.delivered.0 + 1);
        (is_one || view.epoch == self.epoch).then_some(missed)
    }
}

impl Ring {
    /// Returns `true` if all packets that have a place are here. A joiner receives the beginnings
    /// of open messages before it takes the token, because the other members discard them once
    /// these messages end.
    pub(in crate::rmp) fn is_whole(&self) -> bool {
        self.streams.values().all(|it| it.missing(it.needed_from(), it.ordered_to(), 1).is_empty())
    }

    /// Returns the position of this member. It includes the messages of members that have taken the
    /// token, and of those that were `heard` in a reformation.
    pub(in crate::rmp) fn position(&self, heard: &BTreeSet<Process>) -> Position {
        // A member that has left gets no more places, whether or not that view was delivered.
        let is_heard = |source| heard.contains(source) && self.view.contains(*source);
        let members = self.streams.iter();
        let members = members.filter(|(source, _)| self.has_spoken(**source) || is_heard(source));
        let received = members.filter_map(|(source, stream)| {
            let to = stream.received_to();
            (to != stream.ordered_to()).then_some((*source, to))
        });
        Position { next: self.log.next(), is_whole: self.is_whole(), received: received.collect() }
    }

    /// Returns `true` if a member is known to have everything that has a place, because it has
    /// since taken the token.
    pub(in crate::rmp) fn has_all(&self, process: Process) -> bool {
        let open = self.log.range(self.settled.plus(1), self.log.next());
        let last = open.filter(|round| !round.is_null()).last();
        let standing = self.standings.get(&process);
        process == self.me
            || last.is_none_or(|round| standing.is_some_and(|it| it.accepted >= round.at))
    }

    /// Returns the place up to which everything was applied.
    pub(in crate::rmp) fn reached(&self) -> Place {
        Place { ring: self.view.epoch, at: Timestamp(self.log.next().0.saturating_sub(1)) }
    }

    /// Returns the part of the state that is kept after this node was removed.
    pub(in crate::rmp) fn as_former(&self) -> Former {
        let RingView { epoch, origin, .. } = self.view;
        // Nothing was delivered yet to a joiner that has received no view.
        Former { epoch, origin, delivered: self.delivered.max(self.told_stable) }
    }

    /// Returns the place up to which all members have everything that was delivered here.
    fn stable(&self) -> Timestamp {
        let next = self.log.next();
        // The site of a round has everything that the round orders.
        let open = self.log.range(self.settled.plus(1), next).next().map_or(next, |it| it.at);
        self.delivered.min(Timestamp(open.0.saturating_sub(1)))
    }

    /// Returns `true` if the stable place has advanced since the last report.
    pub(in crate::rmp) fn is_more_stable(&self) -> bool {
        !self.is_out && self.told_stable < self.delivered && self.told_stable < self.stable()
    }

    /// Returns the stable place, and records it as reported.
    pub(in crate::rmp) fn take_stable(&mut self) -> Place {
        self.told_stable = self.stable();
        Place { ring: self.view.epoch, at: self.told_stable }
    }

    /// Returns everything that is missing and known to exist.
    pub(in crate::rmp) fn lacks(&self) -> Lacks {
        let from = self.log.next();
        let mut lacks = Lacks { from, to: self.log.gap_end().unwrap_or(from), runs: Vec::new() };
        let mut left = LACKS_LIMIT;
        for (source, stream) in &self.streams {
            // From a source that is gone only packets that already have a place are needed.
            let known =
                if self.view.contains(*source) { stream.end() } else { stream.ordered_to() };
            let rounds = self.log.early().flat_map(Round::runs);
            let ends = rounds.filter(|run| run.source == *source).map(Run::end);
            let end = ends.fold(known, SeqNo::later);
            add_missing((*source, stream), stream.needed_from(), end, &mut left, &mut lacks.runs);
        }
        lacks
    }

    /// Returns everything that this member lacks to reach `target`.
    pub(in crate::rmp) fn lacks_for(&self, target: &Position) -> Lacks {
        let from = self.log.next();
        let mut lacks = Lacks { from, to: target.next.max(from), runs: Vec::new() };
        let mut left = LACKS_LIMIT;
        for (source, to) in &target.received {
            let Some(stream) = self.streams.get(source) else { continue };
            let first = stream.ordered_to();
            add_missing((*source, stream), first, *to, &mut left, &mut lacks.runs);
        }
        let known = self.lacks();
        lacks.runs.extend(known.runs.into_iter().take(left));
        lacks
    }
}

fn add_missing(
    (source, stream): (Process, &Stream),
    from: SeqNo,
    to: SeqNo,
    left: &mut usize,
    runs: &mut Vec<Run>,
) {
    for seqno in stream.missing(from, to, *left) {
        *left -= 1;
        match runs.last_mut() {
            Some(run) if run.source == source && run.end() == seqno && run.count < u16::MAX => {
                run.count += 1;
            }
            _ => runs.push(Run { source, first: seqno, count: 1 }),
        }
    }
}
