//! Decisions about partitions: which ones this process owns, claims and hands over.
//!
//! # Ownership
//!
//! The owner key of a partition is written by a transaction that requires its absence. The revision
//! of that transaction is the *term*, and every commit compares it. A process that sees its own
//! owner key in the watch has already seen all commits of earlier owners, and no commit of theirs
//! can follow. The state that it has followed is therefore the state that it owns.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use carom_proto::Endpoint;
use carom_proto::membership::service::server::{CommitFailure, CommitId};
use carom_proto::membership::service::{Owners, PartitionState};

use super::records::CommitRecord;
use super::rendezvous::{Registered, entitled};
use crate::store::StoreEvent;

/// Cluster as seen by one process.
#[derive(Debug)]
pub(super) struct Ownership {
    lease: Option<i64>,
    /// Previous lease, which etcd may still consider valid.
    lapsed: Option<i64>,
    processes: BTreeMap<i64, Registered>,
    partitions: Vec<Partition>,
    assigned: Vec<Option<i64>>,
    /// Revision up to which the watched keys are known; 0 before the first snapshot.
    revision: i64,
    is_dirty: bool,
    /// `true` if a partition was lost: commits that were in flight may have taken effect.
    is_incomplete: bool,
    reported_owners: Option<Owners>,
    events: VecDeque<StoreEvent>,
    pub(super) counters: Counters,
}

carom_proto::counters! {
    pub(super) struct Counters {
        snapshots = "store_snapshots",
        /// Commits of all processes seen by the watch.
        commits_seen = "store_commits_seen",
        /// Requests to create an owner key.
        claims = "store_takes",
        /// Requests to delete an owner key, for a handover to another process.
        handovers = "store_gifts",
    }
}

