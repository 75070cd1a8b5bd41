//! Connections of this process, and the leases that it holds.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::super::frame::{MAX_REQUEST_BYTES, Member};
use super::super::reader::FrameReader;
use crate::membership::link::LinkId;
use crate::{Endpoint, GroupId, NodeId, Time};

/// All connections and sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    pub(super) links: BTreeMap<LinkId, Peer>,
    /// Connections without a hello, the oldest first.
    pub(super) new_links: BTreeSet<LinkId>,
    pub(super) nodes: BTreeMap<NodeId, Session>,
    pub(super) detectors: BTreeMap<NodeId, Session>,
    pub(super) observers: BTreeMap<LinkId, Observer>,
    /// Time of the last bytes from any peer.
    pub(super) last_heard: Time,
    /// `true` if no peer was heard for so long that this process may be disconnected.
    pub(super) is_cut_off: bool,
}

/// Peer of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) from: Endpoint,
    pub(super) reader: FrameReader,
    pub(super) standing: Standing,
    /// Groups that the connection is subscribed to.
    pub(super) groups: BTreeSet<GroupId>,
    /// Number of requests that wait for the store.
    pub(super) open_requests: usize,
}

/// Role of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No hello was received.
    New,
    Node(NodeId),
    Detector(NodeId),
    Observer,
}

/// A client that receives groups and is in none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observer {
    /// The group, or [`GroupId::NONE`] for all. `None` until it was requested.
    pub(super) wants: Option<GroupId>,
    pub(super) heard: Time,
}

/// A node or detector that this process believes to be alive.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) member: Member,
    pub(super) rack: String,
    /// `None` while it is disconnected within its lease.
    pub(super) link: Option<LinkId>,
    /// [`Time::ZERO`] if it was never heard here.
    pub(super) heard: Time,
    /// Time before which it does not expire.
    pub(super) grace: Time,
}

impl Session {
    pub(super) fn info(&self) -> SessionInfo {
        SessionInfo {
            member: self.member,
            rack: self.rack.clone(),
            is_linked: self.link.is_some(),
            heard: self.heard,
        }
    }
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
}

impl Sessions {
    pub(super) fn add_link(&mut self, link: LinkId, from: Endpoint) {
        let reader = FrameReader::up_to(MAX_REQUEST_BYTES);
        let (standing, groups) = (Standing::New, BTreeSet::new());
        let peer = Peer { from, reader, standing, groups, open_requests: 0 };
        let old = self.links.insert(link, peer);
        assert!(old.is_none(), "the number of a link is used again");
        self.new_links.insert(link);
    }

    /// Records that the peer of the connection was heard. Returns `true` if this process appeared
    /// disconnected until now.
    pub(super) fn hear(&mut self, link: LinkId, now: Time) -> bool {
        self.last_heard = now;
        let session = match self.links.get(&link).map(|peer| peer.standing) {
            Some(Standing::Node(node)) => self.nodes.get_mut(&node),
            Some(Standing::Detector(node)) => self.detectors.get_mut(&node),
            Some(Standing::Observer) => {
                if let Some(observer) = self.observers.get_mut(&link) {
                    observer.heard = now;
                }
                None
            }
            _ => None,
        };
        if let Some(session) = session {
            session.heard = now;
        }
        core::mem::take(&mut self.is_cut_off)
    }

    /// Extends all leases to at least `grace`.
    pub(super) fn grant(&mut self, grace: Time) {
        for session in self.nodes.values_mut().chain(self.detectors.values_mut()) {
            session.grace = session.grace.max(grace);
        }
    }

    /// Extends all leases by `span`, including those that have ended at `now`.
    pub(super) fn put_off_ends(&mut self, now: Time, lease: Duration, span: Duration) {
        for session in self.nodes.values_mut().chain(self.detectors.values_mut()) {
            let end = session.grace.max(session.heard + lease);
            session.grace = now.max(end + span);
        }
    }

    /// Removes a connection. Its session continues for its lease.
    pub(super) fn remove_link(&mut self, link: LinkId) -> Option<Peer> {
        self.new_links.remove(&link);
        let peer = self.links.remove(&link)?;
        let session = match peer.standing {
            Standing::Node(node) => self.nodes.get_mut(&node),
            Standing::Detector(node) => self.detectors.get_mut(&node),
            Standing::Observer => {
                self.observers.remove(&link);
                None
            }
            Standing::New => None,
        };
        if let Some(session) = session.filter(|session| session.link == Some(link)) {
            session.link = None;
        }
        Some(peer)
    }

    /// Returns the node of this connection, in the incarnation of its hello.
    pub(super) fn member_on(&self, link: LinkId) -> Option<Member> {
        let Standing::Node(node) = self.links.get(&link)?.standing else { return None };
        self.nodes.get(&node).map(|session| session.member)
    }

    pub(super) fn infos(&self) -> impl Iterator<Item = SessionInfo> {
        self.nodes.values().map(Session::info)
    }

    /// Asserts that connections and sessions refer to each other.
    pub(super) fn check(&self) {
        for (node, session) in &self.nodes {
            let standing = session.link.map(|link| self.links[&link].standing);
            let is_own = standing.is_none_or(|standing| standing == Standing::Node(*node));
            assert!(is_own, "{node:?}'s session is on another's link");
        }
        for (link, peer) in &self.links {
            let is_observer = peer.standing == Standing::Observer;
            assert_eq!(
                is_observer,
                self.observers.contains_key(link),
                "{link} is half an observer"
            );
            if let Standing::Node(node) = peer.standing {
                let session = self.nodes.get(&node);
                let is_own = session.is_some_and(|session| session.link == Some(*link));
                assert!(is_own, "a link of {node:?} without its session");
            }
        }
    }
}
