//! The files that a node writes at the end of a run: `sent.bin`, `delivered.bin`, `report.json`,
//! and `received.bin` if it has the kernel's times.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A message that was sent or delivered. In a file it has 16 bytes, all numbers little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Index of the sender.
    pub sender: u32,
    /// Number of the message among those of its sender.
    pub number: u32,
    /// `CLOCK_MONOTONIC` in nanoseconds: before the send call, or at the delivery.
    pub at_ns: u64,
}

/// The content of `report.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// Name and version of the system.
    pub system: String,
    /// Counters of the system, by name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Sentences on the run for the report, such as a limit of the machine that the node met.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// Name of the counter of the delivered bytes of a background transfer.
pub const BACKGROUND_BYTES: &str = "background_bytes";

/// Name of the counter of the time from the first to the last delivery of a background transfer, in
/// nanoseconds.
pub const BACKGROUND_NS: &str = "background_ns";

/// The files of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFiles {
    /// Messages in the order in which they were sent. Empty for a receiver.
    pub sent: Vec<Record>,
    /// Deliveries in their order, with duplicates. Empty for a sender.
    pub delivered: Vec<Record>,
    /// Times at which the kernel received the datagrams of `delivered`, by `CLOCK_MONOTONIC` in
    /// nanoseconds, in the same order. Empty if the node does not report them.
    pub received: Vec<u64>,
    /// Report of the node.
    pub report: NodeReport,
}

/// A file of a node could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file is inaccessible.
    #[error("cannot access {}: {error}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// The file does not consist of whole records.
    #[error("{} has {bytes} bytes: expected a multiple of {record}", path.display())]
    Torn {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file.
        bytes: usize,
        /// Size of a record.
        record: usize,
    },
    /// The times of the kernel are not those of the deliveries.
    #[error("{} has {times} times: expected {deliveries}, one for each delivery", path.display())]
    Received {
        /// Path of the file.
        path: PathBuf,
        /// Number of times.
        times: usize,
        /// Number of deliveries.
        deliveries: usize,
    },
    /// The report is not valid.
    #[error("{} is invalid: {error}", path.display())]
    Report {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: serde_json::Error,
    },
}

impl NodeFiles {
    /// Reads the files in `dir`. A missing file of records or times counts as empty, because a node
    /// writes only those of its role.
    ///
    /// # Errors
    /// Returns an error if a file is inaccessible or invalid, or if there is no report.
    pub fn read(dir: &Path) -> Result<Self, RecordError> {
        let path = dir.join(REPORT);
        let text =
            fs::read(&path).map_err(|error| RecordError::Io { path: path.clone(), error })?;
        let report =
            serde_json::from_slice(&text).map_err(|error| RecordError::Report { path, error })?;
        let [sent, delivered] =
            [SENT, DELIVERED].map(|name| read(&dir.join(name), Record::decoded));
        let (sent, delivered) = (sent?, delivered?);
        let path = dir.join(RECEIVED);
        let received = read(&path, u64::from_le_bytes)?;
        let (times, deliveries) = (received.len(), delivered.len());
        if times != 0 && times != deliveries {
            return Err(RecordError::Received { path, times, deliveries });
        }
        Ok(Self { sent, delivered, received, report })
    }

    /// Writes the report, and the records and times that are not empty.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), RecordError> {
        let encoded =
            |records: &[Record]| records.iter().flat_map(|it| it.encoded()).collect::<Vec<u8>>();
        let times = self.received.iter().flat_map(|time| time.to_le_bytes()).collect();
        let files =
            [(SENT, encoded(&self.sent)), (DELIVERED, encoded(&self.delivered)), (RECEIVED, times)];
        for (name, bytes) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            write(&dir.join(name), bytes)?;
        }
        let path = dir.join(REPORT);
        let text = serde_json::to_vec(&self.report);
        let text = text.map_err(|error| RecordError::Report { path: path.clone(), error })?;
        write(&path, &text)
    }
}

impl Record {
    fn encoded(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.sender.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes
    }

    fn decoded(bytes: [u8; RECORD_BYTES]) -> Self {
        let number = u128::from_le_bytes(bytes);
        let [sender, number, at_ns] = [number, number >> 32, number >> 64];
        Self { sender: sender as u32, number: number as u32, at_ns: at_ns as u64 }
    }
}

/// Reads a file of items of `N` bytes. A file that does not exist is empty.
fn read<const N: usize, T>(path: &Path, decode: fn([u8; N]) -> T) -> Result<Vec<T>, RecordError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RecordError::Io { path: path.to_owned(), error }),
    };
    match bytes.as_chunks() {
        (items, []) => Ok(items.iter().copied().map(decode).collect()),
        _ => Err(RecordError::Torn { path: path.to_owned(), bytes: bytes.len(), record: N }),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    fs::write(path, bytes).map_err(|error| RecordError::Io { path: path.to_owned(), error })
}

const RECORD_BYTES: usize = 16;
const SENT: &str = "sent.bin";
const DELIVERED: &str = "delivered.bin";
const RECEIVED: &str = "received.bin";
const REPORT: &str = "report.json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_its_golden_bytes() {
        let record = Record { sender: 1, number: 0x0203, at_ns: 0x0405_0607_0809 };
        let golden = [1, 0, 0, 0, 3, 2, 0, 0, 9, 8, 7, 6, 5, 4, 0, 0];
        assert_eq!(record.encoded(), golden);
        assert_eq!(Record::decoded(golden), record);
    }

    #[test]
    fn files_that_are_written_are_read() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let record = |number| Record { sender: 0, number, at_ns: u64::MAX };
        let counters = BTreeMap::from([("naks".to_owned(), 3)]);
        let remarks = vec!["small buffer".to_owned()];
        let report = NodeReport { system: "raw 1".to_owned(), counters, remarks };
        let (delivered, received) = (vec![record(1), record(1)], vec![7, 0x0102_0304_0506_0708]);
        let files = NodeFiles { sent: Vec::new(), delivered, received, report };
        files.write(dir.path()).expect("the folder is writable");
        assert!(!dir.path().join(SENT).exists(), "a receiver has sent nothing");
        assert_eq!(NodeFiles::read(dir.path()).expect("it was written"), files);
        let golden = [7, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(fs::read(dir.path().join(RECEIVED)).expect("it was written"), golden);
    }

    #[test]
    fn files_that_are_torn_missing_or_foreign_are_errors() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let error = || NodeFiles::read(dir.path()).expect_err("it is invalid").to_string();
        assert!(error().contains("cannot access") && error().contains(REPORT), "{}", error());
        fs::write(dir.path().join(REPORT), "{\"counters\": {}}").expect("the folder is writable");
        assert!(error().contains("missing field `system`"), "{}", error());
        NodeFiles::default().write(dir.path()).expect("the folder is writable");
        fs::write(dir.path().join(RECEIVED), [0; 8]).expect("the folder is writable");
        assert!(error().contains("1 times: expected 0, one for each delivery"), "{}", error());
        fs::write(dir.path().join(DELIVERED), [0; 17]).expect("the folder is writable");
        assert!(error().contains("17 bytes: expected a multiple of 16"), "{}", error());
    }
}
