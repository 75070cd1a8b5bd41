//! A node's groups: how they are joined, change and are left.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Node, NodeEvent};
use crate::membership::MembershipEvent;
use crate::rmp::JoinOptions;
use crate::{
    Engine, Event, GroupId, GroupSettings, JoinError, NodeId, Profile, Time, View, ViewChange,
    ViewChangeKind,
};

/// A group that the node is in.
pub(super) struct Joined {
    pub(super) settings: GroupSettings,
    pub(super) view: View,
    pub(super) stage: Stage,
    options: JoinOptions,
    /// View changes that followed from restarts, of which the membership provider does not know.
    restarts: u32,
}

/// How far a membership in a group has come. A ring is looked for when it is known who could be in
/// it, and is left in order. Other groups are left once the members have what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The node looks for the others; the engine knows nothing of the group yet.
    Seeking,
    /// The engine has the group.
    In,
    /// The application has left; the engine is about to.
    Leaving,
}

impl Node {
    /// Joins the group called `name`.
    ///
    /// # Errors
    /// The settings are out of bounds or contradict what is known already; the node is not in the
    /// group then. A contradiction that becomes known later is a [`NodeEvent::Refused`].
    pub fn join(&mut self, now: Time, name: &str, profile: Profile) -> Result<GroupId, JoinError> {
        self.join_with(now, name, profile, JoinOptions::default())
    }

    /// As [`Node::join`], with what this node decides for itself in an ordered group.
    ///
    /// # Errors
    /// As [`Node::join`].
    pub fn join_with(
        &mut self,
        now: Time,
        name: &str,
        profile: Profile,
        options: JoinOptions,
    ) -> Result<GroupId, JoinError> {
        GroupSettings::check_name(name)?;
        let group = GroupId::of_name(name);
        let settings = GroupSettings::new(name, profile);
        let mut was_in = false;
        if let Some(joined) = self.groups.get(&group) {
            if joined.settings.name_check != settings.name_check {
                return Err(JoinError::NameCollision);
            }
            match joined.stage {
                Stage::Leaving if joined.is_ring() && joined.settings == settings => {
                    self.ordered.join_with(now, group, settings, options)?;
                    self.enter(now, group);
                    return Ok(group);
                }
                // It is another group by now, or joined anew.
                Stage::Leaving => was_in = self.take_out(now, group),
                Stage::Seeking | Stage::In => return Err(JoinError::AlreadyJoined),
            }
        }
        let joined = self.begin(now, group, settings, options);
        match &joined {
            Ok(()) => tracing::debug!(node = %self.id(), %group, name, %profile, "joined"),
            Err(error) => {
                tracing::debug!(node = %self.id(), %group, name, %error, "join refused");
                if was_in {
                    // It is not about to leave any more: it is out.
                    self.events.push_back(NodeEvent::Out(group));
                }
            }
        }
        joined.map(|()| group)
    }

    /// Begins to be in a group in which this node is not.
    fn begin(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
        options: JoinOptions,
    ) -> Result<(), JoinError> {
        let profile = settings.profile;
        let stage = match profile {
            Profile::Ordered(partition) => {
                partition.validate()?;
                Stage::Seeking
            }
            Profile::TimeCritical(_) | Profile::Bulk | Profile::Guest => {
                let engine = self.engine_for(profile).ok_or(JoinError::NoEngine { profile })?;
                engine.join(now, group, settings)?;
                Stage::In
            }
        };
        if stage == Stage::Seeking {
            self.seeking.insert(group);
        }
        self.groups
            .insert(group, Joined { settings, view: View::default(), stage, options, restarts: 0 });
        let joined = self.membership.join(now, group, settings);
        self.take_membership_events(now);
        if let Err(error) = joined {
            self.drop_engine(now, group);
            self.groups.remove(&group);
            return Err(error);
        }
        // The others wait for news of the membership.
        if self.membership.has_joined(group) {
            self.begin_ring(now, group);
        }
        Ok(())
    }

    /// The application of an ordered group does not keep up; see
    /// [`Rmp::slow_down`](crate::rmp::Rmp::slow_down).
    pub fn slow_down(&mut self, group: GroupId, by: Duration) {
        self.ordered.slow_down(group, by);
    }

    /// Leaves the group, if the node is in it; [`NodeEvent::Out`] tells when it is out. An ordered
    /// group sends what was accepted first, and leaves its ring in order. Other groups are left
    /// when all members have confirmed what was sent, or after [`LEAVE_WITHIN`].
    pub fn leave(&mut self, now: Time, group: GroupId) {
        let own = self.id();
        let Some(joined) = self.groups.get_mut(&group) else { return };
        tracing::debug!(node = %own, %group, "leaves");
        let is_ring = joined.is_ring();
        match (is_ring, joined.stage) {
            (true, Stage::In) => {
                joined.stage = Stage::Leaving;
                self.ordered.leave(now, group);
                self.forget_ended(now);
            }
            (_, Stage::Leaving) => {}
            (false, Stage::In) if !self.unconfirmed(group).is_empty() => {
                self.groups.entry(group).and_modify(|joined| joined.stage = Stage::Leaving);
                self.leaving.insert(group, now + LEAVE_WITHIN);
                self.confirm(now, group);
            }
            (_, Stage::Seeking | Stage::In) => self.forget(now, group),
        }
    }

