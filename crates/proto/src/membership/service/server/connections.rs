use alloc::collections::{BTreeMap, BTreeSet};

use super::config::ServerConfig;
use crate::membership::link::LinkId;
use crate::membership::service::protocol::frame::{Frame, FrameError, MAX_REQUEST_BYTES};
use crate::membership::service::protocol::reader::FrameReader;
use crate::{Endpoint, NodeId};

#[derive(Debug, Default)]
pub(super) struct Connections {
    all: BTreeMap<LinkId, Connection>,
    unknown: BTreeSet<LinkId>,
}

#[derive(Debug)]
struct Connection {
    from: Endpoint,
    reader: FrameReader,
    peer: Peer,
    open_requests: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    Unknown,
    Node(NodeId),
    Detector(NodeId),
    Observer,
}

impl Connections {
    pub(super) fn add(&mut self, link: LinkId, from: Endpoint) {
        let reader = FrameReader::up_to(MAX_REQUEST_BYTES);
        let connection = Connection { from, reader, peer: Peer::Unknown, open_requests: 0 };
        let old = self.all.insert(link, connection);
        assert!(old.is_none(), "the number of connection {link:?} was used before");
        self.unknown.insert(link);
    }

    pub(super) fn excess(&self, config: &ServerConfig) -> Option<LinkId> {
        let is_full = self.all.len() > config.max_links;
        let is_excess = is_full || self.unknown.len() > config.max_new_links;
        self.unknown.first().filter(|_| is_excess).copied()
    }

    pub(super) fn source(&self, link: LinkId) -> Option<Endpoint> {
        self.all.get(&link).map(|connection| connection.from)
    }

    pub(super) fn peer(&self, link: LinkId) -> Option<Peer> {
        self.all.get(&link).map(|connection| connection.peer)
    }

    pub(super) fn identify(&mut self, link: LinkId, peer: Peer) {
        self.unknown.remove(&link);
        if let Some(connection) = self.all.get_mut(&link) {
            connection.peer = peer;
        }
    }

    pub(super) fn push(&mut self, link: LinkId, bytes: &[u8]) {
        if let Some(connection) = self.all.get_mut(&link) {
            connection.reader.push(bytes);
        }
    }

    pub(super) fn next_frame(&mut self, link: LinkId) -> Result<Option<Frame>, FrameError> {
        self.all.get_mut(&link).map_or(Ok(None), |connection| connection.reader.next_frame())
    }

    pub(super) fn remove(&mut self, link: LinkId) -> Option<(Peer, bool)> {
        self.unknown.remove(&link);
        let connection = self.all.remove(&link)?;
        Some((connection.peer, connection.open_requests > 0))
    }

    pub(super) fn note_request(&mut self, link: LinkId) {
        if let Some(connection) = self.all.get_mut(&link) {
            connection.open_requests += 1;
        }
    }

    pub(super) fn note_answer(&mut self, link: LinkId) -> bool {
        let connection = self.all.get_mut(&link);
        connection.map(|connection| connection.open_requests -= 1).is_some()
    }

    pub(super) fn is_busy(&self, config: &ServerConfig, link: LinkId) -> bool {
        let open = self.all.get(&link).map_or(0, |connection| connection.open_requests);
        open >= config.max_requests_per_link
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LinkId, Peer)> {
        self.all.iter().map(|(link, connection)| (*link, connection.peer))
    }
}
