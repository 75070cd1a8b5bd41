use crate::latencies::Latencies;
use crate::record::Record;
use crate::schedule;

/// The times of all sent messages, addressed by sender and number.
pub(super) struct Sent {
    pub(super) times: Vec<Vec<Option<u64>>>,
}

impl Sent {
    /// The place of a node's records is its index.
    pub(super) fn of<'a>(sent: impl Iterator<Item = &'a [Record]>) -> Self {
        Self { times: sent.map(times).collect() }
    }

    pub(super) fn has(&self, record: &Record) -> bool {
        let times = self.times.get(record.sender as usize);
        times.and_then(|times| *times.get(record.number as usize)?).is_some()
    }

    pub(super) fn count(&self) -> u64 {
        self.all().count() as u64
    }

    /// Returns the time by which each send call was later than its schedule, at a rate in messages
    /// per second. Returns nothing at the rate 0.
    pub(super) fn delays(&self, rate: f64) -> Latencies {
        let mut delays = Latencies::default();
        let due_ns = |number: usize| schedule::offset(rate, number as u32).as_nanos() as u64;
        for times in self.times.iter().filter(|_| rate > 0.0) {
            let sent = times.iter().enumerate();
            let sent = sent.filter_map(|(number, at_ns)| Some((due_ns(number), (*at_ns)?)));
            // No sender is early, so that its schedule began no later. The first send call alone
            // would make all others early if it was late.
            let start_ns = sent.clone().map(|(due_ns, at_ns)| at_ns.saturating_sub(due_ns)).min();
            let Some(start_ns) = start_ns else { continue };
            sent.for_each(|(due_ns, at_ns)| delays.record(at_ns - start_ns - due_ns));
        }
        delays
    }

    /// Returns the sender, number and time of all messages.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, usize, u64)> {
        self.times.iter().enumerate().flat_map(|(sender, times)| {
            let sent = times.iter().enumerate();
            sent.filter_map(move |(number, time)| Some((sender, number, (*time)?)))
        })
    }
}

/// Returns the first time of each number.
fn times(records: &[Record]) -> Vec<Option<u64>> {
    let length = records.iter().map(|record| record.number as usize + 1).max().unwrap_or(0);
    let mut times = vec![None; length];
    for record in records {
        times[record.number as usize].get_or_insert(record.at_ns);
    }
    times
}
