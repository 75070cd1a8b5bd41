//! From a sender along the links to the receivers.

use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use carom_proto::{GroupId, IdMap, Rng, Time};

use crate::HostIx;
use crate::ethernet::{Cable, CableIx, Frame};
use crate::topology::{Crossing, LinkIx, LinkState, Load, NO_LINK, Topology, transmission_time};

/// The links at work, and who listens to which group.
pub(crate) struct Network {
    topology: Topology,
    links: Vec<LinkState>,
    cables: Vec<Cable>,
    /// By source node; computed when the source first sends.
    routes: Vec<Option<Vec<LinkIx>>>,
    groups: IdMap<GroupId, Listeners>,
    trees: IdMap<(HostIx, Goal), Arc<Tree>>,
    rng: Rng,
}

/// Who gets a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Goal {
    Host(HostIx),
    Group(GroupId),
    Everyone,
}

#[derive(Debug, Default)]
struct Listeners {
    hosts: Vec<HostIx>,
    version: u32,
}

/// The links that carry a datagram from one host to its receivers, each once. A branch's children
/// lie together, after it.
#[derive(Debug)]
pub(crate) struct Tree {
    branches: Vec<Branch>,
    roots: Range<u32>,
    version: u32,
    /// Receivers to which no way leads.
    pub(crate) unreachable: u64,
}

#[derive(Clone, Debug)]
struct Branch {
    link: LinkIx,
    /// The receiver at the link's end, if that is one.
    receiver: Option<HostIx>,
    children: Range<u32>,
}

/// What comes of sending, or of sending on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onward {
    /// The datagram reaches the host then.
    Arrive(Time, HostIx),
    /// It reaches the link of this branch then, and must queue with others there.
    Queue(Time, u32),
    /// It has come to the shared cable of this branch, see [`Network::contend`].
    Contend(u32),
    /// A link lost it.
    Lost,
    /// The queue before a link was full.
    QueueFull,
}

