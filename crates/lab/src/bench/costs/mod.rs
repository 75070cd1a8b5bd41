//! The cost of a run: processor time and packets of its nodes, read alike for all systems.

mod counters;
mod cpu;

use std::collections::BTreeMap;

use carom_netns::Host;

use super::failure::Failure;
use counters::Counters;
pub(super) use cpu::CpuReading;

/// The processor times and counters of the hosts of a run up to a moment.
pub(super) struct Costs {
    /// Packets that the host's link dropped, if the row limits links.
    link_drops: Vec<Option<u64>>,
    counters: Vec<Counters>,
    cpu: Vec<CpuReading>,
}

/// The processor time that one host has used during a run, and what it has counted.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    /// `None` if it is not known, because a process has ended.
    pub(super) cpu_ns: Option<u64>,
    /// Packets that the host received.
    pub(super) packets: u64,
    /// UDP datagrams that were discarded at a socket.
    pub(super) udp_errors: u64,
    /// `None` if the row does not limit links.
    pub(super) link_drops: Option<u64>,
}

impl Costs {
    /// Reads what was used before a run that begins next. Drops are read at limited links.
    pub(super) fn before(hosts: &[Host], is_limited: bool) -> Result<Self, Failure> {
        let link_drops = link_drops(hosts, is_limited)?;
        let counters = hosts.iter().map(Counters::read).collect::<Result<_, _>>()?;
        // The clocks are read last, right before the run.
        let cpu = hosts.iter().map(CpuReading::of).collect::<Result<_, _>>()?;
        Ok(Self { link_drops, counters, cpu })
    }

    /// Reads what was used up to the end of a run. A killed node keeps the reading taken before its
    /// end.
    pub(super) fn after(
        hosts: &[Host],
        is_limited: bool,
        killed: &BTreeMap<usize, CpuReading>,
    ) -> Result<Self, Failure> {
        let cpu = hosts.iter().enumerate().map(|(index, host)| match killed.get(&index) {
            Some(last) => Ok(last.clone()),
            None => CpuReading::of(host),
        });
        let cpu = cpu.collect::<Result<_, _>>()?;
        let counters = hosts.iter().map(Counters::read).collect::<Result<_, _>>()?;
        let link_drops = link_drops(hosts, is_limited)?;
        Ok(Self { link_drops, counters, cpu })
    }

    /// Returns the cost of each host since an earlier reading.
    pub(super) fn since(&self, before: &Self) -> Vec<Cost> {
        let cost = |index: usize| {
            let earlier = before.link_drops[index];
            let Counters { packets, udp_errors } =
                self.counters[index].since(before.counters[index]);
            Cost {
                cpu_ns: self.cpu[index].since(&before.cpu[index]),
                packets,
                udp_errors,
                link_drops: self.link_drops[index].zip(earlier).map(|(now, then)| now - then),
            }
        };
        (0..self.cpu.len()).map(cost).collect()
    }
}

fn link_drops(hosts: &[Host], is_limited: bool) -> Result<Vec<Option<u64>>, Failure> {
    let read = |host: &Host| Ok(is_limited.then(|| host.link_drops()).transpose()?);
    hosts.iter().map(read).collect()
}
