//! Tests data centers in the simulated world: set trees, dead links, and the traffic of links.

#[path = "../../sim/tests/talker/mod.rs"]
mod talker;

use std::collections::BTreeSet;
use std::time::Duration;

use carom_conformance::rdcm::cluster;
use carom_proto::rdcm::topology::{LinkId, Topology as Cluster, Vertex};
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::{Class, Destination, GroupId, NodeId};
use carom_sim::{Background, Fault, HostIx, Link, Place, World, WorldConfig};
use talker::Talker;

const GROUP: GroupId = GroupId(9);
const MBIT: u64 = 1_000_000;

fn world(cluster: &Cluster, receivers: &[u32]) -> World<Talker> {
    let link = Link::of_delay(Duration::from_micros(1)).with_bandwidth(1000 * MBIT, 100_000);
    let mut world = World::new(WorldConfig::new(cluster::topology(cluster, |_| link), 1));
    for host in world.topology().all_hosts() {
        world.spawn(host, NodeId(u64::from(host.0) + 1), Talker::default());
    }
    for host in receivers {
        world.subscribe(HostIx(*host), GROUP);
    }
    world
}

fn bcube() -> Cluster {
    Cluster::bcube(4, 1).expect("a valid cluster")
}

fn tree(cluster: &Cluster, dead: &[LinkId], sender: u32, receivers: &[u32]) -> MulticastTree {
    let receivers: BTreeSet<Vertex> = receivers.iter().copied().map(Vertex).collect();
    let dead = dead.iter().copied().collect();
    let (tree, unreached) = MulticastTree::shortest(cluster, &dead, Vertex(sender), &receivers);
    assert!(unreached.is_empty(), "{unreached:?}");
    tree
}

fn send(world: &mut World<Talker>, from: u32, to: Destination, bytes: usize) -> Vec<u32> {
    world.command(HostIx(from), (to, bytes));
    let mut reached = Vec::new();
    world.run_for(Duration::from_millis(1), &mut |happening| reached.push(happening.host.0));
    reached.sort_unstable();
    reached
}

fn links_used(world: &mut World<Talker>, from: u32) -> BTreeSet<(Place, Place)> {
    let count = |world: &mut World<Talker>| -> Vec<(Place, Place, u64)> {
        let traffic = world.traffic();
        traffic.map(|(from, to, it)| (from, to, it.multicast.all_datagrams())).collect()
    };
    let before = count(world);
    send(world, from, Destination::Group(GROUP), 100);
    let after = count(world);
    let grown = before.into_iter().zip(after).filter(|(before, after)| after.2 > before.2);
    grown.map(|(_, (from, to, _))| (from.min(to), from.max(to))).collect()
}

fn ends(cluster: &Cluster, links: impl Iterator<Item = LinkId>) -> BTreeSet<(Place, Place)> {
    let ends = links.map(|link| cluster.links()[link.0 as usize]);
    let places = ends.map(|ends| ends.map(|end| cluster::place(cluster, end)));
    places.map(|[a, b]| (a.min(b), a.max(b))).collect()
}

#[test]
fn hosts_of_a_bcube_pass_on_and_those_of_a_fat_tree_do_not() {
    let cluster = bcube();
    let mut world = world(&cluster, &[5, 6, 15]);
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), [5, 6, 15]);
    // Each receiver is two switches and one server away. The servers in between are not receivers.
    assert_eq!(send(&mut world, 0, Destination::Node(NodeId(16)), 100), [15]);
    assert_eq!(world.footprint().unicast.all_datagrams(), 4);
    assert_eq!(world.counters().delivered.all_datagrams(), 4, "and none to the hosts in between");
}

#[test]
fn set_tree_is_used_until_it_is_replaced_or_cleared() {
    let cluster = bcube();
    let receivers = [1, 2, 5, 6, 9, 13, 15];
    let mut world = world(&cluster, &receivers);
    let first = tree(&cluster, &[], 0, &receivers);
    cluster::set_tree(&mut world, &cluster, GROUP, &first);
    assert_eq!(links_used(&mut world, 0), ends(&cluster, first.links()));
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), receivers);
    let without = first.links().next().expect("it has links");
    let second = tree(&cluster, &[without], 0, &receivers);
    cluster::set_tree(&mut world, &cluster, GROUP, &second);
    assert_eq!(links_used(&mut world, 0), ends(&cluster, second.links()));
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), receivers);
    assert_eq!(send(&mut world, 1, Destination::Group(GROUP), 100).len(), 6, "another sender");
    world.network().clear_tree(GROUP, HostIx(0));
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), receivers);
}

#[test]
fn tree_sets_the_route_and_subscription_the_receivers() {
    let cluster = bcube();
    let mut world = world(&cluster, &[1, 7, 10]);
    cluster::set_tree(&mut world, &cluster, GROUP, &tree(&cluster, &[], 0, &[1, 2, 3]));
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), [1]);
    assert_eq!(world.counters().unreachable, 2, "hosts 7 and 10 are not in the tree");
    world.subscribe(HostIx(3), GROUP);
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), [1, 3]);
}

