//! Delivers datagrams along the links from a sender to its receivers.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carom_proto::loss::{Loss, LossInjector};
use carom_proto::{GroupId, IdMap, Rng, Time};

use crate::ethernet::{Cable, Frame, transmission_time};
use crate::ids::{CableIx, HostIx, LinkIx};
use crate::link_queue::{Background, Dropped, LinkState, Load, Traffic};
use crate::topology::{NO_LINK, Place, Topology};
use crate::tree::{Goal, Tree, Version};

/// The links of a world, and the subscribers of each group.
pub struct Network {
    pub(crate) topology: Topology,
    links: Vec<LinkState>,
    cables: Vec<Cable>,
    routes: Vec<Option<Vec<LinkIx>>>,
    groups: IdMap<GroupId, Listeners>,
    trees: IdMap<(HostIx, Goal), Arc<Tree>>,
    set_trees: BTreeMap<(GroupId, HostIx), Vec<LinkIx>>,
    deaf: BTreeSet<HostIx>,
    /// Number of changes to routes, to set trees, and to `deaf`. A change invalidates the built
    /// trees.
    ways: u32,
    rng: Rng,
}

#[derive(Debug, Default)]
struct Listeners {
    hosts: Vec<HostIx>,
    version: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    Source,
    Link(u32),
    PastCable(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onward {
    Arrive(Time, HostIx),
    Queue(Time, u32),
    Contend(u32),
    Dropped(Dropped),
}

impl Network {
    pub(crate) fn new(topology: Topology, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let edges = topology.links.iter();
        let links = edges.map(|edge| LinkState::new(&edge.link, rng.next_u64())).collect();
        let cables = topology.cables.iter();
        let cables = cables.map(|ethernet| Cable::new(*ethernet, topology.hosts())).collect();
        let routes = vec![None; topology.hosts() as usize];
        let (groups, trees) = (IdMap::new(rng.next_u64()), IdMap::new(rng.next_u64()));
        let (set_trees, deaf) = (BTreeMap::new(), BTreeSet::new());
        Self { topology, links, cables, routes, groups, trees, set_trees, deaf, ways: 0, rng }
    }

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

    /// Disables or enables multicast reception at a host.
    ///
    /// A host without multicast receives unicast copies of the datagrams to its groups, as when a
    /// driver replaces multicast. Datagrams along the [tree](carom_proto::Destination::Tree) of a
    /// group, or to all nodes of the [LAN](carom_proto::Destination::Lan), are not copied.
    pub fn set_deaf(&mut self, host: HostIx, is_deaf: bool) {
        let has_changed = if is_deaf { self.deaf.insert(host) } else { self.deaf.remove(&host) };
        self.ways += u32::from(has_changed);
    }

    pub(crate) fn is_deaf(&self, host: HostIx) -> bool {
        self.deaf.contains(&host)
    }

    pub(crate) fn deaf_listeners(&self, group: GroupId) -> Vec<HostIx> {
        let listeners = self.groups.get(&group).map_or(&[][..], |it| &it.hosts);
        listeners.iter().copied().filter(|host| self.deaf.contains(host)).collect()
    }

    /// Routes all further multicasts of `sender` to `group` along these directed links, even along
    /// dead ones, which drop them. `links` holds the numbers of the links; see [`Topology`].
    ///
    /// Datagrams in flight stay on their previous links. A subscriber receives the multicast if the
    /// links lead from `sender` to its host. Subscribers to whose hosts no link leads count as
    /// [unreachable](crate::Counters::unreachable). Without such a tree, multicasts follow the
    /// shortest paths.
    ///
    /// # Panics
    /// Panics if one of the links is not in the topology.
    pub fn set_tree(&mut self, group: GroupId, sender: HostIx, links: Vec<u32>) {
        for link in &links {
            assert!((*link as usize) < self.links.len(), "link {link} is not in the topology");
        }
        self.set_trees.insert((group, sender), links);
        self.ways += 1;
    }

    /// Routes the multicasts of `sender` to `group` along the shortest paths again.
    pub fn clear_tree(&mut self, group: GroupId, sender: HostIx) {
        self.set_trees.remove(&(group, sender));
        self.ways += 1;
    }

    pub(crate) fn set_dead(&mut self, a: Place, b: Place, is_dead: bool) {
        let links = self.topology.links_between(a, b);
        assert!(!links.is_empty(), "no link between {a:?} and {b:?}");
        for link in links {
            self.links[link as usize].is_dead = is_dead;
        }
        self.routes.fill(None);
        self.ways += 1;
    }

    pub(crate) fn set_loss(&mut self, loss: Loss, seed: u64) {
        let mut rng = Rng::new(seed);
        self.links.iter_mut().for_each(|link| link.loss = LossInjector::new(loss, rng.next_u64()));
    }

    /// Adds a flow of background datagrams to the link from one place to another. If there are
    /// several such links, the first one carries the flow.
    ///
    /// # Panics
    /// Panics if there is no such link, or if it has no bandwidth limit.
    pub fn add_background(&mut self, from: Place, to: Place, flow: Background) {
        let links = self.topology.links_from(from, to);
        let link = *links.first().unwrap_or_else(|| panic!("no link from {from:?} to {to:?}"));
        let limit = self.topology.links[link as usize].link.bandwidth;
        assert!(limit.is_some(), "a background flow needs a link with a bandwidth limit");
        let seed = self.rng.next_u64();
        self.links[link as usize].add_flow(flow, seed);
    }

    pub(crate) fn traffic(
        &mut self,
        now: Time,
    ) -> impl Iterator<Item = (Place, Place, &Traffic)> + use<'_> {
        let (topology, links) = (&self.topology, &mut self.links);
        let edges = topology.links.iter().zip(links);
        edges.map(move |(edge, state)| {
            let (from, to) = (topology.place(edge.tail), topology.place(edge.head));
            (from, to, state.traffic(now, &edge.link))
        })
    }

    pub(crate) fn tree(&mut self, source: HostIx, goal: Goal) -> Arc<Tree> {
        let listeners = match goal {
            Goal::Group(group) => self.groups.get(&group).map_or(0, |it| it.version),
            Goal::Host(_) | Goal::Everyone => 0,
        };
        let version = Version { listeners, ways: self.ways };
        let known = self.trees.get(&(source, goal)).filter(|tree| tree.version == version);
        if let Some(tree) = known {
            return Arc::clone(tree);
        }
        let tree = Arc::new(self.build_tree(source, goal, version));
        self.trees.insert((source, goal), Arc::clone(&tree));
        tree
    }

    pub(crate) fn send(
        &mut self,
        now: Time,
        tree: &Tree,
        from: Hop,
        load: Load,
        onward: &mut impl FnMut(Onward),
    ) {
        let branches = match from {
            Hop::Source => tree.roots.clone(),
            Hop::Link(branch) => branch..branch + 1,
            Hop::PastCable(branch) => {
                let branch = &tree.branches[branch as usize];
                self.links[branch.link as usize].traffic.count(load);
                branch.children.clone()
            }
        };
        self.forward(now, now, tree, branches, load, onward);
    }

    /// Queues a frame for the shared cable of its branch. Returns the cable and, if it was free,
    /// the end of the frame's transmission, or `None` if the queue of the interface is full.
    pub(crate) fn contend(
        &mut self,
        now: Time,
        tree: &Tree,
        frame: Frame,
    ) -> Option<(CableIx, Option<Time>)> {
        let link = tree.branches[frame.branch as usize].link;
        let edge = &self.topology.links[link as usize];
        let number = edge.cable.expect("its branch leads over a shared cable");
        let cable = &mut self.cables[number as usize];
        cable.wait(edge.tail, frame).then(|| (number, cable.begin(now)))
    }

    pub(crate) fn pass(&mut self, now: Time, cable: CableIx) -> (Option<Frame>, Option<Time>) {
        let cable = &mut self.cables[cable as usize];
        (cable.end(), cable.begin(now))
    }

    /// Returns the latency of a stream's next bytes between two hosts over idle links, or `None` if
    /// there is no path. The caller models losses.
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
        self.find_routes(from);
        let (topology, routes) = (&self.topology, self.routes_of(from));
        let (mut node, mut latency) = (to.0, Duration::ZERO);
        while node != from.0 {
            let edge = &topology.links.get(routes[node as usize] as usize)?;
            let link = &edge.link;
            let cable = edge.cable.map(|cable| &topology.cables[cable as usize]);
            let bandwidth = cable.map(|ethernet| ethernet.bits_per_second).or(link.bandwidth);
            let sending = bandwidth.map(|bandwidth| transmission_time(bytes, bandwidth));
            latency += link.latency(rng) + sending.unwrap_or_default();
            node = edge.tail;
        }
        Some(latency)
    }

