//! Connections (links): the reliable byte streams between a provider and the registry.
//!
//! A provider that uses a registry requests connections through
//! [`Membership::poll_link`](super::Membership::poll_link). The driver reports their events through
//! [`Membership::handle_link`](super::Membership::handle_link) and guarantees:
//!
//! - **Order, and no loss until the end.** Bytes given to [`LinkCommand::Send`] arrive in order and
//!   without gaps, or the connection is closed. TCP guarantees this.
//! - **One end.** A requested connection that ends by itself gets exactly one
//!   [`LinkEvent::Closed`], even if it was never opened. One that the state machine closed gets
//!   none. No event follows the end, and anything that is still sent is dropped.
//! - **Commands in order.** [`LinkCommand::Close`] takes effect after the data sent before it.
//! - **Bounds.** The driver keeps up to [`MAX_WAITING_BYTES`] of unwritten data per connection. A
//!   connection that exceeds this limit is closed with [`LinkEnd::TooSlow`], and may be opened
//!   again. A driver whose state machine lags should read less.
//!
//! Connection numbers are never reused. A state machine numbers the connections that it opens,
//! starting with 1. A driver numbers the connections that it accepts.

use core::fmt;

use crate::Endpoint;

/// Number of a connection. It is unique for the lifetime of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Maximum amount of unwritten data per connection, in bytes.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// A command to the driver for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants describe the fields")]
pub enum LinkCommand {
    /// Opens a connection to `to`. The result is [`LinkEvent::Opened`] or [`LinkEvent::Closed`].
    Open { link: LinkId, to: Endpoint },
    /// Writes bytes after those of earlier commands. Issued only while the connection is open.
    Send { link: LinkId, bytes: Vec<u8> },
    /// Writes the pending data and closes the connection, or cancels its opening. No event follows.
    Close { link: LinkId },
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants describe the fields")]
pub enum LinkEvent<'a> {
    /// The connection is established, and bytes can be sent.
    Opened,
    /// The next bytes from the peer.
    Received(&'a [u8]),
    /// The connection ended, or could not be opened.
    Closed { why: LinkEnd },
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkEnd {
    /// No process listens at the address.
    #[error("connection refused")]
    Refused,
    /// The connection cannot be opened for another reason, for example because no route exists.
    #[error("unreachable")]
    Unreachable,
    /// The peer closed the connection.
    #[error("closed by the peer")]
    ByPeer,
    /// The connection was lost, for example, by a reset.
    #[error("connection lost")]
    Broken,
    /// The peer does not read: more than [`MAX_WAITING_BYTES`] are unwritten, or a write timed out.
    #[error("the peer does not read")]
    TooSlow,
    /// The driver has no room for the connection, or does not support connections.
    #[error("no room for another connection")]
    NoRoom,
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
