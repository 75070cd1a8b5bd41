use crate::record::Record;

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
