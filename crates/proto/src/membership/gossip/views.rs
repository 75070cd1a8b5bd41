//! Derives views from subscriptions: the members of this node's groups, and conflicting settings.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use core::time::Duration;

use super::context::Context;
use super::exchange::Difference;
use super::packet::Subscription;
use crate::membership::{GroupView, MembershipEvent, already_joined};
use crate::{GroupId, GroupSettings, JoinError, NodeId, Time, ViewChangeKind};

#[derive(Debug)]
pub(super) struct Views {
    id: NodeId,
    holders: BTreeMap<(GroupId, NodeId), Subscription>,
    own: BTreeMap<GroupId, OwnGroup>,
    contradictions_ignored: u64,
    joins_refused: u64,
}

#[derive(Debug)]
struct OwnGroup {
    subscription: Subscription,
    view: GroupView,
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
        self.own.insert(group, OwnGroup { subscription, view: GroupView::default() });
        let holders: Vec<(NodeId, Subscription)> = self.holders(group).collect();
        for (node, theirs) in holders {
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

    /// Applies a change of another node. Returns `true` if its settings void our own subscription.
    pub(super) fn apply(&mut self, cx: &mut Context, node: NodeId, difference: Difference) -> bool {
        let Difference { group, now: subscription } = difference;
        let Some(theirs) = subscription else {
            self.holders.remove(&(group, node));
            self.dismiss(cx, group, node, ViewChangeKind::Left);
            return false;
        };
        let before = self.holders.insert((group, node), theirs);
        let Some(own) = self.own.get(&group) else { return false };
        let ours = own.subscription;
        if ours.settings == theirs.settings {
            if before.is_some_and(|before| before.joined_at != theirs.joined_at) {
                // The node left and joined again, and its engine has lost its earlier state.
                self.dismiss(cx, group, node, ViewChangeKind::Left);
            }
            self.admit(cx, group, node);
            return false;
        }
        self.dismiss(cx, group, node, ViewChangeKind::Left);
        // An established group is not abandoned because of the join time that a newcomer claims.
        let has_members = self.own.get(&group).is_some_and(|own| !own.view.members.is_empty());
        let is_old = cx.now.since(ours.joined_at) >= REFUSABLE;
        if has_members || is_old || (ours.joined_at, self.id) < (theirs.joined_at, node) {
            self.contradictions_ignored += 1;
            tracing::warn!(%group, member = %node, "ignored a member with other settings");
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
            self.holders.remove(&(group, node));
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
            let held = self.holders.get(&(group, node));
            assert_eq!(held, Some(&subscription), "the index lacks a subscription of {node:?}");
            listed += 1;
        }
        assert_eq!(self.holders.len(), listed, "the index has too many subscriptions");
        for (group, own) in &self.own {
            let settings = own.subscription.settings;
            let same = self.holders(*group).filter(|(_, theirs)| theirs.settings == settings);
            let expected: BTreeSet<NodeId> = same.map(|(node, _)| node).collect();
            assert_eq!(own.view.members, expected, "the view of {group:?} is wrong");
        }
    }

    /// Returns the settings of most members (in a tie, the earliest), with their earliest member.
    fn keeper(&self, group: GroupId) -> Option<(NodeId, GroupSettings)> {
        let mut camps: Vec<(usize, Time, NodeId, GroupSettings)> = Vec::new();
        for (node, theirs) in self.holders(group) {
            match camps.iter_mut().find(|camp| camp.3 == theirs.settings) {
                Some(camp) if (theirs.joined_at, node) < (camp.1, camp.2) => {
                    *camp = (camp.0 + 1, theirs.joined_at, node, camp.3);
                }
                Some(camp) => camp.0 += 1,
                None => camps.push((1, theirs.joined_at, node, theirs.settings)),
            }
        }
        let keeper = camps.into_iter().min_by_key(|camp| (Reverse(camp.0), camp.1, camp.2));
        keeper.map(|(_, _, node, settings)| (node, settings))
    }

    fn holders(&self, group: GroupId) -> impl Iterator<Item = (NodeId, Subscription)> {
        let holders = self.holders.range((group, NodeId(0))..=(group, NodeId(u64::MAX)));
        holders.map(|((_, node), subscription)| (*node, *subscription))
    }

    fn admit(&mut self, cx: &mut Context, group: GroupId, node: NodeId) {
        if let Some(own) = self.own.get_mut(&group) {
            own.view.admit(&mut cx.events, group, node);
        }
    }

    fn dismiss(&mut self, cx: &mut Context, group: GroupId, node: NodeId, kind: ViewChangeKind) {
        if let Some(own) = self.own.get_mut(&group) {
            own.view.dismiss(&mut cx.events, group, node, kind);
        }
    }
}

/// Time after a join during which an earlier subscription can void it.
const REFUSABLE: Duration = Duration::from_secs(10);

fn contradiction(ours: GroupSettings, theirs: GroupSettings, by: NodeId) -> JoinError {
    if ours.name_check == theirs.name_check {
        JoinError::Contradiction { ours, theirs, by }
    } else {
        JoinError::NameCollision
    }
}
