use super::sent::Sent;
use crate::latencies::Latencies;
use crate::record::Record;

/// The deliveries of one receiver.
pub(super) struct Arrivals {
    /// Index of the node.
    index: usize,
    /// First delivery of each message, by sender and number.
    first: Vec<Vec<Option<u64>>>,
    pub(super) duplicates: u64,
    pub(super) unknown: u64,
}

impl Arrivals {
    pub(super) fn of(index: usize, delivered: &[Record], sent: &Sent) -> Self {
        let first = sent.times.iter().map(|times| vec![None; times.len()]).collect();
        let mut arrivals = Self { index, first, duplicates: 0, unknown: 0 };
        for record in delivered {
            if !sent.has(record) {
                arrivals.unknown += 1;
                continue;
            }
            let first = &mut arrivals.first[record.sender as usize][record.number as usize];
            arrivals.duplicates += u64::from(first.is_some());
            first.get_or_insert(record.at_ns);
        }
        arrivals
    }

    pub(super) fn first_ns(&self, sender: usize, number: usize) -> Option<u64> {
        self.first[sender][number]
    }

    pub(super) fn has_any_of(&self, sender: usize) -> bool {
        self.first[sender].iter().any(Option::is_some)
    }

    /// Returns the time of the last first delivery.
    pub(super) fn last_ns(&self) -> Option<u64> {
        self.first.iter().flatten().copied().flatten().max()
    }

    /// Returns the longest time between two deliveries.
    pub(super) fn silence_ns(&self) -> Option<u64> {
        self.times().windows(2).map(|pair| pair[1] - pair[0]).max()
    }

    /// Returns the bytes per second between the 10th and the 90th percentile of the deliveries.
    pub(super) fn goodput(&self, bytes: usize) -> Option<f64> {
        let times = self.times();
        let tenth = times.len() / 10;
        let steady = times.get(tenth..times.len() - tenth).filter(|_| tenth > 0)?;
        let span = steady.last()?.saturating_sub(*steady.first()?);
        (span > 0).then(|| ((steady.len() - 1) * bytes) as f64 * 1e9 / span as f64)
    }

    /// Returns the times of all first deliveries, in ascending order.
    fn times(&self) -> Vec<u64> {
        let mut times: Vec<u64> = self.first.iter().flatten().copied().flatten().collect();
        times.sort_unstable();
        times
    }
}

/// The times from the first to the last delivery of messages.
#[derive(Default)]
pub(super) struct Spread {
    pub(super) times: Latencies,
    /// Messages that at least two nodes other than their sender had to deliver.
    messages: u64,
}

impl Spread {
    /// Computes the spread of the messages that all `receivers` except their sender delivered.
    pub(super) fn of(receivers: &[Arrivals], sent: &Sent) -> Self {
        let mut spread = Self::default();
        for (sender, number, _) in sent.all() {
            let others = receivers.iter().filter(|it| it.index != sender);
            let times: Vec<Option<u64>> = others.map(|it| it.first_ns(sender, number)).collect();
            if times.len() < 2 {
                continue;
            }
            spread.messages += 1;
            let times: Option<Vec<u64>> = times.into_iter().collect();
            let ends = times.and_then(|times| Some((*times.iter().min()?, *times.iter().max()?)));
            if let Some((first, last)) = ends {
                spread.times.record(last - first);
            }
        }
        spread
    }

    /// Returns the share of messages without a spread, because a receiver lacks them.
    pub(super) fn left_out(&self) -> Option<f64> {
        let left_out = self.messages - self.times.count();
        (self.messages > 0).then(|| left_out as f64 / self.messages as f64)
    }
}
