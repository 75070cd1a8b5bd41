//! Derivation of views from subscriptions: members of this node's groups, and conflicting settings.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use core::time::Duration;

use super::context::Context;
use super::exchange::Difference;
use super::packet::Subscription;
use crate::membership::{MembershipEvent, already_joined};
use crate::{GroupId, GroupSettings, JoinError, NodeId, Time, ViewChange, ViewChangeKind};

/// The subscriptions of all live nodes by group, and the views of this node's groups.
///
/// The cost of a change is proportional to the groups that it names, times the logarithms of the
/// numbers of groups and members. Other groups are not visited.
#[derive(Debug)]
pub(super) struct Views {
    id: NodeId,
    holders: BTreeMap<GroupId, BTreeMap<NodeId, Subscription>>,
    own: BTreeMap<GroupId, OwnGroup>,
    /// Subscriptions of others that contradict an earlier one of this node.
    contradictions_ignored: u64,
    joins_refused: u64,
}

#[derive(Debug)]
struct OwnGroup {
    subscription: Subscription,
    members: BTreeSet<NodeId>,
    version: u32,
}

impl Views {
    pub(super) fn new(id: NodeId) -> Self {
        Self {
            id,
            holders: BTreeMap::new(),
            own: BTreeMap::new(),
            contradictions_ignored: 0,
            joins_refused: 0,
        }
    }

    pub(super) fn join(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        subscription: Subscription,
    ) -> Result<(), JoinError> {
        let ours = subscription.settings;
        if let Some(own) = self.own.get(&group) {
            return Err(already_joined(own.subscription.settings, ours));
        }
        if let Some((by, theirs)) = self.keeper(group)
            && theirs != ours
        {
            self.joins_refused += 1;
            return Err(contradiction(ours, theirs, by));
        }
        let own = OwnGroup { subscription, members: BTreeSet::new(), version: 0 };
        self.own.insert(group, own);
        for (node, theirs) in self.holders.get(&group).cloned().unwrap_or_default() {
            if theirs.settings == ours {
                self.admit(cx, group, node);
            } else {
                self.contradictions_ignored += 1;
            }
        }
        Ok(())
    }

    pub(super) fn is_in(&self, group: GroupId) -> bool {
        self.own.contains_key(&group)
    }

    pub(super) fn leave(&mut self, group: GroupId) -> bool {
        self.own.remove(&group).is_some()
    }

    /// Applies a changed subscription of `node`.
    ///
    /// Returns `true` if this node's own subscription is void now, because the other one is earlier
    /// and contradicts it.
    pub(super) fn apply(&mut self, cx: &mut Context, node: NodeId, difference: Difference) -> bool {
        let Difference { group, now: subscription } = difference;
        let Some(theirs) = subscription else {
            self.forget_holder(group, node);
            self.dismiss(cx, group, node, ViewChangeKind::Left);
            return false;
        };
        let before = self.holders.entry(group).or_default().insert(node, theirs);
        let Some(own) = self.own.get(&group) else { return false };
        let ours = own.subscription;
        if ours.settings == theirs.settings {
            if before.is_some_and(|before| before.joined_at != theirs.joined_at) {
                // The node has left in between, and its engine has lost its earlier state.
                self.dismiss(cx, group, node, ViewChangeKind::Left);
            }
            self.admit(cx, group, node);
            return false;
        }
        self.dismiss(cx, group, node, ViewChangeKind::Left);
        // An established group is not given up because of the join time that one newcomer claims.
        let has_members = self.own.get(&group).is_some_and(|own| !own.members.is_empty());
        let is_old = cx.now.since(ours.joined_at) >= REFUSABLE;
        if has_members || is_old || (ours.joined_at, self.id) < (theirs.joined_at, node) {
            self.contradictions_ignored += 1;
            tracing::warn!(%group, member = %node, "a member has other settings");
            return false;
        }
        self.own.remove(&group);
        self.joins_refused += 1;
        let error = contradiction(ours.settings, theirs.settings, node);
        cx.events.push_back(MembershipEvent::Refused(group, error));
        true
    }

