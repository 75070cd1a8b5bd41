//! Nodes and failure detectors that this process believes to be alive, and their leases.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::connections::{Connections, Peer};
use super::context::{Context, Timer};
use crate::membership::link::LinkId;
use crate::membership::service::protocol::frame::Member;
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Sessions {
    nodes: BTreeMap<NodeId, Session>,
    detectors: BTreeMap<NodeId, Session>,
    /// Time of the last bytes from any peer.
    last_heard: Time,
    /// `true` if no peer was heard for so long that this process may be disconnected.
    is_cut_off: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) member: Member,
    pub(super) rack: String,
    /// `None` while it is disconnected within its lease.
    pub(super) link: Option<LinkId>,
    /// [`Time::ZERO`] if it was never heard here.
    pub(super) heard: Time,
    /// Time before which it does not expire.
    grace: Time,
}

/// Session of a node or detector, as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The node with its incarnation and endpoint.
    pub member: Member,
    /// Its rack, empty if unknown.
    pub rack: String,
    /// `true` if it has a connection to this process.
    pub is_linked: bool,
    /// Time at which it was last heard, or [`Time::ZERO`] if it was never heard here.
    pub heard: Time,
    /// The node or detector that it was assigned to ping: the next in the ring or chain.
    pub next: Option<NodeId>,
}

impl Session {
    pub(super) fn info(&self, next: Option<NodeId>) -> SessionInfo {
        SessionInfo {
            member: self.member,
            rack: self.rack.clone(),
            is_linked: self.link.is_some(),
            heard: self.heard,
            next,
        }
    }

    fn lease_end(&self, lease: Duration) -> Time {
        self.grace.max(self.heard + lease)
    }

    /// Returns `true` if a report that this incarnation was silent for a time is accepted: it was
    /// not heard here in the second half of that time.
    fn is_silent(&self, now: Time, incarnation: u32, silent: Duration) -> bool {
        self.member.incarnation == incarnation && now.since(self.heard) * 2 >= silent
    }
}

impl Sessions {
    pub(super) fn node(&self, node: NodeId) -> Option<&Session> {
        self.nodes.get(&node)
    }

    pub(super) fn member(&self, node: NodeId) -> Option<Member> {
        self.nodes.get(&node).map(|session| session.member)
    }

    pub(super) fn link(&self, node: NodeId) -> Option<LinkId> {
        self.nodes.get(&node)?.link
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Session)> {
        self.nodes.iter().map(|(node, session)| (*node, session))
    }

