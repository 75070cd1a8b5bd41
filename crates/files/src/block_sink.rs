//! Interface to the multicast stream that carries a sender's blocks.

use bytes::Bytes;

/// Multicast stream to all receivers, provided by the application.
///
/// It may lose, duplicate and reorder messages: missing pieces are fetched over TCP.
pub trait BlockSink {
    /// Sends a message, and blocks while the stream is full, which slows down the sender.
    ///
    /// # Errors
    /// The stream is permanently closed. The transfer ends with this error.
    fn send(&mut self, block: Bytes) -> Result<(), SinkError>;

    /// Returns the maximum message size in bytes.
    fn largest(&self) -> usize;

    /// Waits until every message has arrived at all receivers to which the stream will deliver it.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    fn flush(&mut self) -> Result<(), SinkError>;
}

/// Error of a stream that accepts no more messages, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the multicast stream is closed: {0}")]
pub struct SinkError(pub String);
