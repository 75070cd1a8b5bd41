use bytes::Bytes;

/// A multicast stream to all receivers, which the application provides.
///
/// The stream may lose, duplicate, reorder and corrupt messages, because missing pieces are fetched
/// over TCP.
pub trait BlockSink {
    /// Sends a message. Blocks while the stream is full, which slows down the sender.
    ///
    /// # Errors
    /// Returns an error if the stream is permanently closed. The transfer ends with this error.
    fn send(&mut self, block: Bytes) -> Result<(), SinkError>;

    /// Returns the maximum size of a message, in bytes.
    fn largest(&self) -> usize;

    /// Waits until every message has arrived at all receivers to which the stream will deliver it.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    fn flush(&mut self) -> Result<(), SinkError>;
}

/// The error for a stream that accepts no more messages, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the multicast stream is closed: {0}")]
pub struct SinkError(pub String);
