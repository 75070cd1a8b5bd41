use carom_proto::membership::service::server::{CommitFailure, CommitId};

use super::client::Trouble;
use super::ownership::{Snapshot, WatchEvent};
use super::requests::Lease;

/// Report of a task. A report of a follower carries its generation.
#[derive(Debug)]
pub(crate) enum Report {
    Registered(Lease),
    /// Registration failed. The lease, if given, may have to be revoked.
    NotRegistered(Option<i64>, String),
    Renewed(Lease),
    NotRenewed(i64, Trouble),
    Answered(u16, Result<Option<i64>, Trouble>),
    Committed(u16, CommitId, Result<i64, CommitFailure>),
    Snapshot(u64, Snapshot),
    Watched(u64, Vec<WatchEvent>),
    /// The watch was interrupted. It continues, or all data is read again.
    Interrupted(u64, String),
    /// Reading all data failed. It is retried.
    ReadFailed(u64, String),
}
