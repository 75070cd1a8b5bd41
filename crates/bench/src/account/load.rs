use super::arrivals::Arrivals;
use super::sent::Sent;
use crate::record::{BACKGROUND_BYTES, BACKGROUND_NS, NodeReport};

/// Returns the mean processor time of nodes, in percent of one processor, over the time from the
/// first send call to the last send call or delivery. Returns `None` without nodes.
pub(super) fn cpu_percent<'a>(
    nodes: impl Iterator<Item = &'a NodeReport>,
    sent: &Sent,
    arrivals: &[Arrivals],
) -> Option<f64> {
    let span_ns = span_ns(sent, arrivals)?;
    let times: Vec<u64> = nodes.map(NodeReport::cpu_us_of_run).collect();
    let mean_us = times.iter().sum::<u64>() as f64 / times.len() as f64;
    (!times.is_empty()).then(|| 100.0 * mean_us * 1e3 / span_ns as f64)
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

fn span_ns(sent: &Sent, arrivals: &[Arrivals]) -> Option<u64> {
    let first = sent.all().map(|(_, _, at_ns)| at_ns).min()?;
    let last_sent = sent.all().map(|(_, _, at_ns)| at_ns).max()?;
    let last = arrivals.iter().filter_map(Arrivals::last_ns).fold(last_sent, u64::max);
    Some(last - first).filter(|span| *span > 0)
}
