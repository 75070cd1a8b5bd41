//! What a control process asks of a store, whichever it is.

use std::fmt;
use std::time::Instant;

use carom_proto::membership::service::server::{Commit, CommitFailure, CommitId};
use carom_proto::membership::service::{Change, Owners, PartitionState};

use crate::error::StoreError;
use crate::status::StoreStatus;

/// A store, and what it knows of who owns which partition.
///
/// Its owner calls [`Store::handle_time`] and [`Store::handle_report`] with whatever happens, then
/// does what [`Store::poll`] says until there is nothing more, and calls again by
/// [`Store::due`].
pub(crate) trait Store {
    /// What comes back from its threads and tasks.
    type Report: fmt::Debug + Send;

    /// Has a commit made of a partition whose state is `before`. What becomes of it comes as
    /// [`StoreEvent::Committed`].
    fn commit(&mut self, commit: Commit, before: &PartitionState);

    /// One of its threads or tasks has done something.
    fn handle_report(&mut self, now: Instant, report: Self::Report);

    /// Time has passed, perhaps while the whole process stood still.
    fn handle_time(&mut self, now: Instant);

    /// What the server has to be told next, in order.
    fn poll(&mut self) -> Option<StoreEvent>;

    /// When [`Store::handle_time`] has something to do.
    fn due(&self) -> Option<Instant>;

    /// What is known of the partition has a gap, and it is not owned any more: it has to come
    /// again as [`StoreEvent::Loaded`].
    fn reload(&mut self, partition: u16);

    /// Gives back what it owns. Nothing is committed after it.
    async fn close(&mut self);

    /// Whether this process knows what goes on. One that does not has no links: nodes are better
    /// served elsewhere, or go on with what they know.
    fn is_serving(&self) -> bool;

    /// What keeps this process from owning anything.
    fn trouble(&self) -> Option<&str>;

    /// Why it can never be used again, once: the process ends with this error. Default: it tries
    /// again by itself for as long as the process runs.
    fn take_failure(&mut self) -> Option<StoreError> {
        None
    }

    /// What an operator sees of it.
    fn status(&self) -> StoreStatus;
}

/// What the server has to be told.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "etcd"),
    expect(dead_code, reason = "the embedded store loses no partition, and follows none")
)]
pub(crate) enum StoreEvent {
    /// The result of a commit.
    Committed(CommitId, Result<(), CommitFailure>),
    /// A partition that is not owned here, as the store has it.
    Loaded(u16, PartitionState),
    /// A commit of the partition, by this process or another, after this version.
    Applied(u16, u64, Vec<Change>),
    /// This process decides about the partition from now on, in the state that was told last.
    Owned(u16),
    /// This process does not decide about the partition any more.
    Lost(u16),
    /// Who owns what.
    Owners(Owners),
}
