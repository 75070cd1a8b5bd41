//! The thread of the embedded store: it commits what has come together.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use carom_proto::membership::service::server::{Commit, CommitFailure, CommitId};
use tokio::sync::mpsc::UnboundedSender;

use crate::embedded::EmbeddedStore;

/// What became of a commit.
pub(crate) type Done = (CommitId, Result<(), CommitFailure>);

/// A thread that writes to the disk, so that the process need not wait for it.
#[derive(Debug)]
pub(crate) struct StoreThread {
    /// Of each partition one commit is on its way at a time, so that there are at most as many.
    commits: Option<Sender<Commit>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreThread {
    /// Starts it; what became of each commit goes to `done`.
    pub(crate) fn start(
        store: EmbeddedStore,
        done: UnboundedSender<Done>,
    ) -> std::io::Result<Self> {
        let (commits, receiver) = channel();
        let thread = thread::Builder::new()
            .name("carom-store".into())
            .spawn(move || serve(store, &receiver, &done))?;
        Ok(Self { commits: Some(commits), thread: Some(thread) })
    }

    /// Has a commit made.
    pub(crate) fn commit(&self, commit: Commit) {
        if let Some(commits) = &self.commits {
            // The thread ends only after this half of the channel.
            let _ = commits.send(commit);
        }
    }
}

impl Drop for StoreThread {
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
fn serve(mut store: EmbeddedStore, commits: &Receiver<Commit>, done: &UnboundedSender<Done>) {
    while let Ok(first) = commits.recv() {
        let mut together = vec![first];
        together.extend(commits.try_iter());
        let result = store.commit(&together);
        for commit in together {
            // Nobody waits any more when the process ends.
            let _ = done.send((commit.id, result));
        }
    }
}
