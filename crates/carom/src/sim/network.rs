use std::collections::VecDeque;
use std::net::Ipv4Addr;

use carom_proto::loss::{Loss, LossInjector};
use carom_proto::node::Node;
use carom_proto::{GroupId, Time, Transmit};

use super::report::Report;
use crate::net::network::Network;
use crate::shared::status::{NetCounters, Stats};

/// The network of a simulated node. The world collects sent datagrams from here right after each
/// call.
#[derive(Debug)]
pub(crate) struct SimNetwork {
    outbox: VecDeque<(Transmit, usize)>,
    bytes: Vec<u8>,
    taken_bytes: usize,
    injector: LossInjector,
    pub(super) reports: VecDeque<Report>,
    counters: NetCounters,
}

impl SimNetwork {
    pub(crate) fn new(loss: Loss, seed: u64) -> Self {
        Self {
            outbox: VecDeque::new(),
            bytes: Vec::new(),
            taken_bytes: 0,
            injector: LossInjector::new(loss, seed),
            reports: VecDeque::new(),
            counters: NetCounters::default(),
        }
    }

    pub(super) fn accepts(&mut self, datagram: &[u8]) -> bool {
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += datagram.len() as u64;
        !self.injector.drops_next()
    }

    pub(super) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let Some((transmit, bytes)) = self.outbox.pop_front() else {
            self.bytes.clear();
            self.taken_bytes = 0;
            return None;
        };
        out.extend_from_slice(&self.bytes[self.taken_bytes..self.taken_bytes + bytes]);
        self.taken_bytes += bytes;
        self.counters.datagrams_out += 1;
        self.counters.bytes_out += bytes as u64;
        Some(transmit)
    }
}

impl Network for SimNetwork {
    fn listen_to(&mut self, group: GroupId) -> Option<Ipv4Addr> {
        self.reports.push_back(Report::ListensTo(group));
        None
    }

    fn stop_listening(&mut self, group: GroupId, _address: Option<Ipv4Addr>) {
        self.reports.push_back(Report::StopsListening(group));
    }

    fn transmit(&mut self, _now: Time, node: &mut Node) {
        loop {
            let before = self.bytes.len();
            let Some(transmit) = node.poll_transmit(&mut self.bytes) else { break };
            self.outbox.push_back((transmit, self.bytes.len() - before));
        }
    }

    fn count(&self, stats: &mut Stats) {
        stats.net += self.counters;
        stats.net.losses_injected = self.injector.dropped();
    }
}