    /// Forwards a datagram along `branches`. Links with a bandwidth limit, and shared cables, must
    /// be crossed in order of time.
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
            let edge = &self.topology.links[branch.link as usize];
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
                Err(cause) => onward(Onward::Dropped(cause)),
                Ok(then) => {
                    if let Some(host) = branch.receiver {
                        onward(Onward::Arrive(then, host));
                    }
                    self.forward(now, then, tree, branch.children.clone(), load, onward);
                }
            }
        }
    }

    fn build_tree(&mut self, source: HostIx, goal: Goal, version: Version) -> Tree {
        self.find_routes(source);
        let (edges, routes) = (&self.topology.links, self.routes_of(source));
        let receivers: Vec<HostIx> = match goal {
            Goal::Host(host) => vec![host],
            Goal::Group(group) => self.groups.get(&group).map_or(Vec::new(), |it| it.hosts.clone()),
            Goal::Everyone => self.topology.all_hosts().collect(),
        };
        // There is no path from a host to itself.
        let is_by_name = matches!(goal, Goal::Host(_));
        let is_other = |host: &HostIx| is_by_name || *host != source && !self.deaf.contains(host);
        let receivers: Vec<HostIx> = receivers.into_iter().filter(is_other).collect();
        if let Goal::Group(group) = goal
            && let Some(set) = self.set_trees.get(&(group, source))
        {
            return Tree::of_links(source.0, set.clone(), &receivers, edges, version);
        }
        let mut used: Vec<LinkIx> = Vec::new();
        for host in &receivers {
            let mut node = host.0;
            while node != source.0 && routes[node as usize] != NO_LINK {
                let link = routes[node as usize];
                used.push(link);
                node = edges[link as usize].tail;
            }
        }
        Tree::of_links(source.0, used, &receivers, edges, version)
    }

    fn find_routes(&mut self, source: HostIx) {
        let (topology, links) = (&self.topology, &self.links);
        self.routes[source.0 as usize].get_or_insert_with(|| {
            topology.routes_from(source.0, |link| !links[link as usize].is_dead)
        });
    }

    fn routes_of(&self, source: HostIx) -> &[LinkIx] {
        self.routes[source.0 as usize].as_deref().expect("its routes were found before")
    }
}

