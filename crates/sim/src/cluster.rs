//! Topologies from the data centers of RDCM's multicast manager.

use carom_proto::rdcm::topology::{LinkId, Topology as Cluster, Vertex};

use crate::topology::{Link, LinkIx, Place, Topology};

impl Topology {
    /// Creates the hosts, switches and links of `cluster`, with the properties `link_of` for each
    /// link in either direction.
    ///
    /// The host with the number of a vertex is that vertex. Hosts forward if they do in the
    /// cluster. Sources choose differently among paths of equal length, as switches spread flows,
    /// to avoid a link that is on the path of every source.
    pub fn cluster(cluster: &Cluster, link_of: impl Fn(LinkId) -> Link) -> Self {
        let switches = cluster.len() as u32 - cluster.hosts();
        let mut topology = Self::graph(cluster.hosts(), switches);
        topology.spreads_routes = true;
        topology.hosts_forward = cluster.hosts() > 0 && cluster.forwards(Vertex(0));
        for (number, [a, b]) in cluster.links().iter().enumerate() {
            let link = link_of(LinkId(number as u32));
            topology.connect(Place::of(cluster, *a), Place::of(cluster, *b), link);
        }
        topology
    }

    /// Returns the direction of a cluster's link that leads from one of its ends to the other.
    pub(crate) fn link_of(&self, link: LinkId, from: Vertex, to: Vertex) -> Option<LinkIx> {
        let mut directions = [2 * link.0, 2 * link.0 + 1].into_iter();
        directions.find(|direction| {
            let edge = self.edges().get(*direction as usize);
            edge.is_some_and(|edge| [edge.tail, edge.head] == [from.0, to.0])
        })
    }
}

impl Place {
    /// Returns the place of a vertex in a [cluster](Topology::cluster).
    pub fn of(cluster: &Cluster, vertex: Vertex) -> Self {
        match vertex.0.checked_sub(cluster.hosts()) {
            Some(switch) => Self::Switch(switch),
            None => Self::Host(vertex.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::NO_LINK;

    fn all_clusters() -> Vec<(&'static str, Cluster)> {
        let built = [
            ("bcube", Cluster::bcube(4, 1)),
            ("bcube of three levels", Cluster::bcube(3, 2)),
            ("fat tree", Cluster::fat_tree(4)),
            ("vl2", Cluster::vl2(4, 4, 3)),
            ("tree", Cluster::tree(&[2, 3, 4])),
            ("racks", Cluster::racks(&[3, 1, 2])),
        ];
        built.map(|(name, cluster)| (name, cluster.expect("such a cluster can be"))).into()
    }

    /// Returns the links from `source` to `to`, the last one first, or `None` if there is no path.
    fn way(topology: &Topology, source: u32, to: u32) -> Option<Vec<LinkIx>> {
        let routes = topology.routes_from(source, |_| true);
        let (mut node, mut links) = (to, Vec::new());
        while node != source {
            let link = Some(routes[node as usize]).filter(|link| *link != NO_LINK)?;
            links.push(link);
            node = topology.edges()[link as usize].tail;
            assert!(links.len() <= routes.len(), "it goes in circles");
        }
        Some(links)
    }

    /// Returns the length of the shortest path, found by expanding the set of reached vertices.
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
            let topology = Topology::cluster(&cluster, |_| Link::default());
            for from in 0..topology.hosts() {
                for to in (0..topology.hosts()).filter(|to| *to != from) {
                    let links = way(&topology, from, to).expect("there is a way");
                    assert_eq!(links.len(), distance(&cluster, from, to), "{name} {from} {to}");
                    for link in &links[1..] {
                        let through = Vertex(topology.edges()[*link as usize].head);
                        assert!(cluster.forwards(through), "{name}: through {through}");
                    }
                }
            }
        }
    }

    #[test]
    fn equal_routes_are_spread_over_sources_deterministically() {
        let cluster = Cluster::fat_tree(8).expect("there is such a tree");
        let topology = Topology::cluster(&cluster, |_| Link::default());
        let core = |from| {
            let links = way(&topology, from, 127).expect("there is a way");
            topology.edges()[links[2] as usize].tail
        };
        let cores: Vec<u32> = (0..64).map(core).collect();
        assert_eq!(cores, (0..64).map(core).collect::<Vec<u32>>());
        let different = std::collections::BTreeSet::from_iter(&cores);
        assert!(different.len() >= 12, "of 16 switches in the core: {different:?}");
    }

    #[test]
    fn both_directions_of_a_clusters_link_are_found() {
        for (name, cluster) in all_clusters() {
            let topology = Topology::cluster(&cluster, |_| Link::default());
            assert_eq!(topology.edges().len(), 2 * cluster.links().len(), "{name}");
            for (number, [a, b]) in cluster.links().iter().enumerate() {
                let link = LinkId(number as u32);
                let [there, back] = [(a, b), (b, a)].map(|(from, to)| {
                    let direction = topology.link_of(link, *from, *to).expect("it is there");
                    topology.edges()[direction as usize]
                });
                assert_eq!([there.tail, there.head, back.tail, back.head], [a.0, b.0, b.0, a.0]);
                let ends = [Place::of(&cluster, *a), Place::of(&cluster, *b)];
                assert_eq!(ends, [a, b].map(|end| topology.place(end.0)));
            }
            assert_eq!(topology.link_of(LinkId(0), Vertex(0), Vertex(0)), None);
        }
    }
}
