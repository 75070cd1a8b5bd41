//! Progress events of a transfer.
//!
//! Events enter a bounded queue, and the transfer never waits for it. Events that do not fit are
//! dropped and counted. The summary contains everything essential as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Progress event of a sender or receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Sender: the sources are being read.
    Scanned {
        /// Bytes read so far.
        bytes: u64,
        /// Bytes to read.
        of: u64,
    },
    /// Sender: a receiver is ready, for the first time or again.
    ReceiverReady {
        /// Name of the receiver.
        name: String,
        /// Number of pieces that it already has.
        has: u32,
    },
    /// Sender: the connection to a receiver was lost. The receiver may return.
    ReceiverGone {
        /// Name of the receiver.
        name: String,
    },
    /// Sender: a receiver has completed the transfer.
    ReceiverFinished {
        /// Name of the receiver.
        name: String,
    },
    /// Sender: a receiver has failed.
    ReceiverFailed {
        /// Name of the receiver.
        name: String,
        /// Reason.
        reason: String,
    },
    /// Sender: not enough receivers are ready. Repeated every 3 s.
    Waiting {
        /// Number of receivers that are ready.
        ready: usize,
        /// Number of receivers that have failed.
        failed: usize,
        /// Number of receivers to wait for; `None` if only the time counts.
        of: Option<usize>,
    },
    /// Sender: the stream has started.
    Began {
        /// Number of receivers that are ready.
        receivers: usize,
    },
    /// Sender: progress of the stream.
    Streamed {
        /// Number of pieces passed so far, both sent and skipped.
        pieces: u32,
        /// Number of pieces of the transfer.
        of: u32,
        /// Bytes of file data passed to the stream, perhaps not multicast yet.
        bytes: u64,
    },
    /// Sender: the stream has ended. Missing pieces are now fetched.
    StreamOver,
    /// Receiver: connected to the sender, for the first time or again.
    Connected {
        /// Number of pieces that already exist here.
        has: u32,
        /// Number of pieces of the transfer.
        of: u32,
        /// Total size of all pieces.
        bytes: u64,
    },
    /// Receiver: a piece was verified and written.
    Verified {
        /// Bytes of all verified pieces.
        bytes: u64,
        /// Bytes of all pieces.
        of: u64,
    },
    /// Receiver: a piece had a wrong hash and will be fetched.
    Wrong {
        /// Piece number.
        piece: u32,
        /// Source of the piece; `None` is the stream.
        from: Option<String>,
    },
    /// Receiver: the connection to the sender was lost. The receiver tries to reconnect.
    SenderLost,
    /// Receiver: all entries have their final names.
    Finished,
}

/// Sending end of a queue of events.
#[derive(Clone, Default)]
pub struct Reporter {
    queue: Option<SyncSender<Event>>,
    dropped: Arc<AtomicU64>,
}

/// Creates a queue of at most `bound` events.
pub fn events(bound: usize) -> (Reporter, Receiver<Event>) {
    let (queue, events) = sync_channel(bound);
    (Reporter { queue: Some(queue), dropped: Arc::default() }, events)
}

impl Reporter {
    /// Returns a reporter that discards all events.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the number of events that did not fit into the queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn report(&self, event: Event) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_nobody_takes_are_counted_and_hold_nobody_up() {
        let (reporter, events) = events(2);
        (0..5).for_each(|_| reporter.report(Event::StreamOver));
        assert_eq!(events.try_iter().count(), 2);
        assert_eq!(reporter.dropped(), 3);
        drop(events);
        reporter.report(Event::Finished);
        assert_eq!(reporter.dropped(), 4);
    }
}
