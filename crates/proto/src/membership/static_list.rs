//! Membership from a fixed list, for tests and for small clusters that never change.

use alloc::collections::{BTreeMap, VecDeque};

use super::{Membership, MembershipEvent, already_joined};
use crate::wire::Datagram;
use crate::{
    Endpoint, GroupId, GroupSettings, JoinError, NodeId, Origin, Time, ViewChange, ViewChangeKind,
    Wakeup,
};

/// A fixed list of nodes, all of which are permanently in every group that this node joins.
///
/// The provider sends nothing and detects no failures.
#[derive(Debug)]
pub struct StaticMembership {
    nodes: BTreeMap<NodeId, Endpoint>,
    groups: BTreeMap<GroupId, GroupSettings>,
    events: VecDeque<MembershipEvent>,
    datagrams_ignored: u64,
}

impl StaticMembership {
    /// Creates the membership of node `origin`, which the list can include. If a node is listed
    /// more than once, its last entry applies.
    pub fn new(
        origin: impl Into<Origin>,
        nodes: impl IntoIterator<Item = (NodeId, Endpoint)>,
    ) -> Self {
        let Origin { node: id, .. } = origin.into();
        let mut nodes: BTreeMap<_, _> = nodes.into_iter().collect();
        nodes.remove(&id);
        let met = nodes.iter().map(|(node, endpoint)| MembershipEvent::Met(*node, *endpoint));
        let events = met.chain([MembershipEvent::Settled]).collect();
        Self { nodes, groups: BTreeMap::new(), events, datagrams_ignored: 0 }
    }
}

impl Membership for StaticMembership {
    fn join(
        &mut self,
        _now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        if let Some(existing) = self.groups.get(&group) {
            return Err(already_joined(*existing, settings));
        }
        self.groups.insert(group, settings);
        let kind = ViewChangeKind::Joined;
        for (node, version) in self.nodes.keys().zip(1..) {
            let change = ViewChange { group, node: *node, kind, version };
            self.events.push_back(MembershipEvent::View(change));
        }
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        self.groups.remove(&group);
    }

    fn handle_datagram(&mut self, _now: Time, _source: Endpoint, _datagram: &Datagram<'_>) {
        self.datagrams_ignored += 1;
    }

    fn poll_event(&mut self) -> Option<MembershipEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let waiting = !self.events.is_empty();
        waiting.then_some(Wakeup { at: Time::ZERO, reason: "members from the list" })
    }

    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        self.nodes.iter().map(|(node, endpoint)| (*node, *endpoint)).collect()
    }

    fn is_settled(&self) -> bool {
        true
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        vec![("datagrams_ignored", self.datagrams_ignored)]
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::{Profile, RateOfFire};

    fn endpoint(port: u16) -> Endpoint {
        Endpoint(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    #[test]
    fn everybody_on_the_list_but_the_node_itself_is_in_every_group() {
        let list = [(NodeId(3), endpoint(3)), (NodeId(1), endpoint(1)), (NodeId(2), endpoint(2))];
        let mut membership = StaticMembership::new(NodeId(1), list);
        assert!(membership.is_settled());
        let settings = GroupSettings::new("a", Profile::TimeCritical(RateOfFire::default()));
        let group = GroupId::of_name("a");
        assert_eq!(membership.join(Time(1), group, settings), Ok(()));
        let again = membership.join(Time(1), group, settings);
        assert_eq!(again, Err(JoinError::AlreadyJoined));
        let joined = |node, version| {
            let kind = ViewChangeKind::Joined;
            MembershipEvent::View(ViewChange { group, node: NodeId(node), kind, version })
        };
        let events: Vec<_> = core::iter::from_fn(|| membership.poll_event()).collect();
        let expected = [
            MembershipEvent::Met(NodeId(2), endpoint(2)),
            MembershipEvent::Met(NodeId(3), endpoint(3)),
            MembershipEvent::Settled,
            joined(2, 1),
            joined(3, 2),
        ];
        assert_eq!(events, expected);
        membership.leave(Time(2), group);
        assert_eq!(membership.join(Time(2), group, settings), Ok(()));
    }
}
