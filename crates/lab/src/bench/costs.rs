use std::collections::BTreeMap;

use carom_bench::account::Cpu;
use carom_netns::Host;

use super::counters::Counters;
use super::cpu::CpuReading;
use super::failure::Failure;

/// What the hosts of a run have used and counted up to a moment.
pub(super) struct Costs {
    counters: Vec<Counters>,
    cpu: Vec<CpuReading>,
}

/// What one host has used and counted during a run.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    /// `None` if it is not known, because a process has ended.
    pub(super) cpu: Option<Cpu>,
    pub(super) counters: Counters,
}

impl Costs {
    /// Reads what was used before a run that begins next.
    pub(super) fn before(hosts: &[Host]) -> Result<Self, Failure> {
        let counters = hosts.iter().map(Counters::read).collect::<Result<_, _>>()?;
        // Nothing else is between these readings and the run.
        let cpu = hosts.iter().map(CpuReading::of).collect::<Result<_, _>>()?;
        Ok(Self { counters, cpu })
    }

    /// Reads what was used up to the end of a run. Killed nodes have the last reading before.
    pub(super) fn after(
        hosts: &[Host],
        killed: &BTreeMap<usize, CpuReading>,
    ) -> Result<Self, Failure> {
        let cpu = hosts.iter().enumerate().map(|(index, host)| match killed.get(&index) {
            Some(last) => Ok(last.clone()),
            None => CpuReading::of(host),
        });
        let cpu = cpu.collect::<Result<_, _>>()?;
        let counters = hosts.iter().map(Counters::read).collect::<Result<_, _>>()?;
        Ok(Self { counters, cpu })
    }

    /// Returns the cost of each host since an earlier reading.
    pub(super) fn since(&self, before: &Self) -> Vec<Cost> {
        let counters = self.counters.iter().zip(&before.counters);
        let cpu = self.cpu.iter().zip(&before.cpu);
        let both = counters.zip(cpu).map(|((counters, counters_before), (cpu, cpu_before))| Cost {
            cpu: cpu.since(cpu_before),
            counters: counters.since(*counters_before),
        });
        both.collect()
    }
}
