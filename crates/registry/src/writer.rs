//! Thread of the embedded store. It combines waiting commits into one transaction.

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
use crate::error::{RegistryError, StoreError};
use crate::status::StoreStatus;
use crate::store::{Store, StoreEvent};

/// Embedded store with a thread that writes to the disk, so that the process never waits for the
/// disk. The process owns all partitions for its lifetime.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Commits for the thread. At most one per partition is in flight, which bounds the channel.
    commits: Option<Sender<Commit>>,
    thread: Option<JoinHandle<()>>,
    /// Events for the server. After the initial events, there is at most one per partition.
    events: VecDeque<StoreEvent>,
    failure: Option<StoreError>,
}

#[derive(Debug)]
pub(crate) enum Report {
    Done(CommitId, Result<(), CommitFailure>),
    /// The store can no longer be used. The thread ends.
    Failed(StoreError),
}

impl Writer {
    /// Reads all partitions, and starts the thread. Results of commits are sent to `reports`.
    pub(crate) fn start(
        store: EmbeddedStore,
        partitions: u16,
        address: SocketAddr,
        reports: mpsc::Sender<Report>,
    ) -> Result<Self, RegistryError> {
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
            .map_err(RegistryError::Start)?;
        Ok(Self { commits: Some(commits), thread: Some(thread), events, failure: None })
    }
}

impl Store for Writer {
    type Report = Report;

    fn commit(&mut self, commit: Commit, _before: &PartitionState) {
        if let Some(commits) = &self.commits {
            // The thread ends only after this sender is dropped, unless it has failed.
            if commits.send(commit).is_err() && self.failure.is_none() {
                let error = "the writing thread has ended".into();
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
        debug_assert!(false, "partition {partition} of an embedded store has a gap");
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
    /// Writes all submitted commits, and ends the thread.
    fn drop(&mut self) {
        self.commits = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Stores commits until the store fails or the sender is dropped. Waiting ones share a transaction.
fn serve(mut store: EmbeddedStore, commits: &Receiver<Commit>, reports: &mpsc::Sender<Report>) {
    while let Ok(first) = commits.recv() {
        let mut together = vec![first];
        together.extend(commits.try_iter());
        // The receiver may be gone when the process ends.
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
