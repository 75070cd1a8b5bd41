//! The bulk group as the stream of a transfer: offers and blocks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use carom::rdcm;
use carom::{Group, PublishError};
use carom_files::{BlockSink, Offer, SinkError};

use crate::interrupt::Interrupt;
use crate::waiting;

/// The sender's end of the stream.
pub(crate) struct Stream<'a> {
    group: &'a Group,
    interrupt: &'a Interrupt,
    offer: Bytes,
    offered_at: Mutex<Option<Instant>>,
    /// Another member sends in the group: this one cannot.
    is_refused: AtomicBool,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(group: &'a Group, interrupt: &'a Interrupt, offer: &Offer) -> Self {
        let (offered_at, is_refused) = (Mutex::default(), AtomicBool::default());
        Self { group, interrupt, offer: offer.encode(), offered_at, is_refused }
    }

    /// Another member sends in the group: nothing more is sent.
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Relaxed);
    }

    /// Whether another member sends in the group.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    /// Offers the transfer if that is due and there is room for it.
    pub(crate) fn offer_again(&self) {
        if self.is_offer_due() && self.group.try_publish(self.offer.clone()).is_ok() {
            self.note_offered();
        }
    }

    fn is_offer_due(&self) -> bool {
        let offered_at = self.offered_at.lock().unwrap_or_else(PoisonError::into_inner);
        offered_at.is_none_or(|at| at.elapsed() >= OFFER_EVERY)
    }

    fn note_offered(&self) {
        let mut offered_at = self.offered_at.lock().unwrap_or_else(PoisonError::into_inner);
        *offered_at = Some(Instant::now());
    }

    fn gives_up(&self) -> bool {
        self.interrupt.is_asked() || self.is_refused()
    }

    fn publish(&self, message: Bytes) -> Result<(), SinkError> {
        let published = Box::pin(async { self.group.publish_async(message).await.map(|_| ()) });
        match waiting::until(published, || self.gives_up()) {
            Some(Ok(())) => Ok(()),
            Some(Err(PublishError::Closed)) => Err(SinkError("the group was closed".into())),
            Some(Err(error)) => Err(SinkError(error.to_string())),
            None if self.is_refused() => Err(SinkError("another member sends there".into())),
            None => Err(SinkError("ended by the user".into())),
        }
    }
}

impl BlockSink for &Stream<'_> {
    fn send(&mut self, block: Bytes) -> Result<(), SinkError> {
        if self.is_offer_due() {
            self.publish(self.offer.clone())?;
            self.note_offered();
        }
        self.publish(block)
    }

    /// Whole packets: all datagrams but those at the end of a piece are of one size then, which
    /// leave in one system call.
    fn largest(&self) -> usize {
        let packet = rdcm::Config::default().piece_bytes();
        self.group.payload_limit().min(PACKETS * packet)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let confirmed = Box::pin(self.group.confirm_async(FLUSH_PATIENCE));
        match waiting::until(confirmed, || self.gives_up()) {
            // Who has not got it fetches it.
            Some(_) => Ok(()),
            None => Err(SinkError("ended by the user".into())),
        }
    }
}

const OFFER_EVERY: Duration = Duration::from_millis(500);
/// Packets of a block: as many as leave in one system call.
const PACKETS: usize = 42;
/// Receivers that have not all of the stream by then fetch what they lack.
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);
