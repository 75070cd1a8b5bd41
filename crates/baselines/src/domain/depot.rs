//! The packets that a node holds, and the repairs it sends.

use std::collections::BTreeSet;

use carom_proto::wire::DecodeError;
use carom_proto::{
    Destination, GroupId, GroupSettings, How, JoinError, NodeId, PacketId, SeqNo, Time, Wakeup,
};

use super::config::{DomainConfig, RepairBy};
use super::hierarchy::{Hierarchy, Living, Scope};
use super::serving::{Serving, ServingTerms};
use crate::block::Block;
use crate::reception::{Reception, Terms};
use crate::retained::Retained;
use crate::stream::Gap;

/// The streams that a node receives, the packets it retains, and the requests of other nodes.
#[derive(Debug)]
pub(crate) struct Depot {
    pub(crate) reception: Reception,
    pub(crate) hierarchy: Hierarchy,
    id: NodeId,
    retained: Retained,
    serving: Serving,
    repair_by: Option<RepairBy>,
    counters: DepotCounters,
}

#[derive(Clone, Copy, Debug, Default)]
struct DepotCounters {
    unicast_repairs_sent: u64,
    multicast_repairs_sent: u64,
    repairs_received: u64,
    repairs_useless: u64,
    repairs_expired: u64,
    requests_unanswerable: u64,
    requests_of_strangers: u64,
}

/// A repair that is due.
#[derive(Debug)]
pub(crate) struct Repair {
    pub(crate) id: PacketId,
    pub(crate) block: Block,
    pub(crate) destinations: Vec<Destination>,
}

impl Depot {
    /// Creates an empty depot. `repair_by` decides between multicast and unicast for several
    /// requestors; `None`: always one multicast, if the domain has one. `seed` keys a hash.
    pub(crate) fn new(
        id: NodeId,
        config: &DomainConfig,
        repair_by: Option<RepairBy>,
        seed: u64,
    ) -> Self {
        let terms = Terms {
            owed: config.owed,
            max_missing: config.max_missing,
            max_streams: config.max_streams,
            give_up_after: config.give_up_after,
        };
        let serving = ServingTerms {
            gather_for: config.gather_for,
            hold_down: config.hold_down,
            give_up_after: config.give_up_after,
        };
        Self {
            id,
            reception: Reception::new(id, terms),
            hierarchy: config.hierarchy.clone(),
            retained: Retained::new(config.retain_bytes, config.retain_for, seed),
            serving: Serving::new(serving),
            repair_by,
            counters: DepotCounters::default(),
        }
    }

    pub(crate) fn join(&mut self, id: GroupId, settings: &GroupSettings) -> Result<(), JoinError> {
        self.reception.join(id, settings)
    }

    pub(crate) fn leave(&mut self, group: GroupId) {
        self.reception.leave(group);
        self.retained.forget_group(group);
        self.serving.leave(group);
    }

    /// Keeps a message of this node.
    pub(crate) fn keep(&mut self, now: Time, id: PacketId, block: Block) {
        self.retained.insert(now, id, block);
    }

