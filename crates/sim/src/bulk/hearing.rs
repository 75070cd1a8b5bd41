//! Multicast does not reach all hosts, and nodes find out sooner or later.

use std::collections::BTreeSet;

use carom_proto::NodeId;

use super::player::Player;
use crate::HostIx;

impl Player<'_> {
    /// Multicast does not reach a host any more, or does again; nobody knows it yet.
    pub(super) fn deafen(&mut self, host: HostIx, is_deaf: bool) {
        self.world.set_deaf(host, is_deaf);
        match is_deaf {
            true => self.deaf.insert(host),
            false => self.deaf.remove(&host),
        };
    }

    /// Everybody finds out whom multicast reaches.
    pub(super) fn learn_paths(&mut self) {
        self.known_deaf = self.deaf.clone();
        self.scenario_hosts().into_iter().for_each(|host| self.tell_paths(host));
    }

    /// The node on a host is told whom multicast does not reach, as far as is known.
    pub(super) fn tell_paths(&mut self, host: HostIx) {
        let ids = self.known_deaf.iter().flat_map(|host| self.settings.ids(*host));
        let unreached: BTreeSet<NodeId> = ids.collect();
        self.world.with(host, |member, now| member.engine_mut().set_unreached(now, unreached));
    }
}
