//! Decision logic of a control process.
//!
//! A driver passes in connections, bytes, results of the store, ownership and the time. After that
//! it calls [`Server::poll_commit`] until it returns `None`, then [`Server::poll_link`] until it
//! returns `None`. Then it waits for the next input, or until [`Server::poll_timeout`]. Several
//! inputs are possible before the polls: the changes that they request become one commit.
//!
//! # Partitions
//!
//! A partition is *followed* (loaded, and kept up to date by the store's watch) or *owned*. Only an
//! owner decides about a partition. The driver gains and loses ownership by the rules of the store,
//! and reports it by [`Server::own`] and [`Server::disown`]. Two processes may briefly believe that
//! they own the same partition. The store then refuses the writes of one.
//!
//! # Invariants
//!
//! - Everything that is acknowledged, or reported of a group, is in the store.
//! - At most one commit of each partition is in flight, for the version of the state.
//! - Every member of an owned partition has a session with a running lease, or is being removed.

mod audience;
mod commits;
mod config;
mod counters;
mod ledger;
mod managing;
mod observers;
mod peers;
mod racks;
mod sessions;

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use self::audience::Audience;
pub use self::config::ServerConfig;
use self::counters::Counters;
use self::ledger::Ledger;
pub use self::ledger::{Commit, CommitFailure, CommitId};
pub use self::racks::DetectorInfo;
pub use self::sessions::SessionInfo;
use self::sessions::Sessions;
use super::frame::{Frame, Owners, Refusal, partition_of};
use super::outbox::Outbox;
use super::registry::{Change, PartitionState};
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::rdcm::manager::service::ManagerService;
use crate::{Endpoint, GroupId, NodeId, Rng, Time, Timers, Wakeup};

/// One control process.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    /// Random number, drawn at the start.
    process: u64,
    sessions: Sessions,
    /// One for each partition.
    ledgers: Vec<Ledger>,
    owners: Owners,
    /// Stored groups of each node in owned partitions.
    memberships: BTreeMap<NodeId, BTreeSet<GroupId>>,
    /// Nodes that were declared dead, with the last incarnation concerned, until they are out of
    /// all groups.
    expired: BTreeMap<NodeId, u32>,
    audience: Audience,
    /// Partitions of which a commit may be possible.
    ready: BTreeSet<u16>,
    next_commit: u64,
    racks: racks::Racks,
    /// The multicast manager, if the network is known.
    manager: Option<ManagerService>,
    timers: Timers<Timer>,
    outbox: Outbox,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Time limit for the hello on a connection.
    Greet(LinkId),
    Lease(NodeId),
    Detector(NodeId),
    Observer(LinkId),
    /// The next attempt of a commit.
    Retry(u16),
}

/// Maximum time until the hello on a connection, for any lease.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

impl Server {
    /// Creates a control process that owns nothing. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// `config` is invalid: no partitions or more than 4096, a detection time or ring time below
    /// 100 ms, a retry interval of zero, a name of more than 255 bytes, or commits of no or more
    /// than 10000 changes.
    pub fn new(config: ServerConfig, seed: u64) -> Self {
        config.validate();
        let mut rng = Rng::new(seed);
        let ledgers = (0..config.partitions).map(|_| Ledger::default()).collect();
        Self {
            process: rng.next_u64(),
            sessions: Sessions::default(),
            ledgers,
            owners: Owners { partitions: config.partitions, owned: Vec::new() },
            memberships: BTreeMap::new(),
            expired: BTreeMap::new(),
            audience: Audience::new(config.view_size, rng.fork(1)),
            ready: BTreeSet::new(),
            next_commit: 1,
            racks: racks::Racks::default(),
            manager: config.network.clone().map(|it| ManagerService::new(it, rng.next_u64())),
            timers: Timers::new(),
            outbox: Outbox::default(),
            counters: Counters::default(),
            config,
        }
    }

    /// Adds a connection that was accepted from this address. The driver chooses its number.
    ///
    /// # Panics
    /// The number is that of another connection.
    pub fn handle_accepted(&mut self, now: Time, link: LinkId, from: Endpoint) {
        self.counters.links_accepted += 1;
        self.sessions.add_link(link, from);
        let is_full = self.sessions.links.len() > self.config.max_links;
        if is_full || self.sessions.new_links.len() > self.config.max_new_links {
            match self.sessions.new_links.first() {
                Some(&oldest) if oldest != link => {
                    self.counters.links_displaced += 1;
                    self.end_link(oldest);
                }
                _ => return self.refuse(link, Refusal::Full),
            }
        }
        let within = self.config.detection_time.min(HELLO_WITHIN);
        self.timers.set(Timer::Greet(link), now + within);
    }