    pub(super) fn detectors(&self) -> impl Iterator<Item = (NodeId, &Session)> {
        self.detectors.iter().map(|(node, session)| (*node, session))
    }

    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        let sessions = self.nodes.values().chain(self.detectors.values());
        sessions.filter_map(|session| session.link)
    }

    /// Opens or continues the session of a node or detector on this connection. Returns the former
    /// session.
    pub(super) fn open(
        &mut self,
        cx: &mut Context,
        (link, peer): (LinkId, Peer),
        (member, rack): (Member, String),
    ) -> Option<Session> {
        let (sessions, timer) = match peer {
            Peer::Node(node) => (&mut self.nodes, Timer::Lease(node)),
            Peer::Detector(node) => (&mut self.detectors, Timer::Detector(node)),
            Peer::Unknown | Peer::Observer => return None,
        };
        cx.timers.set_no_later(timer, cx.now + cx.config.detection_time);
        let session = Session { member, rack, link: Some(link), heard: cx.now, grace: cx.now };
        sessions.insert(member.node, session)
    }

    /// Opens the session of a stored member that was not heard here, with the adoption time as its
    /// lease.
    pub(super) fn adopt(&mut self, cx: &mut Context, member: Member) {
        let grace = cx.adoption_end();
        let session = Session { member, rack: String::new(), link: None, heard: Time::ZERO, grace };
        self.nodes.insert(member.node, session);
        cx.timers.set(Timer::Lease(member.node), grace);
    }

    /// Records that a peer was heard. If this process appeared disconnected until now, all leases
    /// are extended.
    pub(super) fn hear(&mut self, cx: &Context, peer: Peer) {
        self.last_heard = cx.now;
        if let Some(session) = self.session_mut(peer) {
            session.heard = cx.now;
        }
        if core::mem::take(&mut self.is_cut_off) {
            let grace = cx.adoption_end();
            for session in self.nodes.values_mut().chain(self.detectors.values_mut()) {
                session.grace = session.grace.max(grace);
            }
        }
    }

    pub(super) fn disconnect(&mut self, link: LinkId, peer: Peer) {
        if let Some(session) = self.session_mut(peer).filter(|it| it.link == Some(link)) {
            session.link = None;
        }
    }

    pub(super) fn end_node(&mut self, cx: &mut Context, node: NodeId) -> Option<Session> {
        cx.timers.cancel(Timer::Lease(node));
        self.nodes.remove(&node)
    }

    pub(super) fn end_disconnected(&mut self, cx: &mut Context, node: NodeId) {
        if self.nodes.get(&node).is_some_and(|session| session.link.is_none()) {
            self.end_node(cx, node);
        }
    }

    pub(super) fn end_detector(&mut self, node: NodeId) -> Option<Session> {
        self.detectors.remove(&node)
    }

    /// Postpones the ends of all leases if this process was stalled.
    ///
    /// A call that comes much later than requested shows a stall, and data that nodes sent
    /// meanwhile is still unread. The stall does not count for any lease, nor does the time until
    /// the next sign of life of a node.
    pub(super) fn compensate_stall(&mut self, cx: &mut Context) {
        let lease = cx.config.detection_time;
        let late = cx.timers.next_due().map_or(Duration::ZERO, |due| cx.now.since(due));
        if late <= lease / 6 {
            return;
        }
        tracing::warn!(late_ms = late.as_millis() as u64, "the registry process was stalled");
        cx.counters.stalls += 1;
        for session in self.nodes.values_mut().chain(self.detectors.values_mut()) {
            session.grace = cx.now.max(session.lease_end(lease) + late + lease / 3);
        }
    }

    /// Processes the end of a node's lease. Returns `true` unless the lease was extended, or this
    /// process may be disconnected.
    pub(super) fn has_expired(&mut self, cx: &mut Context, node: NodeId) -> bool {
        let Some(session) = self.nodes.get(&node) else { return false };
        let lease = cx.config.detection_time;
        let end = session.lease_end(lease);
        if end > cx.now {
            cx.timers.set(Timer::Lease(node), end);
            return false;
        }
        let is_cut_off = self.is_cut_off(cx);
        if is_cut_off {
            cx.timers.set(Timer::Lease(node), cx.now + lease / 3);
        }
        !is_cut_off
    }

    /// Processes the end of a detector's lease. Returns `true` unless the lease was extended.
    pub(super) fn has_detector_expired(&self, cx: &mut Context, node: NodeId) -> bool {
        let Some(session) = self.detectors.get(&node) else { return false };
        let end = session.lease_end(cx.config.detection_time);
        let is_extended = end > cx.now;
        if is_extended {
            cx.timers.set(Timer::Detector(node), end);
        }
        !is_extended
    }

    /// Returns the node or detector that was reported as silent, if the report is accepted.
    pub(super) fn silent(
        &self,
        now: Time,
        node: NodeId,
        incarnation: u32,
        silent: Duration,
    ) -> Option<Peer> {
        let is_silent = |session: &&Session| session.is_silent(now, incarnation, silent);
        let found = self.nodes.get(&node).filter(is_silent).map(|_| Peer::Node(node));
        let detector = self.detectors.get(&node).filter(is_silent);
        found.or(detector.map(|_| Peer::Detector(node)))
    }

    pub(super) fn check(&self, cx: &Context, connections: &Connections) {
        for (node, session) in &self.nodes {
            let peer = session.link.map(|link| connections.peer(link));
            let is_own = peer.is_none_or(|peer| peer == Some(Peer::Node(*node)));
            assert!(is_own, "{node:?}'s session is on another's link");
            assert!(cx.timers.is_set(Timer::Lease(*node)), "the lease of {node:?} has no end");
        }
        for (link, peer) in connections.iter() {
            if let Peer::Node(node) = peer {
                assert!(self.link(node) == Some(link), "a link of {node:?} without its session");
            }
        }
    }

    fn session_mut(&mut self, peer: Peer) -> Option<&mut Session> {
        match peer {
            Peer::Node(node) => self.nodes.get_mut(&node),
            Peer::Detector(node) => self.detectors.get_mut(&node),
            Peer::Unknown | Peer::Observer => None,
        }
    }

    /// Returns `true` if this process appears to be disconnected, rather than its nodes being dead.
    ///
    /// Several nodes are connected, and none was heard for half a lease, in which each would have
    /// sent a sign of life. No node is declared dead until one is heard again.
    fn is_cut_off(&mut self, cx: &mut Context) -> bool {
        let linked = self.nodes.values().filter(|session| session.link.is_some()).take(2);
        let is_silent = cx.now.since(self.last_heard) * 2 >= cx.config.detection_time;
        let is_cut_off = is_silent && linked.count() == 2;
        if is_cut_off && !self.is_cut_off {
            tracing::warn!("received nothing from any node: this process may be disconnected");
            cx.counters.times_cut_off += 1;
            self.is_cut_off = true;
        }
        is_cut_off
    }
}
