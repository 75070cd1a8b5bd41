//! Sources of a ring: the packets of its members, and of callers that are not members (4.5).
//!
//! A guest's packets get their places like those of members. The set of guests follows from the
//! rounds alone, so it is the same at all members. A process is a guest once one of its packets has
//! a place. If there are more than the maximum number of guests, the guest whose last place is the
//! oldest is flushed. Before its first place, a guest is tentative, and each member decides on its
//! own whether to keep it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::log::{Round, Run};
use super::snapshot::{GuestState, SourceState};
use super::standings::Standings;
use super::stream::{Arrival, Data, Stream};
use crate::SeqNo;
use crate::ring::{Process, RingView, Timestamp};

#[derive(Debug, Default)]
pub(crate) struct Sources {
    streams: BTreeMap<Process, Stream>,
    /// Callers that are not members, with the last round that assigned a place to them, if any.
    guests: BTreeMap<Process, Option<Timestamp>>,
    former: VecDeque<Process>,
    gone: BTreeMap<Process, Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestArrival {
    Kept(Arrival),
    Unknown,
    Replayed,
    Full,
}

impl Sources {
    pub(super) fn insert(&mut self, source: Process, open_from: SeqNo, ordered_to: SeqNo) {
        self.streams.insert(source, Stream::new(open_from, ordered_to));
    }

    pub(crate) fn insert_packet(
        &mut self,
        source: Process,
        seqno: SeqNo,
        data: Data,
    ) -> Option<Arrival> {
        Some(self.streams.get_mut(&source)?.insert(seqno, data))
    }

    pub(crate) fn get(&self, source: Process) -> Option<&Stream> {
        self.streams.get(&source)
    }

    pub(super) fn get_mut(&mut self, source: Process) -> Option<&mut Stream> {
        self.streams.get_mut(&source)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Process, &Stream)> {
        self.streams.iter().map(|(source, stream)| (*source, stream))
    }

    pub(crate) fn is_guest(&self, source: Process) -> bool {
        self.guests.contains_key(&source)
    }

    pub(crate) fn insert_of_guest(
        &mut self,
        source: Process,
        seqno: SeqNo,
        data: Data,
        is_first: bool,
    ) -> GuestArrival {
        if !self.is_guest(source) {
            if !is_first {
                return GuestArrival::Unknown;
            }
            let is_former = self.former.iter().any(|it| *it == source || it.follows(source));
            if is_former || self.lives_of_guest(source).any(|it| it.follows(source)) {
                return GuestArrival::Replayed;
            }
            if self.guests.values().filter(|used| used.is_none()).count() >= MAX_TENTATIVE {
                return GuestArrival::Full;
            }
            self.guests.insert(source, None);
            self.insert(source, seqno, seqno);
        }
        let stream = self.streams.get_mut(&source).expect("every guest has a stream");
        GuestArrival::Kept(stream.insert(seqno, data))
    }

    pub(super) fn admit_guests(&mut self, round: &Round) {
        let is_strange = |run: &&Run| match self.guests.get(&run.source) {
            Some(used) => used.is_none(),
            None => !self.streams.contains_key(&run.source),
        };
        let strange: Vec<Run> = round.runs().iter().filter(is_strange).copied().collect();
        for Run { source, first, .. } in strange {
            self.guests.insert(source, None);
            if self.get(source).map(Stream::ordered_to) != Some(first) {
                self.insert(source, first, first);
            }
        }
    }

    pub(super) fn have_all(&self, round: &Round) -> bool {
        round.runs().iter().all(|run| {
            let stream = self.get(run.source);
            stream.is_some_and(|it| it.received_to().distance_from(run.end()) >= 0)
        })
    }

    /// Flushes and returns earlier lives of the round's guests, and the oldest guests if too many.
    pub(super) fn on_ordered(&mut self, round: &Round) -> Vec<Process> {
        let runs = round.runs().iter();
        let guests: Vec<Process> =
            runs.map(|run| run.source).filter(|it| self.is_guest(*it)).collect();
        let mut flushed = Vec::new();
        for guest in &guests {
            self.guests.insert(*guest, Some(round.at));
        }
        for guest in guests {
            let is_former = |it: &Process| *it != guest && !it.follows(guest);
            let former: Vec<Process> = self.lives_of_guest(guest).filter(is_former).collect();
            flushed.extend(former.into_iter().filter(|former| self.flush(*former)));
        }
        loop {
            let used = self.guests.iter().filter_map(|(it, used)| Some(((*used)?, *it)));
            let (count, oldest) = (used.clone().count(), used.min());
            match oldest {
                Some((_, oldest)) if count > MAX_GUESTS => {
                    self.flush(oldest);
                    flushed.push(oldest);
                }
                _ => return flushed,
            }
        }
    }

