//! Decision logic of a registry process.
//!
//! After each input, a driver calls [`Server::poll_commit`] and then [`Server::poll_link`] until
//! they return `None`, and waits for the next input or until [`Server::poll_timeout`]. The changes
//! that several inputs request become one commit.
//!
//! # Partitions
//!
//! A partition is *followed* (loaded, and kept up to date by the store's watch) or *owned*. Only an
//! owner decides about a partition. The driver gains and loses ownership by the rules of the store,
//! and reports it with [`Server::own`] and [`Server::disown`]. If two processes believe that they
//! own the same partition, the store refuses the writes of one.
//!
//! # Invariants
//!
//! - Everything that is acknowledged, or reported about a group, is in the store.
//! - At most one commit of each partition is in flight. It applies to the current version.
//! - Every member of an owned partition has a session with a running lease, or is being removed.

mod commit;
mod config;
mod connections;
mod context;
mod counters;
mod frames;
mod multicast_manager;
mod observers;
mod partitions;
mod racks;
mod sessions;
mod subscribers;

use core::time::Duration;

use self::commit::{Answer, Origin, Outcome, Request};
pub use self::commit::{Commit, CommitFailure, CommitId};
pub use self::config::ServerConfig;
use self::connections::{Connections, Peer};
use self::context::{Context, Timer};
use self::multicast_manager::MulticastManager;
use self::observers::Observers;
use self::partitions::{Failure, Partitions};
pub use self::racks::DetectorInfo;
use self::racks::Racks;
pub use self::sessions::SessionInfo;
use self::sessions::Sessions;
use self::subscribers::Subscribers;
use super::partition_state::{Change, PartitionState};
use super::protocol::frame::{Frame, MANAGER_PARTITION, Member, Owners, Refusal};
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::rdcm::manager::service::{LinkReportError, ManagerService};
use crate::rdcm::manager::{LinkState, TreeChange};
use crate::{Endpoint, GroupId, NodeId, Rng, Time, Wakeup};

/// The decision logic of a registry process.
#[derive(Debug)]
pub struct Server {
    cx: Context,
    process: u64,
    owners: Owners,
    connections: Connections,
    sessions: Sessions,
    observers: Observers,
    partitions: Partitions,
    subscribers: Subscribers,
    racks: Racks,
    manager: MulticastManager,
}

const HELLO_WITHIN: Duration = Duration::from_secs(5);

impl Server {
    /// Creates a registry process that owns no partition. `seed` is the source of all randomness.
    ///
    /// # Panics
    /// Panics if a field of `config` is out of its documented bounds.
    pub fn new(config: ServerConfig, seed: u64) -> Self {
        config.validate();
        let mut rng = Rng::new(seed);
        Self {
            process: rng.next_u64(),
            owners: Owners { partitions: config.partitions, owned: Vec::new() },
            connections: Connections::default(),
            sessions: Sessions::default(),
            observers: Observers::default(),
            partitions: Partitions::new(config.partitions),
            subscribers: Subscribers::new(config.view_size, rng.fork(1)),
            racks: Racks::default(),
            manager: MulticastManager::new(config.network.clone(), config.installs_trees, &mut rng),
            cx: Context::new(config),
        }
    }

    /// Adds a connection that was accepted from the address `from`. The driver chooses its number.
    /// If there are too many, closes the oldest one without a hello, or refuses the new one.
    ///
    /// # Panics
    /// Panics if an open connection has the same number.
    pub fn handle_accepted(&mut self, now: Time, link: LinkId, from: Endpoint) {
        self.cx.now = now;
        self.cx.counters.links_accepted += 1;
        self.connections.add(link, from);
        if let Some(excess) = self.connections.excess(&self.cx.config) {
            if excess == link {
                return self.refuse(link, Refusal::Full);
            }
            self.cx.counters.links_displaced += 1;
            self.close(excess);
        }
        let within = self.cx.config.detection_time.min(HELLO_WITHIN);
        self.cx.timers.set(Timer::Greet(link), now + within);
    }

