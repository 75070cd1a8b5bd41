use core::num::NonZeroUsize;
use core::time::Duration;

use crate::membership::service::protocol::frame::{MAX_PARTITIONS, MAX_TEXT_BYTES};
use crate::rdcm::Network;

/// Settings of a registry process.
///
/// The cluster, the number of partitions and the detection time must be the same at all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Cluster name that each client must give. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// Number of partitions, from 1 to 4096. Default: 16.
    pub partitions: u16,
    /// Maximum silence of a node before it is declared dead: the lease. At least 100 ms. A node
    /// sends three signs of life per lease. Default: 3 s.
    pub detection_time: Duration,
    /// Time for members to connect after this process has taken ownership of their partition.
    ///
    /// It must be longer than a node's longest pause between two attempts to reconnect. Otherwise,
    /// healthy nodes are declared dead after a restart. A value below the detection time is raised
    /// to it. Default: 6 s.
    pub adoption_time: Duration,
    /// Maximum number of other members in a node's view (Slingshot 3.3). Default: `None`, all.
    pub view_size: Option<NonZeroUsize>,
    /// `true` if each node pings the next node (Slingshot's ring). Default: `false`.
    pub ring: bool,
    /// Time after which a node reports that the next node in the ring is silent, at least 100 ms.
    /// Default: `None`, the detection time.
    pub ring_time: Option<Duration>,
    /// The network, for the multicast manager of bulk groups. It should be the same at all
    /// processes. Default: `None`, no multicast manager.
    pub network: Option<Network>,
    /// `true` if the driver installs the multicast trees in the network. Default: `false`.
    pub installs_trees: bool,
    /// Pause before a failed commit is tried again. It must not be zero. It doubles with each
    /// failure, up to 20 times this value. Default: 50 ms.
    pub retry_after: Duration,
    /// Maximum number of connections. A further one replaces the oldest one that has sent no hello,
    /// or is refused. Default: 8192.
    pub max_links: usize,
    /// Maximum number of connections that have sent no hello. A further connection replaces the
    /// oldest of them, so that idle connections do not keep nodes away. Default: 256.
    pub max_new_links: usize,
    /// Maximum number of a node's groups in the partitions of one process. Default: 16384.
    pub max_groups_per_node: usize,
    /// Maximum number of members per group. Default: 16384.
    pub max_members_per_group: usize,
    /// Maximum number of requests per connection that wait for the store. A further join is refused
    /// with [`Busy`](crate::membership::service::Unserved::Busy). A further leave ends the
    /// connection. Default: 1024.
    pub max_requests_per_link: usize,
    /// Maximum number of changes in one commit, from 1 to 10000. Default: 1024.
    pub max_commit_changes: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            cluster: String::new(),
            partitions: 16,
            detection_time: Duration::from_secs(3),
            adoption_time: Duration::from_secs(6),
            view_size: None,
            ring: false,
            ring_time: None,
            network: None,
            installs_trees: false,
            retry_after: Duration::from_millis(50),
            max_links: 8192,
            max_new_links: 256,
            max_groups_per_node: 16_384,
            max_members_per_group: 16_384,
            max_requests_per_link: 1024,
            max_commit_changes: 1024,
        }
    }
}

impl ServerConfig {
    pub(super) fn validate(&self) {
        assert!(
            self.cluster.len() <= MAX_TEXT_BYTES,
            "the name of a cluster must have at most {MAX_TEXT_BYTES} bytes"
        );
        let partitions = (1..=MAX_PARTITIONS).contains(&self.partitions);
        assert!(
            partitions,
            "partitions must be from 1 to {MAX_PARTITIONS}, not {}",
            self.partitions
        );
        let detection = self.detection_time >= Duration::from_millis(100);
        assert!(detection, "detection_time must be at least 100 ms");
        let ring = self.ring_time.is_none_or(|time| time >= Duration::from_millis(100));
        assert!(ring, "ring_time must be at least 100 ms");
        assert!(!self.retry_after.is_zero(), "retry_after must not be zero");
        let changes = (1..=10_000).contains(&self.max_commit_changes);
        assert!(
            changes,
            "max_commit_changes must be from 1 to 10000, not {}",
            self.max_commit_changes
        );
    }
}
