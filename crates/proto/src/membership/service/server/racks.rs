//! Who watches whom: detectors their racks, detectors each other in a chain, and, if it is so set,
//! each node the next one in a ring.
//!
//! A detector whose link is broken loses its rack at once, because it follows only those whom it
//! hears; it stays in the chain until it is found silent or its lease ends. Likewise a node without
//! a link stays in the ring.
//!
//! Ricochet 3.2.3 has one failure detector on each rack, and detectors that ping each other in a
//! chain; Slingshot's set-up has each node ping one other. A rack without a detector, or whose
//! detector failed, is watched by the one before it in the chain.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::super::frame::{Frame, Member, Watched, millis};
use super::sessions::{Session, SessionInfo, Standing};
use super::{Server, Timer};
use crate::membership::link::LinkId;
use crate::{NodeId, Time};

/// What detectors and nodes were told.
#[derive(Debug, Default)]
pub(super) struct Racks {
    watched: BTreeMap<NodeId, BTreeMap<NodeId, Member>>,
    successors: BTreeMap<NodeId, Told>,
}

/// Whom to ping, as was said on this link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    link: LinkId,
    next: Option<Member>,
}

/// What an operator sees of a failure detector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorInfo {
    /// Its id and endpoint, its rack, and whether it is there.
    pub session: SessionInfo,
    /// The nodes that it was told to watch, in order.
    pub watched: Vec<NodeId>,
    /// The next detector in the chain, which it pings as well.
    pub next: Option<NodeId>,
}

impl Server {
    /// The failure detectors that are thought alive here, in order of their ids.
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

    /// The node or detector that this one was told to ping: the next in the ring or the chain.
    pub fn next_of(&self, node: NodeId) -> Option<NodeId> {
        Some(self.racks.successors.get(&node)?.next?.node)
    }

    pub(super) fn open_detector(&mut self, now: Time, link: LinkId, member: Member, rack: String) {
        let node = member.node;
        // It knows of no node yet, whatever an earlier link was told.
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

    /// Somebody does not answer pings. It is believed unless the accused was heard here in the
    /// later half of the time for which it is said to be silent.
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

    /// Tells everybody whom to watch, where that has changed.
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
