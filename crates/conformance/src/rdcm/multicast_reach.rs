//! Hosts without multicast reception. Nodes learn of them with a delay.

use std::collections::BTreeSet;

use carom_proto::rdcm::Rdcm;
use carom_proto::{Engine as _, NetworkChange};
use carom_sim::HostIx;

use super::history::History;
use super::settings::Settings;
use crate::harness::Harness;

#[derive(Debug, Default)]
pub(super) struct MulticastReach {
    deaf: BTreeSet<HostIx>,
    known_deaf: BTreeSet<HostIx>,
}

impl MulticastReach {
    /// Disables or enables multicast reception at a host, without a notice to the nodes.
    pub(super) fn set_deaf(
        &mut self,
        harness: &mut Harness<Rdcm, History>,
        host: HostIx,
        is_deaf: bool,
    ) {
        harness.world.network().set_deaf(host, is_deaf);
        match is_deaf {
            true => self.deaf.insert(host),
            false => self.deaf.remove(&host),
        };
    }

    pub(super) fn report(&mut self, harness: &mut Harness<Rdcm, History>, settings: &Settings) {
        self.known_deaf.clone_from(&self.deaf);
        settings.hosts.iter().for_each(|host| self.report_to(harness, settings, *host));
    }

    pub(super) fn report_to(
        &self,
        harness: &mut Harness<Rdcm, History>,
        settings: &Settings,
        host: HostIx,
    ) {
        let ids = self.known_deaf.iter().flat_map(|host| settings.ids(*host));
        let change = NetworkChange::Unreached(ids.collect());
        harness.with(host, |member, now| member.engine_mut().handle_network(now, &change));
    }
}
