use alloc::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use crate::membership::service::protocol::frame::Member;
use crate::membership::{GroupView, MembershipEvent};
use crate::{Endpoint, GroupId, NodeId, ViewChangeKind};

#[derive(Debug)]
pub(super) struct Views {
    own: NodeId,
    peers: BTreeMap<NodeId, Peer>,
    groups: BTreeMap<GroupId, GroupView>,
}

#[derive(Debug)]
struct Peer {
    member: Member,
    groups: BTreeSet<GroupId>,
}

impl Views {
    pub(super) fn new(own: NodeId) -> Self {
        Self { own, peers: BTreeMap::new(), groups: BTreeMap::new() }
    }

    pub(super) fn join(&mut self, group: GroupId) {
        self.groups.entry(group).or_default();
    }

    pub(super) fn leave(&mut self, cx: &mut Context, group: GroupId) {
        let view = self.groups.remove(&group).unwrap_or_default();
        view.members.into_iter().for_each(|node| self.release(cx, node, group));
    }

    pub(super) fn admit(&mut self, cx: &mut Context, group: GroupId, member: Member) {
        if member.node == self.own || !self.groups.contains_key(&group) {
            return;
        }
        match self.peers.get_mut(&member.node) {
            None => self.meet(cx, member),
            Some(peer) if !peer.member.is_over(&member) => {}
            Some(peer) if member.endpoint == peer.member.endpoint => peer.member = member,
            Some(_) => self.move_peer(cx, member),
        }
        let (Some(peer), Some(view)) =
            (self.peers.get_mut(&member.node), self.groups.get_mut(&group))
        else {
            return;
        };
        if view.admit(&mut cx.events, group, member.node) {
            peer.groups.insert(group);
        }
    }

    pub(super) fn dismiss(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        node: NodeId,
        kind: ViewChangeKind,
    ) {
        let Some(view) = self.groups.get_mut(&group) else { return };
        if view.dismiss(&mut cx.events, group, node, kind) {
            self.release(cx, node, group);
        }
    }

    /// Replaces the members of a view. Removed ones have *left*, because the reason is unknown.
    pub(super) fn replace(&mut self, cx: &mut Context, group: GroupId, members: &[Member]) {
        let Some(view) = self.groups.get(&group) else { return };
        let stay: BTreeSet<NodeId> = members.iter().map(|member| member.node).collect();
        let gone: Vec<NodeId> = view.members.difference(&stay).copied().collect();
        for node in gone {
            self.dismiss(cx, group, node, ViewChangeKind::Left);
        }
        members.iter().for_each(|member| self.admit(cx, group, *member));
    }

    pub(super) fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        self.peers.iter().map(|(node, peer)| (*node, peer.member.endpoint)).collect()
    }

    pub(super) fn check(&self) {
        for (node, peer) in &self.peers {
            assert!(*node != self.own, "a node is its own peer");
            assert!(!peer.groups.is_empty(), "{node:?} is known but in no view");
            for group in &peer.groups {
                let is_in = self.groups.get(group).is_some_and(|view| view.members.contains(node));
                assert!(is_in, "the index lists {node:?} in {group:?}, but the view does not");
            }
        }
        for (group, view) in &self.groups {
            for node in &view.members {
                let is_noted = self.peers.get(node).is_some_and(|peer| peer.groups.contains(group));
                assert!(is_noted, "the view of {group:?} lists {node:?}, but the index does not");
            }
        }
    }

    fn meet(&mut self, cx: &mut Context, member: Member) {
        cx.events.push_back(MembershipEvent::Met(member.node, member.endpoint));
        self.peers.insert(member.node, Peer { member, groups: BTreeSet::new() });
    }

    /// Replaces a member. Engines see the old member fail and the new one join.
    fn move_peer(&mut self, cx: &mut Context, member: Member) {
        let groups = self.peers.get(&member.node).map(|peer| peer.groups.clone());
        let groups = groups.unwrap_or_default();
        for group in &groups {
            self.dismiss(cx, *group, member.node, ViewChangeKind::Failed);
        }
        self.meet(cx, member);
        for group in groups {
            self.admit(cx, group, member);
        }
    }

    fn release(&mut self, cx: &mut Context, node: NodeId, group: GroupId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.groups.remove(&group);
        if peer.groups.is_empty() {
            self.peers.remove(&node);
            cx.events.push_back(MembershipEvent::Parted(node));
        }
    }
}
