//! Decisions about partitions: which of them this process owns, takes and hands over, given the
//! state of the cluster in etcd.
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
pub(super) struct Holdings {
    /// Valid lease of this process.
    lease: Option<i64>,
    /// Previous lease, which etcd may still consider valid.
    lapsed: Option<i64>,
    processes: BTreeMap<i64, Registered>,
    shares: Vec<Share>,
    /// Process entitled to each partition.
    heirs: Vec<Option<i64>>,
    /// Revision up to which the watched keys are known; 0 before the first snapshot.
    revision: i64,
    /// `true` if partitions may have to be taken, owned, lost or handed over.
    is_dirty: bool,
    /// `true` if a partition was lost. Its state must be read again, because commits that were in
    /// flight may have taken effect.
    is_incomplete: bool,
    told: Option<Owners>,
    events: VecDeque<StoreEvent>,
    pub(super) counters: Counters,
}

carom_proto::counters! {
    pub(super) struct Counters {
        /// Snapshots read.
        snapshots = "store_snapshots",
        /// Commits of all processes seen by the watch.
        commits_seen = "store_commits_seen",
        /// Requests to create an owner key.
        takes = "store_takes",
        /// Requests to delete an owner key, for a handover to another process.
        gifts = "store_gifts",
    }
}

/// State of one partition.
#[derive(Clone, Debug, Default)]
struct Share {
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
    asked: Asked,
}

/// State of a request about an owner key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    No,
    Waiting,
    /// Done at this revision, which the watch has not reached yet.
    Done(i64),
    /// Failed. It is not repeated before this time.
    InVain(Instant),
}

/// Owner of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(super) lease: i64,
    pub(super) address: std::net::SocketAddr,
    /// Revision at which the owner key was created.
    pub(super) term: i64,
}

/// All data in etcd at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(super) revision: i64,
    pub(super) processes: BTreeMap<i64, Registered>,
    pub(super) partitions: BTreeMap<u16, PartitionSnapshot>,
}

/// One partition of a [`Snapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionSnapshot {
    pub(super) owner: Option<Owner>,
    pub(super) commit_revision: i64,
    pub(super) state: PartitionState,
}

/// Event of the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(super) revision: i64,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Process(i64, Option<Registered>),
    Owner(u16, Option<Owner>),
    Commit(u16, CommitRecord),
    /// A key of the partition was deleted or is malformed. The partition must be read again.
    Damage(u16),
}

/// Request to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Take {
        partition: u16,
        lease: i64,
    },
    Give {
        partition: u16,
        term: i64,
    },
    /// Read all data again.
    Reload,
}

/// Conditions of a commit's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) term: i64,
    pub(super) commit_revision: i64,
    /// `true` if an earlier attempt may have taken effect.
    pub(super) is_unsure: bool,
}

/// Pause after a failed request about an owner key.
const PAUSE: Duration = Duration::from_millis(500);

