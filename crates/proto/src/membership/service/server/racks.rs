//! Assignment of watchers: detectors to racks, detectors in a chain, and optionally nodes in a
//! ring.
//!
//! Ricochet 3.2.3 has a failure detector in each rack, and detectors that ping each other in a
//! chain. In Slingshot's setup each node pings another one. A rack without a detector, or whose
//! detector failed, is watched by the previous detector in the chain.
//!
//! A detector whose connection broke loses its rack at once, because a detector follows only the
//! processes that it hears. It stays in the chain until it is found silent or its lease ends. A
//! node without a connection likewise stays in the ring.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::super::frame::{Frame, Member, Watched, millis};
use super::sessions::{Session, SessionInfo, Standing};
use super::{Server, Timer};
use crate::membership::link::LinkId;
use crate::{NodeId, Time};

/// Assignments that were sent to detectors and nodes.
#[derive(Debug, Default)]
pub(super) struct Racks {
    watched: BTreeMap<NodeId, BTreeMap<NodeId, Member>>,
    successors: BTreeMap<NodeId, Told>,
}

/// Node to ping, as sent on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    link: LinkId,
    next: Option<Member>,
}

/// State of a failure detector, as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorInfo {
    /// Its id, endpoint, rack and connection.
    pub session: SessionInfo,
    /// The nodes that it was assigned, in order.
    pub watched: Vec<NodeId>,
    /// The next detector in the chain, which it pings as well.
    pub next: Option<NodeId>,
}

impl Server {
    /// Returns the failure detectors that are believed to be alive, in order of their ids.
    pub fn detectors(&self) -> impl Iterator<Item = DetectorInfo> {
        self.sessions.detectors.iter().map(|(node, session)| DetectorInfo {
            session: session.info(),
            watched: self
                .racks
                .watched
                .get(node)
                .into_iter()
                .flat_map(BTreeMap::keys)
                .copied()
                .collect(),
            next: self.next_of(*node),
        })
    }

    /// Returns the node or detector that this one was assigned to ping: the next in the ring or
    /// chain.
    pub fn next_of(&self, node: NodeId) -> Option<NodeId> {
        Some(self.racks.successors.get(&node)?.next?.node)
    }

    pub(super) fn open_detector(&mut self, now: Time, link: LinkId, member: Member, rack: String) {
        let node = member.node;
        // It has no assignments yet, although an earlier connection may have had some.
        self.racks.watched.remove(&node);
        let session = Session { member, rack, link: Some(link), heard: now, grace: now };
        let old = self.sessions.detectors.insert(node, session);
        if let Some(old_link) = old.and_then(|session| session.link) {
            self.end_link(old_link);
        }
        if let Some(peer) = self.sessions.links.get_mut(&link) {
            peer.standing = Standing::Detector(node);
        }
        self.timers.set_no_later(Timer::Detector(node), now + self.config.detection_time);
    }

    pub(super) fn on_detector_lease(&mut self, now: Time, node: NodeId) {
        let Some(session) = self.sessions.detectors.get(&node) else { return };
        let end = session.grace.max(session.heard + self.config.detection_time);
        if end > now {
            self.timers.set(Timer::Detector(node), end);
        } else {
            self.drop_detector(node);
            self.arrange_watch();
        }
    }

    /// Processes a report that a node or detector does not answer pings.
    ///
    /// The report is accepted unless that node was heard here in the second half of its reported
    /// silence.
    pub(super) fn on_report(&mut self, now: Time, node: NodeId, incarnation: u32, silent_ms: u32) {
        self.counters.reports_received += 1;
        let silent = Duration::from_millis(silent_ms.into());
        let is_true = |session: &Session| {
            session.member.incarnation == incarnation && now.since(session.heard) * 2 >= silent
        };
        if self.sessions.nodes.get(&node).is_some_and(is_true) {
            self.expire(node);
        } else if self.sessions.detectors.get(&node).is_some_and(is_true) {
            self.drop_detector(node);
        } else {
            self.counters.reports_contradicted += 1;
            return;
        }
        self.arrange_watch();
    }

    /// Sends changed assignments to detectors and nodes.
    pub(super) fn arrange_watch(&mut self) {
        self.assign_racks();
        let mut successors = BTreeMap::new();
        let chain = |successors: &mut BTreeMap<NodeId, Told>, all: &[&Session]| {
            for (place, session) in all.iter().enumerate() {
                let next = all[(place + 1) % all.len()].member;
                let next = (all.len() > 1).then_some(next);
                if let Some(link) = session.link {
                    successors.insert(session.member.node, Told { link, next });
                }
            }
        };
        let mut detectors: Vec<&Session> = self.sessions.detectors.values().collect();
        detectors.sort_by(|a, b| (&a.rack, a.member.node).cmp(&(&b.rack, b.member.node)));
        chain(&mut successors, &detectors);
        if self.config.ring {
            let nodes: Vec<&Session> = self.sessions.nodes.values().collect();
            chain(&mut successors, &nodes);
        }
        let within = self.config.ring_time.unwrap_or(self.config.detection_time);
        for (node, told) in &successors {
            let before = self.racks.successors.get(node);
            let was_nothing = before.is_none_or(|before| before.link != told.link);
            if before != Some(told) && !(was_nothing && told.next.is_none()) {
                let (next, within_ms) = (told.next, millis(within));
                self.outbox.send(told.link, &Frame::Successor { next, within_ms });
            }
        }
        self.racks.successors = successors;
    }

    fn assign_racks(&mut self) {
        let detectors = &self.sessions.detectors;
        let watchers: BTreeMap<&str, NodeId> = detectors
            .iter()
            .filter(|(_, session)| session.link.is_some())
            .map(|(node, session)| (session.rack.as_str(), *node))
            .collect();
        let mut wanted: BTreeMap<NodeId, BTreeMap<NodeId, Member>> = BTreeMap::new();
        for (node, session) in &self.sessions.nodes {
            let before = watchers.range(..=session.rack.as_str()).next_back();
            let Some((_, watcher)) = before.or_else(|| watchers.last_key_value()) else { break };
            wanted.entry(*watcher).or_default().insert(*node, session.member);
        }
        for (detector, session) in detectors {
            let Some(link) = session.link else { continue };
            let none = BTreeMap::new();
            let before = self.racks.watched.get(detector).unwrap_or(&none);
            let now = wanted.get(detector).unwrap_or(&none);
            let gone = before.iter().filter(|(node, member)| now.get(node) != Some(member));
            let come = now.iter().filter(|(node, member)| before.get(node) != Some(member));
            let changes: Vec<Watched> = gone
                .map(|(_, member)| Watched { watched: false, member: *member })
                .chain(come.map(|(_, member)| Watched { watched: true, member: *member }))
                .collect();
            for changes in changes.chunks(super::super::frame::MAX_MEMBERS_PER_FRAME) {
                self.outbox.send(link, &Frame::Watch(changes.to_vec()));
            }
        }
        self.racks.watched = wanted;
    }

    fn drop_detector(&mut self, node: NodeId) {
        tracing::info!(detector = %node, "a failure detector has failed");
        self.counters.detectors_failed += 1;
        self.timers.cancel(Timer::Detector(node));
        let session = self.sessions.detectors.remove(&node);
        if let Some(link) = session.and_then(|session| session.link) {
            self.end_link(link);
        }
    }
}
