//! What can be set about a node's side of the membership service.

use core::time::Duration;

use super::super::frame::MAX_TEXT_BYTES;
use crate::Endpoint;

/// Settings of the provider [`Service`](super::Service).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// TCP addresses of control processes; any one is enough, since each names the others. At
    /// least one.
    pub addresses: Vec<Endpoint>,
    /// The cluster's name, as the service has it. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// Where the node stands, for the failure detectors. At most 255 bytes. Default: empty.
    pub rack: String,
    /// How long a link may take to be opened and welcomed. Default: 3 s.
    pub greeting_time: Duration,
    /// The pause after the first attempt that failed; each further one is half as long again,
    /// give or take a quarter. Default: 100 ms.
    pub first_pause: Duration,
    /// The longest pause between two attempts. With a quarter more, and the greeting time, it has
    /// to be below the service's adoption time (6 s). Default: 2 s.
    pub last_pause: Duration,
    /// After how long without the service the node says so. Default: 3 s.
    pub away_after: Duration,
    /// Requests of one link that wait for their answers at most: more wait here. Default: 256.
    pub max_open_requests: usize,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            cluster: String::new(),
            rack: String::new(),
            greeting_time: Duration::from_secs(3),
            first_pause: Duration::from_millis(100),
            last_pause: Duration::from_secs(2),
            away_after: Duration::from_secs(3),
            max_open_requests: 256,
        }
    }
}

impl ServiceConfig {
    pub(super) fn validate(&self) {
        assert!(!self.addresses.is_empty(), "a service without an address");
        let texts = self.cluster.len().max(self.rack.len());
        assert!(texts <= MAX_TEXT_BYTES, "the name of a cluster or rack is too long");
        let pauses = [self.greeting_time, self.first_pause, self.last_pause, self.away_after];
        let positive = pauses.iter().all(|pause| !pause.is_zero());
        assert!(positive, "a pause of zero would leave no time between two attempts");
        assert!(self.max_open_requests > 0, "no request could ever be sent");
    }
}
