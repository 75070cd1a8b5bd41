use super::error::NodeError;
use crate::record::NodeReport;

/// A system with its sockets, joined to all groups.
pub(super) trait Endpoint {
    /// Sends a message to a group. Waits while flow control does not permit it.
    fn send(&mut self, group: u32, message: Vec<u8>) -> Result<(), NodeError>;

    /// Stops receiving, and returns the name, the version and the counters of the system.
    fn finish(self: Box<Self>) -> NodeReport;
}