#[cfg(test)]
mod tests {
    use carom_proto::Class;

    use super::*;
    use crate::topology::Link;

    const GROUP: GroupId = GroupId(7);

    fn load(bytes: u64) -> Load {
        Load { bytes, class: Class::Data, is_multicast: true, may_be_lost: true }
    }

    fn arrivals(network: &mut Network, source: u32, goal: Goal) -> Vec<(u64, u32)> {
        let tree = network.tree(HostIx(source), goal);
        let mut found = Vec::new();
        network.send(Time(0), &tree, Hop::Source, load(100), &mut |onward| match onward {
            Onward::Arrive(at, host) => found.push((at.0 / 1000, host.0)),
            other => panic!("{other:?}"),
        });
        found.sort_by_key(|(_, host)| *host);
        found
    }

    #[test]
    fn multicast_reaches_each_member_and_crosses_each_link_once() {
        let link = |micros| Link::of_delay(Duration::from_micros(micros));
        let mut network = Network::new(Topology::rack(2, 3, link(10), link(100)), 1);
        for host in [0, 1, 4, 5] {
            network.subscribe(HostIx(host), GROUP);
        }
        assert_eq!(arrivals(&mut network, 0, Goal::Group(GROUP)), [(20, 1), (220, 4), (220, 5)]);
        assert_eq!(network.tree(HostIx(0), Goal::Group(GROUP)).branches.len(), 6);
        network.unsubscribe(HostIx(4), GROUP);
        assert_eq!(arrivals(&mut network, 0, Goal::Group(GROUP)), [(20, 1), (220, 5)]);
        assert_eq!(arrivals(&mut network, 2, Goal::Group(GROUP)).len(), 3, "not a member");
        assert_eq!(arrivals(&mut network, 3, Goal::Host(HostIx(0))), [(220, 0)]);
        assert_eq!(arrivals(&mut network, 3, Goal::Everyone).len(), 5);
    }

