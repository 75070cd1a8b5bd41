//! Subscriptions of connections to groups, with the version that each has.

use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroUsize;

use crate::membership::link::LinkId;
use crate::membership::service::outbox::Outbox;
use crate::membership::service::partition_state::GroupState;
use crate::membership::service::protocol::frame::{
    ChangeKind, Frame, Member, MemberChange, Snapshot, Update,
};
use crate::{GroupId, NodeId, Rng};

#[derive(Debug)]
pub(super) struct Subscribers {
    view_size: Option<NonZeroUsize>,
    rng: Rng,
    by_group: BTreeMap<GroupId, BTreeMap<LinkId, Subscription>>,
    by_link: BTreeMap<LinkId, BTreeSet<GroupId>>,
    updates_sent: u64,
    snapshots_sent: u64,
}

#[derive(Debug)]
struct Subscription {
    version: u64,
    /// A node and the members that it is shown, or `None` if all members are shown.
    partial: Option<(NodeId, BTreeMap<NodeId, Member>)>,
}

/// Maximum number of members in one part of a snapshot.
const SNAPSHOT_PART: usize = 4000;

impl Subscribers {
    pub(super) fn new(view_size: Option<NonZeroUsize>, rng: Rng) -> Self {
        let (by_group, by_link) = (BTreeMap::new(), BTreeMap::new());
        Self { view_size, rng, by_group, by_link, updates_sent: 0, snapshots_sent: 0 }
    }

    /// Sends the group's members, or a new partial view for the node `viewer`, and subscribes the
    /// connection to changes. Observers have no viewer, and are sent all members.
    pub(super) fn show(
        &mut self,
        outbox: &mut Outbox,
        link: LinkId,
        viewer: Option<NodeId>,
        (group, state): (GroupId, &GroupState),
    ) {
        let partial = viewer.zip(self.view_size);
        let partial = partial.map(|(node, size)| (node, self.draw(state, node, size.get())));
        let members: Vec<Member> = match &partial {
            Some((_, shown)) => shown.values().copied().collect(),
            None => state.members.values().copied().collect(),
        };
        let mut parts = members.chunks(SNAPSHOT_PART).peekable();
        let (version, settings) = (state.version, state.settings);
        loop {
            let members = parts.next().unwrap_or_default().to_vec();
            let more = parts.peek().is_some();
            let snapshot = Snapshot { group, version, more, settings, members };
            outbox.send(link, &Frame::Snapshot(snapshot));
            if !more {
                break;
            }
        }
        self.snapshots_sent += 1;
        self.add(link, group, Subscription { version, partial });
    }

    /// Subscribes the connection to changes. Returns `true` if it already has the current version,
    /// and sends a snapshot otherwise.
    pub(super) fn resync(
        &mut self,
        outbox: &mut Outbox,
        link: LinkId,
        node: NodeId,
        (group, have): (GroupId, u64),
        state: &GroupState,
    ) -> bool {
        // The members that a partial view showed are no longer known.
        let is_unchanged = have == state.version && self.view_size.is_none();
        if is_unchanged {
            let version = state.version;
            outbox.send(link, &Frame::Unchanged { group, version });
            self.add(link, group, Subscription { version, partial: None });
        } else {
            self.show(outbox, link, Some(node), (group, state));
        }
        is_unchanged
    }

    /// Sends the changes of the group, which now has this version and these members, to its
    /// subscribers.
    pub(super) fn update(
        &mut self,
        outbox: &mut Outbox,
        group: GroupId,
        version: u64,
        members: &BTreeMap<NodeId, Member>,
        changes: &[MemberChange],
    ) {
        let Some(links) = self.by_group.get_mut(&group) else { return };
        let mut full = Frame::Update(Update { group, after: 0, version, changes: changes.into() });
        for (link, subscription) in links {
            let Subscription { version: known, partial } = subscription;
            if let Some((node, shown)) = partial {
                let size = self.view_size.map_or(0, NonZeroUsize::get);
                let mut partial = Partial { node: *node, size, shown, members, rng: &mut self.rng };
                let changes = partial.follow(changes);
                if changes.is_empty() {
                    continue;
                }
                let update = Update { group, after: *known, version, changes };
                outbox.send(*link, &Frame::Update(update));
            } else if let Frame::Update(update) = &mut full {
                update.after = *known;
                outbox.send(*link, &full);
            }
            *known = version;
            self.updates_sent += 1;
        }
    }

    pub(super) fn remove(&mut self, link: LinkId, group: GroupId) {
        if let Some(links) = self.by_group.get_mut(&group) {
            links.remove(&link);
            if links.is_empty() {
                self.by_group.remove(&group);
            }
        }
        self.forget(link, group);
    }