impl Holdings {
    pub(super) fn new(partitions: u16) -> Self {
        Self {
            lease: None,
            lapsed: None,
            processes: BTreeMap::new(),
            shares: vec![Share::default(); usize::from(partitions)],
            heirs: vec![None; usize::from(partitions)],
            revision: 0,
            is_dirty: false,
            is_incomplete: false,
            told: None,
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Marks this process as alive under `lease`.
    pub(super) fn register(&mut self, lease: i64) {
        (self.lease, self.is_dirty) = (Some(lease), true);
    }

    /// Returns `true` if all data has been read once.
    pub(super) fn is_loaded(&self) -> bool {
        self.revision > 0
    }

    /// Gives up all partitions, because this process cannot prove any more that it is alive.
    pub(super) fn lapse(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.lapsed = Some(lease);
            self.processes.remove(&lease);
            self.find_heirs();
        }
        for partition in 0..self.shares.len() {
            self.lose(partition as u16);
            self.shares[partition].asked = Asked::No;
        }
        self.tell_owners();
    }

    /// Replaces the state of the cluster by a snapshot.
    pub(super) fn load(&mut self, snapshot: Snapshot) {
        self.counters.snapshots += 1;
        let Snapshot { revision, processes, mut partitions } = snapshot;
        (self.revision, self.processes) = (revision, processes);
        self.processes.retain(|lease, _| Some(*lease) != self.lapsed);
        self.find_heirs();
        for (partition, share) in (0..).zip(&mut self.shares) {
            let found = partitions.remove(&partition).unwrap_or_default();
            share.owner = found.owner;
            let is_own = found.owner.is_some_and(|owner| Some(owner.term) == share.term);
            if is_own {
                // The state of an owned partition is newer here than in any snapshot.
                continue;
            }
            if share.term.take().is_some() {
                (share.in_flight, share.unsure) = (None, None);
                self.events.push_back(StoreEvent::Lost(partition));
            }
            (share.commit_revision, share.is_loaded) = (found.commit_revision, true);
            self.events.push_back(StoreEvent::Loaded(partition, found.state));
        }
    }

    /// Handles the next event of the watch.
    pub(super) fn see(&mut self, news: News) -> Option<Wish> {
        let News { revision, what } = news;
        self.revision = self.revision.max(revision);
        match what {
            What::Process(lease, None) => {
                self.processes.remove(&lease);
                self.find_heirs();
            }
            What::Process(lease, Some(process)) => {
                self.processes.insert(lease, process);
                self.find_heirs();
            }
            What::Owner(partition, owner) => {
                self.is_dirty = true;
                if let Some(share) = self.shares.get_mut(usize::from(partition)) {
                    share.owner = owner;
                }
            }
            What::Commit(partition, record) => {
                let share = self.shares.get_mut(usize::from(partition))?;
                share.commit_revision = share.commit_revision.max(revision);
                self.counters.commits_seen += 1;
                let CommitRecord { after, changes, .. } = record;
                self.events.push_back(StoreEvent::Applied(partition, after, changes));
            }
            What::Damage(partition) => {
                self.lose(partition);
                return Some(self.reload(partition));
            }
        }
        None
    }

    /// Marks the server's state of the partition as incomplete, and returns the request to read it
    /// again.
    pub(super) fn reload(&mut self, partition: u16) -> Wish {
        if let Some(share) = self.shares.get_mut(usize::from(partition)) {
            (share.is_loaded, share.term) = (false, None);
            (share.in_flight, share.unsure) = (None, None);
        }
        Wish::Reload
    }

    /// Takes, owns, loses and hands over partitions as required. Returns the requests to etcd for
    /// this.
    pub(super) fn tend(&mut self, now: Instant) -> Vec<Wish> {
        let mut wishes = Vec::new();
        if !std::mem::take(&mut self.is_dirty) && self.due().is_none_or(|due| due > now) {
            return wishes;
        }
        for partition in 0..self.shares.len() as u16 {
            wishes.extend(self.tend_to(now, partition));
        }
        self.tell_owners();
        wishes.extend(std::mem::take(&mut self.is_incomplete).then_some(Wish::Reload));
        wishes
    }

    fn tend_to(&mut self, now: Instant, partition: u16) -> Option<Wish> {
        let heir = self.heirs[usize::from(partition)];
        let share = &mut self.shares[usize::from(partition)];
        share.asked = match share.asked {
            Asked::Done(revision) if revision <= self.revision => Asked::No,
            Asked::InVain(until) if until <= now => Asked::No,
            asked => asked,
        };
        let own_term = self.lease.and_then(|lease| share.term_of(lease));
        if share.term.is_some() && share.term != own_term {
            self.lose(partition);
        }
        let lease = self.lease?;
        let share = &mut self.shares[usize::from(partition)];
        let is_heir = heir == Some(lease);
        match own_term {
            Some(_) if is_heir && share.may_be_owned() => {
                share.term = own_term;
                self.events.push_back(StoreEvent::Owned(partition));
            }
            Some(term) if !is_heir && heir.is_some() && share.in_flight.is_none() => {
                self.lose(partition);
                let share = &mut self.shares[usize::from(partition)];
                if share.asked == Asked::No {
                    share.asked = Asked::Waiting;
                    self.counters.gifts += 1;
                    return Some(Wish::Give { partition, term });
                }
            }
            None if is_heir && share.may_be_taken() => {
                share.asked = Asked::Waiting;
                self.counters.takes += 1;
                return Some(Wish::Take { partition, lease });
            }
            _ => {}
        }
        None
    }

    /// Returns the time at which [`Holdings::tend`] has work to do without a new event.
    pub(super) fn due(&self) -> Option<Instant> {
        let pauses = self.shares.iter().filter_map(|share| match share.asked {
            Asked::InVain(until) => Some(until),
            _ => None,
        });
        pauses.min()
    }

    /// Handles the result of a request about the partition's owner key: the revision at which it
    /// took effect, or `None` if it did not.
    pub(super) fn answered(&mut self, now: Instant, partition: u16, done: Option<i64>) {
        let share = &mut self.shares[usize::from(partition)];
        self.is_dirty = true;
        if share.asked == Asked::Waiting {
            share.asked = match done {
                Some(revision) => Asked::Done(revision),
                None => Asked::InVain(now + PAUSE),
            };
        }
    }

    /// Returns the conditions of a commit, or `None` if this process does not own the partition.
    pub(super) fn begin_commit(&mut self, partition: u16, id: CommitId) -> Option<Fence> {
        let share = &mut self.shares[usize::from(partition)];
        let term = share.term?;
        // The watch may already have reported the earlier attempt. The new attempt must compare the
        // revision from before it.
        let unsure = share.unsure.filter(|(unsure, _)| *unsure == id);
        let (_, commit_revision) =
            *share.in_flight.insert(unsure.unwrap_or((id, share.commit_revision)));
        Some(Fence { term, commit_revision, is_unsure: unsure.is_some() })
    }

    /// Handles the result of a commit: its revision, or the failure. The result of a commit that
    /// was given up meanwhile is ignored.
    pub(super) fn end_commit(
        &mut self,
        partition: u16,
        id: CommitId,
        result: Result<i64, CommitFailure>,
    ) -> Option<Wish> {
        let share = &mut self.shares[usize::from(partition)];
        let attempt = share.in_flight.take_if(|(known, _)| *known == id)?;
        self.is_dirty |= self.heirs[usize::from(partition)] != self.lease;
        share.unsure = (result == Err(CommitFailure::Unknown)).then_some(attempt);
        if let Ok(revision) = result {
            share.commit_revision = share.commit_revision.max(revision);
        }
        self.events.push_back(StoreEvent::Committed(id, result.map(|_| ())));
        // The watch lags behind the result of the transaction. Reading all data catches up.
        (result == Err(CommitFailure::Deposed)).then(|| self.reload(partition))
    }

    /// Reports a commit as failed, because this process does not own the partition.
    pub(super) fn refuse_commit(&mut self, id: CommitId) {
        self.events.push_back(StoreEvent::Committed(id, Err(CommitFailure::Deposed)));
    }

    /// Returns the next event for the server.
    pub(super) fn poll(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    /// Returns the processes that are alive.
    pub(super) fn processes(&self) -> impl Iterator<Item = &Registered> {
        self.processes.values()
    }

    fn find_heirs(&mut self) {
        self.is_dirty = true;
        for (partition, heir) in (0..).zip(&mut self.heirs) {
            *heir = entitled(partition, &self.processes);
        }
    }

    fn lose(&mut self, partition: u16) {
        let Some(share) = self.shares.get_mut(usize::from(partition)) else { return };
        if share.term.take().is_some() {
            (share.in_flight, share.unsure) = (None, None);
            share.is_loaded = false;
            self.is_incomplete = true;
            self.events.push_back(StoreEvent::Lost(partition));
        }
    }

    /// Reports the owners of all partitions if they have changed. Owners that are not alive are
    /// omitted, because their keys are about to be deleted.
    fn tell_owners(&mut self) {
        let owned = (0..).zip(&self.shares).filter_map(|(partition, share)| {
            let owner = share.owner.filter(|owner| self.processes.contains_key(&owner.lease))?;
            Some((partition, Endpoint(owner.address)))
        });
        let owned = owned.collect();
        let owners = Owners { partitions: self.shares.len() as u16, owned };
        if self.told.as_ref() != Some(&owners) {
            self.told = Some(owners.clone());
            self.events.push_back(StoreEvent::Owners(owners));
        }
    }
}

impl Share {
    /// Returns the term of the owner, if the owner is the process with this lease.
    fn term_of(&self, lease: i64) -> Option<i64> {
        self.owner.filter(|owner| owner.lease == lease).map(|owner| owner.term)
    }

    /// Returns `true` if the owner key may be relied on.
    ///
    /// While a request is in flight, or its effect has not been seen by the watch, the key that is
    /// known may be one that this process has deleted.
    fn may_be_owned(&self) -> bool {
        let is_unsettled = matches!(self.asked, Asked::Waiting | Asked::Done(_));
        self.is_loaded && self.term.is_none() && !is_unsettled
    }

    fn may_be_taken(&self) -> bool {
        self.owner.is_none() && self.is_loaded && self.asked == Asked::No
    }
}

#[cfg(test)]
#[path = "holdings_tests.rs"]
mod tests;
