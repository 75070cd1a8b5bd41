use super::arrivals::Arrivals;
use super::sent::Sent;
use crate::record::{BACKGROUND_BYTES, BACKGROUND_NS, NodeReport};

/// The load of a node while nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Length of the measurement in nanoseconds.
    pub span_ns: u64,
    /// Processor time of the node's processes in nanoseconds, if it is known.
    pub cpu_ns: Option<u64>,
    /// Packets that the node's interface received.
    pub packets: u64,
}

/// Returns the mean of processor times, in percent of one processor, over the time from the
/// first send call to the last send call or delivery. Returns `None` without nodes, or if the
/// time of one is not known.
pub(super) fn cpu_percent(
    times_ns: impl Iterator<Item = Option<u64>>,
    sent: &Sent,
    arrivals: &[Arrivals],
) -> Option<f64> {
    let span_ns = span_ns(sent, arrivals)?;
    let mean_ns = mean(times_ns.map(|ns| Some(ns? as f64)))?;
    Some(100.0 * mean_ns / span_ns as f64)
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

/// Returns the mean processor time of idle nodes, in percent of one processor.
pub(super) fn idle_cpu_percent(nodes: impl Iterator<Item = Option<Idle>>) -> Option<f64> {
    let percent = |idle: Idle| Some(100.0 * idle.cpu_ns? as f64 / idle.span_ns as f64);
    mean(nodes.map(|idle| percent(idle?)))
}

/// Returns the mean number of packets per second that idle nodes receive.
pub(super) fn idle_packets_per_second(nodes: impl Iterator<Item = Option<Idle>>) -> Option<f64> {
    let rate = |idle: Idle| 1e9 * idle.packets as f64 / idle.span_ns as f64;
    mean(nodes.map(|idle| idle.map(rate)))
}

/// Returns the mean. Returns `None` without values, or if one is not known.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn span_ns(sent: &Sent, arrivals: &[Arrivals]) -> Option<u64> {
    let first = sent.all().map(|(_, _, at_ns)| at_ns).min()?;
    let last_sent = sent.all().map(|(_, _, at_ns)| at_ns).max()?;
    let last = arrivals.iter().filter_map(Arrivals::last_ns).fold(last_sent, u64::max);
    Some(last - first).filter(|span| *span > 0)
}
