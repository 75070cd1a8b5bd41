//! Multi-RPC (4.5): requests from members or *guests* to a group, and their answers.

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
