//! What control processes keep: every partition, and who may write it.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::membership::service::frame::partition_of;
use carom_proto::membership::service::{Change, Commit, CommitFailure, PartitionState};
use carom_proto::{GroupId, NodeId, Rng};

/// A durable store in memory, with the failures that a disk or etcd has. It keeps the rules that
/// [`Commit`] states: nothing is half done, a commit that is there already is not made again, and
/// only the owner's commits of its present term count.
#[derive(Clone, Debug)]
pub struct Store {
    /// What every commit that is not there already comes to, in place of being made. Default
    /// `None`.
    pub failing: Option<CommitFailure>,
    /// How often the answer to a commit that was made, or refused, gets lost. Default 0.
    pub lost_answers: f64,
    partitions: Vec<PartitionState>,
    owners: Vec<Option<u64>>,
    /// How often each partition was given: a commit of an earlier time is refused.
    terms: Vec<u64>,
    commits: u64,
    largest_commit: usize,
    /// Who has ever been in which group, in which incarnation.
    log: BTreeSet<(GroupId, NodeId, u32)>,
}

impl Store {
    /// An empty store, whose partitions belong to nobody.
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

    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        self.partitions.len() as u16
    }

    /// What a partition holds.
    pub fn state(&self, partition: u16) -> &PartitionState {
        &self.partitions[usize::from(partition)]
    }

    /// What a partition holds, to be filled past all owners.
    pub fn state_mut(&mut self, partition: u16) -> &mut PartitionState {
        &mut self.partitions[usize::from(partition)]
    }

    /// Who may write a partition.
    pub fn owner(&self, partition: u16) -> Option<u64> {
        self.owners[usize::from(partition)]
    }

    /// How often the partition was given to somebody.
    pub fn term(&self, partition: u16) -> u64 {
        self.terms[usize::from(partition)]
    }

    /// Each partition that somebody may write, with who may.
    pub fn owned(&self) -> impl Iterator<Item = (u16, u64)> {
        let owners = self.owners.iter().enumerate();
        owners.filter_map(|(partition, owner)| Some((partition as u16, (*owner)?)))
    }

    /// The partition is this owner's from now on: commits of earlier terms are refused. Returns
    /// its term.
    pub fn give(&mut self, partition: u16, owner: u64) -> u64 {
        let place = usize::from(partition);
        self.owners[place] = Some(owner);
        self.terms[place] += 1;
        self.terms[place]
    }

    /// The owner has nothing any more; returns what it had.
    pub fn release(&mut self, owner: u64) -> Vec<u16> {
        let had: Vec<u16> = self.owned().filter(|(_, it)| *it == owner).map(|it| it.0).collect();
        had.iter().for_each(|partition| self.owners[usize::from(*partition)] = None);
        had
    }

    /// What the store makes of a commit that has arrived.
    ///
    /// # Errors
    /// As [`CommitFailure`] says.
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
            // What is stored already, by an attempt whose answer got lost, has not failed.
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

    /// Whether the node was ever in the group, as far as the store knows.
    pub fn was_member(&self, group: GroupId, node: NodeId) -> bool {
        self.log.range((group, node, 0)..=(group, node, u32::MAX)).next().is_some()
    }

    /// Whether the node is in the group now.
    pub fn is_member(&self, group: GroupId, node: NodeId) -> bool {
        self.state(partition_of(group, self.partitions())).member(group, node).is_some()
    }

    /// Returns `true` if this start of a process owns the partition of the group.
    pub fn owns(&self, owner: u64, group: GroupId) -> bool {
        self.owners[usize::from(partition_of(group, self.partitions()))] == Some(owner)
    }

    /// The members of every group.
    pub fn members(&self) -> BTreeMap<GroupId, BTreeSet<NodeId>> {
        let groups = self.partitions.iter().flat_map(|state| state.groups());
        groups.map(|(group, state)| (*group, state.members.keys().copied().collect())).collect()
    }

    /// Commits that were made.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Changes in the largest of them.
    pub fn largest_commit(&self) -> usize {
        self.largest_commit
    }

    /// Asserts the invariants of all partitions.
    ///
    /// # Panics
    /// If one of them is broken: that is a bug of who wrote it.
    pub fn check(&self) {
        self.partitions.iter().for_each(PartitionState::check);
    }
}
