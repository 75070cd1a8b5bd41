use super::arrivals::Arrivals;
use super::sent::Sent;
use crate::record::{BACKGROUND_BYTES, BACKGROUND_NS, NodeReport};

/// Returns the mean of processor times, in percent of one processor, over the time from the
/// first send call to the last send call or delivery. Returns `None` without nodes, or if the
/// time of one is not known.
pub(super) fn cpu_percent(
    times_ns: impl Iterator<Item = Option<u64>>,
    sent: &Sent,
    arrivals: &[Arrivals],
) -> Option<f64> {
    let span_ns = span_ns(sent, arrivals)?;
    let all: Vec<u64> = times_ns.collect::<Option<_>>()?;
    let mean_ns = all.iter().sum::<u64>() as f64 / all.len() as f64;
    (!all.is_empty()).then(|| 100.0 * mean_ns / span_ns as f64)
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
