//! Hosts that multicast does not reach. Nodes learn of them with a delay.

use std::collections::BTreeSet;

use carom_proto::NodeId;

use super::player::Player;
use crate::HostIx;

impl Player<'_> {
    /// Disables or enables multicast to a host. Nodes do not learn it here.
    pub(super) fn deafen(&mut self, host: HostIx, is_deaf: bool) {
        self.world.set_deaf(host, is_deaf);
        match is_deaf {
            true => self.deaf.insert(host),
            false => self.deaf.remove(&host),
        };
    }

    /// Reports to all nodes which hosts multicast does not reach now.
    pub(super) fn learn_paths(&mut self) {
        self.known_deaf = self.deaf.clone();
        self.scenario_hosts().into_iter().for_each(|host| self.tell_paths(host));
    }

    /// Reports to the node on a host which nodes are known not to receive multicast.
    pub(super) fn tell_paths(&mut self, host: HostIx) {
        let ids = self.known_deaf.iter().flat_map(|host| self.settings.ids(*host));
        let unreached: BTreeSet<NodeId> = ids.collect();
        self.world.with(host, |member, now| member.engine_mut().set_unreached(now, unreached));
    }
}
