//! A membership oracle: the world reports the members of each group to the nodes.

mod provider;

use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::{GroupId, GroupSettings, JoinError, NodeId};
use carom_sim::HostIx;

pub(crate) use provider::{News, OracleLink, OracleProvider};

/// The source of views for the nodes of a world that have no static members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// Gossip over the simulated network with its faults, for tests of realistic membership.
    #[default]
    Gossip,
    /// The world reports joins, leaves and crashes to all affected nodes after `delay`. These
    /// reports do not cross the network, so partitions change no view. Choose this for many nodes
    /// in many groups, and for measurements without membership traffic.
    Oracle {
        /// Time from a join, a leave or a crash until the other nodes know of it.
        delay: Duration,
    },
}

pub(super) struct Oracle {
    pub(super) delay: Duration,
    groups: BTreeMap<GroupId, BTreeMap<NodeId, Member>>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    host: HostIx,
    settings: GroupSettings,
    stay: u32,
}

impl Oracle {
    pub(super) fn new(delay: Duration) -> Self {
        Self { delay, groups: BTreeMap::new() }
    }

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

    pub(super) fn crash(&mut self, node: NodeId, out: &mut Vec<(HostIx, News)>) {
        let mut notified = BTreeMap::new();
        self.groups.retain(|_, members| {
            if members.remove(&node).is_some() {
                notified.extend(members.values().map(|member| (member.host, ())));
            }
            !members.is_empty()
        });
        out.extend(notified.into_keys().map(|host| (host, News::Gone { node })));
    }
}

fn contradiction(ours: GroupSettings, theirs: GroupSettings, by: NodeId) -> Option<JoinError> {
    if ours.name_check != theirs.name_check {
        return Some(JoinError::NameCollision);
    }
    (ours != theirs).then_some(JoinError::Contradiction { ours, theirs, by })
}
