use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Node, NodeEvent};
use crate::membership::MembershipEvent;
use crate::ring::JoinOptions;
use crate::{
    Engine, Event, GroupId, GroupSettings, JoinError, NetworkChange, NodeId, Profile, Time, View,
    ViewChange, ViewChangeKind,
};

pub(super) struct Joined {
    pub(super) settings: GroupSettings,
    pub(super) view: View,
    pub(super) stage: Stage,
    options: JoinOptions,
    /// Number of view changes caused by restarts, which the membership provider does not count.
    restarts: u32,
}

/// Stage of this node's membership in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The membership searches for the other members. The engine does not have the group yet.
    Seeking,
    In,
    /// The application has left the group. The engine still has it.
    Leaving,
}

impl Node {
    /// Joins the group called `name`.
    ///
    /// # Errors
    /// Returns an error if the name or the settings are invalid or contradict settings that are
    /// already known, if the node is already in the group, if it has no engine for the profile, or
    /// if the membership permits no more groups. A contradiction that is discovered later is
    /// reported by [`NodeEvent::Refused`].
    pub fn join(&mut self, now: Time, name: &str, profile: Profile) -> Result<GroupId, JoinError> {
        self.join_with(now, name, profile, JoinOptions::default())
    }

    /// Like [`Node::join`], but with options for this node's membership in an ordered group.
    ///
    /// # Errors
    /// Returns the errors of [`Node::join`].
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
                    self.engines.ordered.join_with(now, group, settings, options)?;
                    self.enter(now, group);
                    return Ok(group);
                }
                // The leave cannot be undone: the group has no ring, or the settings differ.
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
                    // This join failed, but the earlier membership has ended.
                    self.events.push_back(NodeEvent::Out(group));
                }
            }
        }
        joined.map(|()| group)
    }

    fn begin(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
        options: JoinOptions,
    ) -> Result<(), JoinError> {
        let profile = settings.profile;
        let stage = match profile {
            Profile::Ordered(_) => {
                profile.validate()?;
                Stage::Seeking
            }
            Profile::TimeCritical(_) | Profile::Bulk | Profile::Guest => {
                let engine = self
                    .engines
                    .of_mut(profile.protocol())
                    .ok_or(JoinError::NoEngine { profile })?;
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
            self.seeking.remove(&group);
            return Err(error);
        }
        // Other groups start when the membership reports that it has settled.
        if self.membership.has_joined(group) {
            self.begin_ring(now, group);
        }
        Ok(())
    }

    /// Leaves the group. Has no effect if the node is not in the group. [`NodeEvent::Out`] reports
    /// that the leave is complete.
    ///
    /// In an ordered group, the node first sends the accepted messages, and then leaves the ring
    /// gracefully. In other groups, the leave is complete when all members have confirmed the
    /// node's messages, or after [`LEAVE_WITHIN`].
    pub fn leave(&mut self, now: Time, group: GroupId) {
        let own = self.id();
        let Some(joined) = self.groups.get_mut(&group) else { return };
        tracing::debug!(node = %own, %group, "leaves");
        let is_ring = joined.is_ring();
        match (is_ring, joined.stage) {
            (true, Stage::In) => {
                joined.stage = Stage::Leaving;
                self.engines.ordered.leave(now, group);
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

    /// Returns `true` if this node is leaving at least one group.
    pub fn is_leaving(&self) -> bool {
        self.groups.values().any(|joined| joined.stage == Stage::Leaving)
    }

    /// Leaves all groups immediately and notifies the other nodes that this node stops.
    ///
    /// To leave gracefully, call [`Node::leave`] first and wait while the node [is
    /// leaving](Node::is_leaving). The other members of a ring then do not have to detect a
    /// failure.
    pub fn shut_down(&mut self, now: Time) {
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.drop_engine(now, group);
        }
        self.groups.clear();
        self.leaving.clear();
        self.membership.shut_down(now);
    }

    /// Returns the groups that this node is in, with their settings and views.
    ///
    /// Groups that this node is leaving are not included.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &GroupSettings, &View)> {
        let joined = self.groups.iter().filter(|(_, joined)| joined.stage != Stage::Leaving);
        joined.map(|(group, joined)| (*group, &joined.settings, &joined.view))
    }

    /// Returns `true` if the join of `group` is complete.
    ///
    /// The membership must have accepted it, and an ordered group must have a ring.
    pub fn has_joined(&self, group: GroupId) -> bool {
        let needs_ring = self.groups.get(&group).is_some_and(Joined::is_ring);
        self.membership.has_joined(group)
            && (!needs_ring || self.engines.ordered.view(group).is_some())
    }

    /// Returns `true` if the membership has accepted the join of `group`.
    ///
    /// An ordered group may not have a ring yet: see [`Node::has_joined`].
    pub fn is_admitted(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group) && self.membership.has_joined(group)
    }

    /// Returns the other members of `group` as the application sees them.
    ///
    /// In an ordered group these are the members of the ring.
    pub fn members(&self, group: GroupId) -> Vec<NodeId> {
        let Some(joined) = self.groups.get(&group) else { return Vec::new() };
        if !joined.is_ring() {
            return joined.view.members().to_vec();
        }
        let Some(ring) = self.engines.ordered.view(group) else { return Vec::new() };
        let mut members: Vec<NodeId> = ring.processes().map(|process| process.node).collect();
        members.retain(|node| *node != self.id());
        members.sort_unstable();
        members
    }

    /// Returns the membership's view of `group`, or `None` if the node is not in the group.
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
                    self.handle_network(now, &NetworkChange::Met(node, endpoint));
                    self.events.push_back(NodeEvent::Met(node, endpoint));
                }
                MembershipEvent::Parted(node) => {
                    self.starts.part(now, node);
                    self.handle_network(now, &NetworkChange::Parted(node));
                    self.events.push_back(NodeEvent::Parted(node));
                }
                MembershipEvent::Settled => {
                    has_settled = true;
                    self.events.push_back(NodeEvent::Settled);
                }
                MembershipEvent::Away => {
                    tracing::info!(node = %self.id(), "the registry is unreachable");
                    self.events.push_back(NodeEvent::Away);
                }
                MembershipEvent::Returned => {
                    tracing::info!(node = %self.id(), "the registry is reachable again");
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
            self.engines.for_each(|engine| engine.handle_manager(now, &news));
        }
        self.begin_rings(now, has_settled);
    }

    /// Reports that `node` failed and joined again, in each group whose view contains it.
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

    /// Reports admitted groups, and starts the rings whose possible members are now known.
    ///
    /// A node that searched for its ring earlier would find no member, and would found its own
    /// ring. All waiting groups are checked only when the membership `has_settled`, because there
    /// can be thousands.
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

    fn begin_ring(&mut self, now: Time, group: GroupId) {
        if !self.seeking.remove(&group) {
            return;
        }
        let Some(joined) = self.groups.get(&group) else { return };
        if joined.stage != Stage::Seeking {
            return;
        }
        let (settings, options) = (joined.settings, joined.options);
        // The engine cannot refuse, because the profile fits and the group is new to the engine.
        if let Err(error) = self.engines.ordered.join_with(now, group, settings, options) {
            tracing::error!(node = %self.id(), %group, %error, "the ring engine refused the join");
        }
        self.enter(now, group);
    }

    /// Reports to the ring engine, which now has the group, all members that the membership knows.
    fn enter(&mut self, now: Time, group: GroupId) {
        let Some(joined) = self.groups.get_mut(&group) else { return };
        joined.stage = Stage::In;
        let version = joined.view.version();
        for node in joined.view.members() {
            let kind = ViewChangeKind::Joined;
            self.engines
                .ordered
                .handle_view(now, &ViewChange { group, node: *node, kind, version });
        }
    }

    pub(super) fn forget_ended(&mut self, now: Time) {
        while let Some(group) = self.engines.ordered.poll_ended() {
            let is_begun = |it: &Joined| it.is_ring() && it.stage != Stage::Seeking;
            let is_ours = self.groups.get(&group).is_some_and(is_begun);
            if is_ours && !self.engines.ordered.has(group) {
                // The last events of the ring precede the end of the membership.
                while let Some(event) = self.engines.ordered.poll_event() {
                    self.events.push_back(NodeEvent::Group(event));
                }
                self.forget(now, group);
            }
        }
    }

    pub(super) fn forget_if_confirmed(&mut self, now: Time, group: GroupId) {
        if self.leaving.contains_key(&group) && self.unconfirmed(group).is_empty() {
            self.forget(now, group);
        }
    }

    pub(super) fn forget_due(&mut self, now: Time) {
        let due = self.leaving.iter().filter(|(_, at)| **at <= now);
        let due: Vec<GroupId> = due.map(|(group, _)| *group).collect();
        due.into_iter().for_each(|group| self.forget(now, group));
    }

    fn forget(&mut self, now: Time, group: GroupId) {
        if self.take_out(now, group) {
            self.events.push_back(NodeEvent::Out(group));
        }
    }

    /// Removes the group without an event. Returns `true` if the node was in the group.
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

    fn drop_engine(&mut self, now: Time, group: GroupId) {
        if let Some(engine) = self.engine_of(group) {
            engine.abandon(now, group);
        }
    }
}

impl Joined {
    fn is_ring(&self) -> bool {
        matches!(self.settings.profile, Profile::Ordered(_))
    }
}

/// Maximum time for which a node that leaves a group waits until the members have confirmed its
/// messages.
///
/// For rings, the [setting](crate::rmp::Config::leave_within) has the same default.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
