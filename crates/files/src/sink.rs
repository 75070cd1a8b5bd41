//! Where the blocks of a sender go: a reliable multicast stream that somebody else provides.

use bytes::Bytes;

/// A multicast stream to all receivers.
///
/// It may lose, repeat and reorder messages, and pass them on in any order: whatever does not come
/// by the stream is fetched. What it does not lose need not be fetched, so the better it is, the
/// less is sent twice.
pub trait BlockSink {
    /// Sends one message, of at most [`largest`](Self::largest) bytes. Waits while the stream is
    /// full; that is how the slowest receiver slows down the sender.
    ///
    /// # Errors
    /// If the stream is closed for good: the transfer ends with this reason.
    fn send(&mut self, block: Bytes) -> Result<(), SinkError>;

    /// The largest message that it carries, in bytes.
    fn largest(&self) -> usize;

    /// Waits until everything that was sent has arrived wherever it will arrive by the stream.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    fn flush(&mut self) -> Result<(), SinkError>;
}

/// Why a stream takes no more messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the multicast stream is closed: {0}")]
pub struct SinkError(pub String);
