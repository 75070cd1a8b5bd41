//! The packets that a node keeps for repairs, and the repairs it sends.

use std::collections::BTreeSet;

use carom_proto::{Destination, GroupId, How, NodeId, PacketId, Time, Wakeup};

use super::config::{DomainConfig, RepairBy};
use super::hierarchy::{Hierarchy, Living, Scope};
use super::requests::{RequestTerms, Requests};
use crate::block::Block;
use crate::guest::{Datagram, GuestPacket};
use crate::retained::Retained;
use crate::shell::Context;
use crate::stream::Gap;

#[derive(Debug)]
pub(crate) struct RepairStore {
    hierarchy: Hierarchy,
    retained: Retained,
    requests: Requests,
    repair_by: Option<RepairBy>,
    counters: Counters,
}

carom_proto::counters! {
    struct Counters {
        unicast_repairs_sent,
        multicast_repairs_sent,
        repairs_received,
        repairs_useless,
        repairs_expired,
        requests_unanswerable,
        requests_of_strangers,
    }
}

impl RepairStore {
    /// Creates an empty store. With `repair_by: None`, a repair is multicast if the domain has a
    /// multicast. `seed` keys a hash.
    pub(crate) fn new(config: &DomainConfig, repair_by: Option<RepairBy>, seed: u64) -> Self {
        let terms = RequestTerms {
            gather_for: config.gather_for,
            hold_down: config.hold_down,
            give_up_after: config.give_up_after,
        };
        Self {
            hierarchy: config.hierarchy.clone(),
            retained: Retained::new(config.retain_bytes, config.retain_for, seed),
            requests: Requests::new(terms),
            repair_by,
            counters: Counters::default(),
        }
    }

    pub(crate) fn leave(&mut self, group: GroupId) {
        self.retained.forget_group(group);
        self.requests.leave(group);
    }

    pub(crate) fn keep(&mut self, now: Time, id: PacketId, block: Block) {
        self.retained.insert(now, id, block);
    }

    /// Records, delivers and retains a new packet. Returns the gap before it, or `None` if it is a
    /// duplicate or not owed.
    pub(crate) fn arrive(
        &mut self,
        cx: &mut Context,
        id: PacketId,
        block: Block,
        from: Option<NodeId>,
    ) -> Option<Gap> {
        let gap = match from {
            None => cx.reception.on_data(cx.now, id, &block),
            Some(from) => {
                self.counters.repairs_received += 1;
                let how = How::Retransmitted(from);
                // Only packets from the source itself may open its stream.
                let gap = if from == id.sender {
                    cx.reception.on_sent(cx.now, id, &block, how)
                } else {
                    cx.reception.on_block(cx.now, id, &block, how)
                };
                self.counters.repairs_useless += u64::from(gap.is_none());
                gap
            }
        };
        if gap.is_some() {
            self.retained.insert(cx.now, id, block);
            self.requests.arrived(cx.now, id);
        }
        gap
    }

    pub(crate) fn on_request(&mut self, cx: &Context, id: PacketId, whom: NodeId) {
        let Some(group) = cx.reception.group(id.group) else { return };
        if !group.view.contains(whom) {
            self.counters.requests_of_strangers += 1;
            return;
        }
        let is_here = self.retained.get(&id).is_some();
        if is_here || cx.reception.is_missing(id) {
            let hears = |scope| self.hierarchy.hears(id.group, cx.id, scope, whom);
            self.requests.request(cx.now, id, whom, is_here, hears);
        } else {
            self.counters.requests_unanswerable += 1;
        }
    }

    pub(crate) fn send_repairs<'p, P: GuestPacket<'p>>(&mut self, cx: &mut Context) {
        while let Some((id, whom)) = self.requests.pop_due(cx.now) {
            if !self.repair::<P>(cx, id, whom) {
                self.requests.unanswered(id);
            }
        }
    }

