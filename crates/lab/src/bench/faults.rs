use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carom_bench::plan::Row;
use carom_netns::Lab;

use super::costs::CpuReading;
use super::failure::Failure;
use super::leftovers;
use crate::nodes::Nodes;

/// The outages and the kill of a row, in the order of their times.
pub(super) struct Faults {
    start: Instant,
    pending: Vec<(Duration, Fault)>,
    /// Processor times of the killed nodes before their end.
    pub(super) killed: BTreeMap<usize, CpuReading>,
}

enum Fault {
    Outage(usize, Duration),
    Kill(usize),
}

impl Faults {
    /// Returns the faults of a run that starts now.
    pub(super) fn starting(row: &Row) -> Self {
        let ms = Duration::from_millis;
        let outages = row
            .outages
            .iter()
            .map(|outage| (ms(outage.at_ms), Fault::Outage(outage.node as usize, ms(outage.ms))));
        let kills = row.kill.iter().map(|kill| (ms(kill.at_ms), Fault::Kill(kill.node as usize)));
        let mut pending: Vec<_> = outages.chain(kills).collect();
        // The next one is the last.
        pending.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Self { start: Instant::now(), pending, killed: BTreeMap::new() }
    }

    /// Returns the time up to the next fault.
    pub(super) fn next_in(&self) -> Option<Duration> {
        let (at, _) = self.pending.last()?;
        Some((self.start + *at).saturating_duration_since(Instant::now()))
    }

    /// Causes the faults whose time has come. Returns after the end of an outage.
    pub(super) fn apply(&mut self, lab: &Lab, nodes: &mut Nodes) -> Result<(), Failure> {
        while self.next_in().is_some_and(|wait| wait.is_zero()) {
            match self.pending.pop() {
                Some((_, Fault::Outage(node, length))) => {
                    lab.hosts()[node].outage(length)?;
                }
                Some((_, Fault::Kill(node))) => {
                    self.killed.insert(node, CpuReading::of(&lab.hosts()[node])?);
                    nodes.kill(node)?;
                    // A node may have started a daemon, which must die with it.
                    leftovers::kill(&lab.hosts()[node])?;
                }
                None => break,
            }
        }
        Ok(())
    }
}