    /// Removes all subscriptions to the group. Returns their connections.
    pub(super) fn remove_group(&mut self, group: GroupId) -> Vec<LinkId> {
        let links = self.by_group.remove(&group).unwrap_or_default();
        links.keys().for_each(|link| self.forget(*link, group));
        links.into_keys().collect()
    }

    pub(super) fn remove_link(&mut self, link: LinkId) {
        for group in self.by_link.remove(&link).unwrap_or_default() {
            self.remove(link, group);
        }
    }

    pub(super) fn is_subscribed(&self, link: LinkId, group: GroupId) -> bool {
        self.by_link.get(&link).is_some_and(|groups| groups.contains(&group))
    }

    pub(super) fn stats(&self) -> [(&'static str, u64); 2] {
        [("updates_sent", self.updates_sent), ("snapshots_sent", self.snapshots_sent)]
    }

    pub(super) fn check(&self, exists: impl Fn(LinkId) -> bool) {
        let by_group = self
            .by_group
            .iter()
            .flat_map(|(group, links)| links.keys().map(|link| (*link, *group)));
        let by_group: BTreeSet<(LinkId, GroupId)> = by_group.collect();
        let by_link = self
            .by_link
            .iter()
            .flat_map(|(link, groups)| groups.iter().map(|group| (*link, *group)));
        assert!(by_link.eq(by_group), "the indexes of subscriptions differ");
        assert!(self.by_link.keys().all(|link| exists(*link)), "a subscriber is not connected");
    }

    fn add(&mut self, link: LinkId, group: GroupId, subscription: Subscription) {
        self.by_group.entry(group).or_default().insert(link, subscription);
        self.by_link.entry(link).or_default().insert(group);
    }

    fn forget(&mut self, link: LinkId, group: GroupId) {
        if let Some(groups) = self.by_link.get_mut(&link) {
            groups.remove(&group);
            if groups.is_empty() {
                self.by_link.remove(&link);
            }
        }
    }

    fn draw(&mut self, state: &GroupState, node: NodeId, size: usize) -> BTreeMap<NodeId, Member> {
        let others = state.members.values().filter(|member| member.node != node);
        let mut others: Vec<Member> = others.copied().collect();
        self.rng.choose_to_front(&mut others, size);
        others.truncate(size);
        others.into_iter().map(|member| (member.node, member)).collect()
    }
}

/// A partial view that follows its group.
///
/// After each change it is as uniform as if it were drawn again (Slingshot 3.3).
struct Partial<'a> {
    node: NodeId,
    size: usize,
    shown: &'a mut BTreeMap<NodeId, Member>,
    /// Members of the group after all changes.
    members: &'a BTreeMap<NodeId, Member>,
    rng: &'a mut Rng,
}

impl Partial<'_> {
    fn follow(&mut self, changes: &[MemberChange]) -> Vec<MemberChange> {
        let mut reported = Vec::new();
        let own = self.node;
        for change in changes.iter().filter(|change| change.member.node != own) {
            match change.kind {
                ChangeKind::Joined => self.on_joined(change.member, &mut reported),
                _ if self.shown.remove(&change.member.node).is_some() => {
                    reported.push(*change);
                    self.refill(&mut reported);
                }
                _ => {}
            }
        }
        reported
    }

    /// Shows a new member with the same probability as every other member (reservoir sampling).
    fn on_joined(&mut self, member: Member, reported: &mut Vec<MemberChange>) {
        let joined = MemberChange { kind: ChangeKind::Joined, member };
        let is_member_still = self.members.get(&member.node) == Some(&member);
        if !self.shown.contains_key(&member.node) {
            let others = self.members.keys().filter(|node| **node != self.node).count();
            let is_chosen = others > 0 && self.rng.below(others) < self.size;
            let has_room = self.shown.len() < self.size;
            if !is_member_still || !(has_room || is_chosen) {
                return;
            }
            if !has_room {
                self.hide_one(reported);
            }
        }
        self.shown.insert(member.node, member);
        reported.push(joined);
    }

    fn hide_one(&mut self, reported: &mut Vec<MemberChange>) {
        let place = self.rng.below(self.shown.len());
        if let Some(member) = self.shown.values().nth(place).copied() {
            self.shown.remove(&member.node);
            reported.push(MemberChange { kind: ChangeKind::Hidden, member });
        }
    }

    fn refill(&mut self, reported: &mut Vec<MemberChange>) {
        let hidden = self.members.values();
        let hidden: Vec<Member> = hidden
            .filter(|it| it.node != self.node && !self.shown.contains_key(&it.node))
            .copied()
            .collect();
        if !hidden.is_empty() && self.shown.len() < self.size {
            let member = hidden[self.rng.below(hidden.len())];
            self.shown.insert(member.node, member);
            reported.push(MemberChange { kind: ChangeKind::Joined, member });
        }
    }
}