#[derive(Clone, Debug, Default)]
struct Partition {
    owner: Option<Owner>,
    /// Revision of the last commit that was seen or made.
    commit_revision: i64,
    is_loaded: bool,
    /// Term in which the server of this process owns the partition.
    term: Option<i64>,
    /// Commit in flight, and the revision of the commit before it.
    in_flight: Option<(CommitId, i64)>,
    /// Commit with an unknown outcome, and the revision of the commit before it.
    unsure: Option<(CommitId, i64)>,
    key_request: KeyRequest,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KeyRequest {
    #[default]
    None,
    Pending,
    /// Done at this revision, which the watch has not reached yet.
    Done(i64),
    /// Failed. It is not repeated before this time.
    Failed(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(super) lease: i64,
    pub(super) address: std::net::SocketAddr,
    /// Revision at which the owner key was created.
    pub(super) term: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(super) revision: i64,
    pub(super) processes: BTreeMap<i64, Registered>,
    pub(super) partitions: BTreeMap<u16, PartitionSnapshot>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionSnapshot {
    pub(super) owner: Option<Owner>,
    pub(super) commit_revision: i64,
    pub(super) state: PartitionState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchEvent {
    pub(super) revision: i64,
    pub(super) change: KeyChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyChange {
    Process(i64, Option<Registered>),
    Owner(u16, Option<Owner>),
    Commit(u16, CommitRecord),
    /// The commit key of the partition was deleted or is malformed. All data must be read again.
    Damage(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Claim { partition: u16, lease: i64 },
    Release { partition: u16, term: i64 },
    Reload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) term: i64,
    pub(super) commit_revision: i64,
    /// `true` if an earlier attempt may have taken effect.
    pub(super) is_unsure: bool,
}

const PAUSE: Duration = Duration::from_millis(500);

impl Ownership {
    pub(super) fn new(partitions: u16) -> Self {
        Self {
            lease: None,
            lapsed: None,
            processes: BTreeMap::new(),
            partitions: vec![Partition::default(); usize::from(partitions)],
            assigned: vec![None; usize::from(partitions)],
            revision: 0,
            is_dirty: false,
            is_incomplete: false,
            reported_owners: None,
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    pub(super) fn register(&mut self, lease: i64) {
        (self.lease, self.is_dirty) = (Some(lease), true);
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.revision > 0
    }

    /// Gives up all partitions, because this process can no longer prove that it is alive.
    pub(super) fn lapse(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.lapsed = Some(lease);
            self.processes.remove(&lease);
            self.assign_partitions();
        }
        for partition in 0..self.partitions.len() {
            self.lose(partition as u16);
            self.partitions[partition].key_request = KeyRequest::None;
        }
        self.report_owners();
    }

    pub(super) fn load(&mut self, snapshot: Snapshot) {
        self.counters.snapshots += 1;
        let Snapshot { revision, processes, partitions: mut read } = snapshot;
        (self.revision, self.processes) = (revision, processes);
        self.processes.retain(|lease, _| Some(*lease) != self.lapsed);
        self.assign_partitions();
        for (partition, entry) in (0..).zip(&mut self.partitions) {
            let found = read.remove(&partition).unwrap_or_default();
            entry.owner = found.owner;
            let is_own = found.owner.is_some_and(|owner| Some(owner.term) == entry.term);
            if is_own {
                // The state of an owned partition is newer here than in any snapshot.
                continue;
            }
            if entry.term.take().is_some() {
                (entry.in_flight, entry.unsure) = (None, None);
                self.events.push_back(StoreEvent::Lost(partition));
            }
            (entry.commit_revision, entry.is_loaded) = (found.commit_revision, true);
            self.events.push_back(StoreEvent::Loaded(partition, found.state));
        }
    }

    pub(super) fn on_watch_event(&mut self, event: WatchEvent) -> Option<Request> {
        let WatchEvent { revision, change } = event;
        self.revision = self.revision.max(revision);
        match change {
            KeyChange::Process(lease, None) => {
                self.processes.remove(&lease);
                self.assign_partitions();
            }
            KeyChange::Process(lease, Some(process)) => {
                self.processes.insert(lease, process);
                self.assign_partitions();
            }
            KeyChange::Owner(partition, owner) => {
                self.is_dirty = true;
                if let Some(entry) = self.partitions.get_mut(usize::from(partition)) {
                    entry.owner = owner;
                }
            }
            KeyChange::Commit(partition, record) => {
                let entry = self.partitions.get_mut(usize::from(partition))?;
                entry.commit_revision = entry.commit_revision.max(revision);
                self.counters.commits_seen += 1;
                let CommitRecord { after, changes, .. } = record;
                self.events.push_back(StoreEvent::Applied(partition, after, changes));
            }
            KeyChange::Damage(partition) => {
                self.lose(partition);
                return Some(self.reload(partition));
            }
        }
        None
    }

    pub(super) fn reload(&mut self, partition: u16) -> Request {
        if let Some(entry) = self.partitions.get_mut(usize::from(partition)) {
            (entry.is_loaded, entry.term) = (false, None);
            (entry.in_flight, entry.unsure) = (None, None);
        }
        Request::Reload
    }

    /// Claims, owns, loses and hands over partitions. Returns the requests to etcd for this.
    pub(super) fn update(&mut self, now: Instant) -> Vec<Request> {
        let mut requests = Vec::new();
        if !std::mem::take(&mut self.is_dirty) && self.due().is_none_or(|due| due > now) {
            return requests;
        }
        for partition in 0..self.partitions.len() as u16 {
            requests.extend(self.update_partition(now, partition));
        }
        self.report_owners();
        requests.extend(std::mem::take(&mut self.is_incomplete).then_some(Request::Reload));
        requests
    }

    fn update_partition(&mut self, now: Instant, partition: u16) -> Option<Request> {
        let assignee = self.assigned[usize::from(partition)];
        let entry = &mut self.partitions[usize::from(partition)];
        entry.key_request = match entry.key_request {
            KeyRequest::Done(revision) if revision <= self.revision => KeyRequest::None,
            KeyRequest::Failed(until) if until <= now => KeyRequest::None,
            key_request => key_request,
        };
        let own_term = self.lease.and_then(|lease| entry.term_of(lease));
        if entry.term.is_some() && entry.term != own_term {
            self.lose(partition);
        }
        let lease = self.lease?;
        let entry = &mut self.partitions[usize::from(partition)];
        let is_assigned = assignee == Some(lease);
        match own_term {
            Some(_) if is_assigned && entry.may_be_owned() => {
                entry.term = own_term;
                self.events.push_back(StoreEvent::Owned(partition));
            }
            Some(term) if !is_assigned && assignee.is_some() && entry.in_flight.is_none() => {
                self.lose(partition);
                let entry = &mut self.partitions[usize::from(partition)];
                if entry.key_request == KeyRequest::None {
                    entry.key_request = KeyRequest::Pending;
                    self.counters.handovers += 1;
                    return Some(Request::Release { partition, term });
                }
            }
            None if is_assigned && entry.may_be_claimed() => {
                entry.key_request = KeyRequest::Pending;
                self.counters.claims += 1;
                return Some(Request::Claim { partition, lease });
            }
            _ => {}
        }
        None
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let pauses = self.partitions.iter().filter_map(|entry| match entry.key_request {
            KeyRequest::Failed(until) => Some(until),
            _ => None,
        });
        pauses.min()
    }

    /// Handles the answer to a request for the owner key. `done` is the revision of a success.
    pub(super) fn on_answer(&mut self, now: Instant, partition: u16, done: Option<i64>) {
        let entry = &mut self.partitions[usize::from(partition)];
        self.is_dirty = true;
        if entry.key_request == KeyRequest::Pending {
            entry.key_request = match done {
                Some(revision) => KeyRequest::Done(revision),
                None => KeyRequest::Failed(now + PAUSE),
            };
        }
    }

    /// Returns the conditions of a commit, or `None` if this process does not own the partition.
    pub(super) fn begin_commit(&mut self, partition: u16, id: CommitId) -> Option<Fence> {
        let entry = &mut self.partitions[usize::from(partition)];
        let term = entry.term?;
        // The watch may have reported the earlier attempt: compare the revision from before it.
        let unsure = entry.unsure.filter(|(unsure, _)| *unsure == id);
        let (_, commit_revision) =
            *entry.in_flight.insert(unsure.unwrap_or((id, entry.commit_revision)));
        Some(Fence { term, commit_revision, is_unsure: unsure.is_some() })
    }

    /// Handles the result of a commit, unless the commit was given up meanwhile.
    pub(super) fn end_commit(
        &mut self,
        partition: u16,
        id: CommitId,
        result: Result<i64, CommitFailure>,
    ) -> Option<Request> {
        let entry = &mut self.partitions[usize::from(partition)];
        let attempt = entry.in_flight.take_if(|(known, _)| *known == id)?;
        self.is_dirty |= self.assigned[usize::from(partition)] != self.lease;
        entry.unsure = (result == Err(CommitFailure::Unknown)).then_some(attempt);
        if let Ok(revision) = result {
            entry.commit_revision = entry.commit_revision.max(revision);
        }
        self.events.push_back(StoreEvent::Committed(id, result.map(|_| ())));
        // The watch lags behind the result of the transaction. Reading all data catches up.
        (result == Err(CommitFailure::Deposed)).then(|| self.reload(partition))
    }

    pub(super) fn refuse_commit(&mut self, id: CommitId) {
        self.events.push_back(StoreEvent::Committed(id, Err(CommitFailure::Deposed)));
    }

    pub(super) fn poll(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = &Registered> {
        self.processes.values()
    }

    fn assign_partitions(&mut self) {
        self.is_dirty = true;
        for (partition, assignee) in (0..).zip(&mut self.assigned) {
            *assignee = entitled(partition, &self.processes);
        }
    }

    fn lose(&mut self, partition: u16) {
        let Some(entry) = self.partitions.get_mut(usize::from(partition)) else { return };
        if entry.term.take().is_some() {
            (entry.in_flight, entry.unsure) = (None, None);
            entry.is_loaded = false;
            self.is_incomplete = true;
            self.events.push_back(StoreEvent::Lost(partition));
        }
    }

    /// Reports the registered owners, if they changed. Keys of other owners are about to end.
    fn report_owners(&mut self) {
        let owned = (0..).zip(&self.partitions).filter_map(|(partition, entry)| {
            let owner = entry.owner.filter(|owner| self.processes.contains_key(&owner.lease))?;
            Some((partition, Endpoint(owner.address)))
        });
        let owned = owned.collect();
        let owners = Owners { partitions: self.partitions.len() as u16, owned };
        if self.reported_owners.as_ref() != Some(&owners) {
            self.reported_owners = Some(owners.clone());
            self.events.push_back(StoreEvent::Owners(owners));
        }
    }
}

impl Partition {
    fn term_of(&self, lease: i64) -> Option<i64> {
        self.owner.filter(|owner| owner.lease == lease).map(|owner| owner.term)
    }

    /// Returns `true` if the partition may be owned when its owner key is that of this process.
    /// With a request in flight, the known key may be one that this process has deleted.
    fn may_be_owned(&self) -> bool {
        let is_unsettled = matches!(self.key_request, KeyRequest::Pending | KeyRequest::Done(_));
        self.is_loaded && self.term.is_none() && !is_unsettled
    }

    fn may_be_claimed(&self) -> bool {
        self.owner.is_none() && self.is_loaded && self.key_request == KeyRequest::None
    }
}

#[cfg(test)]
#[path = "ownership_tests.rs"]
mod tests;