    #[test]
    fn deaf_host_receives_unicast_only() {
        let mut network = Network::new(Topology::lan(4, Link::default()), 1);
        (0..4).for_each(|host| network.subscribe(HostIx(host), GROUP));
        network.set_deaf(HostIx(2), true);
        let heard = |network: &mut Network, goal| -> Vec<u32> {
            arrivals(network, 0, goal).into_iter().map(|(_, host)| host).collect()
        };
        assert_eq!(heard(&mut network, Goal::Group(GROUP)), [1, 3]);
        assert_eq!(heard(&mut network, Goal::Host(HostIx(2))), [2]);
        assert_eq!(network.deaf_listeners(GROUP), [HostIx(2)]);
        network.set_deaf(HostIx(2), false);
        assert_eq!(heard(&mut network, Goal::Group(GROUP)), [1, 2, 3]);
    }

    #[test]
    fn a_link_loses_only_what_its_loss_concerns() {
        let deaf = Link::default().with_loss(Loss::Uniform(1.0));
        let mut network = Network::new(Topology::lan(2, deaf), 1);
        let tree = network.tree(HostIx(0), Goal::Host(HostIx(1)));
        let mut next = Vec::new();
        for may_be_lost in [true, false] {
            let load = Load { may_be_lost, ..load(100) };
            network.send(Time(0), &tree, Hop::Source, load, &mut |onward| next.push(onward));
        }
        assert_eq!(next, [Onward::Dropped(Dropped::Lost), Onward::Arrive(Time(50_000), HostIx(1))]);
        next.clear();
        network.set_loss(Loss::None, 7);
        network.send(Time(0), &tree, Hop::Source, load(100), &mut |onward| next.push(onward));
        assert!(!next.contains(&Onward::Dropped(Dropped::Lost)), "the link keeps losing: {next:?}");
    }

    #[test]
    fn a_link_with_a_bandwidth_is_crossed_in_order_of_time() {
        let slow = Link::of_delay(Duration::ZERO).with_bandwidth(8_000_000, 10_000);
        let far = Link::of_delay(Duration::from_micros(500));
        let mut network = Network::new(Topology::rack(2, 1, far, slow), 1);
        let tree = network.tree(HostIx(0), Goal::Host(HostIx(1)));
        let mut next = Vec::new();
        network.send(Time(0), &tree, Hop::Source, load(1000), &mut |onward| next.push(onward));
        let Onward::Queue(at, branch) = next[0] else { panic!("{next:?}") };
        assert_eq!(at, Time(500_000), "the uplink is crossed later");
        next.clear();
        network.send(at, &tree, Hop::Link(branch), load(1000), &mut |onward| next.push(onward));
        let Onward::Queue(at, branch) = next[0] else { panic!("{next:?}") };
        assert_eq!(at, Time(1_500_000), "a millisecond at 8 Mbit/s");
        next.clear();
        network.send(at, &tree, Hop::Link(branch), load(1000), &mut |onward| next.push(onward));
        assert_eq!(next, [Onward::Arrive(Time(3_000_000), HostIx(1))]);
    }
}
