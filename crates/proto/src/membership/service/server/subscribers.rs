use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroUsize;
use core::ops::RangeInclusive;

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
    by_group: BTreeMap<(GroupId, LinkId), Subscription>,
    by_link: BTreeSet<(LinkId, GroupId)>,
    updates_sent: u64,
    snapshots_sent: u64,
}

#[derive(Debug)]
struct Subscription {
    version: u64,
    /// The viewer and the shown members, or `None` if all members are shown.
    partial: Option<(NodeId, BTreeMap<NodeId, Member>)>,
}

const SNAPSHOT_PART: usize = 4000;

impl Subscribers {
    pub(super) fn new(view_size: Option<NonZeroUsize>, rng: Rng) -> Self {
        let (by_group, by_link) = (BTreeMap::new(), BTreeSet::new());
        Self { view_size, rng, by_group, by_link, updates_sent: 0, snapshots_sent: 0 }
    }

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

    pub(super) fn resync(
        &mut self,
        outbox: &mut Outbox,
        link: LinkId,
        node: NodeId,
        (group, have): (GroupId, u64),
        state: &GroupState,
    ) -> bool {
        // The members that an earlier partial view showed are no longer known.
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

    pub(super) fn update(
        &mut self,
        outbox: &mut Outbox,
        group: GroupId,
        version: u64,
        members: &BTreeMap<NodeId, Member>,
        changes: &[MemberChange],
    ) {
        let mut full = Frame::Update(Update { group, after: 0, version, changes: changes.into() });
        for ((_, link), subscription) in self.by_group.range_mut(links_of(group)) {
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
        self.by_group.remove(&(group, link));
        self.by_link.remove(&(link, group));
    }

    pub(super) fn remove_group(&mut self, group: GroupId) -> Vec<LinkId> {
        let subscriptions = self.by_group.range(links_of(group));
        let links: Vec<LinkId> = subscriptions.map(|((_, link), _)| *link).collect();
        links.iter().for_each(|link| self.remove(*link, group));
        links
    }

    pub(super) fn remove_link(&mut self, link: LinkId) {
        let own = self.by_link.range((link, GroupId(0))..=(link, GroupId(u32::MAX)));
        let groups: Vec<GroupId> = own.map(|(_, group)| *group).collect();
        groups.into_iter().for_each(|group| self.remove(link, group));
    }

    pub(super) fn is_subscribed(&self, link: LinkId, group: GroupId) -> bool {
        self.by_link.contains(&(link, group))
    }

    pub(super) fn stats(&self) -> [(&'static str, u64); 2] {
        [("updates_sent", self.updates_sent), ("snapshots_sent", self.snapshots_sent)]
    }

    pub(super) fn check(&self, exists: impl Fn(LinkId) -> bool) {
        let by_group = self.by_group.keys().map(|(group, link)| (*link, *group));
        let by_group: BTreeSet<(LinkId, GroupId)> = by_group.collect();
        assert_eq!(self.by_link, by_group, "the indexes of subscriptions differ");
        let is_connected = self.by_link.iter().all(|(link, _)| exists(*link));
        assert!(is_connected, "a subscriber is not connected");
    }

    fn add(&mut self, link: LinkId, group: GroupId, subscription: Subscription) {
        self.by_group.insert((group, link), subscription);
        self.by_link.insert((link, group));
    }

    fn draw(&mut self, state: &GroupState, node: NodeId, size: usize) -> BTreeMap<NodeId, Member> {
        let others = state.members.values().filter(|member| member.node != node);
        let mut others: Vec<Member> = others.copied().collect();
        self.rng.choose_to_front(&mut others, size);
        others.truncate(size);
        others.into_iter().map(|member| (member.node, member)).collect()
    }
}

fn links_of(group: GroupId) -> RangeInclusive<(GroupId, LinkId)> {
    (group, LinkId(0))..=(group, LinkId(u64::MAX))
}

/// A partial view. After each change, it is as random as if it were drawn again (Slingshot 3.3).
struct Partial<'a> {
    node: NodeId,
    size: usize,
    shown: &'a mut BTreeMap<NodeId, Member>,
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

    /// Applies the join of a member, which may enter the view by reservoir sampling.
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
