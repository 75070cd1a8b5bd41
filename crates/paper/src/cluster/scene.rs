//! Data center with one group, its members and the links between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use carom_proto::loss::Loss;
use carom_proto::rdcm::topology::{LinkId, Topology as Cluster, Vertex};
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::{
    Event, GroupId, GroupSettings, NodeId, Rng, SendError, SendOptions, Time, ViewChange,
    ViewChangeKind,
};
use carom_sim::{Happening, HostIx, Link, Topology, World, WorldConfig};

use super::protocol::{Maker, Protocol};
use super::rider::Rider;
use crate::work::Ends;

/// Settings of a data center and of the members of its group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Number of ports of each switch of the BCube.
    pub(crate) ports: u32,
    /// Highest level of switches of the BCube, from 0.
    pub(crate) k: u32,
    pub(crate) group: Group,
    pub(crate) bits_per_second: u64,
    /// Propagation delay of a link.
    pub(crate) link_delay: Duration,
    /// Size of the queue of a link, in bytes.
    pub(crate) queue_bytes: u64,
    /// Size of the queue of a link of the sender, in bytes.
    pub(crate) sender_queue_bytes: u64,
    /// Loss of each link, of all packets alike.
    pub(crate) loss: Loss,
    pub(crate) payload_bytes: usize,
    /// Time after which a gap counts as a loss.
    pub(crate) detect_after: Duration,
    /// Silence after which RDCM evicts a receiver. `None` is RDCM's default.
    pub(crate) gone_after: Option<Duration>,
    /// `true` if RDCM controls congestion. The other protocols do not.
    pub(crate) controls_congestion: bool,
    /// Seed of all randomness.
    pub(crate) seed: u64,
}

/// Members of the group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Group {
    /// A random sender, and this number of random receivers.
    Random(usize),
    /// The given servers.
    Declared { sender: u32, receivers: Vec<u32> },
}

/// Data center, and the multicast tree of its group.
pub(crate) struct Plane {
    pub(crate) setting: Setting,
    pub(crate) cluster: Cluster,
    pub(crate) tree: MulticastTree,
    rng: Rng,
}

/// Group in a simulated world.
pub(crate) struct Scene {
    pub(crate) world: World<Rider>,
    pub(crate) plane: Plane,
    payload: Bytes,
    /// Time at which the sender's interface has transmitted everything handed to it.
    idle_at: Time,
    /// Number of bytes handed to the sender's interface so far.
    given_bytes: u64,
    /// Number of times that the tree was replaced.
    pub(crate) trees: u32,
}

pub(crate) const GROUP: GroupId = GroupId(0x2DC);
/// Time limit for the first message to reach all receivers.
const MOST_TO_BEGIN: Duration = Duration::from_secs(20);
/// Time for which the group settles after that message.
const TO_SETTLE: Duration = Duration::from_millis(20);
/// Interval between two checks of the receivers' progress.
pub(super) const SLICE: Duration = Duration::from_micros(50);
/// Overhead of a datagram on the wire: Ethernet with its gap, IPv4 and UDP.
pub(super) const FRAMING_BYTES: usize = 66;

/// Returns the id of the node on a host.
pub(crate) fn node_of(host: u32) -> NodeId {
    NodeId(u64::from(host) + 1)
}

impl Setting {
    fn cluster(&self) -> Cluster {
        Cluster::bcube(self.ports, self.k).expect("the plan was checked")
    }

    /// Draws the group, and computes its tree.
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

    /// Returns the time that a link needs for one message of the group.
    pub(crate) fn packet_time(&self, protocol: Protocol) -> Duration {
        let bytes = protocol.datagram_bytes(self.setting.payload_bytes) + FRAMING_BYTES;
        let nanos = 8 * bytes as u64 * 1_000_000_000 / self.setting.bits_per_second;
        Duration::from_nanos(nanos)
    }

    fn link(&self, link: LinkId) -> Link {
        let Setting { queue_bytes, sender_queue_bytes, bits_per_second, .. } = self.setting;
        let ends = self.cluster.links()[link.0 as usize];
        let is_senders = ends.contains(&self.tree.sender());
        let queue = if is_senders { sender_queue_bytes } else { queue_bytes };
        Link::of_delay(self.setting.link_delay)
            .with_bandwidth(bits_per_second, queue)
            .with_loss(self.setting.loss)
    }

    /// Confines multicasts to these groups to the links of the group's tree, for every sender.
    fn keep_to_the_tree(
        &self,
        world: &mut World<Rider>,
        listeners: &BTreeMap<GroupId, BTreeSet<Vertex>>,
    ) {
        let links: BTreeSet<LinkId> = self.tree.links().collect();
        let all = (0..self.cluster.links().len() as u32).map(LinkId);
        let others: BTreeSet<LinkId> = all.filter(|link| !links.contains(link)).collect();
        for (group, listeners) in listeners {
            for from in listeners {
                let (tree, _) = MulticastTree::shortest(&self.cluster, &others, *from, listeners);
                world.set_tree(*group, &tree);
            }
        }
    }

