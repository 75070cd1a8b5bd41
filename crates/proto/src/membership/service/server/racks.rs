//! Assigns nodes to watch: racks to detectors, the next detector in the chain to each detector, and
//! optionally the next node in the ring to each node.
//!
//! Ricochet 3.2.3 has a failure detector in each rack, and detectors that ping each other in a
//! chain. In Slingshot's setup, each node pings another one. A rack without a detector is watched
//! by the previous detector in the chain.
//!
//! A detector whose connection is lost loses its rack at once, because a detector follows only the
//! processes to which it is connected. It stays in the chain until it is reported as silent or its
//! lease ends.

use alloc::collections::BTreeMap;

use super::config::ServerConfig;
use super::context::Context;
use super::sessions::{Session, SessionInfo, Sessions};
use crate::NodeId;
use crate::membership::link::LinkId;
use crate::membership::service::protocol::frame::{
    Frame, MAX_MEMBERS_PER_FRAME, Member, Watched, millis,
};

#[derive(Debug, Default)]
pub(super) struct Racks {
    watched: BTreeMap<NodeId, BTreeMap<NodeId, Member>>,
    successors: BTreeMap<NodeId, Successor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Successor {
    link: LinkId,
    next: Option<Member>,
}

/// State of a failure detector, for display to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorInfo {
    /// Session of the detector: id, endpoint, rack, connection, and next detector in the chain.
    pub session: SessionInfo,
    /// Nodes that are assigned to the detector, in ascending order of their ids.
    pub watched: Vec<NodeId>,
}

impl Racks {
    pub(super) fn watched_by(&self, detector: NodeId) -> Vec<NodeId> {
        self.watched.get(&detector).into_iter().flat_map(BTreeMap::keys).copied().collect()
    }

    pub(super) fn next_of(&self, node: NodeId) -> Option<NodeId> {
        Some(self.successors.get(&node)?.next?.node)
    }

    pub(super) fn forget(&mut self, detector: NodeId) {
        self.watched.remove(&detector);
    }

    pub(super) fn arrange(&mut self, cx: &mut Context, sessions: &Sessions) {
        self.assign_racks(cx, sessions);
        let successors = successors(&cx.config, sessions);
        let within = cx.config.ring_time.unwrap_or(cx.config.detection_time);
        for (node, successor) in &successors {
            let before = self.successors.get(node);
            let was_nothing = before.is_none_or(|before| before.link != successor.link);
            if before != Some(successor) && !(was_nothing && successor.next.is_none()) {
                let (next, within_ms) = (successor.next, millis(within));
                cx.outbox.send(successor.link, &Frame::Successor { next, within_ms });
            }
        }
        self.successors = successors;
    }

    fn assign_racks(&mut self, cx: &mut Context, sessions: &Sessions) {
        let watchers: BTreeMap<&str, NodeId> = sessions
            .detectors()
            .filter(|(_, session)| session.link.is_some())
            .map(|(node, session)| (session.rack.as_str(), node))
            .collect();
        let mut wanted: BTreeMap<NodeId, BTreeMap<NodeId, Member>> = BTreeMap::new();
        for (node, session) in sessions.nodes() {
            let before = watchers.range(..=session.rack.as_str()).next_back();
            let Some((_, watcher)) = before.or_else(|| watchers.last_key_value()) else { break };
            wanted.entry(*watcher).or_default().insert(node, session.member);
        }
        for (detector, session) in sessions.detectors() {
            let Some(link) = session.link else { continue };
            let none = BTreeMap::new();
            let before = self.watched.get(&detector).unwrap_or(&none);
            let now = wanted.get(&detector).unwrap_or(&none);
            let gone = before.iter().filter(|(node, member)| now.get(node) != Some(member));
            let come = now.iter().filter(|(node, member)| before.get(node) != Some(member));
            let changes: Vec<Watched> = gone
                .map(|(_, member)| Watched { watched: false, member: *member })
                .chain(come.map(|(_, member)| Watched { watched: true, member: *member }))
                .collect();
            for changes in changes.chunks(MAX_MEMBERS_PER_FRAME) {
                cx.outbox.send(link, &Frame::Watch(changes.to_vec()));
            }
        }
        self.watched = wanted;
    }
}

fn successors(config: &ServerConfig, sessions: &Sessions) -> BTreeMap<NodeId, Successor> {
    let mut successors = BTreeMap::new();
    let mut chain = |all: &[&Session]| {
        for (place, session) in all.iter().enumerate() {
            let next = all[(place + 1) % all.len()].member;
            let next = (all.len() > 1).then_some(next);
            if let Some(link) = session.link {
                successors.insert(session.member.node, Successor { link, next });
            }
        }
    };
    let mut detectors: Vec<&Session> = sessions.detectors().map(|(_, session)| session).collect();
    detectors.sort_by(|a, b| (&a.rack, a.member.node).cmp(&(&b.rack, b.member.node)));
    chain(&detectors);
    if config.ring {
        let nodes: Vec<&Session> = sessions.nodes().map(|(_, session)| session).collect();
        chain(&nodes);
    }
    successors
}
