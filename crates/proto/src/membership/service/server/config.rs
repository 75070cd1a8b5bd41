//! What can be set about a control process.

use core::num::NonZeroUsize;
use core::time::Duration;

use super::super::frame::{MAX_PARTITIONS, MAX_TEXT_BYTES};
use crate::rdcm::Network;

/// Settings of a control process. Cluster, partitions and detection time must be the same at all
/// processes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The cluster's name; who says another one is refused. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// Into how many partitions the groups are split, 1 to 4096. Default: 16.
    pub partitions: u16,
    /// A node that is silent for so long is taken for dead: its lease. A node sends three times in
    /// that time if it has nothing else to say. From 100 ms on. Default: 3 s.
    pub detection_time: Duration,
    /// How long members that were never heard here have when this process begins to own their
    /// partition: longer than a node's longest pause between two attempts to come back, since
    /// otherwise a restart of the service would fail nodes that are well. Nodes that died with the
    /// partition's last owner are noticed after this time. At least the detection time counts.
    /// Default: 6 s.
    pub adoption_time: Duration,
    /// How many of a group's other members a node is shown, drawn uniformly at random (Slingshot
    /// 3.3); `None` shows all. Default: `None`.
    pub view_size: Option<NonZeroUsize>,
    /// Whether each node is told to ping the next one (Slingshot's ring). Default: false.
    pub ring: bool,
    /// With the ring: a node reports the next one if that answers no ping for so long, from 100 ms
    /// on. Default: `None`, the detection time.
    pub ring_time: Option<Duration>,
    /// The network, for the multicast manager of bulk groups. All processes of a cluster should
    /// have the same: the owner of one partition runs the manager. Default: `None`, no manager.
    pub network: Option<Network>,
    /// The pause before a commit that failed is tried again; each further one is twice as long, up
    /// to twenty times this. Default: 50 ms.
    pub retry_after: Duration,
    /// Links at most; more are refused. Default: 8192.
    pub max_links: usize,
    /// Maximum number of links whose peers have not sent a hello yet: a further one takes the
    /// place of the oldest of them, so that idle connections keep no node away. Default: 256.
    pub max_new_links: usize,
    /// Groups of one node at most, in the partitions of one process. Default: 16384.
    pub max_groups_per_node: usize,
    /// Members of one group at most. Default: 16384.
    pub max_members_per_group: usize,
    /// Requests of one link that wait for the store at most; more are refused as
    /// [`Busy`](super::super::Unserved::Busy). Default: 1024.
    pub max_requests_per_link: usize,
    /// Changes in one commit at most: what the store takes in one transaction. 1 to
    /// 10000. Default: 1024.
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
        assert!(self.cluster.len() <= MAX_TEXT_BYTES, "the cluster's name is too long");
        let partitions = (1..=MAX_PARTITIONS).contains(&self.partitions);
        assert!(partitions, "{} partitions were asked for", self.partitions);
        let detection = self.detection_time >= Duration::from_millis(100);
        assert!(detection, "a detection time below 100 ms was asked for");
        let ring = self.ring_time.is_none_or(|time| time >= Duration::from_millis(100));
        assert!(ring, "a ring that is to notice within less than 100 ms was asked for");
        assert!(!self.retry_after.is_zero(), "a pause of zero would leave the store no rest");
        let changes = (1..=10_000).contains(&self.max_commit_changes);
        assert!(changes, "commits of {} changes", self.max_commit_changes);
    }
}
