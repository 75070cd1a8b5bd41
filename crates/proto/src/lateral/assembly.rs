//! Messages of several packets that are being put together.
//!
//! Every piece is a packet of its own with a number of its own: the accounts of streams see to it
//! that each is taken in once, that what is missing is repaired, and that a packet is given up. A
//! message that is put together is in one of these states:
//!
//! ```text
//!            a piece comes, the message is owed and has room
//! unknown -------------------------------------------------> open
//! open ----- the last of its pieces comes in time ---------> delivered
//! open ----- one is given up, its time is over, no room ---> over, told as lost
//! unknown -- a piece comes, but one was given up before ---> over, told as lost
//! unknown -- a piece comes, not owed from its beginning ---> over, nothing is told
//! ```
//!
//! What holds:
//!
//! * An open message holds memory for all of its bytes, and all of them together no more than
//!   their limit. Nothing is kept of one that is delivered or over.
//! * The packets of a message that is over are not asked for. Those that were missing are settled
//!   when it ends; of those that lie beyond the end of the stream there is one range at most, for
//!   at most one message reaches across the end.
//! * Its time is over when nothing of it has come for the time after which a missing packet is
//!   given up, or when its first sign is older than its deadline.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use bytes::Bytes;

use super::block::{Block, Piece};
use super::streams::StreamIx;
use crate::{How, SeqNo, Time};

/// All messages that are being put together.
#[derive(Debug)]
pub(super) struct Assemblies {
    of_streams: BTreeMap<StreamIx, OfStream>,
    /// In the order in which they were begun; some of them are no longer open.
    begun: VecDeque<(StreamIx, SeqNo)>,
    open: usize,
    bytes: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct OfStream {
    open: VecDeque<Assembly>,
    /// Numbers that belong to a message which is over, and were not known of when it ended: from
    /// the first to before the second.
    unwanted: Option<(SeqNo, SeqNo)>,
}

/// One message.
#[derive(Debug)]
pub(super) struct Assembly {
    /// The number of its first packet, which is the message's.
    pub(super) first: SeqNo,
    piece_bytes: u16,
    message_bytes: u32,
    content: Vec<u8>,
    /// Pieces that have not come.
    left: u32,
    /// Since when something is known of it.
    since: Time,
    /// When the last piece came.
    touched: Time,
    deadline: Option<Duration>,
    /// How it came: of the pieces that were repaired, the one that was missing longest.
    pub(super) how: How,
    /// The longest for which a piece was missing.
    pub(super) missing_for: Duration,
}

/// What a piece comes to.
#[derive(Debug)]
pub(super) enum Added {
    /// There are more to come.
    Open,
    /// It was the last one: the message.
    Whole(Assembly),
    /// It is of another message than those before it, or comes too late.
    Useless(Useless),
}

/// Why a message cannot be put together with a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Useless {
    /// Its deadline has passed.
    Late,
    /// The pieces contradict each other.
    Contradiction,
}

/// What an open message costs beside its bytes.
const OVERHEAD_BYTES: usize = 192;

impl Assembly {
    /// A message of which `block` is the first piece that came.
    pub(super) fn new(now: Time, first: SeqNo, piece: Piece, block: &Block, since: Time) -> Self {
        Self {
            first,
            piece_bytes: piece.piece_bytes,
            message_bytes: piece.message_bytes,
            content: vec![0; piece.message_bytes as usize],
            left: piece.count(),
            since,
            touched: now,
            deadline: block.deadline(),
            how: How::Direct,
            missing_for: Duration::ZERO,
        }
    }

    /// The number of its last packet.
    pub(super) fn last(&self) -> SeqNo {
        self.first.plus(self.message_bytes.div_ceil(u32::from(self.piece_bytes)) - 1)
    }

    /// The message.
    pub(super) fn payload(self) -> Bytes {
        self.content.into()
    }

