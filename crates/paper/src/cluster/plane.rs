//! A data center with one group: its settings, the members of the group, and their multicast tree.

use std::collections::BTreeSet;
use std::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::rdcm::topology::{LinkId, Topology as Cluster, Vertex};
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::{GroupId, NodeId, Rng};
use carom_sim::Link;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) ports: u32,
    /// Highest level of switches of the BCube, from 0.
    pub(crate) k: u32,
    pub(crate) group: Group,
    pub(crate) bits_per_second: u64,
    pub(crate) link_delay: Duration,
    pub(crate) queue_bytes: u64,
    pub(crate) sender_queue_bytes: u64,
    /// Loss on each link, which affects all packets alike.
    pub(crate) loss: Loss,
    pub(crate) payload_bytes: usize,
    pub(crate) detect_after: Duration,
    /// Silence after which RDCM evicts a receiver. `None` selects RDCM's default.
    pub(crate) gone_after: Option<Duration>,
    pub(crate) controls_congestion: bool,
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Group {
    /// A random sender, and this number of random receivers.
    Random(usize),
    Declared {
        sender: u32,
        receivers: Vec<u32>,
    },
}

pub(crate) struct Plane {
    pub(crate) setting: Setting,
    pub(crate) cluster: Cluster,
    pub(crate) tree: MulticastTree,
    pub(super) rng: Rng,
}

pub(crate) const GROUP: GroupId = GroupId(0x2DC);
/// Overhead of a datagram on the wire: Ethernet with its gap, IPv4 and UDP.
pub(super) const FRAMING_BYTES: usize = 66;

pub(crate) fn node_of(host: u32) -> NodeId {
    NodeId(u64::from(host) + 1)
}

impl Setting {
    fn cluster(&self) -> Cluster {
        Cluster::bcube(self.ports, self.k).expect("the plan was checked")
    }

    pub(crate) fn plane(&self) -> Plane {
        let (cluster, mut rng) = (self.cluster(), Rng::new(self.seed));
        let (sender, receivers) = match &self.group {
            Group::Declared { sender, receivers } => (*sender, receivers.clone()),
            Group::Random(count) => {
                let mut hosts: Vec<u32> = (0..cluster.hosts()).collect();
                rng.choose_to_front(&mut hosts, count + 1);
                (hosts[0], hosts[1..=*count].to_vec())
            }
        };
        let receivers: BTreeSet<Vertex> = receivers.into_iter().map(Vertex).collect();
        let (tree, unreached) =
            MulticastTree::shortest(&cluster, &BTreeSet::new(), Vertex(sender), &receivers);
        assert!(unreached.is_empty(), "a BCube is connected");
        Plane { setting: self.clone(), cluster, tree, rng }
    }
}

impl Plane {
    pub(crate) fn sender(&self) -> u32 {
        self.tree.sender().0
    }

    pub(crate) fn receivers(&self) -> impl ExactSizeIterator<Item = u32> {
        self.tree.receivers().iter().map(|vertex| vertex.0)
    }

    pub(super) fn link(&self, link: LinkId) -> Link {
        let Setting { queue_bytes, sender_queue_bytes, bits_per_second, .. } = self.setting;
        let ends = self.cluster.links()[link.0 as usize];
        let is_senders = ends.contains(&self.tree.sender());
        let queue = if is_senders { sender_queue_bytes } else { queue_bytes };
        Link::of_delay(self.setting.link_delay)
            .with_bandwidth(bits_per_second, queue)
            .with_loss(self.setting.loss)
    }
}

impl Group {
    pub(crate) fn receivers(&self) -> usize {
        match self {
            Self::Random(count) => *count,
            Self::Declared { receivers, .. } => receivers.len(),
        }
    }
}
