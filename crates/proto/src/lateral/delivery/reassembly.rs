//! Reassembly of messages from fragments.
//!
//! Each fragment is a packet with its own sequence number. Streams ensure that each fragment is
//! accepted once, and that missing ones are repaired or given up. The states of a message are:
//!
//! ```text
//!            fragment arrives, message is owed and has room
//! unknown ------------------------------------------------------> open
//! open ----- last of its fragments arrives in time -------------> delivered
//! open ----- fragment given up, timeout, or no room ------------> over, reported as lost
//! unknown -- fragment arrives after another one was given up ---> over, reported as lost
//! unknown -- fragment arrives, beginning is not owed -----------> over, not reported
//! ```
//!
//! Invariants:
//!
//! * An open message holds memory for all of its bytes. The memory of all open messages is limited.
//!   No memory is held for a message that is delivered or over.
//! * Packets of a message that is over are not requested. Missing packets are settled when the
//!   message ends. Those beyond the end of the stream form at most one range, because at most one
//!   message extends beyond the end.
//! * A message times out when none of its fragments has arrived for the time after which a missing
//!   packet is given up. It also times out when its deadline has passed since the first fragment to
//!   arrive was received, or was found to be missing.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use bytes::Bytes;

use crate::lateral::index::StreamIx;
use crate::lateral::packet::symbol::{Fragment, Symbol};
use crate::{How, SeqNo, Time};

#[derive(Debug)]
pub(crate) struct Reassembly {
    of_streams: BTreeMap<StreamIx, OfStream>,
    /// Messages in the order in which reassembly began. Some may no longer be open.
    begun: VecDeque<(StreamIx, SeqNo)>,
    open: usize,
    bytes: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct OfStream {
    open: VecDeque<PartialMessage>,
    /// Sequence numbers of an ended message that were beyond the end of the stream at that time.
    unwanted: Option<(SeqNo, SeqNo)>,
}

#[derive(Debug)]
pub(crate) struct PartialMessage {
    pub(crate) first: SeqNo,
    fragment_bytes: u16,
    message_bytes: u32,
    content: Vec<u8>,
    left: u32,
    since: Time,
    touched: Time,
    deadline: Option<Duration>,
    /// The [`How`] of the repaired fragment that was missing longest, or `Direct` if no fragment
    /// was repaired.
    pub(crate) how: How,
    pub(crate) missing_for: Duration,
}

#[derive(Debug)]
pub(crate) enum Added {
    Open,
    Whole(PartialMessage),
    Useless(Useless),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Useless {
    Late,
    Contradiction,
}

/// Assumed memory for an open message, in bytes, in addition to its content.
const OVERHEAD_BYTES: usize = 192;

impl PartialMessage {
    pub(crate) fn new(
        now: Time,
        first: SeqNo,
        fragment: Fragment,
        symbol: &Symbol,
        since: Time,
    ) -> Self {
        Self {
            first,
            fragment_bytes: fragment.fragment_bytes,
            message_bytes: fragment.message_bytes,
            content: vec![0; fragment.message_bytes as usize],
            left: fragment.count(),
            since,
            touched: now,
            deadline: symbol.deadline(),
            how: How::Direct,
            missing_for: Duration::ZERO,
        }
    }

    pub(crate) fn last(&self) -> SeqNo {
        self.first.plus(self.message_bytes.div_ceil(u32::from(self.fragment_bytes)) - 1)
    }

    pub(crate) fn payload(self) -> Bytes {
        self.content.into()
    }

    pub(crate) fn over_at(&self, patience: Duration) -> Time {
        let stalled = self.touched + patience;
        self.deadline.map_or(stalled, |deadline| stalled.min(self.since + deadline))
    }

    fn contains(&self, seqno: SeqNo) -> bool {
        seqno.distance_from(self.first) >= 0 && !seqno.is_after(self.last())
    }

    fn add(&mut self, now: Time, fragment: Fragment, bytes: &[u8]) -> Result<(), Useless> {
        if (self.fragment_bytes, self.message_bytes)
            != (fragment.fragment_bytes, fragment.message_bytes)
        {
            return Err(Useless::Contradiction);
        }
        if self.deadline.is_some_and(|deadline| now > self.since + deadline) {
            return Err(Useless::Late);
        }
        self.content[fragment.offset()..fragment.offset() + bytes.len()].copy_from_slice(bytes);
        self.left -= 1;
        self.touched = now;
        Ok(())
    }
}

impl Reassembly {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { of_streams: BTreeMap::new(), begun: VecDeque::new(), open: 0, bytes: 0, max_bytes }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_open(&self, stream: StreamIx, first: SeqNo) -> bool {
        self.place(stream, first).is_some()
    }

    pub(crate) fn is_unwanted(&self, stream: StreamIx, seqno: SeqNo) -> bool {
        let unwanted = self.of_streams.get(&stream).and_then(|of_stream| of_stream.unwanted);
        unwanted.is_some_and(|(from, to)| seqno.distance_from(from) >= 0 && to.is_after(seqno))
    }

    pub(crate) fn reported_to(&self, stream: StreamIx, end: SeqNo) -> SeqNo {
        let unwanted = self.of_streams.get(&stream).and_then(|of_stream| of_stream.unwanted);
        unwanted.map_or(end, |(_, to)| to.later(end))
    }

    pub(crate) fn set_unwanted(&mut self, stream: StreamIx, from: SeqNo, to: SeqNo) {
        self.of_streams.entry(stream).or_default().unwanted = Some((from, to));
    }