    /// When its time is over, unless another piece comes.
    pub(super) fn over_at(&self, patience: Duration) -> Time {
        let stalled = self.touched + patience;
        self.deadline.map_or(stalled, |deadline| stalled.min(self.since + deadline))
    }

    fn contains(&self, seqno: SeqNo) -> bool {
        seqno.distance_from(self.first) >= 0 && !seqno.is_after(self.last())
    }

    fn add(&mut self, now: Time, piece: Piece, bytes: &[u8]) -> Result<(), Useless> {
        if (self.piece_bytes, self.message_bytes) != (piece.piece_bytes, piece.message_bytes) {
            return Err(Useless::Contradiction);
        }
        if self.deadline.is_some_and(|deadline| now > self.since + deadline) {
            return Err(Useless::Late);
        }
        self.content[piece.offset()..piece.offset() + bytes.len()].copy_from_slice(bytes);
        self.left -= 1;
        self.touched = now;
        Ok(())
    }
}

impl Assemblies {
    /// None yet; all of them together may take up `max_bytes`.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { of_streams: BTreeMap::new(), begun: VecDeque::new(), open: 0, bytes: 0, max_bytes }
    }

    /// Bytes that the open messages take up.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the message that begins with this packet is open.
    pub(super) fn is_open(&self, stream: StreamIx, first: SeqNo) -> bool {
        self.place(stream, first).is_some()
    }

    /// Whether the packet belongs to a message that is over, and was not known of when it ended.
    pub(super) fn is_unwanted(&self, stream: StreamIx, seqno: SeqNo) -> bool {
        let unwanted = self.of_streams.get(&stream).and_then(|it| it.unwanted);
        unwanted.is_some_and(|(from, to)| seqno.distance_from(from) >= 0 && to.is_after(seqno))
    }

    /// The number after the last that is unwanted, if there is any.
    pub(super) fn unwanted_to(&self, stream: StreamIx) -> Option<SeqNo> {
        self.of_streams.get(&stream)?.unwanted.map(|(_, to)| to)
    }

    /// Packets from `from` to before `to` are not wanted.
    pub(super) fn set_unwanted(&mut self, stream: StreamIx, from: SeqNo, to: SeqNo) {
        self.of_streams.entry(stream).or_default().unwanted = Some((from, to));
    }

    /// The open message that this packet is of.
    pub(super) fn containing(&self, stream: StreamIx, seqno: SeqNo) -> Option<SeqNo> {
        let mut open = self.of_streams.get(&stream)?.open.iter().rev();
        open.find(|assembly| assembly.contains(seqno)).map(|assembly| assembly.first)
    }

    /// The open messages of the stream.
    pub(super) fn of_stream(&self, stream: StreamIx) -> Vec<SeqNo> {
        let open = self.of_streams.get(&stream).map(|it| it.open.iter());
        open.into_iter().flatten().map(|assembly| assembly.first).collect()
    }

    /// Whether there can ever be room for a message of so many bytes.
    pub(super) fn can_hold(&self, message_bytes: u32) -> bool {
        cost(message_bytes) <= self.max_bytes
    }

    /// The open message that was begun first, if so many bytes more are too many beside it.
    pub(super) fn in_the_way_of(&mut self, message_bytes: u32) -> Option<(StreamIx, SeqNo)> {
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

    /// Opens a message.
    pub(super) fn begin(&mut self, stream: StreamIx, assembly: Assembly) {
        if self.begun.len() > 2 * self.open + MOST_ENDED {
            let mut begun = core::mem::take(&mut self.begun);
            begun.retain(|(stream, first)| self.is_open(*stream, *first));
            self.begun = begun;
        }
        self.open += 1;
        self.bytes += cost(assembly.message_bytes);
        self.begun.push_back((stream, assembly.first));
        self.of_streams.entry(stream).or_default().open.push_back(assembly);
    }

    /// A piece of an open message came, so long after it was known to be missing.
    pub(super) fn add(
        &mut self,
        now: Time,
        stream: StreamIx,
        first: SeqNo,
        (piece, bytes): (Piece, &[u8]),
        (how, missing_for): (How, Duration),
    ) -> Added {
        let place = self.place(stream, first).expect("the message is open");
        let of_stream = self.of_streams.get_mut(&stream).expect("the message is open");
        let assembly = &mut of_stream.open[place];
        if let Err(useless) = assembly.add(now, piece, bytes) {
            return Added::Useless(useless);
        }
        let is_longest = assembly.how == How::Direct || missing_for > assembly.missing_for;
        if how != How::Direct && is_longest {
            assembly.how = how;
        }
        assembly.missing_for = assembly.missing_for.max(missing_for);
        if assembly.left > 0 {
            return Added::Open;
        }
        Added::Whole(self.end(stream, first).expect("the message is open"))
    }

    /// The message is not open any more.
    pub(super) fn end(&mut self, stream: StreamIx, first: SeqNo) -> Option<Assembly> {
        let place = self.place(stream, first)?;
        let of_stream = self.of_streams.get_mut(&stream)?;
        let assembly = of_stream.open.remove(place)?;
        if of_stream.open.is_empty() && of_stream.unwanted.is_none() {
            self.of_streams.remove(&stream);
        }
        self.open -= 1;
        self.bytes -= cost(assembly.message_bytes);
        Some(assembly)
    }

    /// Everything before `end` is known of: what was unwanted before it has been dealt with.
    pub(super) fn forget_unwanted_before(&mut self, stream: StreamIx, end: SeqNo) {
        let Some(of_stream) = self.of_streams.get_mut(&stream) else { return };
        if of_stream.unwanted.is_some_and(|(_, to)| !to.is_after(end)) {
            of_stream.unwanted = None;
            if of_stream.open.is_empty() {
                self.of_streams.remove(&stream);
            }
        }
    }

    /// The stream is forgotten, and what is open of it; says how many messages that were.
    pub(super) fn remove_stream(&mut self, stream: StreamIx) -> usize {
        let open = self.of_stream(stream);
        open.iter().for_each(|first| _ = self.end(stream, *first));
        self.of_streams.remove(&stream);
        open.len()
    }

    /// The open messages of the stream whose time is over, and when the next one's is.
    pub(super) fn over_at(
        &self,
        now: Time,
        stream: StreamIx,
        patience: Duration,
    ) -> (Vec<SeqNo>, Option<Time>) {
        let Some(of_stream) = self.of_streams.get(&stream) else { return (Vec::new(), None) };
        let due = of_stream.open.iter().map(|it| (it.first, it.over_at(patience)));
        let (over, left): (Vec<_>, Vec<_>) = due.partition(|(_, at)| *at <= now);
        let next = left.into_iter().map(|(_, at)| at).min();
        (over.into_iter().map(|(first, _)| first).collect(), next)
    }

    pub(super) fn check(&self) {
        let open = || self.of_streams.values().flat_map(|it| &it.open);
        assert_eq!(open().count(), self.open, "the open messages were miscounted");
        let bytes: usize = open().map(|it| cost(it.message_bytes)).sum();
        assert_eq!(bytes, self.bytes, "the bytes of open messages were miscounted");
        assert!(bytes <= self.max_bytes, "more is put together than there is room for");
        assert!(open().all(|it| it.left > 0), "a message is whole and was not delivered");
        let is_needed = |it: &OfStream| !it.open.is_empty() || it.unwanted.is_some();
        assert!(self.of_streams.values().all(is_needed), "a stream is kept for nothing");
    }

    fn place(&self, stream: StreamIx, first: SeqNo) -> Option<usize> {
        let open = &self.of_streams.get(&stream)?.open;
        open.iter().rposition(|assembly| assembly.first == first)
    }
}

fn cost(message_bytes: u32) -> usize {
    message_bytes as usize + OVERHEAD_BYTES
}

/// Messages that have ended and stand in the order of those that were begun, beside as many as
/// are open.
const MOST_ENDED: usize = 64;

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
