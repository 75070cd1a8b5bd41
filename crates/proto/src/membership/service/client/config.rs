use core::time::Duration;

use crate::Endpoint;
use crate::membership::service::protocol::frame::MAX_TEXT_BYTES;

/// Settings of the provider [`Service`](super::Service).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// TCP addresses of registry processes. One is enough: it announces all partition owners.
    pub addresses: Vec<Endpoint>,
    /// Cluster name, which must be that of the registry. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// Rack of the node, for the failure detectors. At most 255 bytes. Default: empty.
    pub rack: String,
    /// Maximum time to open a connection and receive the welcome. Default: 3 s.
    pub greeting_time: Duration,
    /// Pause after the first failed attempt to connect. Each further pause is 1.5 times as long.
    /// All pauses are varied by up to a quarter. Default: 100 ms.
    pub first_pause: Duration,
    /// Maximum pause between two attempts to connect, and the pause after a refusal. Default: 2 s.
    ///
    /// Five quarters of it plus the greeting time must be less than the registry's adoption time.
    /// Otherwise, the registry may declare healthy nodes dead when it restarts.
    pub last_pause: Duration,
    /// Time after which an unreachable registry is reported. Default: 3 s.
    pub away_after: Duration,
    /// Maximum number of requests in flight per connection. Further requests wait. Default: 256.
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
        assert!(!self.addresses.is_empty(), "the registry must have at least one address");
        let texts = self.cluster.len().max(self.rack.len());
        assert!(
            texts <= MAX_TEXT_BYTES,
            "the name of a cluster or rack must have at most {MAX_TEXT_BYTES} bytes"
        );
        let pauses = [self.greeting_time, self.first_pause, self.last_pause, self.away_after];
        let positive = pauses.iter().all(|pause| !pause.is_zero());
        assert!(positive, "the intervals of a connection must not be zero");
        assert!(self.max_open_requests > 0, "max_open_requests must not be 0");
    }
}
