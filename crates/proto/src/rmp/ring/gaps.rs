use alloc::vec::Vec;

use super::log::{Log, Round, Run};
use super::snapshot::Position;
use super::sources::Sources;
use super::stream::Stream;
use crate::SeqNo;
use crate::ring::{Process, RingView, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gaps {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) runs: Vec<Run>,
}

const GAPS_LIMIT: usize = 256;

impl Gaps {
    pub(super) fn new(log: &Log, sources: &Sources, view: &RingView) -> Self {
        let from = log.next();
        let mut gaps = Self { from, to: log.gap_end().unwrap_or(from), runs: Vec::new() };
        let mut left = GAPS_LIMIT;
        for (source, stream) in sources.iter() {
            // From a source that is gone, only packets that already have a place are needed.
            let known = if view.contains(source) { stream.end() } else { stream.ordered_to() };
            let rounds = log.early().flat_map(Round::runs);
            let ends = rounds.filter(|run| run.source == source).map(Run::end);
            let end = ends.fold(known, SeqNo::later);
            gaps.add((source, stream), stream.needed_from(), end, &mut left);
        }
        gaps
    }

    pub(super) fn up_to(target: &Position, log: &Log, sources: &Sources, view: &RingView) -> Self {
        let from = log.next();
        let mut gaps = Self { from, to: target.next.max(from), runs: Vec::new() };
        let mut left = GAPS_LIMIT;
        for (source, to) in &target.received {
            let Some(stream) = sources.get(*source) else { continue };
            gaps.add((*source, stream), stream.ordered_to(), *to, &mut left);
        }
        let known = Self::new(log, sources, view);
        gaps.runs.extend(known.runs.into_iter().take(left));
        gaps
    }

    fn add(
        &mut self,
        (source, stream): (Process, &Stream),
        from: SeqNo,
        to: SeqNo,
        left: &mut usize,
    ) {
        for seqno in stream.missing(from, to, *left) {
            *left -= 1;
            match self.runs.last_mut() {
                Some(run) if run.source == source && run.end() == seqno && run.count < u16::MAX => {
                    run.count += 1;
                }
                _ => self.runs.push(Run { source, first: seqno, count: 1 }),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.from == self.to && self.runs.is_empty()
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let overlap = |run: &Run, other: &Run| {
            run.source == other.source
                && other.end().is_after(run.first)
                && run.end().is_after(other.first)
        };
        self.from.max(other.from) < self.to.min(other.to)
            || self.runs.iter().any(|run| other.runs.iter().any(|it| overlap(run, it)))
    }
}