    /// Starts engines of `protocol` on all members, with each other in their views.
    pub(crate) fn scene(mut self, protocol: Protocol, is_tallied: bool) -> Scene {
        let topology = Topology::cluster(&self.cluster, |link| self.link(link));
        let config = WorldConfig {
            hashes_history: false,
            checks: false,
            ..WorldConfig::new(topology, self.rng.next_u64())
        };
        let mut world = World::new(config);
        let members: BTreeSet<u32> = self.receivers().chain([self.sender()]).collect();
        let seeds: Vec<u64> = members.iter().map(|_| self.rng.next_u64()).collect();
        let maker = Maker::new(protocol, &self);
        let mut listeners: BTreeMap<GroupId, BTreeSet<Vertex>> = BTreeMap::new();
        for (host, seed) in members.iter().zip(seeds) {
            let node = node_of(*host);
            let rider = Rider::new(protocol, maker.engine(node, seed), is_tallied);
            world.spawn(HostIx(*host), node, rider);
            for group in maker.scopes(node).into_iter().chain([GROUP]) {
                world.subscribe(HostIx(*host), group);
                listeners.entry(group).or_default().insert(Vertex(*host));
            }
        }
        if protocol.keeps_to_the_tree() {
            self.keep_to_the_tree(&mut world, &listeners);
        }
        for host in &members {
            introduce(&mut world, protocol, *host, &members);
        }
        world.set_tree(GROUP, &self.tree);
        let payload = Bytes::from(vec![0x5A; self.setting.payload_bytes]);
        let idle_at = world.now();
        Scene { world, plane: self, payload, idle_at, given_bytes: 0, trees: 0 }
    }
}

/// Joins the group with the engine on a host, and adds the other members to its view.
fn introduce(world: &mut World<Rider>, protocol: Protocol, host: u32, members: &BTreeSet<u32>) {
    let settings = GroupSettings { profile: protocol.profile(), name_check: 0 };
    let others = members.iter().filter(|member| **member != host);
    world.with(HostIx(host), |rider, now| {
        rider.engine_mut().join(now, GROUP, settings).expect("it carries such groups");
        for (version, member) in (1..).zip(others) {
            let (node, kind) = (node_of(*member), ViewChangeKind::Joined);
            let change = ViewChange { group: GROUP, node, kind, version };
            rider.engine_mut().handle_view(now, &change);
        }
    });
}

impl Scene {
    /// Returns the time at which the sender's interface has transmitted everything handed to it.
    /// The application sends as fast as this permits. All links of the sender count as one.
    pub(crate) fn idle_at(&mut self) -> Time {
        let sender = self.world.machine(HostIx(self.plane.sender()));
        let given = sender.expect("the sender stays").sent_bytes();
        let bytes = given - self.given_bytes;
        self.given_bytes = given;
        let nanos = 8 * bytes * 1_000_000_000 / self.plane.setting.bits_per_second;
        let now = self.world.now();
        self.idle_at = self.idle_at.max(now) + Duration::from_nanos(nanos);
        self.idle_at
    }

    /// Advances the world to `end`, and then switches the multicasts to the tree that the protocol
    /// currently requests.
    pub(crate) fn run_until(&mut self, end: Time, note: &mut impl FnMut(&Happening<Event>)) {
        self.world.run_until(end, &mut |happening| note(&happening));
        let sender = self.world.machine(HostIx(self.plane.sender()));
        let tree = sender.and_then(Rider::tree).filter(|tree| **tree != self.plane.tree).cloned();
        if let Some(tree) = tree {
            self.world.set_tree(GROUP, &tree);
            self.plane.tree = tree;
            self.trees += 1;
        }
    }

    /// Sends one message, and waits until all receivers have it, so that the group is ready.
    /// Returns `None` if the run is ended early.
    ///
    /// # Panics
    /// Panics if that takes too long.
    pub(crate) fn begin(&mut self, ends: Ends<'_>) -> Option<()> {
        let mut lacking: BTreeSet<HostIx> = self.plane.receivers().map(HostIx).collect();
        let end = self.world.now() + MOST_TO_BEGIN;
        self.send().expect("nothing is in flight");
        while !lacking.is_empty() {
            assert!(self.world.now() < end, "{} receivers lack the first message", lacking.len());
            if ends() {
                return None;
            }
            let next = self.world.now() + SLICE;
            self.run_until(next, &mut |happening| {
                if let Event::Message(_) = happening.event {
                    lacking.remove(&happening.host);
                }
            });
        }
        let settled = self.world.now() + TO_SETTLE;
        self.run_until(settled, &mut |_| {});
        self.idle_at();
        self.idle_at = settled;
        Some(())
    }

    /// Makes the sender multicast its next message.
    ///
    /// # Errors
    /// Returns the engine's error if it does not accept a message now.
    pub(crate) fn send(&mut self) -> Result<(), SendError> {
        let (payload, options) = (self.payload.clone(), SendOptions::default());
        let sender = HostIx(self.plane.sender());
        let sent = self
            .world
            .with(sender, |rider, now| rider.engine_mut().send(now, GROUP, payload, options));
        sent.expect("the sender stays").map(|_| ())
    }
}

impl Group {
    /// Returns the number of receivers.
    pub(crate) fn receivers(&self) -> usize {
        match self {
            Self::Random(count) => *count,
            Self::Declared { receivers, .. } => receivers.len(),
        }
    }
}