    /// Processes a packet that its sender multicast, or that `from` repaired. Returns the gap
    /// before it, or `None` if it is a duplicate or not owed.
    ///
    /// # Errors
    /// The packet contains no symbol.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        id: PacketId,
        bytes: &[u8],
        from: Option<NodeId>,
    ) -> Result<Option<Gap>, DecodeError> {
        let block = Block::copy(bytes)?;
        let gap = match from {
            None => self.reception.on_data(now, id, &block),
            Some(from) => {
                self.counters.repairs_received += 1;
                let how = How::Retransmitted(from);
                // Only packets from the source itself may open its stream.
                let gap = if from == id.sender {
                    self.reception.on_sent(now, id, &block, how)
                } else {
                    self.reception.on_block(now, id, &block, how)
                };
                self.counters.repairs_useless += u64::from(gap.is_none());
                gap
            }
        };
        if gap.is_some() {
            self.retained.insert(now, id, block);
            self.serving.arrived(now, id);
        }
        Ok(gap)
    }

    /// Processes the request of `whom` for a packet.
    pub(crate) fn asked(&mut self, now: Time, id: PacketId, whom: NodeId) {
        let Some(group) = self.reception.group(id.group) else { return };
        if !group.view.contains(whom) {
            self.counters.requests_of_strangers += 1;
            return;
        }
        let is_here = self.retained.get(&id).is_some();
        if is_here || self.reception.is_missing(id) {
            let hears = |scope| self.hierarchy.hears(id.group, self.id, scope, whom);
            self.serving.request(now, id, whom, is_here, hears);
        } else {
            self.counters.requests_unanswerable += 1;
        }
    }

    /// Returns the next repair that is due.
    pub(crate) fn next_repair(&mut self, now: Time) -> Option<Repair> {
        while let Some((id, whom)) = self.serving.pop_due(now) {
            match self.repair(now, id, whom) {
                Some(repair) => return Some(repair),
                None => self.serving.unanswered(id),
            }
        }
        None
    }

    /// Returns the repair of a packet for these nodes, if it is retained and not expired.
    pub(crate) fn repair(
        &mut self,
        now: Time,
        id: PacketId,
        whom: BTreeSet<NodeId>,
    ) -> Option<Repair> {
        let block = self.retained.get(&id)?.clone();
        if block.is_expired(now) {
            self.counters.repairs_expired += 1;
            return None;
        }
        let (nodes, multicast) = self.ways(id.group, whom);
        self.counters.multicast_repairs_sent += multicast.len() as u64;
        self.counters.unicast_repairs_sent += nodes.len() as u64;
        let destinations = destinations(&nodes, &multicast);
        self.serving.served(now, id, nodes, &multicast);
        Some(Repair { id, block, destinations })
    }

    /// Returns the destinations of a packet for these nodes.
    pub(crate) fn destinations(&self, group: GroupId, whom: BTreeSet<NodeId>) -> Vec<Destination> {
        let (nodes, multicast) = self.ways(group, whom);
        destinations(&nodes, &multicast)
    }

    /// Returns the multicast of the domain of `head` that contains this node, or `head` itself if
    /// the domain has none.
    pub(crate) fn domain_of(&self, group: GroupId, head: NodeId) -> Destination {
        let size = self.reception.group(group).map_or(0, |it| it.view.members().len());
        let parts = self.hierarchy.by_domain(group, head, [self.id].into(), size);
        let scope = parts.into_iter().find_map(|(scope, _)| scope);
        scope.map_or(Destination::Node(head), |scope| Destination::Group(scope.group))
    }

    /// Divides the nodes into those that receive unicast copies and those covered by the
    /// multicasts.
    fn ways(&self, group: GroupId, whom: BTreeSet<NodeId>) -> (BTreeSet<NodeId>, Vec<GroupId>) {
        let size = self.reception.group(group).map_or(0, |it| it.view.members().len());
        let (mut nodes, mut multicast) = (BTreeSet::new(), Vec::new());
        for (scope, part) in self.hierarchy.by_domain(group, self.id, whom, size) {
            match scope.filter(|scope| self.is_better(*scope, &part)) {
                Some(scope) => multicast.push(scope.group),
                None => nodes.extend(part),
            }
        }
        (nodes, multicast)
    }

    /// Returns `true` if one multicast is better than unicast to each of the nodes.
    fn is_better(&self, scope: Scope, nodes: &BTreeSet<NodeId>) -> bool {
        match self.repair_by {
            None => true,
            Some(RepairBy::Threshold(most)) => nodes.len() > most,
            Some(RepairBy::FewerLinks) => {
                let links =
                    nodes.iter().map(|node| u64::from(self.hierarchy.links(self.id, *node)));
                links.sum::<u64>() > u64::from(scope.links)
            }
        }
    }

    /// Returns the node from which this node requests packets of `source`: the one `climbs` steps
    /// up from the nearest node above.
    pub(crate) fn parent(&self, group: GroupId, source: NodeId, climbs: u32) -> Option<NodeId> {
        let view = &self.reception.group(group)?.view;
        self.hierarchy.parent(Living { me: self.id, view }, source, climbs)
    }

    /// Returns the nodes that request packets of `source` from this node.
    pub(crate) fn children(&self, group: GroupId, source: NodeId) -> BTreeSet<NodeId> {
        let Some(group) = self.reception.group(group) else { return BTreeSet::new() };
        self.hierarchy.children(Living { me: self.id, view: &group.view }, source)
    }

    /// Returns the sequence number of this node's next message in the group, or the number after
    /// the highest known of another source.
    pub(crate) fn next_number(&self, group: GroupId, source: NodeId) -> Option<SeqNo> {
        if source == self.id {
            return self.reception.group(group).map(|it| it.next);
        }
        Some(self.reception.stream(group, source)?.next())
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.reception.handle_timeout(now);
        self.retained.evict_old(now);
    }

    pub(crate) fn wakeup(&self) -> Option<Wakeup> {
        let repair = self.serving.next_due().map(|at| Wakeup { at, reason: "repair a packet" });
        let lost = self.reception.next_due().map(|at| Wakeup { at, reason: "give up a packet" });
        Wakeup::earlier(repair, lost)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.retained.bytes()
    }

    /// Returns the counters of all parts by name.
    pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
        let it = self.counters;
        let own = [
            ("unicast_repairs_sent", it.unicast_repairs_sent),
            ("multicast_repairs_sent", it.multicast_repairs_sent),
            ("repairs_received", it.repairs_received),
            ("repairs_useless", it.repairs_useless),
            ("repairs_expired", it.repairs_expired),
            ("requests_unanswerable", it.requests_unanswerable),
            ("requests_of_strangers", it.requests_of_strangers),
        ];
        let stats = own.into_iter().chain(self.serving.named()).chain(self.reception.named());
        stats.chain(self.retained.named()).collect()
    }

    pub(crate) fn check(&self) {
        self.reception.check();
        self.retained.check();
        self.serving.check();
    }
}

fn destinations(nodes: &BTreeSet<NodeId>, multicast: &[GroupId]) -> Vec<Destination> {
    let to_nodes = nodes.iter().copied().map(Destination::Node);
    multicast.iter().copied().map(Destination::Group).chain(to_nodes).collect()
}
