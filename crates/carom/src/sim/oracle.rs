//! Membership by an oracle: the world itself tells each node who is in its groups.

mod ear;

use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::{GroupId, GroupSettings, JoinError, NodeId};
use carom_sim::HostIx;

pub(crate) use ear::{Ear, Hearer, News};

/// How the nodes of a world find each other, unless they have
/// [static members](crate::Builder::static_members).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// As on a real network: they find each other by themselves and find out by themselves who has
    /// failed. All of that crosses the simulated network and suffers from what goes wrong there.
    #[default]
    Gossip,
    /// The world tells every node who has joined and left its groups, and who has crashed, `delay`
    /// after it happened. Nothing of it crosses the network, so that partitions change no view; a
    /// node has found its place as soon as it starts. For many nodes in many groups, and for
    /// measurements in which membership is not to be seen.
    Oracle {
        /// From a join, a leave or a crash until the others know of it.
        delay: Duration,
    },
}

/// Who is in which group.
pub(super) struct Oracle {
    pub(super) delay: Duration,
    groups: BTreeMap<GroupId, BTreeMap<NodeId, Member>>,
}

/// A member of a group.
#[derive(Clone, Copy, Debug)]
struct Member {
    host: HostIx,
    settings: GroupSettings,
    /// Which of the node's times in the group this is.
    stay: u32,
}

impl Oracle {
    pub(super) fn new(delay: Duration) -> Self {
        Self { delay, groups: BTreeMap::new() }
    }

    /// A node is in a group from now on; appends what has to be told, and where.
    pub(super) fn join(
        &mut self,
        (host, node): (HostIx, NodeId),
        group: GroupId,
        settings: GroupSettings,
        stay: u32,
        out: &mut Vec<(HostIx, News)>,
    ) {
        let members = self.groups.entry(group).or_default();
        members.remove(&node);
        if let Some((by, other)) = members.first_key_value()
            && let Some(error) = contradiction(settings, other.settings, *by)
        {
            out.push((host, News::Refused { group, stay, error }));
            return;
        }
        for (other, member) in &*members {
            let endpoint = member.host.endpoint();
            out.push((host, News::Joined { group, stay, node: *other, endpoint }));
            let news = News::Joined { group, stay: member.stay, node, endpoint: host.endpoint() };
            out.push((member.host, news));
        }
        members.insert(node, Member { host, settings, stay });
    }

    /// A node has left a group.
    pub(super) fn leave(&mut self, node: NodeId, group: GroupId, out: &mut Vec<(HostIx, News)>) {
        let Some(members) = self.groups.get_mut(&group) else { return };
        if members.remove(&node).is_none() {
            return;
        }
        out.extend(
            members
                .values()
                .map(|member| (member.host, News::Left { group, stay: member.stay, node })),
        );
        if members.is_empty() {
            self.groups.remove(&group);
        }
    }

    /// A node is gone; all who shared a group with it are told once.
    pub(super) fn crash(&mut self, node: NodeId, out: &mut Vec<(HostIx, News)>) {
        let mut told = BTreeMap::new();
        self.groups.retain(|_, members| {
            if members.remove(&node).is_some() {
                told.extend(members.values().map(|member| (member.host, ())));
            }
            !members.is_empty()
        });
        out.extend(told.into_keys().map(|host| (host, News::Gone { node })));
    }
}

fn contradiction(ours: GroupSettings, theirs: GroupSettings, by: NodeId) -> Option<JoinError> {
    if ours.name_check != theirs.name_check {
        return Some(JoinError::NameCollision);
    }
    (ours != theirs).then_some(JoinError::Contradiction { ours, theirs, by })
}
