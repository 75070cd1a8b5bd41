//! What is told while a transfer runs.
//!
//! Events go into a bounded queue that the transfer never waits for: what does not fit is not told,
//! and counted. Everything that matters is in the summary, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Something has happened.
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
        /// Its name.
        name: String,
        /// Pieces that it has already.
        has: u32,
    },
    /// Sender: a receiver is lost; it may come back.
    ReceiverGone {
        /// Its name.
        name: String,
    },
    /// Sender: a receiver has everything under its final name.
    ReceiverFinished {
        /// Its name.
        name: String,
    },
    /// Sender: a receiver has given up.
    ReceiverFailed {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Sender: the stream has not begun yet, as not enough receivers are ready; now and then.
    Waiting {
        /// Receivers that are ready.
        ready: usize,
        /// Receivers that have failed.
        failed: usize,
        /// Receivers that are waited for; `None` if only the time counts.
        of: Option<usize>,
    },
    /// Sender: the stream has begun.
    Began {
        /// Receivers that are ready.
        receivers: usize,
    },
    /// Sender: how far the stream is.
    Streamed {
        /// Pieces that are behind, whether they were sent or nobody needed them.
        pieces: u32,
        /// Pieces of the transfer.
        of: u32,
        /// Bytes of files that were given to the stream, which may not have multicast all yet.
        bytes: u64,
    },
    /// Sender: the stream is over; what is missing is fetched now.
    StreamOver,
    /// Receiver: connected to the sender, for the first time or again.
    Connected {
        /// Pieces that were here already.
        has: u32,
        /// Pieces of the transfer.
        of: u32,
        /// Bytes of the transfer that are sent.
        bytes: u64,
    },
    /// Receiver: a piece was verified and written.
    Verified {
        /// Bytes of all verified pieces.
        bytes: u64,
        /// Bytes of all pieces.
        of: u64,
    },
    /// Receiver: a piece was wrong, and is fetched again.
    Wrong {
        /// The piece.
        piece: u32,
        /// Who sent it; `None` is the stream.
        from: Option<String>,
    },
    /// Receiver: the sender is lost and waited for.
    SenderLost,
    /// Receiver: everything has its final name.
    Finished,
}

/// The transfer's end of a queue of events.
#[derive(Clone, Default)]
pub struct Reporter {
    queue: Option<SyncSender<Event>>,
    dropped: Arc<AtomicU64>,
}

/// A queue for at most `bound` events.
pub fn events(bound: usize) -> (Reporter, Receiver<Event>) {
    let (queue, events) = sync_channel(bound);
    (Reporter { queue: Some(queue), dropped: Arc::default() }, events)
}

impl Reporter {
    /// Tells nobody.
    pub fn none() -> Self {
        Self::default()
    }

    /// Events that did not fit into the queue.
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