    pub(crate) fn containing(&self, stream: StreamIx, seqno: SeqNo) -> Option<SeqNo> {
        let mut open = self.of_streams.get(&stream)?.open.iter().rev();
        open.find(|message| message.contains(seqno)).map(|message| message.first)
    }

    pub(crate) fn of_stream(&self, stream: StreamIx) -> Vec<SeqNo> {
        let open = self.of_streams.get(&stream).map(|of_stream| of_stream.open.iter());
        open.into_iter().flatten().map(|message| message.first).collect()
    }

    pub(crate) fn can_hold(&self, message_bytes: u32) -> bool {
        cost(message_bytes) <= self.max_bytes
    }

    /// Returns the oldest open message if the new one does not fit. The caller must end it.
    pub(crate) fn in_the_way_of(&mut self, message_bytes: u32) -> Option<(StreamIx, SeqNo)> {
        if self.bytes + cost(message_bytes) <= self.max_bytes {
            return None;
        }
        while let Some((stream, first)) = self.begun.pop_front() {
            if self.is_open(stream, first) {
                return Some((stream, first));
            }
        }
        None
    }

    pub(crate) fn begin(&mut self, stream: StreamIx, message: PartialMessage) {
        if self.begun.len() > 2 * self.open + MOST_ENDED {
            let mut begun = core::mem::take(&mut self.begun);
            begun.retain(|(stream, first)| self.is_open(*stream, *first));
            self.begun = begun;
        }
        self.open += 1;
        self.bytes += cost(message.message_bytes);
        self.begun.push_back((stream, message.first));
        self.of_streams.entry(stream).or_default().open.push_back(message);
    }

    pub(crate) fn add(
        &mut self,
        now: Time,
        stream: StreamIx,
        first: SeqNo,
        (fragment, bytes): (Fragment, &[u8]),
        (how, missing_for): (How, Duration),
    ) -> Added {
        let place = self.place(stream, first).expect("the message is open");
        let of_stream = self.of_streams.get_mut(&stream).expect("the message is open");
        let message = &mut of_stream.open[place];
        if let Err(useless) = message.add(now, fragment, bytes) {
            return Added::Useless(useless);
        }
        let is_longest = message.how == How::Direct || missing_for > message.missing_for;
        if how != How::Direct && is_longest {
            message.how = how;
        }
        message.missing_for = message.missing_for.max(missing_for);
        if message.left > 0 {
            return Added::Open;
        }
        Added::Whole(self.end(stream, first).expect("the message is open"))
    }

    pub(crate) fn end(&mut self, stream: StreamIx, first: SeqNo) -> Option<PartialMessage> {
        let place = self.place(stream, first)?;
        let of_stream = self.of_streams.get_mut(&stream)?;
        let message = of_stream.open.remove(place)?;
        if of_stream.open.is_empty() && of_stream.unwanted.is_none() {
            self.of_streams.remove(&stream);
        }
        self.open -= 1;
        self.bytes -= cost(message.message_bytes);
        Some(message)
    }

    pub(crate) fn forget_unwanted_before(&mut self, stream: StreamIx, end: SeqNo) {
        let Some(of_stream) = self.of_streams.get_mut(&stream) else { return };
        if of_stream.unwanted.is_some_and(|(_, to)| !to.is_after(end)) {
            of_stream.unwanted = None;
            if of_stream.open.is_empty() {
                self.of_streams.remove(&stream);
            }
        }
    }

    pub(crate) fn remove_stream(&mut self, stream: StreamIx) -> usize {
        let open = self.of_stream(stream);
        open.iter().for_each(|first| _ = self.end(stream, *first));
        self.of_streams.remove(&stream);
        open.len()
    }

    pub(crate) fn over_at(
        &self,
        now: Time,
        stream: StreamIx,
        patience: Duration,
    ) -> (Vec<SeqNo>, Option<Time>) {
        let Some(of_stream) = self.of_streams.get(&stream) else { return (Vec::new(), None) };
        let due = of_stream.open.iter().map(|message| (message.first, message.over_at(patience)));
        let (over, left): (Vec<_>, Vec<_>) = due.partition(|(_, at)| *at <= now);
        let next = left.into_iter().map(|(_, at)| at).min();
        (over.into_iter().map(|(first, _)| first).collect(), next)
    }

    pub(crate) fn check(&self) {
        let open = || self.of_streams.values().flat_map(|of_stream| &of_stream.open);
        assert_eq!(open().count(), self.open, "the open messages were miscounted");
        let bytes: usize = open().map(|message| cost(message.message_bytes)).sum();
        assert_eq!(bytes, self.bytes, "the bytes of open messages were miscounted");
        assert!(bytes <= self.max_bytes, "the open messages exceed their limit");
        assert!(open().all(|message| message.left > 0), "a complete message was not delivered");
        let is_needed =
            |of_stream: &OfStream| !of_stream.open.is_empty() || of_stream.unwanted.is_some();
        assert!(self.of_streams.values().all(is_needed), "an unused stream is kept");
    }

    fn place(&self, stream: StreamIx, first: SeqNo) -> Option<usize> {
        let open = &self.of_streams.get(&stream)?.open;
        open.iter().rposition(|message| message.first == first)
    }
}

fn cost(message_bytes: u32) -> usize {
    message_bytes as usize + OVERHEAD_BYTES
}

/// Number of ended messages that may remain in `begun`, in addition to the number of open messages.
const MOST_ENDED: usize = 64;

#[cfg(test)]
#[path = "reassembly_tests.rs"]
mod tests;
