use crate::record::{BACKGROUND_BYTES, BACKGROUND_NS, NodeReport};

/// The processor time of the processes of one node, between two readings of their clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Processor time in nanoseconds: user and system, of all processes.
    pub used_ns: u64,
    /// Time between the readings in nanoseconds.
    pub span_ns: u64,
}

/// Returns the processor time of all nodes in microseconds. Returns `None` if that of one is not
/// known.
pub(super) fn cpu_us(nodes: impl Iterator<Item = Option<Cpu>>) -> Option<f64> {
    let used_ns: Option<u64> = nodes.map(|cpu| Some(cpu?.used_ns)).sum();
    used_ns.map(|ns| ns as f64 / 1e3)
}

/// Returns the mean processor time of nodes, in percent of one processor. Returns `None` without
/// nodes, or if that of one is not known.
pub(super) fn cpu_percent(nodes: impl Iterator<Item = Option<Cpu>>) -> Option<f64> {
    let percent = |cpu: Cpu| 100.0 * cpu.used_ns as f64 / cpu.span_ns as f64;
    let all: Vec<f64> = nodes.map(|cpu| cpu.map(percent)).collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// Returns the bytes per second of the background transfer at the slowest receiver. Returns `None`
/// if a receiver has none.
pub(super) fn background_slowest<'a>(
    receivers: impl Iterator<Item = &'a NodeReport>,
) -> Option<f64> {
    let rates = receivers.map(|report| {
        let counters = &report.counters;
        let (bytes, ns) = (counters.get(BACKGROUND_BYTES)?, counters.get(BACKGROUND_NS)?);
        (*ns > 0).then(|| *bytes as f64 * 1e9 / *ns as f64)
    });
    let rates: Vec<f64> = rates.collect::<Option<_>>()?;
    rates.into_iter().reduce(f64::min)
}
