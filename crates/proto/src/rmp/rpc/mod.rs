//! Multi-RPC (4.5): requests to a group, and their answers.
//!
//! A member's request is one of its messages. A node that is not a member is a *guest*: it sends
//! its requests to the group from outside.

mod client;
mod dedup;
mod envelope;
mod guest;
mod numbers;
mod server;

pub(super) use self::client::Client;
pub(super) use self::envelope::ENVELOPE_BYTES;
pub(super) use self::guest::Guest;
pub(super) use self::numbers::RequestNumbers;
pub(super) use self::server::{Server, notify_guest_again, notify_guests};