    /// Processes an event of an accepted connection.
    pub fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        match event {
            LinkEvent::Opened => {}
            LinkEvent::Received(bytes) => self.on_bytes(now, link, bytes),
            LinkEvent::Closed { .. } => {
                self.forget_link(link);
                self.outbox.forget(link);
            }
        }
    }

    /// Sets the state of a partition from the store, to follow or to own it.
    ///
    /// # Panics
    /// The partition is owned, so its state is newer than any copy.
    pub fn load(&mut self, partition: u16, state: PartitionState) {
        let ledger = &mut self.ledgers[usize::from(partition)];
        assert!(!ledger.is_owned, "partition {partition} is owned and was loaded");
        (ledger.state, ledger.is_loaded) = (state, true);
    }

    /// Applies changes of another process after version `after`, as reported by the store's watch.
    ///
    /// Returns `false` if they do not fit, and the partition must be loaded again. A partition that
    /// is owned here and was changed by another process is lost.
    pub fn handle_applied(
        &mut self,
        now: Time,
        partition: u16,
        after: u64,
        changes: &[Change],
    ) -> bool {
        let ledger = &mut self.ledgers[usize::from(partition)];
        let version = ledger.state.version();
        let is_known = ledger.is_loaded && after + changes.len() as u64 <= version;
        if ledger.is_owned {
            // A write of this process can be reported before or after its result.
            let is_own = is_known || (after == version && ledger.has_in_flight(changes));
            if !is_own {
                self.disown(now, partition);
            }
            return is_own;
        }
        if is_known {
            return true;
        }
        ledger.is_loaded &= after == version;
        if ledger.is_loaded {
            changes.iter().for_each(|change| ledger.state.apply(change));
        }
        ledger.is_loaded
    }

    /// Takes ownership of the partition, in the state that was loaded.
    ///
    /// Members without a session here have the adoption time to be heard.
    ///
    /// Commits of an earlier ownership, by this or another process, must not take effect after the
    /// state was loaded. The driver's writes must therefore compare a value that is new for each
    /// ownership. If the store names this process as the owner of a partition that is not owned
    /// here, the driver loads and owns it again.
    ///
    /// # Panics
    /// The partition is not loaded.
    pub fn own(&mut self, now: Time, partition: u16) {
        let ledger = &mut self.ledgers[usize::from(partition)];
        assert!(ledger.is_loaded, "partition {partition} is owned before it is loaded");
        if core::mem::replace(&mut ledger.is_owned, true) {
            return;
        }
        tracing::info!(partition, version = ledger.state.version(), "owns a partition");
        self.counters.partitions_owned += 1;
        let groups = ledger.state.groups().clone();
        for (group, state) in groups {
            for member in state.members.into_values() {
                self.memberships.entry(member.node).or_default().insert(group);
                self.hold_lease(now, group, member);
            }
        }
        self.tell_observers(partition);
        self.arrange_watch();
    }

    /// Ends the ownership of the partition.
    ///
    /// Pending requests are answered by [`Frame::Elsewhere`]. A commit that was in flight may or
    /// may not be stored.
    pub fn disown(&mut self, _now: Time, partition: u16) {
        let ledger = &mut self.ledgers[usize::from(partition)];
        if !ledger.is_owned {
            return;
        }
        tracing::info!(partition, "no longer owns a partition");
        self.counters.partitions_lost += 1;
        let groups = ledger.state.groups().clone();
        for request in ledger.give_up() {
            let Some(origin) = request.origin else { continue };
            let Some(peer) = self.sessions.links.get_mut(&origin.link) else { continue };
            peer.open_requests -= 1;
            self.send_elsewhere(origin.link, origin.request, request.group);
        }
        self.timers.cancel(Timer::Retry(partition));
        self.give_up_manager(partition);
        for (group, state) in groups {
            for link in self.audience.remove_group(group) {
                if let Some(peer) = self.sessions.links.get_mut(&link) {
                    peer.groups.remove(&group);
                    // It gets no more changes, and must be notified.
                    self.send_elsewhere(link, 0, group);
                }
            }
            state.members.keys().for_each(|node| self.release(*node, group));
        }
    }

    /// Sets the owners of the partitions, including this process, and sends them to all peers.
    ///
    /// # Panics
    /// The number of partitions is not the configured one.
    pub fn set_owners(&mut self, owners: Owners) {
        assert_eq!(owners.partitions, self.config.partitions, "another number of partitions");
        if self.owners == owners {
            return;
        }
        self.owners = owners;
        let frame = Frame::Owners(self.owners.clone());
        let sessions = self.sessions.nodes.values().chain(self.sessions.detectors.values());
        let links = sessions.filter_map(|session| session.link);
        for link in links.chain(self.sessions.observers.keys().copied()) {
            self.outbox.send(link, &frame);
        }
    }

    /// Processes the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.mind_stall(now);
        self.time_manager(now);
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Greet(link) => {
                    self.counters.links_nonsense += 1;
                    self.end_link(link);
                }
                Timer::Lease(node) => self.on_lease(now, node),
                Timer::Detector(node) => self.on_detector_lease(now, node),
                Timer::Observer(link) => self.on_observer_lease(now, link),
                Timer::Retry(partition) => {
                    self.ledgers[usize::from(partition)].is_paused = false;
                    self.ready.insert(partition);
                }
            }
        }
    }

    /// Returns the next command for a connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand> {
        self.outbox.poll()
    }

    /// Returns the time of the next call of [`Server::handle_timeout`] and its reason.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "membership service" });
        let manager = self.manager.as_ref().and_then(ManagerService::poll_timeout);
        Wakeup::earlier(own, manager.map(|at| Wakeup { at, reason: "multicast manager" }))
    }

    /// Returns the random number that this process drew at its start.
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Returns `true` if this process owns the partition.
    pub fn is_owned(&self, partition: u16) -> bool {
        self.ledgers.get(usize::from(partition)).is_some_and(|ledger| ledger.is_owned)
    }

    /// Returns the known state of the partition, or `None` if it must be loaded first.
    pub fn state(&self, partition: u16) -> Option<&PartitionState> {
        let ledger = self.ledgers.get(usize::from(partition))?;
        ledger.is_loaded.then_some(&ledger.state)
    }

    /// Returns the owners of the partitions, as last set.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Returns the sessions of the nodes that are believed to be alive.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> {
        self.sessions.infos()
    }

    /// Returns the number of requests that wait for the store.
    pub fn open_requests(&self) -> usize {
        self.ledgers.iter().map(Ledger::open_requests).sum()
    }

    /// Returns all counters with their names.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let sent = [
            ("frames_sent", self.outbox.frames_sent),
            ("bytes_sent", self.outbox.bytes_sent),
            ("updates_sent", self.audience.updates_sent),
            ("snapshots_sent", self.audience.snapshots_sent),
        ];
        let manager = self.manager.iter().flat_map(|it| it.counters().by_name());
        self.counters.by_name().chain(sent).chain(manager).collect()
    }

    /// Asserts the invariants.
    ///
    /// # Panics
    /// An invariant is broken, which is a bug.
    pub fn check(&self) {
        self.sessions.check();
        self.manager.iter().for_each(ManagerService::check);
        let mut memberships: BTreeMap<NodeId, BTreeSet<GroupId>> = BTreeMap::new();
        for (place, ledger) in self.ledgers.iter().enumerate() {
            ledger.check();
            for (group, state) in ledger.state.groups() {
                let partition = partition_of(*group, self.config.partitions);
                assert_eq!(usize::from(partition), place, "{group:?} is in another's partition");
                for node in state.members.keys().filter(|_| ledger.is_owned) {
                    memberships.entry(*node).or_default().insert(*group);
                    let is_held = self.sessions.nodes.contains_key(node);
                    let is_going = ledger.is_open(*group, *node);
                    assert!(is_held || is_going, "{node:?} is a member for ever");
                }
            }
        }
        assert_eq!(self.memberships, memberships, "the index is not what is stored");
        for node in self.sessions.nodes.keys() {
            assert!(self.timers.is_set(Timer::Lease(*node)), "the lease of {node:?} has no end");
        }
        for (link, peer) in &self.sessions.links {
            for group in &peer.groups {
                assert!(self.audience.is_told(*link, *group), "{group:?} is not told to {link}");
            }
        }
    }

    fn partition(&self, group: GroupId) -> u16 {
        partition_of(group, self.config.partitions)
    }

    /// Removes a node's membership that another process decides about from now on.
    fn release(&mut self, node: NodeId, group: GroupId) {
        let Some(groups) = self.memberships.get_mut(&node) else { return };
        groups.remove(&group);
        if !groups.is_empty() {
            return;
        }
        self.memberships.remove(&node);
        self.expired.remove(&node);
        if self.sessions.nodes.get(&node).is_some_and(|session| session.link.is_none()) {
            self.sessions.nodes.remove(&node);
            self.timers.cancel(Timer::Lease(node));
        }
    }
}