#[test]
fn dead_link_cuts_a_set_tree_and_other_routes_avoid_it() {
    let cluster = bcube();
    let receivers = [1, 2, 5, 6, 9, 13];
    let mut world = world(&cluster, &receivers);
    let tree_with_all = tree(&cluster, &[], 0, &receivers);
    cluster::set_tree(&mut world, &cluster, GROUP, &tree_with_all);
    let above = tree_with_all.above(Vertex(5)).expect("it is in the tree");
    let below: BTreeSet<u32> = {
        let is_below = |receiver: &&u32| {
            let ways = std::iter::successors(Some(Vertex(**receiver)), |vertex| {
                tree_with_all.above(*vertex).map(|above| above.vertex)
            });
            ways.into_iter().any(|vertex| vertex == Vertex(5))
        };
        receivers.iter().filter(is_below).copied().collect()
    };
    let [a, b] = [above.vertex, Vertex(5)].map(|end| cluster::place(&cluster, end));
    world.apply(&Fault::CutLink(a, b));
    let others: Vec<u32> = receivers.into_iter().filter(|it| !below.contains(it)).collect();
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), others);
    assert_eq!(world.counters().dead_link, 1);
    for from in [0, 1, 15] {
        let reached = send(&mut world, from, Destination::Node(NodeId(6)), 100);
        assert_eq!(reached, [5], "by another path");
    }
    assert_eq!(send(&mut world, 7, Destination::Group(GROUP), 100), receivers, "no tree is set");
    assert_eq!(send(&mut world, 5, Destination::Node(NodeId(1)), 100), [0]);
    assert_eq!(world.counters().dead_link, 1, "no other datagram reached it");
    let again = tree(&cluster, &[above.link], 0, &receivers);
    cluster::set_tree(&mut world, &cluster, GROUP, &again);
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), receivers);
    cluster::set_tree(&mut world, &cluster, GROUP, &tree_with_all);
    world.apply(&Fault::MendLink(a, b));
    assert_eq!(send(&mut world, 0, Destination::Group(GROUP), 100), receivers);
}

#[test]
fn host_with_dead_links_is_unreachable_until_one_is_mended() {
    let cluster = Cluster::racks(&[2, 2]).expect("a valid cluster");
    let mut world = world(&cluster, &[]);
    let (host, rack) = (Place::Host(3), Place::Switch(1));
    world.apply(&Fault::CutLink(rack, host));
    assert_eq!(send(&mut world, 0, Destination::Node(NodeId(4)), 100), []);
    assert_eq!(world.counters().unreachable, 1);
    world.apply(&Fault::MendLink(host, rack));
    assert_eq!(send(&mut world, 0, Destination::Node(NodeId(4)), 100), [3]);
}

#[test]
fn packet_in_flight_is_lost_where_it_meets_a_dead_link() {
    let cluster = Cluster::racks(&[1, 1]).expect("a valid cluster");
    let mut world = world(&cluster, &[]);
    world.command(HostIx(0), (Destination::Node(NodeId(2)), 100));
    world.apply(&Fault::CutLink(Place::Switch(1), Place::Host(1)));
    let mut reached = 0;
    world.run_for(Duration::from_millis(1), &mut |_| reached += 1);
    assert_eq!((reached, world.counters().dead_link, world.in_flight()), (0, 1, 0));
}

#[test]
fn links_count_what_they_carry_and_the_sum_is_the_footprint() {
    let cluster = Cluster::racks(&[3, 2]).expect("a valid cluster");
    let mut world = world(&cluster, &[1, 2, 3, 4]);
    send(&mut world, 0, Destination::Group(GROUP), 934);
    send(&mut world, 0, Destination::Node(NodeId(2)), 434);
    let footprint = world.footprint();
    // Up, down to 1 and 2, up to the core, down to the other rack, down to 3 and 4.
    assert_eq!(footprint.multicast.datagrams(Class::Data), 7);
    assert_eq!(footprint.multicast.bytes(Class::Data), 7000);
    assert_eq!((footprint.unicast.all_datagrams(), footprint.unicast.all_bytes()), (2, 1000));
    assert_eq!((footprint.bytes(), footprint.not_carried), (8000, 0));
    send(&mut world, 0, Destination::Node(NodeId(2)), 434);
    let since = world.footprint().since(&footprint);
    assert_eq!((since.bytes(), since.multicast.all_datagrams()), (1000, 0));
    let uplink = (Place::Switch(0), Place::Switch(2));
    let of = |wanted: (Place, Place), world: &mut World<Talker>| {
        let mut traffic = world.traffic();
        traffic.find(|(from, to, _)| (*from, *to) == wanted).map(|(_, _, it)| it.bytes())
    };
    assert_eq!(of(uplink, &mut world), Some(1000));
    assert_eq!(of((uplink.1, uplink.0), &mut world), Some(0), "the other direction");
}

#[test]
fn background_flow_delays_datagrams_on_its_link() {
    let cluster = Cluster::racks(&[1, 1]).expect("a valid cluster");
    let latency = |with_flow: bool| {
        let mut world = world(&cluster, &[]);
        let (begin, end) = (world.now(), world.now() + Duration::from_secs(1));
        if with_flow {
            let bits_per_second = 2000 * MBIT;
            let flow = Background { bits_per_second, datagram_bytes: 934, begin, end };
            world.network().add_background(Place::Switch(0), Place::Switch(2), flow);
        }
        world.run_for(Duration::from_micros(300), &mut |_| {});
        let sent = world.now();
        world.command(HostIx(0), (Destination::Node(NodeId(2)), 934));
        let mut arrived = sent;
        world.run_for(Duration::from_millis(5), &mut |happening| arrived = happening.at);
        (arrived.since(sent), world.footprint().background)
    };
    let (alone, none) = latency(false);
    let (behind, carried) = latency(true);
    assert_eq!((alone, none), (Duration::from_micros(4 * 8 + 4), 0));
    // A flow of twice the link's rate for 309 us leaves about 309 us of queued datagrams.
    let waited = (behind - alone).as_micros();
    assert!((240..=380).contains(&waited), "{waited} us");
    assert!(carried > 600, "{carried}");
}
