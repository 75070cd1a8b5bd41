//! What this process knows of the cluster by etcd's word, and which partitions it owns, wants and
//! gives away: decisions only.
//!
//! # Ownership
//!
//! A partition's owner key is written by a transaction that finds it absent; the revision of that
//! is the *term*, and every commit compares it. Whoever sees its own owner key in the watch has
//! seen all commits of earlier owners before: none of theirs can follow. So the partition as it is
//! followed is the one that is owned.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use carom_proto::Endpoint;
use carom_proto::membership::service::server::{CommitFailure, CommitId};
use carom_proto::membership::service::{Owners, PartitionState};

use super::records::CommitRecord;
use super::rendezvous::{Registered, entitled};
use crate::store::StoreEvent;

/// The cluster as one process sees it.
#[derive(Debug)]
pub(super) struct Holdings {
    /// The lease of this process, while it runs.
    lease: Option<i64>,
    /// The lease before that, which etcd may still believe in.
    lapsed: Option<i64>,
    processes: BTreeMap<i64, Registered>,
    shares: Vec<Share>,
    /// Who should own each partition.
    heirs: Vec<Option<i64>>,
    /// Up to which revision what is watched is known; 0 if nothing was read yet.
    revision: i64,
    /// Whether there may be something to take, own, lose or give.
    is_dirty: bool,
    /// Whether a partition was lost: the server keeps nothing of it, because what was on its way
    /// may have arrived.
    is_incomplete: bool,
    told: Option<Owners>,
    events: VecDeque<StoreEvent>,
    pub(super) counters: Counters,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Owner keys that were asked for.
    pub(super) takes: u64,
    /// Owner keys that were given back for another process.
    pub(super) gifts: u64,
    /// Times that everything was read anew.
    pub(super) snapshots: u64,
    /// Commits of all processes that the watch told.
    pub(super) commits_seen: u64,
}

/// One partition.
#[derive(Clone, Debug, Default)]
struct Share {
    owner: Option<Owner>,
    /// The revision of the last commit, as it is followed or was made.
    commit_revision: i64,
    is_loaded: bool,
    /// The term in which the server decides about it.
    term: Option<i64>,
    /// The commit on its way, and the revision of the one before.
    in_flight: Option<(CommitId, i64)>,
    /// A commit that etcd may have although it did not say so, and the revision of the one before.
    unsure: Option<(CommitId, i64)>,
    asked: Asked,
}

/// How far a request about an owner key is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    No,
    Waiting,
    /// It was done at this revision, which the watch has not reached.
    Done(i64),
    /// It was in vain, and is not tried again before.
    InVain(Instant),
}

/// Who owns a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(super) lease: i64,
    pub(super) address: std::net::SocketAddr,
    /// The revision at which the key was made.
    pub(super) term: i64,
}

/// All that etcd has, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(super) revision: i64,
    pub(super) processes: BTreeMap<i64, Registered>,
    pub(super) partitions: BTreeMap<u16, PartitionSnapshot>,
}

/// One partition of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionSnapshot {
    pub(super) owner: Option<Owner>,
    pub(super) commit_revision: i64,
    pub(super) state: PartitionState,
}

/// Something that the watch told.
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
    /// Of a key that has gone or makes no sense: the partition has to be read again.
    Damage(u16),
}

/// What is to be asked of etcd.
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
    /// Everything has to be read again.
    Reload,
}

/// What a commit has to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) term: i64,
    pub(super) commit_revision: i64,
    /// An earlier attempt may have taken effect.
    pub(super) is_unsure: bool,
}

/// The pause after a request about an owner key that was in vain.
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

    /// This process is alive by this lease.
    pub(super) fn register(&mut self, lease: i64) {
        (self.lease, self.is_dirty) = (Some(lease), true);
    }

    /// Whether everything was read once.
    pub(super) fn is_loaded(&self) -> bool {
        self.revision > 0
    }

    /// This process cannot show that it is alive: it owns nothing.
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

    /// All that etcd has.
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
                // What this process decided is newer than any copy.
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

    /// The next that the watch tells.
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

    /// What the server has of the partition is not all.
    pub(super) fn reload(&mut self, partition: u16) -> Wish {
        if let Some(share) = self.shares.get_mut(usize::from(partition)) {
            (share.is_loaded, share.term) = (false, None);
            (share.in_flight, share.unsure) = (None, None);
        }
        Wish::Reload
    }

    /// Takes, owns, loses and gives what has to be; says what to ask of etcd for that.
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

    /// When [`Holdings::tend`] may find something to do that nobody tells.
    pub(super) fn due(&self) -> Option<Instant> {
        let pauses = self.shares.iter().filter_map(|share| match share.asked {
            Asked::InVain(until) => Some(until),
            _ => None,
        });
        pauses.min()
    }

    /// A request about the partition's owner key took effect at this revision, or not.
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

    /// What the commit has to compare; `None` if this process does not own the partition.
    pub(super) fn begin_commit(&mut self, partition: u16, id: CommitId) -> Option<Fence> {
        let share = &mut self.shares[usize::from(partition)];
        let term = share.term?;
        // The watch may have told of the earlier attempt already.
        let unsure = share.unsure.filter(|(unsure, _)| *unsure == id);
        let (_, commit_revision) =
            *share.in_flight.insert(unsure.unwrap_or((id, share.commit_revision)));
        Some(Fence { term, commit_revision, is_unsure: unsure.is_some() })
    }

    /// What became of a commit: the revision that it has. Of one that was given up meanwhile
    /// nothing is told.
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
        // The watch is behind what the transaction found: it is read where things stand.
        (result == Err(CommitFailure::Deposed)).then(|| self.reload(partition))
    }

    /// A commit that cannot be made.
    pub(super) fn refuse_commit(&mut self, id: CommitId) {
        self.events.push_back(StoreEvent::Committed(id, Err(CommitFailure::Deposed)));
    }

    /// What the server has to be told next.
    pub(super) fn poll(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    /// The processes that are alive.
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

    /// Owners that are not alive any more are not named: their keys are about to go.
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
    /// The term of the owner, if it is the process of this lease.
    fn term_of(&self, lease: i64) -> Option<i64> {
        self.owner.filter(|owner| owner.lease == lease).map(|owner| owner.term)
    }

    /// While a request is on its way, or the watch has not told what it did, the key that is
    /// known may be one that this process gave away.
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
