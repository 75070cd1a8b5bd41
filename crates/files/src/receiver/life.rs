use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::ReceiveError;
use crate::frame::{FromReceiver, Way, plain_text};
use crate::limits::REPORT;
use crate::piece::PieceSet;
use crate::receiver::fetches::Fetches;
use crate::receiver::outbox::Outbox;
use crate::summary::Received;

pub(crate) struct Life {
    /// Pieces that were received and reported to the sender, or queued for reporting.
    pub(crate) known: PieceSet,
    pub(crate) outbox: Outbox,
    pub(crate) fetches: Fetches,
    pub(crate) received: Received,
    pub(crate) link: Option<(Arc<TcpStream>, SocketAddr)>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) over_at: Option<Instant>,
    pub(crate) block_at: Instant,
    settled: bool,
    ending: Option<Result<(), ReceiveError>>,
    last_word_taken: bool,
    /// Final result. Nothing happens after it is set.
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

    /// Returns `true` if all pieces have been received. The sender can no longer change the result.
    pub(crate) fn is_complete(&self) -> bool {
        self.known.is_full()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some() || self.ended.is_some()
    }

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

    /// Begins a connection, and returns the pieces that the receiver has.
    ///
    /// Pending reports are dropped, because the returned pieces include those in them.
    pub(crate) fn begin_link(&mut self) -> PieceSet {
        self.outbox = Outbox::default();
        self.fetches.clear();
        (self.over_at, self.settled) = (None, false);
        self.known.clone()
    }

    pub(crate) fn end(&mut self, ending: Result<(), ReceiveError>) {
        if !self.is_ending() {
            self.ending = Some(ending);
        }
    }

    pub(crate) fn has_to_tell(&self, silence: Duration, settle: Duration) -> bool {
        let is_time = self.outbox.is_urgent() || self.is_complete() || silence >= REPORT;
        let has_news = (is_time && !self.outbox.is_empty()) || self.settles(settle);
        (has_news && self.link.is_some()) || (self.ending.is_some() && !self.last_word_taken)
    }

    /// Returns the connection and the frames to send. Reports wait for a connection.
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

    pub(crate) fn takes_last_word(&mut self) -> bool {
        let is_last = self.ending.is_some() && !self.last_word_taken;
        self.last_word_taken |= is_last;
        is_last
    }

    /// Ends the receiver after its last report. `is_told` is `true` if the report was sent.
    ///
    /// A receiver that has finished continues to serve pieces while it is connected to the sender.
    pub(crate) fn last_word(&mut self, is_told: bool) {
        if is_told && self.ending == Some(Ok(())) && self.link.is_some() {
            return;
        }
        self.close();
    }

    pub(crate) fn close(&mut self) {
        if self.ended.is_none() {
            self.ended = self.ending.clone();
        }
    }

    fn settles(&self, settle: Duration) -> bool {
        let last = self.over_at.map(|over_at| over_at.max(self.block_at));
        !self.settled && last.is_some_and(|last| last.elapsed() >= settle)
    }
}
