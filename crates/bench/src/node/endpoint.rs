use super::error::NodeError;
use crate::record::NodeReport;

/// A system with its sockets, joined to all groups.
pub(super) trait Endpoint {
    /// Sends a message to a group. Waits while flow control does not permit it.
    fn send(&mut self, group: u32, message: Vec<u8>) -> Result<(), NodeError>;

    /// Returns the sender of the background transfer, for a thread of its own. Returns `None` if
    /// the run has no such transfer, or the node does not send.
    fn background(&mut self) -> Option<Background>;

    /// Stops receiving, and returns the name, the version and the counters of the system.
    fn finish(self: Box<Self>) -> NodeReport;
}

/// Sends the messages of a background transfer.
pub(super) struct Background(Box<dyn FnMut(Vec<u8>) -> Result<(), NodeError> + Send>);

impl Background {
    pub(super) fn new(send: impl FnMut(Vec<u8>) -> Result<(), NodeError> + Send + 'static) -> Self {
        Self(Box::new(send))
    }

    pub(super) fn send(&mut self, message: Vec<u8>) -> Result<(), NodeError> {
        (self.0)(message)
    }
}
