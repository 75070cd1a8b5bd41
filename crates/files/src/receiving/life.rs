//! How far a receiving is, and what it has to tell the sender.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::ReceiveError;
use crate::frame::{FromReceiver, Way, plain_text};
use crate::limits::REPORT;
use crate::piece::PieceSet;
use crate::receiving::fetch::Fetches;
use crate::receiving::outbox::Outbox;
use crate::summary::Received;

/// What the threads of a receiver know together.
pub(crate) struct Life {
    /// The pieces that are here and that the sender knows of, or will when the outbox is empty.
    pub(crate) known: PieceSet,
    pub(crate) outbox: Outbox,
    pub(crate) fetches: Fetches,
    pub(crate) received: Received,
    /// The connection, and the address at its other end.
    pub(crate) link: Option<(Arc<TcpStream>, SocketAddr)>,
    /// Where the sender may be found again.
    pub(crate) addresses: Vec<SocketAddr>,
    /// When the sender said that the stream is over.
    pub(crate) over_at: Option<Instant>,
    pub(crate) block_at: Instant,
    settled: bool,
    /// What the last word to the sender is.
    ending: Option<Result<(), ReceiveError>>,
    last_word_taken: bool,
    /// Nothing more happens.
    pub(crate) ended: Option<Result<(), ReceiveError>>,
}

impl Life {
    pub(crate) fn new(known: PieceSet, resumed_bytes: u64, addresses: Vec<SocketAddr>) -> Self {
        Self {
            known,
            outbox: Outbox::default(),
            fetches: Fetches::default(),
            received: Received { resumed_bytes, ..Received::default() },
            link: None,
            addresses,
            over_at: None,
            block_at: Instant::now(),
            settled: false,
            ending: None,
            last_word_taken: false,
            ended: None,
        }
    }

    /// Whether all pieces are here. From then on the sender can change nothing any more.
    pub(crate) fn is_complete(&self) -> bool {
        self.known.is_full()
    }

    /// Whether nothing more is to be done but to tell it.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some() || self.ended.is_some()
    }

    /// Counts a piece that was written for the first time.
    pub(crate) fn accept(&mut self, way: Way, piece: u32, bytes: u64) {
        if !self.known.insert(piece) {
            return;
        }
        self.outbox.have(way, piece);
        *match way {
            Way::Stream => &mut self.received.stream_bytes,
            Way::Peer => &mut self.received.peer_bytes,
            Way::Sender => &mut self.received.sender_bytes,
        } += bytes;
    }

    /// The pieces to begin a connection with; what was waiting to be told is in them.
    pub(crate) fn begin_link(&mut self) -> PieceSet {
        self.outbox = Outbox::default();
        self.fetches.clear();
        (self.over_at, self.settled) = (None, false);
        self.known.clone()
    }

    /// Ends it, with a last word to the sender if it is there. The first end counts.
    pub(crate) fn end(&mut self, ending: Result<(), ReceiveError>) {
        if !self.is_ending() {
            self.ending = Some(ending);
        }
    }

    /// Whether the sender has to be told something now, after so long a silence.
    pub(crate) fn has_to_tell(&self, silence: Duration, settle: Duration) -> bool {
        let is_time = self.outbox.is_urgent() || self.is_complete() || silence >= REPORT;
        let has_news = (is_time && !self.outbox.is_empty()) || self.settles(settle);
        (has_news && self.link.is_some()) || (self.ending.is_some() && !self.last_word_taken)
    }

    /// What to tell, and to whom. Without a connection it waits for the next one.
    pub(crate) fn take_frames(
        &mut self,
        settle: Duration,
    ) -> (Option<Arc<TcpStream>>, Vec<FromReceiver>) {
        let Some((link, _)) = &self.link else { return (None, Vec::new()) };
        let link = Arc::clone(link);
        let mut frames = self.outbox.take();
        if self.settles(settle) {
            self.settled = true;
            frames.push(FromReceiver::Settled);
        }
        match &self.ending {
            Some(_) if self.last_word_taken => {}
            Some(Ok(())) => frames.push(FromReceiver::Finished),
            Some(Err(error)) if error.is_ours() => {
                frames.push(FromReceiver::Failed { reason: plain_text(&error.to_string()) });
            }
            _ => {}
        }
        if frames.is_empty() {
            frames.push(FromReceiver::Alive);
        }
        (Some(link), frames)
    }

    /// Whether what was taken has the last word in it, or would have; once.
    pub(crate) fn takes_last_word(&mut self) -> bool {
        let is_last = self.ending.is_some() && !self.last_word_taken;
        self.last_word_taken |= is_last;
        is_last
    }

    /// The last word was told or could not be. Who has finished stays for the others if the sender
    /// is there.
    pub(crate) fn last_word(&mut self, is_told: bool) {
        if is_told && self.ending == Some(Ok(())) && self.link.is_some() {
            return;
        }
        self.close();
    }

    /// The end, as it was to be.
    pub(crate) fn close(&mut self) {
        if self.ended.is_none() {
            self.ended = self.ending.clone();
        }
    }

    /// Whether the stream is over and nothing has come by it for so long.
    fn settles(&self, settle: Duration) -> bool {
        let last = self.over_at.map(|over_at| over_at.max(self.block_at));
        !self.settled && last.is_some_and(|last| last.elapsed() >= settle)
    }
}
