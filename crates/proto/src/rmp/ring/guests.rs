//! Callers that are not members: their streams, in the order of the ring (4.5).
//!
//! A guest's packets take their places like those of members. The set of guests follows from the
//! rounds alone, so it is the same at all members. A process is a guest once one of its packets has
//! a place. Beyond the maximum number of guests, the one whose last place is the oldest is flushed.
//! Before its first place a guest is tentative, and each member decides on its own to keep it.

use alloc::vec::Vec;

use bytes::Bytes;

use super::super::delivery::Queued;
use super::super::log::Round;
use super::super::names::{Process, Timestamp};
use super::super::packet::GuestState;
use super::super::stream::{Arrival, Data, Stream};
use super::Ring;
use crate::SeqNo;

/// A caller that is not a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    /// Last round that assigned a place to one of its packets; `None` before the first.
    used: Option<Timestamp>,
}

/// Result of inserting a guest's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rmp) enum GuestArrival {
    /// Result of the stream, like for a packet of a member.
    Kept(Arrival),
    /// The guest is unknown, and this is not its first packet.
    Unknown,
    /// The guest was flushed before, or a later life of its node is a guest.
    Replayed,
    /// The maximum number of tentative guests is reached.
    Full,
}

impl Ring {
    /// Returns the heads of the requests and replies that have places and were not delivered yet.
    pub(in crate::rmp) fn calls_in_queue(&self) -> impl Iterator<Item = (Process, Bytes)> {
        self.queue.iter().filter_map(|queued| {
            let Queued::Packet { source, seqno, .. } = queued else { return None };
            Some((*source, self.streams.get(source)?.head_of_call(*seqno)?))
        })
    }

    /// Inserts a guest's data packet.
    pub(in crate::rmp) fn insert_of_guest(
        &mut self,
        source: Process,
        seqno: SeqNo,
        data: Data,
        is_first: bool,
    ) -> GuestArrival {
        if !self.guests.contains_key(&source) {
            if !is_first {
                return GuestArrival::Unknown;
            }
            let is_former = self.former.iter().any(|it| *it == source || it.follows(source));
            if is_former || self.guests_of(source).any(|it| it.follows(source)) {
                return GuestArrival::Replayed;
            }
            let is_tentative = |guest: &&Guest| guest.used.is_none();
            if self.guests.values().filter(is_tentative).count() >= MAX_TENTATIVE {
                return GuestArrival::Full;
            }
            self.guests.insert(source, Guest { used: None });
            self.streams.insert(source, Stream::new(seqno, seqno));
        }
        let stream = self.streams.get_mut(&source).expect("every guest has a stream");
        GuestArrival::Kept(stream.insert(seqno, data))
    }

    /// Returns `true` if packets of this process may get places.
    pub(super) fn may_order(&self, source: Process) -> bool {
        self.view.contains(source) || self.guests.contains_key(&source)
    }

    pub(in crate::rmp) fn is_guest(&self, source: Process) -> bool {
        self.guests.contains_key(&source)
    }

    /// Adds the guests whose packets the next round orders and that this member does not have, or
    /// has with other packet numbers.
    pub(super) fn admit_guests(&mut self) {
        let Some(round) = self.log.ready() else { return };
        let is_strange = |source: &Process| match self.guests.get(source) {
            Some(guest) => guest.used.is_none(),
            None => !self.streams.contains_key(source),
        };
        let runs = round.runs().iter().filter(|run| is_strange(&run.source));
        let strange: Vec<(Process, SeqNo)> = runs.map(|run| (run.source, run.first)).collect();
        for (source, first) in strange {
            self.guests.insert(source, Guest { used: None });
            let known = self.streams.get(&source).map(|stream| stream.ordered_to());
            if known != Some(first) {
                self.streams.insert(source, Stream::new(first, first));
            }
        }
    }

    /// Records the places of guests. Flushes earlier lives of these guests, and the oldest guests
    /// beyond the maximum number.
    pub(super) fn on_guests_ordered(&mut self, round: &Round) {
        let runs = round.runs().iter();
        let sources: Vec<Process> =
            runs.map(|run| run.source).filter(|it| self.guests.contains_key(it)).collect();
        for source in &sources {
            self.guests.insert(*source, Guest { used: Some(round.at) });
        }
        for source in sources {
            let is_former = |it: &Process| *it != source && !it.follows(source);
            let former: Vec<Process> = self.guests_of(source).filter(is_former).collect();
            former.into_iter().for_each(|former| self.flush(former, round.at));
        }
        loop {
            let used = self.guests.iter().filter_map(|(it, guest)| Some((guest.used?, *it)));
            let (count, oldest) = (used.clone().count(), used.min());
            match oldest {
                Some((_, oldest)) if count > MAX_GUESTS => self.flush(oldest, round.at),
                _ => return,
            }
        }
    }

    /// Returns all lives of the node of `source` that are guests.
    fn guests_of(&self, source: Process) -> impl Iterator<Item = Process> {
        let first = Process { life: 0, ..source };
        let last = Process { life: u64::MAX, ..source };
        self.guests.range(first..=last).map(|(it, _)| *it)
    }

    /// Removes a guest. Its stream is dropped once all its packets with places are delivered and
    /// stable.
    pub(super) fn flush(&mut self, source: Process, round: Timestamp) {
        let Some(guest) = self.guests.remove(&source) else { return };
        if guest.used.is_none() {
            self.streams.remove(&source);
            return;
        }
        self.former.push_back(source);
        if self.former.len() > MAX_FORMER {
            self.former.pop_front();
        }
        self.queue.push_back(Queued::Flushed { round, source });
    }

    /// Returns the guests for a joiner.
    pub(super) fn guest_states(&self) -> Vec<GuestState> {
        let states = self.guests.iter().filter_map(|(source, guest)| {
            let (used, stream) = (guest.used?, self.streams.get(source)?);
            let (open_from, ordered_to) = (stream.open_from(), stream.ordered_to());
            Some(GuestState { source: *source, open_from, ordered_to, used })
        });
        states.collect()
    }

    /// Adds the guests from a snapshot.
    pub(super) fn enter_guests(&mut self, guests: Vec<GuestState>) {
        for GuestState { source, open_from, ordered_to, used } in guests {
            self.guests.insert(source, Guest { used: Some(used) });
            self.streams.insert(source, Stream::new(open_from, ordered_to));
        }
    }

    /// Asserts the invariants.
    pub(super) fn check_guests(&self) {
        assert!(
            self.guests.len() <= MAX_GUESTS + MAX_TENTATIVE + 64,
            "{} guests",
            self.guests.len()
        );
        for guest in self.guests.keys() {
            assert!(self.streams.contains_key(guest), "guest {guest:?} has no stream");
            assert!(!self.view.contains(*guest), "guest {guest:?} is a member");
        }
    }
}

/// Maximum number of guests. A flushed guest has to set its first-packet flag again.
const MAX_GUESTS: usize = 256;
/// Maximum number of guests of which no packet has a place yet. One round may add 64 more.
const MAX_TENTATIVE: usize = 64;
/// Maximum number of flushed guests that are remembered, so that their packets are not taken for
/// those of a new guest.
const MAX_FORMER: usize = 1024;
