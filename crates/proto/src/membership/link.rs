//! Links: the reliable byte streams that a provider may want to services.
//!
//! A provider that only sends datagrams has none. One that talks to a service asks its driver for
//! links by [`Membership::poll_link`](super::Membership::poll_link) and is told what comes of them
//! by [`Membership::handle_link`](super::Membership::handle_link). What a driver promises:
//!
//! - **Order, and no loss until the end.** Bytes given to [`LinkCommand::Send`] arrive in their
//!   order and without gaps, or the link is closed. TCP keeps this promise.
//! - **One end.** Every link that was asked for gets exactly one [`LinkEvent::Closed`] if it ends
//!   by itself, whether or not it was ever opened, and none if the machine closed it. Nothing comes
//!   for a link after its end, and what the machine still sends there is dropped.
//! - **Commands in order.** [`LinkCommand::Close`] comes after what was sent before it: the driver
//!   writes that first, for as long as it is willing to wait.
//! - **Bounds.** The driver keeps what is not yet written, up to [`MAX_WAITING_BYTES`] for each
//!   link. A peer that lets more pile up is cut off with [`LinkEnd::TooSlow`]; it may come back
//!   and ask for a summary. [`LinkEvent::Received`] hands over what was read at once, in pieces of
//!   any size; a driver that wants its machine to fall no further behind reads less.
//!
//! Numbers of links are never used again. Those that a machine opens count up from 1; a driver that
//! accepts links numbers them itself.

use core::fmt;

use crate::Endpoint;

/// One link, for as long as the machine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Bytes that may wait to be written to one link.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// What a machine wants done with a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkCommand {
    /// Connect there; [`LinkEvent::Opened`] or [`LinkEvent::Closed`] answers.
    Open {
        /// The new link's number.
        link: LinkId,
        /// The service's address.
        to: Endpoint,
    },
    /// Write these bytes after those before.
    Send {
        /// The link, which was opened.
        link: LinkId,
        /// What to write.
        bytes: Vec<u8>,
    },
    /// Write what waits, then end the link. No event answers.
    Close {
        /// The link.
        link: LinkId,
    },
}

/// What became of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent<'a> {
    /// It stands, and bytes can be sent.
    Opened,
    /// The next bytes of the peer's.
    Received(&'a [u8]),
    /// It ended, or could not be opened.
    Closed {
        /// Why, as far as is known.
        why: LinkEnd,
    },
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// Nobody listens there.
    Refused,
    /// No answer: no route, or no packet came back in time.
    Unreachable,
    /// The peer closed it.
    ByPeer,
    /// It broke.
    Broken,
    /// The peer did not read, and [`MAX_WAITING_BYTES`] had piled up.
    TooSlow,
    /// The driver has no room or no support for it.
    NoRoom,
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "nobody listens there",
            Self::Unreachable => "no answer",
            Self::ByPeer => "closed by the other end",
            Self::Broken => "broken",
            Self::TooSlow => "the other end does not read",
            Self::NoRoom => "no room for another link",
        })
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
