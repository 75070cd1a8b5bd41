//! Builds topologies from the data centers of RDCM's multicast manager.

use carom_proto::GroupId;
use carom_proto::rdcm::topology::{LinkId, Topology as Cluster, Vertex};
use carom_proto::rdcm::tree::MulticastTree;
use carom_sim::{HostIx, Link, Machine, Place, Topology, World};

/// Creates the topology of `cluster`. `link_of` returns the properties of each link, which apply to
/// both directions. Its bandwidth is that of the slowest link. Faster links have a bandwidth and a
/// queue that are larger by the ratio of their [speed](Cluster::speed) to the slowest.
///
/// Hosts have the numbers of their vertices. Switches are numbered from 0 in the order of their
/// vertices. Hosts forward if they do in the cluster.
pub fn topology(cluster: &Cluster, link_of: impl Fn(LinkId) -> Link) -> Topology {
    let switches = cluster.len() as u32 - cluster.hosts();
    let mut topology = Topology::graph(cluster.hosts(), switches).with_spread_routes();
    if cluster.hosts() > 0 && cluster.forwards(Vertex(0)) {
        topology = topology.with_forwarding_hosts();
    }
    for (number, ends) in cluster.links().iter().enumerate() {
        let [a, b] = ends.map(|end| place(cluster, end));
        let number = LinkId(number as u32);
        topology.connect(a, b, at_its_speed(cluster, number, link_of(number)));
    }
    topology
}

fn at_its_speed(cluster: &Cluster, number: LinkId, link: Link) -> Link {
    let (Some(speed), Some(slowest)) = (cluster.speed(number), cluster.slowest()) else {
        return link;
    };
    let scaled = |amount| speed.scaled(slowest, amount);
    let bandwidth = link.bandwidth.map(scaled);
    Link { bandwidth, queue_bytes: scaled(link.queue_bytes), ..link }
}

/// Returns the place of a vertex in the [topology] of a cluster.
pub fn place(cluster: &Cluster, vertex: Vertex) -> Place {
    match vertex.0.checked_sub(cluster.hosts()) {
        Some(switch) => Place::Switch(switch),
        None => Place::Host(vertex.0),
    }
}

/// Routes the multicasts of the tree's sender to `group` along the links of the tree, even along
/// dead links. The world must have the [topology] of the cluster.
///
/// # Panics
/// Panics if one of the links is not in the cluster.
pub fn set_tree<M: Machine>(
    world: &mut World<M>,
    cluster: &Cluster,
    group: GroupId,
    tree: &MulticastTree,
) {
    let link = |vertex: Vertex| {
        let above = tree.above(vertex)?;
        let link = directed_link(cluster, above.link, above.vertex, vertex);
        Some(link.unwrap_or_else(|| panic!("link {} is not in the cluster", above.link.0)))
    };
    let links: Vec<u32> = tree.upwards().into_iter().filter_map(link).collect();
    world.network().set_tree(group, HostIx(tree.sender().0), links);
}

fn directed_link(cluster: &Cluster, link: LinkId, from: Vertex, to: Vertex) -> Option<u32> {
    let ends = cluster.links().get(link.0 as usize)?;
    let directions = [[from, to], [to, from]].into_iter().zip([0, 1]);
    let mut found = directions.filter(|(direction, _)| direction == ends);
    found.next().map(|(_, direction)| 2 * link.0 + direction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_clusters() -> Vec<(&'static str, Cluster)> {
        let built = [
            ("bcube", Cluster::bcube(4, 1)),
            ("bcube of three levels", Cluster::bcube(3, 2)),
            ("fat tree", Cluster::fat_tree(4)),
            ("vl2", Cluster::vl2(4, 4, 3)),
            ("tree", Cluster::tree(&[2, 3, 4])),
            ("racks", Cluster::racks(&[3, 1, 2])),
        ];
        built.map(|(name, cluster)| (name, cluster.expect("a valid cluster"))).into()
    }

    #[test]
    fn faster_links_of_a_cluster_have_more_bandwidth() {
        let cluster = Cluster::vl2(4, 4, 3).expect("a valid cluster");
        let link = Link::default().with_bandwidth(1000, 300);
        for (number, ends) in cluster.links().iter().enumerate() {
            let link = at_its_speed(&cluster, LinkId(number as u32), link);
            let expected = match ends.iter().any(|end| cluster.is_host(*end)) {
                true => (Some(1000), 300),
                false => (Some(10_000), 3000),
            };
            assert_eq!((link.bandwidth, link.queue_bytes), expected, "link {number}");
        }
    }

    fn distance(cluster: &Cluster, from: u32, to: u32) -> usize {
        let mut reached = std::collections::BTreeSet::from([Vertex(from)]);
        for steps in 0.. {
            if reached.contains(&Vertex(to)) {
                return steps;
            }
            let passes = |vertex: &&Vertex| vertex.0 == from || cluster.forwards(**vertex);
            let around = reached.iter().filter(passes).flat_map(|it| cluster.neighbours(*it));
            let around: Vec<Vertex> = around.map(|(neighbour, _)| *neighbour).collect();
            reached.extend(around);
        }
        unreachable!("the cluster is connected")
    }

    #[test]
    fn cluster_routes_are_shortest_and_pass_forwarders_only() {
        for (name, cluster) in all_clusters() {
            let network = topology(&cluster, |_| Link::default());
            let all: Vec<[Place; 2]> = network.links().collect();
            let vertices = (0..cluster.len() as u32).map(Vertex);
            let forwarders: Vec<Place> =
                vertices.filter(|it| cluster.forwards(*it)).map(|it| place(&cluster, it)).collect();
            for from in 0..network.hosts() {
                for to in (0..network.hosts()).filter(|to| *to != from) {
                    let links = network.route(HostIx(from), HostIx(to)).expect("a path");
                    assert_eq!(links.len(), distance(&cluster, from, to), "{name} {from} {to}");
                    for link in &links[1..] {
                        let [_, through] = all[*link as usize];
                        assert!(forwarders.contains(&through), "{name}: through {through:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn equal_routes_are_spread_over_sources_deterministically() {
        let cluster = Cluster::fat_tree(8).expect("a valid tree");
        let network = topology(&cluster, |_| Link::default());
        let all: Vec<[Place; 2]> = network.links().collect();
        let core = |from| {
            let links = network.route(HostIx(from), HostIx(127)).expect("a path");
            all[links[2] as usize][0]
        };
        let cores: Vec<Place> = (0..64).map(core).collect();
        assert_eq!(cores, (0..64).map(core).collect::<Vec<Place>>());
        let different = std::collections::BTreeSet::from_iter(&cores);
        assert!(different.len() >= 12, "of 16 switches in the core: {different:?}");
    }

    #[test]
    fn both_directions_of_a_clusters_link_are_found() {
        for (name, cluster) in all_clusters() {
            let network = topology(&cluster, |_| Link::default());
            let all: Vec<[Place; 2]> = network.links().collect();
            assert_eq!(all.len(), 2 * cluster.links().len(), "{name}");
            for (number, [a, b]) in cluster.links().iter().enumerate() {
                let link = LinkId(number as u32);
                let [there, back] = [(a, b), (b, a)].map(|(from, to)| {
                    let direction =
                        directed_link(&cluster, link, *from, *to).expect("the link exists");
                    all[direction as usize]
                });
                let [a, b] = [a, b].map(|end| place(&cluster, *end));
                assert_eq!([there, back], [[a, b], [b, a]]);
            }
            assert_eq!(directed_link(&cluster, LinkId(0), Vertex(0), Vertex(0)), None);
        }
    }
}
