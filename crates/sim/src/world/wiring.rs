//! Control of the links of a world, and their traffic.

use carom_proto::GroupId;
use carom_proto::rdcm::tree::MulticastTree;

use super::World;
use crate::HostIx;
use crate::crossing::{Background, Traffic};
use crate::machine::Machine;
use crate::topology::Place;

impl<M: Machine> World<M> {
    /// Routes what the sender of `tree` multicasts to `group` from now on along the links of the
    /// tree, even if they are dead.
    ///
    /// Datagrams in flight stay on their previous links. A subscriber receives the multicast if the
    /// tree passes through its host; others count as [unreachable](crate::Counters::unreachable).
    /// Without such a tree multicasts take the shortest paths.
    ///
    /// # Panics
    /// Panics if the tree contains a link that is not in this world's topology. The topology must
    /// be the [cluster](crate::Topology::cluster) of the tree.
    pub fn set_tree(&mut self, group: GroupId, tree: &MulticastTree) {
        self.network.set_tree(group, tree);
    }

    /// Routes what `sender` multicasts to `group` along the shortest paths again.
    pub fn clear_tree(&mut self, group: GroupId, sender: HostIx) {
        self.network.clear_tree(group, sender);
    }

    /// Disables or enables the receipt of multicast at a host.
    ///
    /// Without multicast, datagrams to a group that the host has subscribed to reach it as unicast
    /// copies, as when a driver replaces multicast. Datagrams sent along the
    /// [tree](carom_proto::Destination::Tree) of a group do not.
    pub fn set_deaf(&mut self, host: HostIx, is_deaf: bool) {
        self.network.set_deaf(host, is_deaf);
    }

    /// Adds a flow of background datagrams to the link from one place to another. They have no
    /// receiver, and use the link's bandwidth. Of several such links the first is used.
    ///
    /// # Panics
    /// Panics if there is no such link, or if it has no bandwidth limit.
    pub fn add_background(&mut self, from: Place, to: Place, flow: Background) {
        self.network.add_flow(from, to, flow);
    }

    /// Returns the traffic of each direction of each link so far, with the places that it leads
    /// from and to.
    pub fn traffic(&mut self) -> impl Iterator<Item = (Place, Place, &Traffic)> + use<'_, M> {
        self.network.traffic(self.now)
    }

    /// Returns the total traffic of all links so far. A datagram counts once for each link.
    ///
    /// The path to a shared cable, and the paths from it to the hosts, count as separate links.
    pub fn footprint(&mut self) -> Traffic {
        let mut sum = Traffic::default();
        self.traffic().for_each(|(_, _, traffic)| sum.add(traffic));
        sum
    }
}