    /// Processes an event of an accepted connection.
    pub fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.cx.now = now;
        match event {
            LinkEvent::Opened => {}
            LinkEvent::Received(bytes) => self.on_bytes(link, bytes),
            LinkEvent::Closed { .. } => {
                self.close(link);
                self.cx.outbox.forget(link);
            }
        }
    }

    /// Loads the state of a partition from the store, to follow or to own the partition.
    ///
    /// # Panics
    /// Panics if this process owns the partition, because its own state is newer than any copy.
    pub fn load(&mut self, partition: u16, state: PartitionState) {
        self.partitions.load(partition, state);
    }

    /// Applies changes after version `after`, as reported by the store's watch. Changes that this
    /// process knows, or is committing itself, have no effect.
    ///
    /// Returns `false` if the changes do not follow the known state. The driver must then load the
    /// partition again. If this process owned the partition, it no longer does.
    pub fn handle_applied(
        &mut self,
        now: Time,
        partition: u16,
        after: u64,
        changes: &[Change],
    ) -> bool {
        let fits = self.partitions.apply(partition, after, changes);
        if !fits {
            self.disown(now, partition);
        }
        fits
    }

    /// Takes ownership of the partition in the state that was loaded.
    ///
    /// Members without a session at this process have the adoption time to connect. Commits of an
    /// earlier ownership must not take effect after the state was loaded. The driver's writes must
    /// therefore compare a value that is new for each ownership.
    ///
    /// # Panics
    /// Panics if the partition is not loaded.
    pub fn own(&mut self, now: Time, partition: u16) {
        self.cx.now = now;
        let Some(members) = self.partitions.own(&mut self.cx, partition) else { return };
        for (group, member) in members {
            self.partitions.add_member(group, member.node);
            self.hold_lease(group, member);
        }
        let observers: Vec<(LinkId, GroupId)> = self.observers.requests().collect();
        for (link, wants) in observers {
            self.show_partition(partition, link, wants);
        }
        self.racks.arrange(&mut self.cx, &self.sessions);
    }

    /// Ends the ownership of the partition and drops its state. A commit in flight may take effect.
    pub fn disown(&mut self, now: Time, partition: u16) {
        self.cx.now = now;
        let disowned = self.partitions.disown(&mut self.cx, partition);
        let Some((requests, groups)) = disowned else { return };
        for Request { group, origin, .. } in requests {
            if let Some(origin) = origin
                && self.connections.note_answer(origin.link)
            {
                self.cx.send_elsewhere(origin, group);
            }
        }
        if partition == MANAGER_PARTITION {
            self.manager.give_up(&mut self.cx, &self.sessions);
        }
        for (group, state) in groups {
            for link in self.subscribers.remove_group(group) {
                // The observer gets no more changes from this process and must be notified.
                self.cx.send_elsewhere(Origin { link, request: 0 }, group);
            }
            for node in state.members.into_keys() {
                if self.partitions.release(node, group) {
                    self.sessions.end_disconnected(&mut self.cx, node);
                }
            }
        }
    }

    /// Sets the owners of all partitions. If they have changed, sends them to all connected nodes,
    /// detectors and observers.
    ///
    /// # Panics
    /// Panics if the number of partitions is not the configured one.
    pub fn set_owners(&mut self, owners: Owners) {
        assert_eq!(owners.partitions, self.cx.config.partitions, "wrong number of partitions");
        if self.owners == owners {
            return;
        }
        self.owners = owners;
        let frame = Frame::Owners(self.owners.clone());
        for link in self.sessions.links().chain(self.observers.links()) {
            self.cx.outbox.send(link, &frame);
        }
    }

    /// Applies a report on the links between two switches, racks or hosts of the network; see
    /// [`ManagerService::report_link`]. Returns `None` if this process has no multicast manager.
    ///
    /// A process that does not own the manager's partition keeps the report, and applies it when
    /// the partition moves here.
    pub fn report_link(
        &mut self,
        now: Time,
        ends: [&str; 2],
        state: LinkState,
    ) -> Option<Result<usize, LinkReportError>> {
        self.cx.now = now;
        self.manager.report_link(&mut self.cx, &self.sessions, ends, state)
    }

    /// Returns the next multicast tree that the driver must install in the network, if
    /// [`ServerConfig::installs_trees`] is set.
    pub fn poll_tree(&mut self, now: Time) -> Option<TreeChange> {
        self.manager.service.as_mut()?.poll_tree(now)
    }

    /// Processes the end of the installation of a group's tree. The error is shown in the status.
    pub fn handle_tree_installed(&mut self, now: Time, group: GroupId, result: Result<(), String>) {
        if let Some(manager) = &mut self.manager.service {
            manager.handle_installed(now, group, result);
        }
    }

    /// Processes the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.cx.now = now;
        self.sessions.compensate_stall(&mut self.cx);
        if let Some(manager) = &mut self.manager.service {
            manager.handle_timeout(now);
        }
        while let Some(timer) = self.cx.timers.pop_due(now) {
            match timer {
                Timer::Greet(link) => {
                    self.cx.counters.links_nonsense += 1;
                    self.close(link);
                }
                Timer::Lease(peer) => {
                    if self.sessions.has_expired(&mut self.cx, peer) {
                        self.declare_dead(peer);
                    }
                }
                Timer::Observer(link) => {
                    if self.observers.is_silent(&mut self.cx, link) {
                        self.close(link);
                    }
                }
                Timer::Retry(partition) => self.partitions.retry(partition),
            }
        }
    }

    /// Returns the next changes to store. At most one commit of each partition is in flight.
    ///
    /// Drain this method before [`Server::poll_link`]: it also answers requests without a commit.
    pub fn poll_commit(&mut self) -> Option<Commit> {
        while self.partitions.has_next() {
            let mut answers = Vec::new();
            let commit = self.partitions.next(&mut self.cx, &mut answers);
            answers.into_iter().for_each(|answer| self.answer(answer));
            if commit.is_some() {
                return commit;
            }
        }
        None
    }

    /// Processes the success of a commit, whose changes must be stored durably.
    pub fn handle_committed(&mut self, now: Time, id: CommitId) {
        self.cx.now = now;
        let Some((changes, requests)) = self.partitions.succeeded(&mut self.cx, id) else { return };
        self.publish(&changes);
        for request in requests {
            self.answer(Answer { request, outcome: Outcome::Done });
        }
    }

    /// Processes the failure of a commit, or the lack of a result.
    ///
    /// Joins of a failed commit are refused. Its other changes are tried again after an increasing
    /// pause. A commit without a result is then repeated unchanged. After
    /// [`CommitFailure::Deposed`], this process disowns the partition.
    pub fn handle_commit_failed(&mut self, now: Time, id: CommitId, why: CommitFailure) {
        self.cx.now = now;
        match self.partitions.failed(&mut self.cx, id, why) {
            Some(Failure::Deposed(partition)) => self.disown(now, partition),
            Some(Failure::Refused(answers)) => {
                answers.into_iter().for_each(|answer| self.answer(answer));
            }
            None => {}
        }
    }

    /// Returns the next command for a connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand> {
        self.cx.outbox.poll()
    }

    /// Returns the time at which [`Server::handle_timeout`] must next be called, and the reason.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.cx.timers.next_due().map(|at| Wakeup { at, reason: "registry" });
        let manager = self.manager.service.as_ref().and_then(ManagerService::poll_timeout);
        Wakeup::earlier(own, manager.map(|at| Wakeup { at, reason: "multicast manager" }))
    }

    /// Returns the random number that this process drew at its start.
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Returns `true` if this process owns the partition.
    pub fn is_owned(&self, partition: u16) -> bool {
        self.partitions.is_owned(partition)
    }

    /// Returns the known state of the partition, or `None` if it must first be loaded.
    pub fn state(&self, partition: u16) -> Option<&PartitionState> {
        self.partitions.state(partition)
    }

    /// Returns the owners of the partitions, as last set by [`Server::set_owners`].
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Returns the sessions of the nodes that are believed to be alive.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> {
        self.sessions.nodes().map(|(node, session)| session.info(self.racks.next_of(node)))
    }

    /// Returns the failure detectors that are believed to be alive, in order of their ids.
    pub fn detectors(&self) -> impl Iterator<Item = DetectorInfo> {
        self.sessions.detectors().map(|(node, session)| DetectorInfo {
            session: session.info(self.racks.next_of(node)),
            watched: self.racks.watched_by(node),
        })
    }

    /// Returns the multicast manager, if this process knows the network.
    pub fn manager(&self) -> Option<&ManagerService> {
        self.manager.service.as_ref()
    }

    /// Returns the number of requests that wait for the store.
    pub fn open_requests(&self) -> usize {
        self.partitions.open_requests()
    }

    /// Returns all counters with their names.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let outbox = &self.cx.outbox;
        let sent = [("frames_sent", outbox.frames_sent), ("bytes_sent", outbox.bytes_sent)];
        let stats = self.cx.counters.by_name().chain(sent).chain(self.subscribers.stats());
        let manager = self.manager.service.iter().flat_map(|it| it.counters().by_name());
        stats.chain(manager).collect()
    }

    /// Asserts the invariants of this module.
    pub fn check(&self) {
        self.sessions.check(&self.cx, &self.connections);
        self.observers.check(&self.connections);
        self.manager.service.iter().for_each(ManagerService::check);
        self.partitions.check(|node| self.sessions.node(node).is_some());
        self.subscribers.check(|link| self.connections.peer(link).is_some());
    }

    /// Closes a connection. Its session continues until the lease ends.
    fn close(&mut self, link: LinkId) {
        self.cx.outbox.close(link);
        self.cx.timers.cancel(Timer::Greet(link));
        self.cx.timers.cancel(Timer::Observer(link));
        let Some((peer, has_requests)) = self.connections.remove(link) else { return };
        self.sessions.disconnect(link, peer);
        match peer {
            Peer::Unknown => {}
            Peer::Node(node) => {
                if let Some(manager) = &mut self.manager.service {
                    manager.forget(node);
                }
            }
            // A detector without a connection watches no nodes for this process.
            Peer::Detector(_) => self.racks.arrange(&mut self.cx, &self.sessions),
            Peer::Observer => self.observers.close(link),
        }
        self.subscribers.remove_link(link);
        if has_requests {
            self.partitions.forget_link(link);
        }
    }

    fn refuse(&mut self, link: LinkId, why: Refusal) {
        tracing::debug!(%link, %why, "connection refused");
        match why {
            Refusal::Nonsense => self.cx.counters.links_nonsense += 1,
            _ => self.cx.counters.links_refused += 1,
        }
        self.cx.outbox.send(link, &Frame::Refused(why));
        self.close(link);
    }

    fn hold_lease(&mut self, group: GroupId, member: Member) {
        let node = member.node;
        let known = self.sessions.node(node).map(|session| (session.member, session.link));
        if known.is_some_and(|(known, _)| known.is_same_life(&member)) {
            return;
        }
        let has_later = known.is_some_and(|(known, _)| member.is_over(&known));
        let has_expired = self.partitions.expired(node).is_some_and(|it| it >= member.incarnation);
        if has_later || has_expired {
            return self.partitions.request(Request::removal_of_start(group, member));
        }
        if let Some((earlier, Some(link))) = known {
            self.expire_link(link, earlier.incarnation);
        }
        self.sessions.adopt(&mut self.cx, member);
        if let Some((earlier, _)) = known.filter(|(known, _)| known.is_over(&member)) {
            self.partitions.remove_incarnation(earlier);
        }
    }

    fn expire(&mut self, node: NodeId) {
        let Some(session) = self.sessions.node(node) else { return };
        let (incarnation, link) = (session.member.incarnation, session.link);
        tracing::info!(%node, incarnation, "the lease of a node has expired");
        self.cx.counters.sessions_expired += 1;
        if let Some(link) = link {
            self.expire_link(link, incarnation);
        }
        self.sessions.end(&mut self.cx, Peer::Node(node));
        self.partitions.remove_node(node, incarnation, true);
    }

    fn expire_link(&mut self, link: LinkId, incarnation: u32) {
        self.cx.outbox.send(link, &Frame::Expired { incarnation });
        self.close(link);
    }

    fn declare_dead(&mut self, peer: Peer) {
        match peer {
            Peer::Node(node) => self.expire(node),
            Peer::Detector(node) => {
                tracing::info!(detector = %node, "a failure detector has failed");
                self.cx.counters.detectors_failed += 1;
                let session = self.sessions.end(&mut self.cx, peer);
                if let Some(link) = session.and_then(|session| session.link) {
                    self.close(link);
                }
            }
            Peer::Unknown | Peer::Observer => {}
        }
        self.racks.arrange(&mut self.cx, &self.sessions);
    }
}
