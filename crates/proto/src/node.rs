//! The engines of one node and its membership provider.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

pub use self::engines::Engines;
use crate::lateral;
use crate::membership::Membership;
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::rdcm::{self, Rdcm};
use crate::rmp::{self, Rmp};
use crate::wire::{Datagram, Header, Protocol};
use crate::{
    Endpoint, Engine, Event, GroupId, JoinError, NetworkChange, NodeId, Origin, SendError,
    SendOptions, SeqNo, Time, Transmit, Wakeup,
};

mod engines;
mod groups;
pub mod starts;

pub use self::groups::LEAVE_WITHIN;
use self::groups::{Joined, Stage};
use self::starts::{Start, Starts};

/// One node: its engines, its membership provider and its groups.
///
/// It is driven like an [engine](crate::engine).
pub struct Node {
    origin: Origin,
    engines: Engines,
    membership: Box<dyn Membership>,
    groups: BTreeMap<GroupId, Joined>,
    /// Ordered groups whose possible members are not known yet.
    seeking: BTreeSet<GroupId>,
    /// Groups without a ring that this node is leaving, with the time limit of each leave.
    leaving: BTreeMap<GroupId, Time>,
    starts: Starts,
    events: VecDeque<NodeEvent>,
    counters: NodeCounters,
}

/// An event that a node reports to its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// An event for the group's application.
    Group(Event),
    /// The node is reachable at this endpoint. This event precedes view changes with the node.
    Met(NodeId, Endpoint),
    /// The node is no longer reachable, because it has failed or stopped.
    Parted(NodeId),
    /// This node has learned what its contacts know, or considers itself the first node.
    Settled,
    /// The registry has accepted the join of the group: see [`Node::is_admitted`].
    Admitted(GroupId),
    /// The registry is unreachable. Views keep their last known members.
    Away,
    /// The registry is reachable again, and all views are up to date.
    Returned,
    /// The join was refused after [`Node::join`] had returned. The node is not in the group.
    Refused(GroupId, JoinError),
    /// The membership's view of this ordered group has changed. The application of the group
    /// receives the changes to its ring instead.
    Neighbours(GroupId),
    /// The multicast manager of the registry is unreachable, does not answer, or refuses to place
    /// this node's receivers in the group. The node continues with its own manager.
    ManagerLost(GroupId),
    /// The node is no longer in the group: it has left, was removed, or its join was refused.
    Out(GroupId),
}

crate::counters! {
    /// Counters of a node's incoming datagrams.
    pub struct NodeCounters {
        /// Datagrams that were passed to an engine or to the membership provider.
        datagrams_received,
        /// Datagrams of groups that this node is not in. Groups can share a multicast address.
        datagrams_foreign,
        /// Datagrams of an incarnation that has ended or is not credible, and datagrams that did
        /// not come from their sender's address.
        ///
        /// A packet of an ordered group may come from the address of any known node. A packet of a
        /// [guest](crate::Profile::Guest) may come from any address.
        datagrams_of_other_starts,
        /// Datagrams of a protocol for which the node has no engine.
        datagrams_unknown,
    }
}

impl Node {
    /// Creates a node without groups. All random values are derived from `seed`.
    pub fn new(
        origin: impl Into<Origin>,
        config: lateral::Config,
        membership: Box<dyn Membership>,
        seed: u64,
    ) -> Self {
        let origin = origin.into();
        Self {
            origin,
            engines: Engines::new(origin, config, seed),
            membership,
            groups: BTreeMap::new(),
            seeking: BTreeSet::new(),
            leaving: BTreeMap::new(),
            starts: Starts::default(),
            events: VecDeque::new(),
            counters: NodeCounters::default(),
        }
    }

    /// Configures the engine of the ordered groups. Must be called before any ordered group is
    /// joined.
    ///
    /// # Panics
    /// Panics if the settings are not [valid](rmp::Config).
    #[must_use]
    pub fn with_ordered(mut self, config: rmp::Config, seed: u64) -> Self {
        self.engines.ordered = Rmp::new(self.origin, config, seed);
        self
    }