impl Network {
    pub(crate) fn new(topology: Topology, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let edges = topology.edges().iter();
        let links = edges.map(|edge| LinkState::new(&edge.link, rng.next_u64())).collect();
        let cables = topology.cables().iter();
        let cables = cables.map(|ethernet| Cable::new(*ethernet, topology.hosts())).collect();
        let routes = vec![None; topology.hosts() as usize];
        let (groups, trees) = (IdMap::new(rng.next_u64()), IdMap::new(rng.next_u64()));
        Self { topology, links, cables, routes, groups, trees, rng }
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// `host` hears what is multicast to `group` from now on.
    pub(crate) fn subscribe(&mut self, host: HostIx, group: GroupId) {
        let listeners = self.groups.get_or_insert_with(group, Listeners::default);
        if let Err(place) = listeners.hosts.binary_search(&host) {
            listeners.hosts.insert(place, host);
            listeners.version += 1;
        }
    }

    pub(crate) fn unsubscribe(&mut self, host: HostIx, group: GroupId) {
        let Some(listeners) = self.groups.get_mut(&group) else { return };
        if let Ok(place) = listeners.hosts.binary_search(&host) {
            listeners.hosts.remove(place);
            listeners.version += 1;
        }
    }

    /// The way from `source` to the goal.
    pub(crate) fn tree(&mut self, source: HostIx, goal: Goal) -> Arc<Tree> {
        let version = match goal {
            Goal::Group(group) => self.groups.get(&group).map_or(0, |it| it.version),
            Goal::Host(_) | Goal::Everyone => 0,
        };
        let known = self.trees.get(&(source, goal)).filter(|tree| tree.version == version);
        if let Some(tree) = known {
            return Arc::clone(tree);
        }
        let tree = Arc::new(self.grow(source, goal, version));
        self.trees.insert((source, goal), Arc::clone(&tree));
        tree
    }

    /// Sends a datagram into `tree`; tells what comes of it.
    pub(crate) fn send(
        &mut self,
        now: Time,
        tree: &Tree,
        load: Load,
        onward: &mut impl FnMut(Onward),
    ) {
        self.forward(now, now, tree, tree.roots.clone(), load, onward);
    }

    /// A datagram reaches the link of `branch`, as was told by [`Onward::Queue`].
    pub(crate) fn send_on(
        &mut self,
        now: Time,
        tree: &Tree,
        branch: u32,
        load: Load,
        onward: &mut impl FnMut(Onward),
    ) {
        self.forward(now, now, tree, branch..branch + 1, load, onward);
    }

    /// A frame has come to the shared cable of its branch. `None` if the interface has no room for
    /// it; the time, if it is on the cable now, when that is free again.
    pub(crate) fn contend(
        &mut self,
        now: Time,
        tree: &Tree,
        frame: Frame,
    ) -> Option<(CableIx, Option<Time>)> {
        let link = tree.branches[frame.branch as usize].link;
        let edge = &self.topology.edges()[link as usize];
        let number = edge.cable.expect("its branch leads over a shared cable");
        let cable = &mut self.cables[number as usize];
        cable.wait(edge.tail, frame).then(|| (number, cable.begin(now)))
    }

    /// The frame on a shared cable has passed: that one, and when the next has passed.
    pub(crate) fn pass(&mut self, now: Time, cable: CableIx) -> (Option<Frame>, Option<Time>) {
        let cable = &mut self.cables[cable as usize];
        (cable.end(), cable.begin(now))
    }

    /// A datagram has passed the shared cable of `branch`; tells what comes of it.
    pub(crate) fn send_behind(
        &mut self,
        now: Time,
        tree: &Tree,
        branch: u32,
        load: Load,
        onward: &mut impl FnMut(Onward),
    ) {
        let children = tree.branches[branch as usize].children.clone();
        self.forward(now, now, tree, children, load, onward);
    }

    /// How long the next bytes of a stream travel from one host to another, on links that are not
    /// busy; `None` if no way leads there. Their losses are the stream's own affair.
    pub(crate) fn latency(
        &mut self,
        from: HostIx,
        to: HostIx,
        bytes: u64,
        rng: &mut Rng,
    ) -> Option<Duration> {
        if from == to {
            return Some(Duration::ZERO);
        }
        let topology = &self.topology;
        let routes =
            self.routes[from.0 as usize].get_or_insert_with(|| topology.routes_from(from.0));
        let (mut node, mut latency) = (to.0, Duration::ZERO);
        while node != from.0 {
            let edge = &topology.edges().get(routes[node as usize] as usize)?;
            let link = &edge.link;
            let cable = edge.cable.map(|cable| &topology.cables()[cable as usize]);
            let bandwidth = cable.map(|ethernet| ethernet.bits_per_second).or(link.bandwidth);
            let sending = bandwidth.map(|bandwidth| transmission_time(bytes, bandwidth));
            latency += link.latency(rng) + sending.unwrap_or_default();
            node = edge.tail;
        }
        Some(latency)
    }

    /// Links without a bandwidth are crossed at once, those with one in order of time.
    fn forward(
        &mut self,
        now: Time,
        at: Time,
        tree: &Tree,
        branches: Range<u32>,
        load: Load,
        onward: &mut impl FnMut(Onward),
    ) {
        for number in branches {
            let branch = &tree.branches[number as usize];
            let edge = &self.topology.edges()[branch.link as usize];
            let (link, is_shared) = (&edge.link, edge.cable.is_some());
            if (link.bandwidth.is_some() || is_shared) && at > now {
                onward(Onward::Queue(at, number));
                continue;
            }
            if is_shared {
                onward(Onward::Contend(number));
                continue;
            }
            let state = &mut self.links[branch.link as usize];
            match state.cross(at, load, link, &mut self.rng) {
                Crossing::Lost => onward(Onward::Lost),
                Crossing::QueueFull => onward(Onward::QueueFull),
                Crossing::Arrives(then) => {
                    if let Some(host) = branch.receiver {
                        onward(Onward::Arrive(then, host));
                    }
                    self.forward(now, then, tree, branch.children.clone(), load, onward);
                }
            }
        }
    }

    /// Builds the tree level by level from the links that lie between the source and a receiver.
    fn grow(&mut self, source: HostIx, goal: Goal, version: u32) -> Tree {
        let topology = &self.topology;
        let routes =
            self.routes[source.0 as usize].get_or_insert_with(|| topology.routes_from(source.0));
        let receivers: Vec<HostIx> = match goal {
            Goal::Host(host) => vec![host],
            Goal::Group(group) => self.groups.get(&group).map_or(Vec::new(), |it| it.hosts.clone()),
            Goal::Everyone => topology.all_hosts().collect(),
        };
        let is_other = |host: &HostIx| *host != source || goal == Goal::Host(source);
        let receivers: Vec<HostIx> = receivers.into_iter().filter(is_other).collect();
        // No way leads from a host to itself either.
        let is_unreachable = |host: &&HostIx| routes[host.0 as usize] == NO_LINK;
        let unreachable = receivers.iter().filter(is_unreachable).count() as u64;
        let edges = topology.edges();
        let mut used: Vec<LinkIx> = Vec::new();
        for host in &receivers {
            let mut node = host.0;
            while node != source.0 && routes[node as usize] != NO_LINK {
                let link = routes[node as usize];
                used.push(link);
                node = edges[link as usize].tail;
            }
        }
        // By tail, so that the children of a node lie together.
        used.sort_unstable_by_key(|link| (edges[*link as usize].tail, *link));
        used.dedup();
        let leaving = |node: u32| {
            let start = used.partition_point(|link| edges[*link as usize].tail < node) as u32;
            let end = used.partition_point(|link| edges[*link as usize].tail <= node) as u32;
            start..end
        };
        let branch = |link: &LinkIx| {
            let head = edges[*link as usize].head;
            let receiver = topology.is_host(head).then_some(HostIx(head));
            Branch { link: *link, receiver, children: leaving(head) }
        };
        let branches = used.iter().map(branch).collect();
        Tree { branches, roots: leaving(source.0), version, unreachable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Link;

    const GROUP: GroupId = GroupId(7);

    fn load(bytes: u64) -> Load {
        Load { bytes, may_be_lost: true }
    }

    fn arrivals(network: &mut Network, source: u32, goal: Goal) -> Vec<(u64, u32)> {
        let tree = network.tree(HostIx(source), goal);
        let mut found = Vec::new();
        network.send(Time(0), &tree, load(100), &mut |onward| match onward {
            Onward::Arrive(at, host) => found.push((at.0 / 1000, host.0)),
            other => panic!("{other:?}"),
        });
        found.sort_by_key(|(_, host)| *host);
        found
    }

    #[test]
    fn a_multicast_reaches_each_member_once_and_crosses_each_link_once() {
        let link = |micros| Link::of_delay(Duration::from_micros(micros));
        let mut network = Network::new(Topology::rack(2, 3, link(10), link(100)), 1);
        for host in [0, 1, 4, 5] {
            network.subscribe(HostIx(host), GROUP);
        }
        assert_eq!(arrivals(&mut network, 0, Goal::Group(GROUP)), [(20, 1), (220, 4), (220, 5)]);
        assert_eq!(network.tree(HostIx(0), Goal::Group(GROUP)).branches.len(), 6);
        network.unsubscribe(HostIx(4), GROUP);
        assert_eq!(arrivals(&mut network, 0, Goal::Group(GROUP)), [(20, 1), (220, 5)]);
        assert_eq!(arrivals(&mut network, 2, Goal::Group(GROUP)).len(), 3, "who is no member");
        assert_eq!(arrivals(&mut network, 3, Goal::Host(HostIx(0))), [(220, 0)]);
        assert_eq!(arrivals(&mut network, 3, Goal::Everyone).len(), 5);
    }

    #[test]
    fn a_link_loses_only_what_its_loss_concerns() {
        let deaf = Link::default().with_loss(carom_proto::loss::Loss::Uniform(1.0));
        let mut network = Network::new(Topology::lan(2, deaf), 1);
        let tree = network.tree(HostIx(0), Goal::Host(HostIx(1)));
        let mut next = Vec::new();
        for may_be_lost in [true, false] {
            let load = Load { bytes: 100, may_be_lost };
            network.send(Time(0), &tree, load, &mut |onward| next.push(onward));
        }
        assert_eq!(next, [Onward::Lost, Onward::Arrive(Time(50_000), HostIx(1))]);
    }

    #[test]
    fn a_link_with_a_bandwidth_is_crossed_in_order_of_time() {
        let slow = Link::of_delay(Duration::ZERO).with_bandwidth(8_000_000, 10_000);
        let far = Link::of_delay(Duration::from_micros(500));
        let mut network = Network::new(Topology::rack(2, 1, far, slow), 1);
        let tree = network.tree(HostIx(0), Goal::Host(HostIx(1)));
        let mut next = Vec::new();
        network.send(Time(0), &tree, load(1000), &mut |onward| next.push(onward));
        let Onward::Queue(at, branch) = next[0] else { panic!("{next:?}") };
        assert_eq!(at, Time(500_000), "the uplink comes later than now");
        next.clear();
        network.send_on(at, &tree, branch, load(1000), &mut |onward| next.push(onward));
        let Onward::Queue(at, branch) = next[0] else { panic!("{next:?}") };
        assert_eq!(at, Time(1_500_000), "a millisecond at 8 Mbit/s");
        next.clear();
        network.send_on(at, &tree, branch, load(1000), &mut |onward| next.push(onward));
        assert_eq!(next, [Onward::Arrive(Time(3_000_000), HostIx(1))]);
    }
}
