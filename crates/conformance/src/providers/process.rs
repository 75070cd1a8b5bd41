use std::collections::{BTreeMap, VecDeque};

use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::membership::service::frame::Owners;
use carom_proto::membership::service::{
    Commit, CommitFailure, CommitId, Frame, FrameReader, PartitionState, Server, ServerConfig,
};
use carom_proto::{Endpoint, GroupId, NodeId, Time, Wakeup};

/// A [`Server`] on a host, with the state that its driver would keep.
#[derive(Debug)]
pub struct Process {
    server: Server,
    terms: BTreeMap<u16, u64>,
    peers: BTreeMap<LinkId, Peer>,
    events: VecDeque<ProcessEvent>,
    links: VecDeque<LinkCommand>,
}

#[derive(Debug, Default)]
struct Peer {
    node: Option<NodeId>,
    from_it: FrameReader,
    to_it: FrameReader,
}

/// A request from a registry process to the store, or an acknowledgment to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// A request to store a commit.
    Commit {
        /// The commit.
        commit: Commit,
        /// Term in which the partition was assigned to the process.
        term: u64,
    },
    /// An acknowledgment from the process to a node that joined a group.
    Acknowledged {
        /// The group that was joined.
        group: GroupId,
        /// The node that joined.
        node: NodeId,
    },
}

/// A report from the store to a registry process.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreReport {
    /// The result of a commit.
    Answer(CommitId, Result<(), CommitFailure>),
    /// The partition is assigned to the process.
    Own {
        /// Number of the partition.
        partition: u16,
        /// Number of times that the partition was assigned to any process.
        term: u64,
        /// Content of the partition.
        state: PartitionState,
    },
    /// The partition is no longer assigned to the process.
    Disown(u16),
    /// The current owners of all partitions.
    Owners(Owners),
}

impl Process {
    /// Creates a process that owns no partition.
    pub fn new(config: ServerConfig, seed: u64) -> Self {
        Self {
            server: Server::new(config, seed),
            terms: BTreeMap::new(),
            peers: BTreeMap::new(),
            events: VecDeque::new(),
            links: VecDeque::new(),
        }
    }

    /// Returns the server that the process runs.
    pub fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn handle_report(&mut self, now: Time, report: StoreReport) {
        match report {
            StoreReport::Answer(id, Ok(())) => self.server.handle_committed(now, id),
            StoreReport::Answer(id, Err(why)) => self.server.handle_commit_failed(now, id, why),
            StoreReport::Own { partition, term, state } => {
                // Another process may have owned the partition since, which this process has not
                // noticed.
                self.server.disown(now, partition);
                self.server.load(partition, state);
                self.server.own(now, partition);
                self.terms.insert(partition, term);
            }
            StoreReport::Disown(partition) => self.server.disown(now, partition),
            StoreReport::Owners(owners) => self.server.set_owners(owners),
        }
        self.drain();
    }

    pub(super) fn handle_accepted(&mut self, now: Time, link: LinkId, from: Endpoint) {
        self.peers.insert(link, Peer::default());
        self.server.handle_accepted(now, link, from);
        self.drain();
    }

    pub(super) fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        match event {
            LinkEvent::Opened => {}
            LinkEvent::Received(bytes) => {
                if let Some(peer) = self.peers.get_mut(&link) {
                    peer.received(bytes);
                }
            }
            LinkEvent::Closed { .. } => _ = self.peers.remove(&link),
        }
        self.server.handle_link(now, link, event);
        self.drain();
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.server.handle_timeout(now);
        self.drain();
    }

    pub(super) fn poll_link(&mut self) -> Option<LinkCommand> {
        self.links.pop_front()
    }

    pub(super) fn poll_event(&mut self) -> Option<ProcessEvent> {
        self.events.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Wakeup> {
        self.server.poll_timeout()
    }

    /// Drains the server. Commits come first, because some requests are acknowledged without one.
    fn drain(&mut self) {
        while let Some(commit) = self.server.poll_commit() {
            let term = self.terms.get(&commit.partition).copied().unwrap_or_default();
            self.events.push_back(ProcessEvent::Commit { commit, term });
        }
        while let Some(command) = self.server.poll_link() {
            self.note_acknowledgments(&command);
            self.links.push_back(command);
        }
    }

    fn note_acknowledgments(&mut self, command: &LinkCommand) {
        match command {
            LinkCommand::Send { link, bytes } => {
                let Some(peer) = self.peers.get_mut(link) else { return };
                let groups = peer.sent(bytes);
                let Some(node) = peer.node else { return };
                let groups = groups.into_iter();
                self.events.extend(groups.map(|group| ProcessEvent::Acknowledged { group, node }));
            }
            LinkCommand::Close { link } => _ = self.peers.remove(link),
            LinkCommand::Open { .. } => unreachable!("a registry process opens no links"),
        }
    }
}

impl Peer {
    /// Reads the node from the first frame, the only frame that contains it.
    fn received(&mut self, bytes: &[u8]) {
        if self.node.is_some() {
            return;
        }
        self.from_it.push(bytes);
        if let Ok(Some(Frame::Hello(hello))) = self.from_it.next_frame() {
            self.node = Some(hello.member.node);
            self.from_it = FrameReader::default();
        }
    }

    fn sent(&mut self, bytes: &[u8]) -> Vec<GroupId> {
        self.to_it.push(bytes);
        let mut groups = Vec::new();
        while let Some(frame) = self.to_it.next_frame().expect("a process sends frames") {
            if let Frame::Joined { group, .. } = frame {
                groups.push(group);
            }
        }
        groups
    }
}