    fn lives_of_guest(&self, source: Process) -> impl Iterator<Item = Process> {
        let first = Process { life: 0, ..source };
        let last = Process { life: u64::MAX, ..source };
        self.guests.range(first..=last).map(|(it, _)| *it)
    }

    /// Removes the guest. Returns `true` if its stream is kept until it is [removed](Self::remove).
    fn flush(&mut self, guest: Process) -> bool {
        let Some(used) = self.guests.remove(&guest) else { return false };
        if used.is_none() {
            self.streams.remove(&guest);
            return false;
        }
        self.former.push_back(guest);
        if self.former.len() > MAX_FORMER {
            self.former.pop_front();
        }
        true
    }

    // The stream is dropped once all members have the packets that the source sent.
    pub(super) fn remove(&mut self, source: Process, round: Timestamp) {
        self.gone.insert(source, round);
    }

    /// Drops the streams of departed sources once all members have their packets, which is the case
    /// up to `settled`. A source that returned before its departure was delivered keeps its stream.
    pub(super) fn forget_gone(&mut self, view: &RingView, settled: Timestamp) {
        let Self { streams, guests, .. } = self;
        self.gone.retain(|source, round| {
            if view.contains(*source) || guests.contains_key(source) {
                return false;
            }
            let is_over = *round <= settled;
            if is_over {
                streams.remove(source);
            }
            !is_over
        });
    }

    pub(super) fn settle_all(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.settle_to(stream.ordered_to()));
    }

    /// Gives up the messages whose beginnings no remaining member has. Their sources are gone, or
    /// are guests that introduce themselves again. Returns the messages and the flushed guests.
    pub(super) fn give_up_open(&mut self) -> (Vec<(Process, Option<SeqNo>)>, Vec<Process>) {
        let streams = self.streams.iter_mut();
        let lost: Vec<(Process, Option<SeqNo>)> = streams
            .filter_map(|(source, stream)| Some((*source, stream.give_up_open()?)))
            .collect();
        let sources = lost.iter().map(|(source, _)| *source);
        let flushed = sources.filter(|source| self.flush(*source)).collect();
        (lost, flushed)
    }

    pub(super) fn states(&self, view: &RingView, standings: &Standings) -> Vec<SourceState> {
        let members = self.iter().filter(|(source, _)| view.contains(*source));
        let states = members.map(|(source, stream)| SourceState {
            source,
            open_from: stream.open_from(),
            ordered_to: stream.ordered_to(),
            request: standings.answered(source),
        });
        states.collect()
    }

    pub(super) fn guest_states(&self) -> Vec<GuestState> {
        let states = self.guests.iter().filter_map(|(source, used)| {
            let (used, stream) = ((*used)?, self.get(*source)?);
            let (open_from, ordered_to) = (stream.open_from(), stream.ordered_to());
            Some(GuestState { source: *source, open_from, ordered_to, used })
        });
        states.collect()
    }

    pub(super) fn enter_guests(&mut self, guests: Vec<GuestState>) {
        for GuestState { source, open_from, ordered_to, used } in guests {
            self.guests.insert(source, Some(used));
            self.insert(source, open_from, ordered_to);
        }
    }

    /// Returns `true` if no needed packet is missing. A joiner receives the beginnings of open
    /// messages before it takes the token, because the other members discard them once these
    /// messages end.
    pub(crate) fn are_whole(&self) -> bool {
        self.streams.values().all(|it| it.missing(it.needed_from(), it.ordered_to(), 1).is_empty())
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.streams.values().map(|stream| stream.held_bytes).sum()
    }

    pub(super) fn check(&self, view: &RingView) {
        self.streams.values().for_each(Stream::check);
        for member in view.processes() {
            assert!(self.streams.contains_key(&member), "{member:?} has no stream");
        }
        let guests = self.guests.len();
        assert!(guests <= MAX_GUESTS + MAX_TENTATIVE + 64, "{guests} guests");
        for guest in self.guests.keys() {
            assert!(self.streams.contains_key(guest), "guest {guest:?} has no stream");
            assert!(!view.contains(*guest), "guest {guest:?} is a member");
        }
    }
}

const MAX_GUESTS: usize = 256;
/// Maximum number of guests without a place. One round may add 64 more.
const MAX_TENTATIVE: usize = 64;
/// Maximum number of flushed guests that are remembered, so that their late packets do not admit
/// them again.
const MAX_FORMER: usize = 1024;
