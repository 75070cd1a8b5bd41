use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::payload::Payload;

/// A place in the total order. Places compare in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub(crate) struct Place {
    version: u32,
    /// Hash of the process that formed the ring.
    creator: u64,
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Process {
    pub(crate) host: u32,
    pub(crate) start: u32,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Delivery {
    pub(crate) message: Payload,
    pub(crate) seqno: u32,
    pub(crate) place: Option<Place>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Entry {
    Delivered(Delivery),
    /// Sequence numbers of a sender's stream that were reported lost, first and last.
    Lost {
        sender: u32,
        first: u32,
        last: u32,
        cause: String,
    },
    Removed {
        why: String,
    },
    Damaged {
        sender: u64,
    },
    Closed,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Line {
    Entry(Entry),
    Published(u64),
    Acknowledged(u64),
    GivenUp(u64, String),
    /// Number of members that lost messages, or `None` if `confirm` failed.
    Confirmed(Option<usize>),
    View {
        host: u32,
        is_there: bool,
    },
    /// A note for human readers, such as a join, an order, a failed publish, or a missing quorum.
    Note(String),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) entries: Vec<Entry>,
    pub(crate) published: u64,
    pub(crate) acknowledged: Vec<u64>,
    /// Messages that were reported to their sender as not delivered to all members.
    pub(crate) given_up: BTreeSet<u64>,
    pub(crate) confirmed: u64,
    pub(crate) view: BTreeSet<u32>,
}

pub(crate) type Records = BTreeMap<Process, Record>;

pub(crate) struct Streams(BTreeMap<Process, BTreeMap<u64, u32>>);

impl Record {
    /// Reads the record at `path`. An incomplete last line, which `kill -9` may leave, is ignored.
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut record = Self::default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let line = serde_json::from_str(line);
            record.add(line.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
        record
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Entry(entry) => self.entries.push(entry),
            Line::Published(number) => self.published = number,
            Line::Acknowledged(number) => self.acknowledged.push(number),
            Line::GivenUp(number, _) => drop(self.given_up.insert(number)),
            Line::Confirmed(incomplete) => self.confirmed += u64::from(incomplete == Some(0)),
            Line::View { host, is_there: true } => drop(self.view.insert(host)),
            Line::View { host, is_there: false } => drop(self.view.remove(&host)),
            Line::Note(_) => {}
        }
    }

    pub(crate) fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Delivered(delivery) => Some(delivery),
            _ => None,
        })
    }
}

impl Streams {
    pub(crate) fn of(records: &Records) -> Self {
        let mut streams: BTreeMap<Process, BTreeMap<u64, u32>> = BTreeMap::new();
        for Delivery { message, seqno, .. } in records.values().flat_map(Record::deliveries) {
            streams.entry(message.sender()).or_default().entry(message.number).or_insert(*seqno);
        }
        Self(streams)
    }

    pub(crate) fn has(&self, sender: Process) -> bool {
        self.0.contains_key(&sender)
    }

    pub(crate) fn seqno(&self, message: Payload) -> Option<u32> {
        self.0.get(&message.sender())?.get(&message.number).copied()
    }

    pub(crate) fn before(&self, message: Payload) -> Option<u32> {
        let stream = self.0.get(&message.sender())?;
        stream.range(..message.number).next_back().map(|(_, seqno)| *seqno)
    }

    pub(crate) fn after(&self, message: Payload) -> Option<u32> {
        let stream = self.0.get(&message.sender())?;
        stream.range(message.number + 1..).next().map(|(_, seqno)| *seqno)
    }
}

impl Place {
    pub(crate) fn of(place: carom::Place) -> Self {
        let mut hasher = DefaultHasher::new();
        place.ring.creator.hash(&mut hasher);
        Self { version: place.ring.version, creator: hasher.finish(), at: place.at.0 }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} (start {})", self.host, self.start)
    }
}