    pub(crate) fn repair<'p, P: GuestPacket<'p>>(
        &mut self,
        cx: &mut Context,
        id: PacketId,
        whom: BTreeSet<NodeId>,
    ) -> bool {
        let Some(block) = self.retained.get(&id) else { return false };
        if block.is_expired(cx.now) {
            self.counters.repairs_expired += 1;
            return false;
        }
        let (nodes, multicast) = self.routes(cx, id.group, whom);
        self.counters.multicast_repairs_sent += multicast.len() as u64;
        self.counters.unicast_repairs_sent += nodes.len() as u64;
        let PacketId { sender: source, group, seqno } = id;
        let repair: Datagram<'_, P> = Datagram::Repair { source, seqno, block: block.bytes() };
        for destination in destinations(&nodes, &multicast) {
            cx.push(destination, group, repair);
        }
        self.requests.served(cx.now, id, nodes, &multicast);
        true
    }

    pub(crate) fn destinations(
        &self,
        cx: &Context,
        group: GroupId,
        whom: BTreeSet<NodeId>,
    ) -> Vec<Destination> {
        let (nodes, multicast) = self.routes(cx, group, whom);
        destinations(&nodes, &multicast).collect()
    }

    /// Returns the multicast of this node's domain below `head`, or `head` itself if it has none.
    pub(crate) fn domain_of(&self, cx: &Context, group: GroupId, head: NodeId) -> Destination {
        let size = cx.reception.group(group).map_or(0, |it| it.view.members().len());
        let parts = self.hierarchy.by_domain(group, head, [cx.id].into(), size);
        let scope = parts.into_iter().find_map(|(scope, _)| scope);
        scope.map_or(Destination::Node(head), |scope| Destination::Group(scope.group))
    }

    fn routes(
        &self,
        cx: &Context,
        group: GroupId,
        whom: BTreeSet<NodeId>,
    ) -> (BTreeSet<NodeId>, Vec<GroupId>) {
        let size = cx.reception.group(group).map_or(0, |it| it.view.members().len());
        let (mut nodes, mut multicast) = (BTreeSet::new(), Vec::new());
        for (scope, part) in self.hierarchy.by_domain(group, cx.id, whom, size) {
            match scope.filter(|scope| self.is_better(cx.id, *scope, &part)) {
                Some(scope) => multicast.push(scope.group),
                None => nodes.extend(part),
            }
        }
        (nodes, multicast)
    }

    /// Returns `true` if one multicast by `head` is better than unicasts to each of the nodes.
    fn is_better(&self, head: NodeId, scope: Scope, nodes: &BTreeSet<NodeId>) -> bool {
        match self.repair_by {
            None => true,
            Some(RepairBy::Threshold(most)) => nodes.len() > most,
            Some(RepairBy::FewerLinks) => {
                let links = nodes.iter().map(|node| u64::from(self.hierarchy.links(head, *node)));
                links.sum::<u64>() > u64::from(scope.links)
            }
        }
    }

    pub(crate) fn parent(
        &self,
        cx: &Context,
        group: GroupId,
        source: NodeId,
        climbs: u32,
    ) -> Option<NodeId> {
        let view = &cx.reception.group(group)?.view;
        self.hierarchy.parent(Living { me: cx.id, view }, source, climbs)
    }

    pub(crate) fn children(
        &self,
        cx: &Context,
        group: GroupId,
        source: NodeId,
    ) -> BTreeSet<NodeId> {
        let Some(group) = cx.reception.group(group) else { return BTreeSet::new() };
        self.hierarchy.children(Living { me: cx.id, view: &group.view }, source)
    }

    pub(crate) fn evict_old(&mut self, now: Time) {
        self.retained.evict_old(now);
    }

    pub(crate) fn retained(&self) -> &Retained {
        &self.retained
    }

    pub(crate) fn wakeup(&self) -> Option<Wakeup> {
        self.requests.next_due().map(|at| Wakeup { at, reason: "repair a packet" })
    }

    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().chain(self.requests.by_name()).collect()
    }

    pub(crate) fn check(&self) {
        self.requests.check();
    }
}

fn destinations(
    nodes: &BTreeSet<NodeId>,
    multicast: &[GroupId],
) -> impl Iterator<Item = Destination> {
    let to_nodes = nodes.iter().copied().map(Destination::Node);
    multicast.iter().copied().map(Destination::Group).chain(to_nodes)
}
