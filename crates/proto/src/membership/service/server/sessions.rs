use alloc::collections::BTreeMap;
use core::time::Duration;

use super::connections::{Connections, Peer};
use super::context::{Context, Timer};
use crate::membership::link::LinkId;
use crate::membership::service::protocol::frame::Member;
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Sessions {
    all: BTreeMap<Peer, Session>,
    last_heard: Time,
    /// `true` if all peers have been silent for so long that this process may be disconnected.
    is_cut_off: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) member: Member,
    pub(super) rack: String,
    /// `None` if the peer is disconnected and its lease has not ended.
    pub(super) link: Option<LinkId>,
    /// [`Time::ZERO`] if nothing was received from the peer at this process.
    pub(super) heard: Time,
    grace: Time,
}

/// Session of a node or detector, for display to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The node or detector, with its incarnation and endpoint.
    pub member: Member,
    /// Rack of the peer, or empty if it is unknown.
    pub rack: String,
    /// `true` if the peer has a connection to this process.
    pub is_linked: bool,
    /// Time at which the peer was last heard here, or [`Time::ZERO`] if it never was.
    pub heard: Time,
    /// The node or detector that the peer was assigned to ping: the next in the ring or chain.
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

    fn is_silent(&self, now: Time, incarnation: u32, silent: Duration) -> bool {
        self.member.incarnation == incarnation && now.since(self.heard) * 2 >= silent
    }
}

impl Sessions {
    pub(super) fn node(&self, node: NodeId) -> Option<&Session> {
        self.all.get(&Peer::Node(node))
    }

    pub(super) fn member(&self, node: NodeId) -> Option<Member> {
        self.node(node).map(|session| session.member)
    }

    pub(super) fn link(&self, node: NodeId) -> Option<LinkId> {
        self.node(node)?.link
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Session)> {
        let nodes = self.all.iter().filter(|(peer, _)| matches!(peer, Peer::Node(_)));
        nodes.map(|(_, session)| (session.member.node, session))
    }

    pub(super) fn detectors(&self) -> impl Iterator<Item = (NodeId, &Session)> {
        let detectors = self.all.iter().filter(|(peer, _)| matches!(peer, Peer::Detector(_)));
        detectors.map(|(_, session)| (session.member.node, session))
    }

    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.all.values().filter_map(|session| session.link)
    }

    pub(super) fn open(
        &mut self,
        cx: &mut Context,
        (link, peer): (LinkId, Peer),
        (member, rack): (Member, String),
    ) -> Option<Session> {
        cx.timers.set_no_later(Timer::Lease(peer), cx.now + cx.config.detection_time);
        let session = Session { member, rack, link: Some(link), heard: cx.now, grace: cx.now };
        self.all.insert(peer, session)
    }

    /// Adds a session for a stored member that was never heard here.
    pub(super) fn adopt(&mut self, cx: &mut Context, member: Member) {
        let grace = cx.adoption_end();
        let session = Session { member, rack: String::new(), link: None, heard: Time::ZERO, grace };
        let peer = Peer::Node(member.node);
        self.all.insert(peer, session);
        cx.timers.set(Timer::Lease(peer), grace);
    }

    /// Renews the lease of a peer. Extends all leases if this process had appeared disconnected.
    pub(super) fn hear(&mut self, cx: &Context, peer: Peer) {
        self.last_heard = cx.now;
        if let Some(session) = self.all.get_mut(&peer) {
            session.heard = cx.now;
        }
        if core::mem::take(&mut self.is_cut_off) {
            let grace = cx.adoption_end();
            for session in self.all.values_mut() {
                session.grace = session.grace.max(grace);
            }
        }
    }

    pub(super) fn disconnect(&mut self, link: LinkId, peer: Peer) {
        if let Some(session) = self.all.get_mut(&peer).filter(|it| it.link == Some(link)) {
            session.link = None;
        }
    }

    pub(super) fn end(&mut self, cx: &mut Context, peer: Peer) -> Option<Session> {
        cx.timers.cancel(Timer::Lease(peer));
        self.all.remove(&peer)
    }

    pub(super) fn end_disconnected(&mut self, cx: &mut Context, node: NodeId) {
        if self.node(node).is_some_and(|session| session.link.is_none()) {
            self.end(cx, Peer::Node(node));
        }
    }

    /// Extends all leases if this process was stalled, because received data is still unread.
    pub(super) fn compensate_stall(&mut self, cx: &mut Context) {
        let lease = cx.config.detection_time;
        let late = cx.timers.next_due().map_or(Duration::ZERO, |due| cx.now.since(due));
        if late <= lease / 6 {
            return;
        }
        tracing::warn!(late_ms = late.as_millis() as u64, "the registry process was stalled");
        cx.counters.stalls += 1;
        for session in self.all.values_mut() {
            session.grace = cx.now.max(session.lease_end(lease) + late + lease / 3);
        }
    }

    pub(super) fn has_expired(&mut self, cx: &mut Context, peer: Peer) -> bool {
        let Some(session) = self.all.get(&peer) else { return false };
        let lease = cx.config.detection_time;
        let end = session.lease_end(lease);
        let again_at = if end > cx.now {
            end
        } else if matches!(peer, Peer::Node(_)) && self.is_cut_off(cx) {
            cx.now + lease / 3
        } else {
            return true;
        };
        cx.timers.set(Timer::Lease(peer), again_at);
        false
    }

    pub(super) fn silent(
        &self,
        now: Time,
        node: NodeId,
        incarnation: u32,
        silent: Duration,
    ) -> Option<Peer> {
        [Peer::Node(node), Peer::Detector(node)].into_iter().find(|peer| {
            let session = self.all.get(peer);
            session.is_some_and(|it| it.is_silent(now, incarnation, silent))
        })
    }

    pub(super) fn check(&self, cx: &Context, connections: &Connections) {
        for (node, session) in self.nodes() {
            let own = Peer::Node(node);
            let peer = session.link.map(|link| connections.peer(link));
            let is_own = peer.is_none_or(|peer| peer == Some(own));
            assert!(is_own, "the connection of {node:?}'s session belongs to another peer");
            assert!(cx.timers.is_set(Timer::Lease(own)), "the lease of {node:?} has no end");
        }
        for (link, peer) in connections.iter() {
            if let Peer::Node(node) = peer {
                assert!(self.link(node) == Some(link), "a link of {node:?} is in no session");
            }
        }
    }

    /// Returns `true` if this process, rather than its nodes, appears to be disconnected: several
    /// nodes are connected, but none was heard for half a lease, although each sends data sooner.
    fn is_cut_off(&mut self, cx: &mut Context) -> bool {
        let linked = self.nodes().filter(|(_, session)| session.link.is_some()).take(2).count();
        let is_silent = cx.now.since(self.last_heard) * 2 >= cx.config.detection_time;
        let is_cut_off = is_silent && linked == 2;
        if is_cut_off && !self.is_cut_off {
            tracing::warn!("nothing is received from any node: this process may be disconnected");
            cx.counters.times_cut_off += 1;
            self.is_cut_off = true;
        }
        is_cut_off
    }
}
