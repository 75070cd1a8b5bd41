//! What is done to the links of a world, and what they have carried.

use carom_proto::GroupId;
use carom_proto::rdcm::tree::MulticastTree;

use super::World;
use crate::HostIx;
use crate::crossing::{Background, Traffic};
use crate::machine::Machine;
use crate::topology::Place;

impl<M: Machine> World<M> {
    /// What the sender of `tree` multicasts to `group` from now on takes the links of the tree, and
    /// no others, though they be dead; what is under way stays on the former ones. Who has
    /// subscribed hears it if the tree goes through its host; others count as
    /// [unreachable](crate::Counters::unreachable). Without such a tree multicasts take the
    /// shortest ways, as routes are.
    ///
    /// # Panics
    /// If the tree leads over what is no link of this world's topology, which must be the
    /// [cluster](crate::Topology::cluster) that the tree is in.
    pub fn set_tree(&mut self, group: GroupId, tree: &MulticastTree) {
        self.network.set_tree(group, tree);
    }

    /// What `sender` multicasts to `group` takes the shortest ways again.
    pub fn clear_tree(&mut self, group: GroupId, sender: HostIx) {
        self.network.clear_tree(group, sender);
    }

    /// A host hears no multicast, or does again. What is sent to a group that it has subscribed to
    /// reaches it as a unicast copy of its own, as where a driver stands in for multicast; what is
    /// sent along the [tree](carom_proto::Destination::Tree) of a group does not.
    pub fn set_deaf(&mut self, host: HostIx, is_deaf: bool) {
        self.network.set_deaf(host, is_deaf);
    }

    /// Lets a flow of datagrams that nobody gets take its share of the link from one place to
    /// another; of several such links the first.
    ///
    /// # Panics
    /// If there is no such link, or it has no bandwidth.
    pub fn add_background(&mut self, from: Place, to: Place, flow: Background) {
        self.network.add_flow(from, to, flow);
    }

    /// What each direction of each link has carried so far, with the places from and to which it
    /// leads.
    pub fn traffic(&mut self) -> impl Iterator<Item = (Place, Place, &Traffic)> + use<'_, M> {
        self.network.traffic(self.now)
    }

    /// What all links together have carried so far: a datagram counts once for each link. On a
    /// shared cable, the way to it and from it to each host are links of their own.
    pub fn footprint(&mut self) -> Traffic {
        let mut sum = Traffic::default();
        self.traffic().for_each(|(_, _, traffic)| sum.add(traffic));
        sum
    }
}
