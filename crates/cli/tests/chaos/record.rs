//! Records that the members leave.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use crate::payload::Payload;

/// Place in the total order. Places compare in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Payload,
    pub(crate) seqno: u32,
    pub(crate) place: Option<Place>,
}

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Delivered(Delivery),
    /// Sequence numbers of a sender's stream that were reported lost, first and last.
    Lost {
        sender: u32,
        first: u32,
        last: u32,
    },
    Removed,
    Damaged,
    Closed,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) entries: Vec<Entry>,
    pub(crate) published: u64,
    pub(crate) acknowledged: Vec<u64>,
    /// Messages that were reported to their sender as not delivered to all members.
    pub(crate) given_up: BTreeSet<u64>,
    pub(crate) confirmed: u64,
    /// Hosts of the members in view at the end.
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
            record.add(line).unwrap_or_else(|| panic!("{}: {line:?}", path.display()));
        }
        record
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        match words.next()? {
            "P" => self.published = words.next()?.parse().ok()?,
            "A" => self.acknowledged.push(words.next()?.parse().ok()?),
            "G" => drop(self.given_up.insert(words.next()?.parse().ok()?)),
            "S" => self.confirmed += u64::from(words.next()? == "0"),
            "!" => self.entries.push(Entry::Damaged),
            "C" => self.entries.push(Entry::Closed),
            "R" => self.entries.push(Entry::Removed),
            "L" => {
                let mut number = || words.next()?.parse().ok();
                let (sender, first, last) = (number()?, number()?, number()?);
                self.entries.push(Entry::Lost { sender, first, last });
            }
            "M" => {
                let mut number = || words.next()?.parse().ok();
                let (host, start) = (number()?, number()?);
                let number = words.next()?.parse().ok()?;
                let seqno = words.next()?.parse().ok()?;
                let place = match words.next() {
                    Some(place) => Some(Place::parse(place)?),
                    None => None,
                };
                let message = Payload { host, start, number };
                self.entries.push(Entry::Delivered(Delivery { message, seqno, place }));
            }
            "V" => {
                let host = words.next()?.parse().ok()?;
                match words.next()? {
                    "Joined" => self.view.insert(host),
                    _ => self.view.remove(&host),
                };
            }
            // For readers: joined, order of the harness, failed publish, ring without a quorum.
            "J" | "#" | "X" | "N" => {}
            _ => return None,
        }
        Some(())
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

    /// Returns the sequence number of the message, if any member received it.
    pub(crate) fn seqno(&self, message: Payload) -> Option<u32> {
        self.0.get(&message.sender())?.get(&message.number).copied()
    }

    /// Returns the number of the nearest message before `message` that any member received.
    pub(crate) fn before(&self, message: Payload) -> Option<u32> {
        let stream = self.0.get(&message.sender())?;
        stream.range(..message.number).next_back().map(|(_, seqno)| *seqno)
    }

    /// Returns the sequence number of the nearest message after `message` that any member received.
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

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let mut next = || parts.next()?.parse::<u64>().ok();
        Some(Self { version: u32::try_from(next()?).ok()?, creator: next()?, at: next()? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.version, self.creator, self.at)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} (start {})", self.host, self.start)
    }
}
