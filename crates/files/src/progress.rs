//! Progress events of a transfer.
//!
//! Events are added to a bounded queue, for which the transfer never waits. Events that do not fit
//! are dropped and counted. All essential facts are also in the summary.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A progress event of a sender or receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Sender: reading the sources has made progress.
    Scanned {
        /// Number of bytes read so far.
        bytes: u64,
        /// Number of bytes to read.
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
        /// Reason for the failure.
        reason: String,
    },
    /// Sender: not enough receivers are ready. This event repeats every 3 s.
    Waiting {
        /// Number of receivers that are ready.
        ready: usize,
        /// Number of receivers that have failed, or have been disconnected for too long.
        failed: usize,
        /// Number of receivers to wait for, or `None` if the stream starts only by time.
        of: Option<usize>,
    },
    /// Sender: the stream has started.
    Began {
        /// Number of receivers that are ready.
        receivers: usize,
    },
    /// Sender: the stream has made progress.
    Streamed {
        /// Number of pieces processed so far, both sent and skipped.
        pieces: u32,
        /// Number of pieces in the transfer.
        of: u32,
        /// Number of bytes of file data passed to the stream, which may not have been multicast
        /// yet.
        bytes: u64,
    },
    /// Sender: the stream has ended. Pieces that are still missing are fetched over TCP.
    StreamOver,
    /// Receiver: the connection to the sender was established, for the first time or again.
    Connected {
        /// Number of pieces that the receiver already has.
        has: u32,
        /// Number of pieces in the transfer.
        of: u32,
        /// Total size of all pieces, in bytes.
        bytes: u64,
    },
    /// Receiver: a piece was verified and written.
    Verified {
        /// Total size of all verified pieces, in bytes.
        bytes: u64,
        /// Total size of all pieces, in bytes.
        of: u64,
    },
    /// Receiver: a piece had a wrong hash and will be fetched.
    Wrong {
        /// Piece number.
        piece: u32,
        /// Address of the source of the piece, or `None` for the stream.
        from: Option<String>,
    },
    /// Receiver: the connection to the sender was lost. The receiver tries to reconnect.
    SenderLost,
    /// Receiver: all entries have their final names.
    Finished,
}

/// The sending end of a queue of events.
#[derive(Clone, Default)]
pub struct Reporter {
    queue: Option<SyncSender<Event>>,
    dropped: Arc<AtomicU64>,
}

/// Creates a queue of at most `bound` events, and returns its two ends.
pub fn events(bound: usize) -> (Reporter, Receiver<Event>) {
    let (queue, events) = sync_channel(bound);
    (Reporter { queue: Some(queue), dropped: Arc::default() }, events)
}

impl Reporter {
    /// Returns a reporter that discards all events.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the number of events that were dropped, because the queue was full or closed.
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
