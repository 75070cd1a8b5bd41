//! Groups that this node has joined, and the members from which it chooses repair targets.

pub(crate) mod members;

use crate::lateral::groups::members::Members;
use crate::lateral::sender::own_stream::{OwnStream, Position};
use crate::lateral::streams::former_streams::FormerStreams;
use crate::{GroupId, IdMap, NodeId, RateOfFire, Rng, Time};

/// Index of a group. Indices of groups that were left are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupIx(pub(crate) u32);

/// Groups of the node, by index and by id.
#[derive(Debug)]
pub(crate) struct Groups {
    slots: Vec<Option<Group>>,
    vacant: Vec<GroupIx>,
    by_id: IdMap<GroupId, GroupIx>,
    seed: u64,
}

/// One group as this node sees it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) rate: RateOfFire,
    /// Version of the view, as counted by the membership.
    pub(crate) view_version: u32,
    /// Members of the group, without this node.
    pub(crate) members: Members,
    /// Members that repairs are sent to.
    pub(crate) sample: Sample,
    /// Stream of this node in the group.
    pub(crate) own: OwnStream,
    /// Number of senders known in the group.
    pub(crate) streams: usize,
    pub(crate) heard: FormerStreams,
}

/// A uniformly random subset of a group's members, maintained through view changes (Slingshot 3.3).
/// Without a limit it is all members, and nothing is stored.
#[derive(Debug)]
pub(crate) struct Sample {
    limit: Option<usize>,
    chosen: Vec<NodeId>,
}

/// Change of a sample in a view change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleChange {
    pub(crate) added: Option<NodeId>,
    pub(crate) removed: Option<NodeId>,
}

