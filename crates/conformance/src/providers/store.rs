//! The store of the registry processes, which contains every partition and its owner.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::membership::service::frame::partition_of;
use carom_proto::membership::service::{Change, Commit, CommitFailure, PartitionState};
use carom_proto::{GroupId, NodeId, Rng};

/// A durable store in memory, with the failures of a disk or of etcd. It follows the rules of
/// [`Commit`]: commits are atomic, are not repeated once stored, and count only from the owner in
/// its current term.
#[derive(Clone, Debug)]
pub struct Store {
    /// Failure of every new commit, which is then not stored. Default: `None`, so commits succeed.
    pub failing: Option<CommitFailure>,
    /// Probability that the answer to a stored commit is lost. Default: 0.
    pub lost_answers: f64,
    partitions: Vec<PartitionState>,
    owners: Vec<Option<u64>>,
    /// Number of times that each partition was assigned. Commits of earlier terms are refused.
    terms: Vec<u64>,
    commits: u64,
    largest_commit: usize,
    /// All nodes that have ever been in a group, with their incarnations.
    log: BTreeSet<(GroupId, NodeId, u32)>,
}

impl Store {
    /// Creates an empty store with `partitions` partitions, which have no owners.
    pub fn new(partitions: u16) -> Self {
        let count = usize::from(partitions);
        Self {
            failing: None,
            lost_answers: 0.0,
            partitions: vec![PartitionState::default(); count],
            owners: vec![None; count],
            terms: vec![0; count],
            commits: 0,
            largest_commit: 0,
            log: BTreeSet::new(),
        }
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> u16 {
        self.partitions.len() as u16
    }

    /// Returns the content of a partition.
    pub fn state(&self, partition: u16) -> &PartitionState {
        &self.partitions[usize::from(partition)]
    }

    /// Returns the content of a partition, for tests that fill it without an owner.
    pub fn state_mut(&mut self, partition: u16) -> &mut PartitionState {
        &mut self.partitions[usize::from(partition)]
    }

    /// Returns the owner of a partition, or `None` if it has none.
    pub fn owner(&self, partition: u16) -> Option<u64> {
        self.owners[usize::from(partition)]
    }

    /// Returns the number of times that the partition was assigned to an owner.
    pub fn term(&self, partition: u16) -> u64 {
        self.terms[usize::from(partition)]
    }

    /// Returns the partitions that have an owner, each with its owner.
    pub fn owned(&self) -> impl Iterator<Item = (u16, u64)> {
        let owners = self.owners.iter().enumerate();
        owners.filter_map(|(partition, owner)| Some((partition as u16, (*owner)?)))
    }

    /// Assigns the partition to this owner, and returns the new term.
    pub fn give(&mut self, partition: u16, owner: u64) -> u64 {
        let place = usize::from(partition);
        self.owners[place] = Some(owner);
        self.terms[place] += 1;
        self.terms[place]
    }

    /// Removes all partitions from the owner, and returns their numbers.
    pub fn release(&mut self, owner: u64) -> Vec<u16> {
        let had: Vec<u16> = self.owned().filter(|(_, it)| *it == owner).map(|it| it.0).collect();
        had.iter().for_each(|partition| self.owners[usize::from(*partition)] = None);
        had
    }

    /// Executes a commit.
    ///
    /// # Errors
    /// Returns a [`CommitFailure`] if the commit is refused, failed, or has an unknown outcome.
    pub fn commit(
        &mut self,
        owner: u64,
        term: u64,
        commit: &Commit,
        rng: &mut Rng,
    ) -> Result<(), CommitFailure> {
        let place = usize::from(commit.partition);
        let state = &mut self.partitions[place];
        let after = commit.after + commit.changes.len() as u64;
        let is_new = state.version() == commit.after;
        let is_owner = self.owners[place] == Some(owner) && self.terms[place] == term;
        let mut result = Ok(());
        if !is_owner || !(is_new || state.version() == after) {
            result = Err(CommitFailure::Deposed);
        } else if let Some(failure) = self.failing.filter(|_| is_new) {
            // A commit that was already stored by an attempt whose answer was lost has not failed.
            result = Err(failure);
        } else if is_new {
            self.commits += 1;
            self.largest_commit = self.largest_commit.max(commit.changes.len());
            for change in &commit.changes {
                state.apply(change);
                let member = change.member();
                if let Change::Join { group, .. } = change {
                    self.log.insert((*group, member.node, member.incarnation));
                }
            }
        }
        if result.is_ok() && rng.chance(self.lost_answers) {
            result = Err(CommitFailure::Unknown);
        }
        result
    }

    /// Returns `true` if a join of the node to the group was ever stored.
    pub fn was_member(&self, group: GroupId, node: NodeId) -> bool {
        self.log.range((group, node, 0)..=(group, node, u32::MAX)).next().is_some()
    }

    /// Returns `true` if the node is currently in the group.
    pub fn is_member(&self, group: GroupId, node: NodeId) -> bool {
        self.state(partition_of(group, self.partitions())).member(group, node).is_some()
    }

    /// Returns `true` if `owner` owns the partition of the group.
    pub fn owns(&self, owner: u64, group: GroupId) -> bool {
        self.owners[usize::from(partition_of(group, self.partitions()))] == Some(owner)
    }

    /// Returns the members of every group.
    pub fn members(&self) -> BTreeMap<GroupId, BTreeSet<NodeId>> {
        let groups = self.partitions.iter().flat_map(|state| state.groups());
        groups.map(|(group, state)| (*group, state.members.keys().copied().collect())).collect()
    }

    /// Returns the number of stored commits.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Returns the number of changes in the largest stored commit.
    pub fn largest_commit(&self) -> usize {
        self.largest_commit
    }

    /// Asserts the invariants of all partitions.
    ///
    /// # Panics
    /// Panics if an invariant is violated, which is a bug in the process that wrote the partition.
    pub fn check(&self) {
        self.partitions.iter().for_each(PartitionState::check);
    }
}