    /// Whether a group is still being left.
    pub fn is_leaving(&self) -> bool {
        self.groups.values().any(|joined| joined.stage == Stage::Leaving)
    }

    /// Leaves all groups at once and tells the other nodes that this one is about to stop. Whoever
    /// has the time calls [`Node::leave`] first, and waits while the node
    /// [is leaving](Node::is_leaving): a ring that is left in order need not find out.
    pub fn shut_down(&mut self, now: Time) {
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.drop_engine(now, group);
        }
        self.groups.clear();
        self.leaving.clear();
        self.membership.shut_down(now);
    }

    /// The groups this node is in, with their settings and views.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &GroupSettings, &View)> {
        let joined = self.groups.iter().filter(|(_, joined)| joined.stage != Stage::Leaving);
        joined.map(|(group, joined)| (*group, &joined.settings, &joined.view))
    }

    /// Whether the node is in `group` for good: the membership has agreed, and in an ordered group
    /// there is a ring.
    pub fn has_joined(&self, group: GroupId) -> bool {
        let needs_ring = self.groups.get(&group).is_some_and(Joined::is_ring);
        self.membership.has_joined(group) && (!needs_ring || self.ordered.view(group).is_some())
    }

    /// Returns `true` if the membership has agreed to the join of `group`. In an ordered group
    /// there may be no ring yet: see [`Node::has_joined`].
    pub fn is_admitted(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group) && self.membership.has_joined(group)
    }

    /// The other members of `group` as an application should see them: of an ordered group those in
    /// the ring.
    pub fn members(&self, group: GroupId) -> Vec<NodeId> {
        let Some(joined) = self.groups.get(&group) else { return Vec::new() };
        if !joined.is_ring() {
            return joined.view.members().to_vec();
        }
        let Some(ring) = self.ordered.view(group) else { return Vec::new() };
        let mut members: Vec<NodeId> = ring.processes().map(|process| process.node).collect();
        members.retain(|node| *node != self.id());
        members.sort_unstable();
        members
    }

    /// The nodes that what is sent to `group` should reach, as the membership says; `None` if the
    /// node is not in it.
    pub fn view(&self, group: GroupId) -> Option<&View> {
        self.groups.get(&group).map(|joined| &joined.view)
    }

    pub(super) fn take_membership_events(&mut self, now: Time) {
        let mut has_settled = false;
        while let Some(event) = self.membership.poll_event() {
            match event {
                MembershipEvent::View(change) => self.on_view_change(now, change),
                MembershipEvent::Met(node, endpoint) => {
                    self.starts.meet(node, endpoint);
                    self.bulk.meet(node, endpoint);
                    self.events.push_back(NodeEvent::Met(node, endpoint));
                }
                MembershipEvent::Parted(node) => {
                    self.starts.part(now, node);
                    self.bulk.part(node);
                    self.events.push_back(NodeEvent::Parted(node));
                }
                MembershipEvent::Settled => {
                    has_settled = true;
                    self.events.push_back(NodeEvent::Settled);
                }
                MembershipEvent::Away => {
                    tracing::info!(node = %self.id(), "the membership service is away");
                    self.events.push_back(NodeEvent::Away);
                }
                MembershipEvent::Returned => {
                    tracing::info!(node = %self.id(), "the membership service is back");
                    self.events.push_back(NodeEvent::Returned);
                }
                MembershipEvent::Refused(group, error) => {
                    tracing::debug!(node = %self.id(), %group, %error, "refused");
                    self.drop_engine(now, group);
                    self.leaving.remove(&group);
                    self.groups.remove(&group);
                    self.events.push_back(NodeEvent::Refused(group, error));
                    self.events.push_back(NodeEvent::Out(group));
                }
            }
        }
        while let Some(news) = self.membership.poll_manager() {
            self.bulk.handle_manager(now, &news);
        }
        self.begin_rings(now, has_settled);
    }

    /// Another start of `node` has spoken: the one before is over, in all groups.
    pub(super) fn on_restart(&mut self, now: Time, node: NodeId) {
        let with_it = self.groups.iter().filter(|(_, joined)| joined.view.contains(node));
        let groups: Vec<GroupId> = with_it.map(|(group, _)| *group).collect();
        tracing::info!(node = %self.id(), member = %node, groups = groups.len(), "restarted");
        for group in groups {
            for kind in [ViewChangeKind::Failed, ViewChangeKind::Joined] {
                let Some(joined) = self.groups.get_mut(&group) else { continue };
                let version = joined.view.version().wrapping_sub(joined.restarts);
                joined.restarts = joined.restarts.wrapping_add(1);
                self.on_view_change(now, ViewChange { group, node, kind, version });
            }
        }
    }

    fn on_view_change(&mut self, now: Time, mut change: ViewChange) {
        let own = self.id();
        let Some(joined) = self.groups.get_mut(&change.group) else { return };
        change.version = change.version.wrapping_add(joined.restarts);
        if joined.view.apply(&change) {
            let ViewChange { group, node: member, kind, version } = change;
            tracing::info!(node = %own, %group, %member, ?kind, version, "view change");
            let is_ring = joined.is_ring();
            let is_known = joined.stage != Stage::Seeking;
            if let Some(engine) = self.engine_of(group).filter(|_| is_known) {
                engine.handle_view(now, &change);
            }
            self.forget_ended(now);
            self.events.push_back(match is_ring {
                true => NodeEvent::Neighbours(group),
                false => NodeEvent::Group(Event::View(change)),
            });
            self.forget_if_confirmed(now, group);
        }
    }

    /// Looks for the rings of groups in which it is known by now who could be there: whoever looks
    /// sooner finds nobody, and begins a ring of its own. All groups are looked through only when
    /// the membership `has_settled`: there may be thousands.
    fn begin_rings(&mut self, now: Time, has_settled: bool) {
        let mut ready = BTreeSet::new();
        if has_settled {
            ready.clone_from(&self.seeking);
        }
        while let Some(group) = self.membership.poll_joined() {
            self.events.push_back(NodeEvent::Admitted(group));
            ready.insert(group);
        }
        ready.retain(|group| self.membership.has_joined(*group));
        for group in ready {
            self.begin_ring(now, group);
        }
    }

    /// Looks for the ring of a group, unless the node has done so already.
    fn begin_ring(&mut self, now: Time, group: GroupId) {
        if !self.seeking.remove(&group) {
            return;
        }
        let Some(joined) = self.groups.get(&group) else { return };
        if joined.stage != Stage::Seeking {
            return;
        }
        let (settings, options) = (joined.settings, joined.options);
        // The profile fits and the group is new to the engine: there is nothing to refuse.
        if let Err(error) = self.ordered.join_with(now, group, settings, options) {
            tracing::error!(node = %self.id(), %group, %error, "the ring engine refuses");
        }
        self.enter(now, group);
    }

    /// The ring engine has the group from now on: it hears of everybody that the membership knows
    /// there.
    fn enter(&mut self, now: Time, group: GroupId) {
        let Some(joined) = self.groups.get_mut(&group) else { return };
        joined.stage = Stage::In;
        let version = joined.view.version();
        for node in joined.view.members() {
            let kind = ViewChangeKind::Joined;
            self.ordered.handle_view(now, &ViewChange { group, node: *node, kind, version });
        }
    }

    /// Leaves the groups for good that the ring engine is done with.
    pub(super) fn forget_ended(&mut self, now: Time) {
        while let Some(group) = self.ordered.poll_ended() {
            let is_begun = |it: &Joined| it.is_ring() && it.stage != Stage::Seeking;
            let is_ours = self.groups.get(&group).is_some_and(is_begun);
            if is_ours && !self.ordered.has(group) {
                // What the ring told last comes before the end.
                while let Some(event) = self.ordered.poll_event() {
                    self.events.push_back(NodeEvent::Group(event));
                }
                self.forget(now, group);
            }
        }
    }

    /// Leaves the group for good if it is about to be left and its members have all of it.
    pub(super) fn forget_if_confirmed(&mut self, now: Time, group: GroupId) {
        if self.leaving.contains_key(&group) && self.unconfirmed(group).is_empty() {
            self.forget(now, group);
        }
    }

    /// Leaves the groups for good whose members have not confirmed in time.
    pub(super) fn forget_due(&mut self, now: Time) {
        let due = self.leaving.iter().filter(|(_, at)| **at <= now);
        let due: Vec<GroupId> = due.map(|(group, _)| *group).collect();
        due.into_iter().for_each(|group| self.forget(now, group));
    }

    /// Leaves the group at once.
    fn forget(&mut self, now: Time, group: GroupId) {
        if self.take_out(now, group) {
            self.events.push_back(NodeEvent::Out(group));
        }
    }

    /// Leaves the group at once, which nobody is told; says whether the node was in it.
    fn take_out(&mut self, now: Time, group: GroupId) -> bool {
        self.drop_engine(now, group);
        self.leaving.remove(&group);
        if self.groups.remove(&group).is_none() {
            return false;
        }
        self.membership.leave(now, group);
        self.take_membership_events(now);
        true
    }

    /// Takes the group from its engine.
    fn drop_engine(&mut self, now: Time, group: GroupId) {
        let Some(joined) = self.groups.get(&group) else { return };
        match joined.settings.profile {
            Profile::Ordered(_) => self.ordered.abandon(now, group),
            profile => {
                if let Some(engine) = self.engine_for(profile) {
                    engine.leave(now, group);
                }
            }
        }
    }
}

impl Joined {
    fn is_ring(&self) -> bool {
        matches!(self.settings.profile, Profile::Ordered(_))
    }
}

/// How long a node that leaves a group waits for the members to confirm what it has sent. A ring
/// has a [setting](crate::rmp::Config::leave_within) of the same length.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