impl Groups {
    pub(crate) fn new(seed: u64) -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), by_id: IdMap::new(seed), seed }
    }

    /// Returns the key of the hash maps.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn insert(&mut self, group: Group) -> GroupIx {
        let ix = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            GroupIx(self.slots.len() as u32 - 1)
        });
        self.by_id.insert(group.id, ix);
        self.slots[ix.0 as usize] = Some(group);
        ix
    }

    pub(crate) fn remove(&mut self, ix: GroupIx) -> Option<Group> {
        let group = self.slots[ix.0 as usize].take()?;
        self.by_id.remove(&group.id);
        self.vacant.push(ix);
        Some(group)
    }

    pub(crate) fn ix(&self, id: GroupId) -> Option<GroupIx> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, ix: GroupIx) -> &Group {
        self.slots[ix.0 as usize].as_ref().expect("an index is kept no longer than its group")
    }

    pub(crate) fn get_mut(&mut self, ix: GroupIx) -> &mut Group {
        self.slots[ix.0 as usize].as_mut().expect("an index is kept no longer than its group")
    }

    pub(crate) fn check(&self) {
        for group in self.slots.iter().flatten() {
            group.members.check();
            let known = |node: &NodeId| group.members.contains(*node);
            assert!(group.sampled().iter().all(known), "the sample holds a stranger");
            group.own.check();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

impl Group {
    pub(crate) fn new(
        id: GroupId,
        rate: RateOfFire,
        start: Position,
        partial_view: Option<usize>,
        seed: u64,
    ) -> Self {
        Self {
            id,
            rate,
            view_version: 0,
            members: Members::new(seed),
            sample: Sample { limit: partial_view, chosen: Vec::new() },
            own: OwnStream::new(start),
            streams: 0,
            heard: FormerStreams::default(),
        }
    }

    /// Adds `node`. Returns `None` if it was a member already.
    pub(crate) fn add_member(
        &mut self,
        now: Time,
        node: NodeId,
        rng: &mut Rng,
    ) -> Option<SampleChange> {
        self.members.insert(now, node).then(|| {
            self.own.add_member(node);
            self.sample.admit(node, self.members.ids().len(), rng)
        })
    }

    /// Removes `node`. Returns `None` if it was not a member.
    pub(crate) fn remove_member(&mut self, node: NodeId, rng: &mut Rng) -> Option<SampleChange> {
        self.members.remove(node).then(|| {
            self.own.remove_member(node);
            self.sample.dismiss(node, self.members.ids(), rng)
        })
    }

    /// Returns the members that repairs are sent to.
    pub(crate) fn sampled(&self) -> &[NodeId] {
        match self.sample.limit {
            None => self.members.ids(),
            Some(_) => &self.sample.chosen,
        }
    }
}

impl Sample {
    /// Admits `node`, which has become member number `population` of the group. It is in the sample
    /// with the same probability as every earlier member.
    fn admit(&mut self, node: NodeId, population: usize, rng: &mut Rng) -> SampleChange {
        let Some(limit) = self.limit else {
            return SampleChange { added: Some(node), removed: None };
        };
        if self.chosen.len() < limit {
            self.chosen.push(node);
            return SampleChange { added: Some(node), removed: None };
        }
        let ticket = rng.below(population);
        if ticket >= limit {
            return SampleChange::default();
        }
        let removed = core::mem::replace(&mut self.chosen[ticket], node);
        SampleChange { added: Some(node), removed: Some(removed) }
    }

    /// Removes `node`, which has left. If it was in the sample, one of the `others` replaces it.
    fn dismiss(&mut self, node: NodeId, others: &[NodeId], rng: &mut Rng) -> SampleChange {
        if self.limit.is_none() {
            return SampleChange { added: None, removed: Some(node) };
        }
        let Some(place) = self.chosen.iter().position(|chosen| *chosen == node) else {
            return SampleChange::default();
        };
        self.chosen.swap_remove(place);
        // All chosen nodes are among the others.
        let rest = others.len() - self.chosen.len();
        if rest == 0 {
            return SampleChange { added: None, removed: Some(node) };
        }
        let mut chosen = self.chosen.clone();
        chosen.sort_unstable();
        let mut rest_of = others.iter().filter(|other| chosen.binary_search(other).is_err());
        let added = rest_of.nth(rng.below(rest)).copied();
        self.chosen.extend(added);
        SampleChange { added, removed: Some(node) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeqNo;

    #[test]
    fn partial_view_is_a_uniform_sample_of_the_current_members() {
        let mut chosen = [0; 30];
        for seed in 0..6_000 {
            let mut rng = Rng::new(seed);
            let start = Position::of_first(SeqNo::FIRST);
            let mut group = Group::new(GroupId(1), RateOfFire::default(), start, Some(5), 1);
            (0..30).for_each(|node| {
                group.add_member(Time(1), NodeId(node), &mut rng);
            });
            (0..10).for_each(|node| {
                group.remove_member(NodeId(node), &mut rng);
            });
            assert_eq!(group.sampled().len(), 5);
            group.sampled().iter().for_each(|node| chosen[node.0 as usize] += 1);
        }
        assert!(chosen[..10].iter().all(|count| *count == 0), "who left is not in the view");
        // 6000 * 5 / 20 = 1500 each.
        assert!(chosen[10..].iter().all(|count| (1_330..1_670).contains(count)), "{chosen:?}");
    }

    #[test]
    fn a_full_view_follows_the_group() {
        let mut rng = Rng::new(1);
        let mut group = Group::new(
            GroupId(1),
            RateOfFire::default(),
            Position::of_first(SeqNo::FIRST),
            None,
            1,
        );
        let change = group.add_member(Time(1), NodeId(4), &mut rng).expect("it is new");
        assert_eq!(change.added, Some(NodeId(4)));
        assert_eq!(group.add_member(Time(1), NodeId(4), &mut rng), None);
        let change = group.remove_member(NodeId(4), &mut rng).expect("it was there");
        assert_eq!(change, SampleChange { added: None, removed: Some(NodeId(4)) });
        assert_eq!(group.remove_member(NodeId(4), &mut rng), None);
    }
}
