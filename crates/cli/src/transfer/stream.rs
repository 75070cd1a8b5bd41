//! The stream of a transfer in its bulk group: offers and blocks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use carom::PublishError;
use carom::blocking::Group;
use carom::unstable::rdcm;
use carom_files::{BLOCK_HEADER_BYTES, BlockSink, Offer, SendHandle, SinkError};
use carom_terminal::interrupt::Interrupt;

use crate::waiting;

pub(crate) struct Stream<'a> {
    group: &'a Group,
    interrupt: &'a Interrupt,
    offer: Bytes,
    offered_at: Mutex<Option<Instant>>,
    /// `true` if another member sends in the group, so that this node cannot.
    is_refused: AtomicBool,
    ahead: Mutex<Ahead>,
    /// Number of message bytes that fit in a packet, at the current path MTU.
    fragment_bytes: AtomicUsize,
    handle: SendHandle,
}

/// The messages that the engine has accepted but not yet sent, which can be many.
#[derive(Debug, Default)]
struct Ahead {
    /// Packets and file bytes up to the end of each unsent message.
    messages: VecDeque<(u64, u64)>,
    given: (u64, u64),
    sent_bytes: u64,
}

impl Ahead {
    fn give(&mut self, packets: u64, file_bytes: u64) {
        self.given = (self.given.0 + packets, self.given.1 + file_bytes);
        self.messages.push_back(self.given);
    }

    /// Returns the file bytes in the messages that are complete after this number of sent packets.
    fn sent(&mut self, packets: u64) -> u64 {
        while let Some((last, bytes)) = self.messages.front()
            && *last <= packets
        {
            self.sent_bytes = *bytes;
            self.messages.pop_front();
        }
        self.sent_bytes
    }
}

impl<'a> Stream<'a> {
    pub(crate) fn new(
        group: &'a Group,
        interrupt: &'a Interrupt,
        offer: &Offer,
        handle: SendHandle,
    ) -> Self {
        let (offered_at, is_refused) = (Mutex::default(), AtomicBool::default());
        let (offer, ahead) = (offer.encode(), Mutex::default());
        let fragment_bytes = AtomicUsize::new(rdcm::Config::default().fragment_bytes());
        Self { group, interrupt, offer, offered_at, is_refused, ahead, fragment_bytes, handle }
    }

    pub(crate) fn set_path_mtu(&self, bytes: u16) {
        let config = rdcm::Config::default().with_path_mtu(bytes);
        self.fragment_bytes.store(config.fragment_bytes(), Relaxed);
    }

    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Relaxed);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    pub(crate) fn offer_again(&self) {
        if self.is_offer_due() && self.group.try_publish(self.offer.clone()).is_ok() {
            self.note_given(&self.offer, 0);
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

    pub(crate) fn sent_bytes(&self, packets: u64) -> u64 {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).sent(packets)
    }

    fn is_all_sent(&self) -> bool {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).messages.is_empty()
    }

    fn note_given(&self, message: &[u8], file_bytes: usize) {
        let packets = message.len().div_ceil(self.fragment_bytes.load(Relaxed));
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.give(packets as u64, file_bytes as u64);
    }

    fn gives_up(&self) -> bool {
        let gives_up = self.interrupt.is_asked() || self.is_refused();
        if gives_up {
            // This notifies receivers of the cancellation, instead of leaving them with a broken
            // stream.
            self.handle.cancel();
        }
        gives_up
    }

    fn publish(&self, message: Bytes) -> Result<(), SinkError> {
        let published = self.group.as_async().publish(message);
        match waiting::until(published, || self.gives_up()) {
            Some(Ok(_)) => Ok(()),
            Some(Err(PublishError::Closed)) => Err(SinkError("the group was closed".into())),
            Some(Err(error)) => Err(SinkError(error.to_string())),
            None if self.is_refused() => Err(SinkError("another member is sending to it".into())),
            None => Err(SinkError("interrupted by the user".into())),
        }
    }
}

impl BlockSink for &Stream<'_> {
    fn send(&mut self, block: Bytes) -> Result<(), SinkError> {
        if self.is_offer_due() {
            self.publish(self.offer.clone())?;
            self.note_given(&self.offer, 0);
            self.note_offered();
        }
        let given = block.clone();
        self.publish(block)?;
        self.note_given(&given, given.len().saturating_sub(BLOCK_HEADER_BYTES));
        Ok(())
    }

    fn largest(&self) -> usize {
        let packet = self.fragment_bytes.load(Relaxed);
        self.group.payload_limit().min((MOST_BYTES / packet).max(1) * packet)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let confirmed = self.group.as_async().confirm(FLUSH_PATIENCE);
        let is_still = || self.is_all_sent() && self.handle.still_for() >= STILL;
        let is_enough = || self.gives_up() || self.handle.is_served() || is_still();
        match waiting::until(confirmed, is_enough) {
            None if self.gives_up() => Err(SinkError("interrupted by the user".into())),
            // Receivers fetch missing data.
            Some(_) | None => Ok(()),
        }
    }
}

const OFFER_EVERY: Duration = Duration::from_millis(500);
/// Maximum size of a block in bytes: as many packets as one system call sends.
const MOST_BYTES: usize = 61_000;
/// Maximum wait for confirmation. Afterwards, receivers with missing data fetch it.
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);

/// Time without a new piece at a receiver with gaps, after which fetching is faster.
const STILL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_as_sent_after_all_packets_of_their_message() {
        let mut ahead = Ahead::default();
        ahead.give(1, 0);
        ahead.give(42, 1000);
        ahead.give(42, 1000);
        ahead.give(10, 200);
        assert_eq!(ahead.sent(0), 0);
        assert_eq!(ahead.sent(42), 0);
        assert_eq!(ahead.sent(43), 1000);
        assert_eq!(ahead.sent(94), 2000);
        assert_eq!(ahead.sent(95), 2200);
        assert_eq!(ahead.sent(95), 2200);
    }
}
