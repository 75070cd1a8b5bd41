//! A data center with one group in it: who sends, who receives, and over which links.

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

/// A data center, and what its links and the members of the group are like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// It is a BCube with switches of so many ports, and of levels 0 to `k`.
    pub(crate) ports: u32,
    pub(crate) k: u32,
    pub(crate) group: Group,
    pub(crate) bits_per_second: u64,
    /// How long a bit travels over a link.
    pub(crate) link_delay: Duration,
    /// Bytes that wait for a link of a switch at most, and for one of the sender.
    pub(crate) queue_bytes: u64,
    pub(crate) sender_queue_bytes: u64,
    /// What each link loses, of everything that it carries.
    pub(crate) loss: Loss,
    pub(crate) payload_bytes: usize,
    /// How long after a gap was seen it counts as a loss.
    pub(crate) detect_after: Duration,
    /// After what time a receiver of RDCM of which nothing is heard is left behind; `None` if after
    /// the time that is the default.
    pub(crate) gone_after: Option<Duration>,
    /// Whether RDCM's rate follows what the network carries; the others have no such thing.
    pub(crate) controls_congestion: bool,
    /// The seed of all that is random.
    pub(crate) seed: u64,
}

/// Who is in the group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Group {
    /// Any server as the sender, and so many others.
    Random(usize),
    /// These servers.
    Declared { sender: u32, receivers: Vec<u32> },
}

/// The data center with the group's tree.
pub(crate) struct Plane {
    pub(crate) setting: Setting,
    pub(crate) cluster: Cluster,
    pub(crate) tree: MulticastTree,
    rng: Rng,
}

/// The group at work.
pub(crate) struct Scene {
    pub(crate) world: World<Rider>,
    pub(crate) plane: Plane,
    payload: Bytes,
    /// When the sender's interface has sent everything that it was given, and how much that was.
    idle_at: Time,
    given_bytes: u64,
    /// How often the tree was replaced.
    pub(crate) trees: u32,
}

pub(crate) const GROUP: GroupId = GroupId(0x2DC);
/// How long a group may take to come together, and is given to come to rest then.
const MOST_TO_BEGIN: Duration = Duration::from_secs(20);
const TO_SETTLE: Duration = Duration::from_millis(20);
/// Between two looks at how far everybody is.
pub(super) const SLICE: Duration = Duration::from_micros(50);
/// Around a datagram on the wire: Ethernet with its gap, IPv4 and UDP.
pub(super) const FRAMING_BYTES: usize = 66;

/// The node on a host.
pub(crate) fn node_of(host: u32) -> NodeId {
    NodeId(u64::from(host) + 1)
}

impl Setting {
    fn cluster(&self) -> Cluster {
        Cluster::bcube(self.ports, self.k).expect("the plan was checked")
    }

    /// Draws the group, and its tree.
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

    /// How long a message of the group takes of a link.
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

    /// Has what is multicast to these groups take the links of the group's tree, whoever sends it.
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

    /// The group with engines of `protocol`, all of whom know each other.
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

/// Has the engine on a host join the group, and tells it who else is in it.
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
    /// When the sender's interface has sent everything that it was given so far: the application
    /// sends as fast as that lets it. All of its links count as one.
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

    /// Lets time pass until `end`, the multicasts on the tree that the protocol wants.
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

    /// Sends one message, and waits until all receivers have it: the group is at work then. `None`
    /// if it was ended early.
    ///
    /// # Panics
    /// If that takes too long.
    pub(crate) fn begin(&mut self, ends: Ends<'_>) -> Option<()> {
        let mut lacking: BTreeSet<HostIx> = self.plane.receivers().map(HostIx).collect();
        let end = self.world.now() + MOST_TO_BEGIN;
        self.send().expect("nothing is under way");
        while !lacking.is_empty() {
            assert!(self.world.now() < end, "{} of the group are not there", lacking.len());
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

    /// Has the sender multicast its next message.
    ///
    /// # Errors
    /// The engine takes none now.
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
    /// How many receivers there are.
    pub(crate) fn receivers(&self) -> usize {
        match self {
            Self::Random(count) => *count,
            Self::Declared { receivers, .. } => receivers.len(),
        }
    }
}
