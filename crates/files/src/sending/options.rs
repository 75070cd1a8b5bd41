//! How something is sent.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::SendError;
use crate::limits::MAX_ADDRESSES;
use crate::progress::Reporter;

/// When the stream begins: as soon as one of the two holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartWhen {
    /// So many receivers are ready, or have been and failed. If all have failed, the transfer ends
    /// without a stream.
    pub receivers: Option<usize>,
    /// So much time has passed, and at least one receiver is ready. If none is then, the transfer
    /// fails.
    pub after: Option<Duration>,
}

/// How something is sent.
#[derive(Clone)]
pub struct SendOptions {
    /// Where receivers connect. Default: any free port on all addresses of IPv4.
    pub listen: SocketAddr,
    /// The addresses in the offer, at most 8. Default: that of `listen`, which must be one that
    /// others can connect to then. A port of 0 stands for the one that is listened at.
    pub advertise: Vec<SocketAddr>,
    /// When to begin. Default: when one receiver is ready.
    pub start: StartWhen,
    /// For how long a receiver that is lost, or gets nothing any more, is waited for before it
    /// counts as gone or failed. Default: 30 s.
    pub patience: Duration,
    /// How many fetches of others a receiver serves at a time. Default: 4.
    pub fetches_per_peer: usize,
    /// How many fetches the sender serves at a time. Default: 8.
    pub fetches_from_sender: usize,
    /// The most receivers; more are refused. Default: 2048.
    pub max_receivers: usize,
    /// The directory for the temporary file of a [`Source::Reader`](crate::Source::Reader).
    /// Default: that of the system.
    pub spool: Option<PathBuf>,
    /// Whether what is inside a directory and cannot be sent is left out, instead of refused with
    /// everything else: see [`Sending::findings`](crate::Sending::findings). Default: no.
    pub skip_unsendable: bool,
    /// Who is told about progress. Default: nobody.
    pub reporter: Reporter,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            advertise: Vec::new(),
            start: StartWhen { receivers: Some(1), after: None },
            patience: Duration::from_secs(30),
            fetches_per_peer: 4,
            fetches_from_sender: 8,
            max_receivers: 2048,
            spool: None,
            skip_unsendable: false,
            reporter: Reporter::none(),
        }
    }
}

impl SendOptions {
    pub(crate) fn check(&self) -> Result<(), SendError> {
        let wrong = if self.start.receivers.is_none() && self.start.after.is_none() {
            "when to begin is neither a number of receivers nor a time"
        } else if self.start.receivers == Some(0) {
            "the stream cannot begin with no receiver"
        } else if self.start.receivers.is_some_and(|receivers| receivers > self.max_receivers) {
            "more receivers are waited for than are taken"
        } else if self.fetches_per_peer == 0 || self.fetches_from_sender == 0 {
            "a receiver or the sender must serve at least one fetch"
        } else if self.advertise.len() > MAX_ADDRESSES {
            "an offer holds at most 8 addresses"
        } else if self.advertise.is_empty() && self.listen.ip().is_unspecified() {
            "an address to advertise is needed when listening at all addresses"
        } else {
            return Ok(());
        };
        Err(SendError::Options(wrong))
    }
}
