//! Subscriptions of connections to groups, with the version that each has.

use alloc::collections::BTreeMap;
use core::num::NonZeroUsize;

use super::super::frame::{ChangeKind, Frame, Member, MemberChange, Snapshot, Update};
use super::super::outbox::Outbox;
use super::super::registry::GroupState;
use crate::membership::link::LinkId;
use crate::{GroupId, NodeId, Rng};

/// The connections that receive each group.
#[derive(Debug)]
pub(super) struct Audience {
    view_size: Option<NonZeroUsize>,
    rng: Rng,
    told: BTreeMap<GroupId, BTreeMap<LinkId, Told>>,
    pub(super) updates_sent: u64,
    pub(super) snapshots_sent: u64,
}

#[derive(Debug)]
struct Told {
    node: NodeId,
    version: u64,
    /// The members that the node is shown, or `None` for all.
    shown: Option<BTreeMap<NodeId, Member>>,
}

/// Maximum number of members in one part of a snapshot.
const SNAPSHOT_PART: usize = 4000;

impl Audience {
    pub(super) fn new(view_size: Option<NonZeroUsize>, rng: Rng) -> Self {
        Self { view_size, rng, told: BTreeMap::new(), updates_sent: 0, snapshots_sent: 0 }
    }

    /// Sends the group's members, or a new partial view, and subscribes the connection to changes.
    pub(super) fn show(
        &mut self,
        outbox: &mut Outbox,
        link: LinkId,
        node: NodeId,
        group: GroupId,
        state: &GroupState,
    ) {
        let shown = self.view_size.map(|size| self.draw(state, node, size.get()));
        self.tell_all(outbox, link, group, state, (node, shown));
    }

    /// Sends all members and subscribes the connection to changes. Partial views apply only to
    /// nodes.
    pub(super) fn show_to_observer(
        &mut self,
        outbox: &mut Outbox,
        link: LinkId,
        group: GroupId,
        state: &GroupState,
    ) {
        self.tell_all(outbox, link, group, state, (NodeId(0), None));
    }

    fn tell_all(
        &mut self,
        outbox: &mut Outbox,
        link: LinkId,
        group: GroupId,
        state: &GroupState,
        (node, shown): (NodeId, Option<BTreeMap<NodeId, Member>>),
    ) {
        let members: Vec<Member> = match &shown {
            Some(shown) => shown.values().copied().collect(),
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
        self.told.entry(group).or_default().insert(link, Told { node, version, shown });
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
            let told = Told { node, version, shown: None };
            self.told.entry(group).or_default().insert(link, told);
        } else {
            self.show(outbox, link, node, group, state);
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
        let Some(links) = self.told.get_mut(&group) else { return };
        let mut full = Frame::Update(Update { group, after: 0, version, changes: changes.into() });
        for (link, told) in links {
            let Told { node, shown, .. } = told;
            if let Some(shown) = shown {
                let size = self.view_size.map_or(0, NonZeroUsize::get);
                let mut partial = Partial { node: *node, size, shown, members, rng: &mut self.rng };
                let changes = partial.follow(changes);
                if changes.is_empty() {
                    continue;
                }
                let update = Update { group, after: told.version, version, changes };
                outbox.send(*link, &Frame::Update(update));
            } else if let Frame::Update(update) = &mut full {
                update.after = told.version;
                outbox.send(*link, &full);
            }
            told.version = version;
            self.updates_sent += 1;
        }
    }

    pub(super) fn remove(&mut self, link: LinkId, group: GroupId) {
        if let Some(links) = self.told.get_mut(&group) {
            links.remove(&link);
            if links.is_empty() {
                self.told.remove(&group);
            }
        }
    }

    /// Removes all subscriptions to the group. Returns their connections.
    pub(super) fn remove_group(&mut self, group: GroupId) -> Vec<LinkId> {
        let links = self.told.remove(&group);
        links.into_iter().flat_map(BTreeMap::into_keys).collect()
    }

    pub(super) fn is_told(&self, link: LinkId, group: GroupId) -> bool {
        self.told.get(&group).is_some_and(|links| links.contains_key(&link))
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
        let mut said = Vec::new();
        let own = self.node;
        for change in changes.iter().filter(|change| change.member.node != own) {
            match change.kind {
                ChangeKind::Joined => self.on_joined(change.member, &mut said),
                _ if self.shown.remove(&change.member.node).is_some() => {
                    said.push(*change);
                    self.refill(&mut said);
                }
                _ => {}
            }
        }
        said
    }

    /// Shows a new member with the same probability as every other member (reservoir sampling).
    fn on_joined(&mut self, member: Member, said: &mut Vec<MemberChange>) {
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
                self.hide_one(said);
            }
        }
        self.shown.insert(member.node, member);
        said.push(joined);
    }

    fn hide_one(&mut self, said: &mut Vec<MemberChange>) {
        let place = self.rng.below(self.shown.len());
        if let Some(member) = self.shown.values().nth(place).copied() {
            self.shown.remove(&member.node);
            said.push(MemberChange { kind: ChangeKind::Hidden, member });
        }
    }

    fn refill(&mut self, said: &mut Vec<MemberChange>) {
        let hidden = self.members.values();
        let hidden: Vec<Member> = hidden
            .filter(|it| it.node != self.node && !self.shown.contains_key(&it.node))
            .copied()
            .collect();
        if !hidden.is_empty() && self.shown.len() < self.size {
            let member = hidden[self.rng.below(hidden.len())];
            self.shown.insert(member.node, member);
            said.push(MemberChange { kind: ChangeKind::Joined, member });
        }
    }
}
