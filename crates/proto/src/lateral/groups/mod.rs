mod members;
mod partial_view;

pub(super) use members::Members;
pub(super) use partial_view::TargetChange;

use super::index::GroupIx;
use crate::{GroupId, IdMap, JoinError, NodeId, RateOfFire, Rng, Time};
use partial_view::PartialView;

#[derive(Debug)]
pub(super) struct Groups {
    slots: Vec<Option<Group>>,
    vacant: Vec<GroupIx>,
    by_id: IdMap<GroupId, GroupIx>,
    seed: u64,
    /// Value of r, which all groups share. `None` if there is no group.
    pub(super) r: Option<u8>,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) rate: RateOfFire,
    pub(super) view_version: u32,
    pub(super) members: Members,
    partial_view: PartialView,
}

impl Groups {
    pub(super) fn new(seed: u64) -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), by_id: IdMap::new(seed), seed, r: None }
    }

    pub(super) fn join(
        &mut self,
        id: GroupId,
        rate: RateOfFire,
        partial_view: Option<usize>,
    ) -> Result<GroupIx, JoinError> {
        rate.validate()?;
        if self.ix(id).is_some() {
            return Err(JoinError::AlreadyJoined);
        }
        if let Some(existing) = self.r.filter(|r| *r != rate.r) {
            return Err(JoinError::DifferentR { given: rate.r, existing });
        }
        self.r = Some(rate.r);
        let ix = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            GroupIx(self.slots.len() as u32 - 1)
        });
        self.by_id.insert(id, ix);
        self.slots[ix.0 as usize] = Some(Group::new(id, rate, partial_view, self.seed));
        Ok(ix)
    }

    pub(super) fn leave(&mut self, ix: GroupIx) -> Group {
        let group = self.slots[ix.0 as usize].take().expect("a group is left only once");
        self.by_id.remove(&group.id);
        self.vacant.push(ix);
        if self.by_id.is_empty() {
            self.r = None;
        }
        group
    }

    #[inline]
    pub(super) fn ix(&self, id: GroupId) -> Option<GroupIx> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn get(&self, ix: GroupIx) -> &Group {
        self.slots[ix.0 as usize].as_ref().expect("an index does not outlive its group")
    }

    pub(super) fn get_mut(&mut self, ix: GroupIx) -> &mut Group {
        self.slots[ix.0 as usize].as_mut().expect("an index does not outlive its group")
    }

    /// Returns `true` if `node` may repair or retransmit packets of `sender`. Only members and the
    /// sender itself may, because other nodes could forge packets.
    #[inline]
    pub(super) fn may_know(&self, group: GroupIx, node: NodeId, sender: NodeId) -> bool {
        node == sender || self.get(group).members.contains(node)
    }

    pub(super) fn check(&self) {
        for group in self.slots.iter().flatten() {
            group.members.check();
            let known = |node: &NodeId| group.members.contains(*node);
            assert!(group.targets().iter().all(known), "the view has a non-member");
        }
    }
}

impl Group {
    fn new(id: GroupId, rate: RateOfFire, partial_view: Option<usize>, seed: u64) -> Self {
        let (members, partial_view) = (Members::new(seed), PartialView::new(partial_view));
        Self { id, rate, view_version: 0, members, partial_view }
    }

    pub(super) fn add_member(
        &mut self,
        now: Time,
        node: NodeId,
        rng: &mut Rng,
    ) -> Option<TargetChange> {
        let is_new = self.members.insert(now, node);
        is_new.then(|| self.partial_view.admit(node, self.members.ids().len(), rng))
    }

    pub(super) fn remove_member(&mut self, node: NodeId, rng: &mut Rng) -> Option<TargetChange> {
        let was_member = self.members.remove(node);
        was_member.then(|| self.partial_view.dismiss(node, self.members.ids(), rng))
    }

    pub(super) fn targets(&self) -> &[NodeId] {
        self.partial_view.chosen().unwrap_or(self.members.ids())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_view_is_a_uniform_sample_after_joins_and_leaves() {
        let mut chosen = [0; 30];
        for seed in 0..6_000 {
            let mut rng = Rng::new(seed);
            let mut group = Group::new(GroupId(1), RateOfFire::default(), Some(5), 1);
            (0..30).for_each(|node| {
                group.add_member(Time(1), NodeId(node), &mut rng);
            });
            (0..10).for_each(|node| {
                group.remove_member(NodeId(node), &mut rng);
            });
            assert_eq!(group.targets().len(), 5);
            group.targets().iter().for_each(|node| chosen[node.0 as usize] += 1);
        }
        assert!(chosen[..10].iter().all(|count| *count == 0), "a former member is gone");
        assert!(chosen[10..].iter().all(|count| (1_330..1_670).contains(count)), "{chosen:?}");
    }

    #[test]
    fn full_view_follows_the_group() {
        let mut rng = Rng::new(1);
        let mut group = Group::new(GroupId(1), RateOfFire::default(), None, 1);
        let change = group.add_member(Time(1), NodeId(4), &mut rng).expect("the member is new");
        assert_eq!(change.added, Some(NodeId(4)));
        assert_eq!(group.add_member(Time(1), NodeId(4), &mut rng), None);
        let change = group.remove_member(NodeId(4), &mut rng).expect("the node was a member");
        assert_eq!(change, TargetChange { added: None, removed: Some(NodeId(4)) });
        assert_eq!(group.remove_member(NodeId(4), &mut rng), None);
    }
}