    pub(super) fn remove_node(
        &mut self,
        cx: &mut Context,
        node: NodeId,
        groups: impl Iterator<Item = GroupId>,
        kind: ViewChangeKind,
    ) {
        for group in groups {
            self.forget_holder(group, node);
            self.dismiss(cx, group, node, kind);
        }
    }

    pub(super) fn stats(&self) -> [(&'static str, u64); 2] {
        [
            ("contradictions_ignored", self.contradictions_ignored),
            ("joins_refused", self.joins_refused),
        ]
    }

    pub(super) fn check<'a>(
        &self,
        tables: impl Iterator<Item = (NodeId, GroupId, Subscription)> + 'a,
    ) {
        let mut listed = 0;
        for (node, group, subscription) in tables {
            let held = self.holders.get(&group).and_then(|holders| holders.get(&node));
            assert_eq!(held, Some(&subscription), "the index lacks a subscription of {node:?}");
            listed += 1;
        }
        let held: usize = self.holders.values().map(BTreeMap::len).sum();
        assert_eq!(held, listed, "the index holds subscriptions that nobody has");
        for (group, own) in &self.own {
            let holders = self.holders.get(group);
            let same = holders
                .into_iter()
                .flatten()
                .filter(|(_, theirs)| theirs.settings == own.subscription.settings);
            let expected: BTreeSet<NodeId> = same.map(|(node, _)| *node).collect();
            assert_eq!(own.members, expected, "the view of {group:?} is not who has it");
        }
    }

    /// Returns the settings that the group has, as far as known, with a member that has them.
    ///
    /// These are the settings of most members or, between equally large parts, of the earliest
    /// subscription.
    fn keeper(&self, group: GroupId) -> Option<(NodeId, GroupSettings)> {
        let holders = self.holders.get(&group)?;
        // Few different settings are expected, so a linear search is fast enough.
        let mut camps: Vec<(usize, Time, NodeId, GroupSettings)> = Vec::new();
        for (node, theirs) in holders {
            match camps.iter_mut().find(|camp| camp.3 == theirs.settings) {
                Some(camp) if (theirs.joined_at, *node) < (camp.1, camp.2) => {
                    *camp = (camp.0 + 1, theirs.joined_at, *node, camp.3);
                }
                Some(camp) => camp.0 += 1,
                None => camps.push((1, theirs.joined_at, *node, theirs.settings)),
            }
        }
        let keeper = camps.into_iter().min_by_key(|camp| (Reverse(camp.0), camp.1, camp.2));
        keeper.map(|(_, _, node, settings)| (node, settings))
    }

    fn admit(&mut self, cx: &mut Context, group: GroupId, node: NodeId) {
        let Some(own) = self.own.get_mut(&group) else { return };
        if own.members.insert(node) {
            let kind = ViewChangeKind::Joined;
            cx.events.push_back(own.change(group, node, kind));
        }
    }

    fn dismiss(&mut self, cx: &mut Context, group: GroupId, node: NodeId, kind: ViewChangeKind) {
        let Some(own) = self.own.get_mut(&group) else { return };
        if own.members.remove(&node) {
            cx.events.push_back(own.change(group, node, kind));
        }
    }

    fn forget_holder(&mut self, group: GroupId, node: NodeId) {
        if let Some(holders) = self.holders.get_mut(&group) {
            holders.remove(&node);
            if holders.is_empty() {
                self.holders.remove(&group);
            }
        }
    }
}

impl OwnGroup {
    fn change(&mut self, group: GroupId, node: NodeId, kind: ViewChangeKind) -> MembershipEvent {
        self.version = self.version.wrapping_add(1);
        MembershipEvent::View(ViewChange { group, node, kind, version: self.version })
    }
}

/// Time after a join during which an earlier subscription with other settings makes it void.
const REFUSABLE: Duration = Duration::from_secs(10);

fn contradiction(ours: GroupSettings, theirs: GroupSettings, by: NodeId) -> JoinError {
    if ours.name_check == theirs.name_check {
        JoinError::Contradiction { ours, theirs, by }
    } else {
        JoinError::NameCollision
    }
}