    /// Configures the engine of the bulk groups. Must be called before any bulk group is joined.
    ///
    /// # Panics
    /// Panics if the settings are not [valid](rdcm::Config).
    #[must_use]
    pub fn with_bulk(mut self, config: rdcm::Config, seed: u64) -> Self {
        self.engines.bulk = Rdcm::new(self.origin, config, seed);
        self
    }

    /// Adds an engine that the caller provides. It carries the groups with
    /// [`Profile::Guest`](crate::Profile::Guest).
    ///
    /// The engine must have been created for this node's id.
    #[must_use]
    pub fn with_guest(mut self, guest: Box<dyn Engine>) -> Self {
        self.engines.guest = Some(guest);
        self
    }

    /// Returns the node's id.
    pub fn id(&self) -> NodeId {
        self.origin.node
    }

    /// Multicasts `payload` in `group`; see [`Engine::send`].
    ///
    /// # Errors
    /// Returns the reason if the message was not accepted, in which case no part of it was sent.
    pub fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let joined = self.groups.get(&group).ok_or(SendError::NotJoined)?;
        match joined.stage {
            Stage::Seeking => return Err(SendError::NotReady),
            Stage::Leaving => return Err(SendError::NotJoined),
            Stage::In => {}
        }
        let engine = self.engine_of(group).ok_or(SendError::NotJoined)?;
        engine.send(now, group, payload, options)
    }

    /// Requests confirmation of everything that was sent so far; see [`Engine::confirm`].
    pub fn confirm(&mut self, now: Time, group: GroupId) {
        if let Some(engine) = self.engine_of(group) {
            engine.confirm(now, group);
        }
    }

    /// Returns the maximum payload in `group` in bytes, or `None` if the node is not in the group.
    pub fn payload_limit(&self, group: GroupId) -> Option<usize> {
        let profile = self.groups.get(&group)?.settings.profile;
        self.engines.of(profile.protocol()).map(|engine| engine.payload_limit(profile))
    }

    /// Announces the datagrams that will be processed next; see [`Engine::look_ahead`].
    pub fn look_ahead(&self, waiting: &[Datagram<'_>]) {
        self.engines.all().for_each(|engine| engine.look_ahead(waiting));
    }

    /// Processes a datagram that was received from `source`.
    ///
    /// Returns the sender if an engine found the datagram intact, even if no view contains that
    /// node. In an ordered group, another node may have forwarded the datagram from `source`.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        source: Endpoint,
        datagram: &Datagram<'_>,
    ) -> Option<NodeId> {
        let Header { protocol, group, sender, .. } = *datagram.header();
        if protocol == Protocol::Membership {
            self.counters.datagrams_received += 1;
            self.membership.handle_datagram(now, source, datagram);
            self.take_membership_events(now);
            return None;
        }
        match self.starts.look(now, source, datagram) {
            Start::Known => {}
            Start::New => self.on_restart(now, sender),
            Start::Over => {
                self.counters.datagrams_of_other_starts += 1;
                return None;
            }
        }
        let concerns = self.concerns(group);
        let Some(engine) = self.engines.of_mut(protocol) else {
            self.counters.datagrams_unknown += 1;
            return None;
        };
        if !concerns && !engine.calls(group) {
            self.counters.datagrams_foreign += 1;
            return None;
        }
        self.counters.datagrams_received += 1;
        let sender = engine.handle_datagram(now, datagram);
        self.forget_ended(now);
        self.forget_if_confirmed(now, group);
        // Only an engine can determine the sender: the id in the header is not trusted until the
        // checksum is verified. An intact datagram shows that the sender is alive.
        let sender = sender?;
        self.membership.heard(now, source, sender);
        Some(sender)
    }

    /// Returns `true` if datagrams have arrived from the own address of `node`, and `source` is
    /// another address. This also applies for some time after the node has failed or left.
    ///
    /// Such a datagram must be dropped, unless nodes forward the packets of its protocol.
    pub fn is_elsewhere(&self, now: Time, node: NodeId, source: Endpoint) -> bool {
        self.starts.is_elsewhere(now, node, source)
    }

    /// Sets the endpoint at which other nodes reach this node from now on.
    ///
    /// Returns `true` if the membership reports the new endpoint to the other nodes.
    pub fn set_endpoint(&mut self, now: Time, endpoint: Endpoint) -> bool {
        let is_told = self.membership.set_endpoint(now, endpoint);
        self.take_membership_events(now);
        is_told
    }

    /// Processes an event of a connection of the membership; see [`crate::membership::link`].
    pub fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.membership.handle_link(now, link, event);
        self.take_membership_events(now);
    }

    /// Returns the next command of the membership for a connection, or `None` if there is none.
    pub fn poll_link(&mut self) -> Option<LinkCommand> {
        while let Some(request) = self.engines.find_map(|it| it.poll_manager_request()) {
            self.membership.ask_manager(request);
        }
        self.membership.poll_link()
    }

    /// Processes the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.engines.for_each(|engine| engine.handle_timeout(now));
        self.forget_ended(now);
        self.membership.handle_timeout(now);
        self.take_membership_events(now);
        self.forget_due(now);
    }

    /// Appends the next outgoing datagram to `out` and returns its destination and class.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.engines.poll_transmit(&mut *self.membership, out)
    }

    /// Returns the next event, or `None` if there is none.
    pub fn poll_event(&mut self) -> Option<NodeEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if let Some(group) = self.engines.find_map(|engine| engine.poll_manager_lost()) {
            return Some(NodeEvent::ManagerLost(group));
        }
        self.engines.find_map(|engine| engine.poll_event()).map(NodeEvent::Group)
    }

    /// Returns the time and the reason of the next required call to [`Node::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let engines = self.engines.all().map(|engine| engine.poll_timeout());
        let engines = engines.fold(None, Wakeup::earlier);
        let left = self.leaving.values().min();
        let left = left.map(|at| Wakeup { at: *at, reason: "leave a group" });
        let engines = Wakeup::earlier(engines, left);
        Wakeup::earlier(engines, self.membership.poll_timeout())
    }

    /// Returns the membership provider, which reports its status.
    pub fn membership(&self) -> &dyn Membership {
        &*self.membership
    }

    /// Returns the engines, which report their counters and state.
    pub fn engines(&self) -> &Engines {
        &self.engines
    }

    /// Returns the engine of the ordered groups, for operations on locks and for requests.
    ///
    /// Groups must be joined and left with the methods of the node.
    pub fn ordered_groups_mut(&mut self) -> &mut Rmp {
        &mut self.engines.ordered
    }

    /// Applies a change in the driver's network; see [`Engine::handle_network`].
    pub fn handle_network(&mut self, now: Time, change: &NetworkChange) {
        self.engines.for_each(|engine| engine.handle_network(now, change));
    }

    /// Sets the backlog of the application's events; see [`Engine::set_backpressure`].
    pub fn set_backpressure(&mut self, now: Time, group: GroupId, backlog: f64) {
        if let Some(engine) = self.engine_of(group) {
            engine.set_backpressure(now, group, backlog);
        }
    }

    /// Returns `true` if an engine uses `group`; see [`Engine::calls`].
    pub fn calls(&self, group: GroupId) -> bool {
        self.engines.all().any(|engine| engine.calls(group))
    }

    /// Returns the members that have not confirmed everything; see [`Engine::unconfirmed`].
    pub fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        self.engine(group).map_or_else(Vec::new, |engine| engine.unconfirmed(group))
    }

    /// Returns the counters of incoming datagrams.
    pub fn counters(&self) -> NodeCounters {
        self.counters
    }

    /// Asserts the invariants of all parts.
    ///
    /// # Panics
    /// Panics if an invariant is broken, which is a bug.
    pub fn check(&self) {
        self.engines.all().for_each(|engine| engine.check());
        self.membership.check();
    }

    fn concerns(&self, group: GroupId) -> bool {
        group == GroupId::NONE || self.groups.contains_key(&group)
    }

    fn engine(&self, group: GroupId) -> Option<&dyn Engine> {
        self.engines.of(self.groups.get(&group)?.settings.profile.protocol())
    }

    fn engine_of(&mut self, group: GroupId) -> Option<&mut dyn Engine> {
        self.engines.of_mut(self.groups.get(&group)?.settings.profile.protocol())
    }
}
