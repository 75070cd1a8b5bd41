use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::SendError;
use crate::limits::MAX_ADDRESSES;
use crate::progress::Reporter;

/// The condition for the start of the stream. If both fields are set, one of the conditions
/// suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartWhen {
    /// Number of receivers to wait for. Failed receivers, and those gone for longer than
    /// `patience`, count once none is preparing.
    pub receivers: Option<usize>,
    /// Time after which one ready receiver suffices. The transfer fails if none is even preparing.
    pub after: Option<Duration>,
}

/// The settings of a sender.
#[derive(Clone)]
pub struct SendOptions {
    /// TCP address at which the sender listens for receivers. Default: any free port on all IPv4
    /// addresses.
    pub listen: SocketAddr,
    /// Addresses in the offer, at most 8. Port 0 stands for the bound port. Default: none, for the
    /// address `listen`, which must then be specific.
    pub advertise: Vec<SocketAddr>,
    /// Condition for the start of the stream. Default: one receiver is ready.
    pub start: StartWhen,
    /// Time without progress after which a receiver counts as gone or failed. Default: 30 s.
    pub patience: Duration,
    /// Maximum number of assigned fetches that a receiver serves at a time. Default: 4.
    pub fetches_per_peer: usize,
    /// Maximum number of assigned fetches that the sender serves at a time. Default: 8.
    pub fetches_from_sender: usize,
    /// Maximum number of connected receivers. Further receivers are refused. Default: 2048.
    pub max_receivers: usize,
    /// Directory for the data of a [`Source::Reader`](crate::Source::Reader). Default: the system's
    /// directory for temporary files.
    pub spool: Option<PathBuf>,
    /// `true` to skip entries that cannot be sent; see
    /// [`Sending::findings`](crate::Sending::findings). Default: `false`: such an entry is an
    /// error.
    pub skip_unsendable: bool,
    /// Reporter of progress events. Default: none.
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
            "the start condition is empty: expected a number of receivers, a time, or both"
        } else if self.start.receivers == Some(0) {
            "the number of receivers to wait for is 0: expected at least 1"
        } else if self.start.receivers.is_some_and(|receivers| receivers > self.max_receivers) {
            "the number of receivers to wait for exceeds the maximum number of receivers"
        } else if self.fetches_per_peer == 0 || self.fetches_from_sender == 0 {
            "the limit of fetches from a receiver or from the sender is 0: expected at least 1"
        } else if self.advertise.len() > MAX_ADDRESSES {
            "too many addresses to advertise: expected at most 8"
        } else if self.advertise.is_empty() && self.listen.ip().is_unspecified() {
            "an address to advertise is required when listening on all addresses"
        } else {
            return Ok(());
        };
        Err(SendError::Options(wrong))
    }
}
