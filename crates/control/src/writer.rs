//! The thread of the embedded store: it commits what has come together.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use carom_proto::Endpoint;
use carom_proto::membership::service::server::{Commit, CommitFailure, CommitId};
use carom_proto::membership::service::{Owners, PartitionState};
use tokio::sync::mpsc;

use crate::embedded::EmbeddedStore;
use crate::error::{ControlError, StoreError};
use crate::status::StoreStatus;
use crate::store::{Store, StoreEvent};

/// The embedded store with a thread that writes to the disk, so that the process need not wait for
/// it. Its process owns all partitions for ever.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Of each partition one commit is on its way at a time, so that there are at most as many.
    commits: Option<Sender<Commit>>,
    thread: Option<JoinHandle<()>>,
    /// What the server is told, at most an answer for each partition once it knows the store.
    events: VecDeque<StoreEvent>,
    /// Why the thread has ended before its time.
    failure: Option<StoreError>,
}

/// A report of the thread.
#[derive(Debug)]
pub(crate) enum Report {
    /// The result of a commit.
    Done(CommitId, Result<(), CommitFailure>),
    /// The store cannot be used any more; the thread ends.
    Failed(StoreError),
}

impl Writer {
    /// Reads all partitions for the process at `address`, and starts the thread; what became of
    /// each commit goes to `reports`.
    ///
    /// # Errors
    /// The store cannot be read, or there is no thread to be had.
    pub(crate) fn start(
        store: EmbeddedStore,
        partitions: u16,
        address: SocketAddr,
        reports: mpsc::Sender<Report>,
    ) -> Result<Self, ControlError> {
        let mut events = VecDeque::new();
        for partition in 0..partitions {
            events.push_back(StoreEvent::Loaded(partition, store.load(partition)?));
            events.push_back(StoreEvent::Owned(partition));
        }
        let owned = (0..partitions).map(|partition| (partition, Endpoint(address))).collect();
        events.push_back(StoreEvent::Owners(Owners { partitions, owned }));
        let (commits, receiver) = channel();
        let thread = thread::Builder::new()
            .name("carom-store".into())
            .spawn(move || serve(store, &receiver, &reports))
            .map_err(ControlError::Start)?;
        Ok(Self { commits: Some(commits), thread: Some(thread), events, failure: None })
    }
}

impl Store for Writer {
    type Report = Report;

    fn commit(&mut self, commit: Commit, _before: &PartitionState) {
        if let Some(commits) = &self.commits {
            // The thread ends after this half of the channel. If it has not, it has failed.
            if commits.send(commit).is_err() && self.failure.is_none() {
                let error = "its thread has ended".into();
                self.failure = Some(StoreError::Failed { error, is_full: false });
            }
        }
    }

    fn handle_report(&mut self, _now: Instant, report: Report) {
        match report {
            Report::Done(commit, result) => {
                self.events.push_back(StoreEvent::Committed(commit, result));
            }
            Report::Failed(error) => self.failure = Some(error),
        }
    }

    fn handle_time(&mut self, _now: Instant) {}

    fn poll(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    fn due(&self) -> Option<Instant> {
        None
    }

    fn reload(&mut self, partition: u16) {
        debug_assert!(false, "partition {partition} of a store of one process has a gap");
    }

    async fn close(&mut self) {}

    fn is_serving(&self) -> bool {
        true
    }

    fn trouble(&self) -> Option<&str> {
        None
    }

    fn take_failure(&mut self) -> Option<StoreError> {
        self.failure.take()
    }

    fn status(&self) -> StoreStatus {
        StoreStatus::embedded()
    }
}

impl Drop for Writer {
    /// What was handed over is written before.
    fn drop(&mut self) {
        self.commits = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes all commits that wait in one transaction: a write to the disk costs the same for one
/// partition as for all.
fn serve(mut store: EmbeddedStore, commits: &Receiver<Commit>, reports: &mpsc::Sender<Report>) {
    while let Ok(first) = commits.recv() {
        let mut together = vec![first];
        together.extend(commits.try_iter());
        // Nobody waits for a report any more when the process ends.
        match store.commit(&together) {
            Ok(result) => {
                for commit in together {
                    let _ = reports.blocking_send(Report::Done(commit.id, result));
                }
            }
            Err(error) => {
                let _ = reports.blocking_send(Report::Failed(error));
                return;
            }
        }
    }
}
