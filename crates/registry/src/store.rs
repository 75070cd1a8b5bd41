use std::fmt;
use std::time::Instant;

use carom_proto::membership::service::server::{Commit, CommitFailure, CommitId};
use carom_proto::membership::service::{Change, Owners, PartitionState};

use crate::error::StoreError;
use crate::status::StoreStatus;

/// Store of partitions, and source of their ownership. The process calls [`Store::handle_time`]
/// before it handles an input and at the time of [`Store::due`], and [`Store::handle_report`] with
/// every report. After each call, it passes all events of [`Store::poll`] to the server.
pub(crate) trait Store {
    type Report: fmt::Debug + Send;

    /// Starts a commit to a partition in the state `before`. [`StoreEvent::Committed`] follows
    /// unless the process loses the partition first.
    fn commit(&mut self, commit: Commit, before: &PartitionState);

    fn handle_report(&mut self, now: Instant, report: Self::Report);

    /// Handles the passage of time, which may include a stall of the whole process.
    fn handle_time(&mut self, now: Instant);

    fn poll(&mut self) -> Option<StoreEvent>;

    fn due(&self) -> Option<Instant>;

    /// Requests the state of a partition, because it is unknown or a change is missing. The process
    /// does not own the partition until [`StoreEvent::Loaded`] and [`StoreEvent::Owned`] follow.
    fn reload(&mut self, partition: u16);

    /// Releases the owned partitions to other processes, if any. No further commit may be started.
    async fn close(&mut self);

    /// Returns `true` if this process may own partitions. If it may not, it closes its connections:
    /// nodes are better served by another process, or by the members that they know.
    fn is_serving(&self) -> bool;

    /// Returns the current problem of the store, if any.
    fn trouble(&self) -> Option<&str>;

    /// Takes the error that made the store unusable, if there is one. The process then ends with
    /// this error. The default implementation returns `None`, for a store that retries forever.
    fn take_failure(&mut self) -> Option<StoreError> {
        None
    }

    fn status(&self) -> StoreStatus;
}

/// Event for the server.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "etcd"),
    expect(dead_code, reason = "the embedded store loses no partition, and follows none")
)]
pub(crate) enum StoreEvent {
    Committed(CommitId, Result<(), CommitFailure>),
    /// Stored state of a partition that this process does not own.
    Loaded(u16, PartitionState),
    /// Commit to the partition after this version, by this process or another.
    Applied(u16, u64, Vec<Change>),
    /// This process owns the partition from now on, in the state last reported.
    Owned(u16),
    Lost(u16),
    Owners(Owners),
}
