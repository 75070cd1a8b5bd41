//! The engines of one process behind one door.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::lateral::{self, Lateral};
use crate::membership::Membership;
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::rdcm::{self, Rdcm};
use crate::rmp::{self, Rmp};
use crate::wire::{Header, Protocol};
use crate::{
    Endpoint, Engine, Event, GroupId, Hops, JoinError, NodeId, Origin, Profile, SendError,
    SendOptions, SeqNo, Time, Transmit, Wakeup,
};

mod groups;
pub mod starts;

pub use self::groups::LEAVE_WITHIN;
use self::groups::{Joined, Stage};
use self::starts::{Start, Starts};

/// One node: its engines, its membership provider and its groups. It is driven as an
/// [engine](crate::engine) is.
pub struct Node {
    origin: Origin,
    lateral: Lateral,
    ordered: Rmp,
    bulk: Rdcm,
    guest: Option<Box<dyn Engine>>,
    membership: Box<dyn Membership>,
    groups: BTreeMap<GroupId, Joined>,
    /// Ordered groups that wait until it is known who could be there.
    seeking: BTreeSet<GroupId>,
    /// Groups without a ring that are about to be left, and when at the latest.
    leaving: BTreeMap<GroupId, Time>,
    starts: Starts,
    events: VecDeque<NodeEvent>,
    counters: NodeCounters,
}

/// What a node tells its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// Something for the group's application.
    Group(Event),
    /// This node can be reached there; comes before any event that names it.
    Met(NodeId, Endpoint),
    /// This node is gone.
    Parted(NodeId),
    /// The node has found its place among the others.
    Settled,
    /// The membership service has answered the join of the group: [`Node::is_admitted`].
    Admitted(GroupId),
    /// The membership service is not reached: views stay as they were last known.
    Away,
    /// The membership service is there again, and all views are as it says.
    Returned,
    /// The group could not be joined after all: this node is not in it any more.
    Refused(GroupId, JoinError),
    /// Other nodes than before are to be reached in this ordered group, whose application hears of
    /// its ring instead.
    Neighbours(GroupId),
    /// The multicast manager of the membership service is not reached, or does not place this
    /// node's receivers in the group: the node goes on with a manager of its own.
    ManagerLost(GroupId),
    /// The node has left the group, and nothing that is sent there concerns it any more. That may
    /// be a while after [`Node::leave`].
    Out(GroupId),
}

/// What became of the datagrams at the door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Datagrams handed to an engine or the membership.
    pub datagrams_received: u64,
    /// Datagrams of groups that this node is not in: they share an address or a host with ours.
    pub datagrams_foreign: u64,
    /// Datagrams of a start of a node that is over; and those that did not come from the node's
    /// address and are of another start than the known one, or of an ordered group.
    pub datagrams_of_other_starts: u64,
    /// Datagrams that are not Carom's, or of a version or protocol that is not known here.
    pub datagrams_unknown: u64,
}

impl Node {
    /// A node with no groups yet. `seed` is the source of all its randomness.
    pub fn new(
        origin: impl Into<Origin>,
        config: lateral::Config,
        membership: Box<dyn Membership>,
        seed: u64,
    ) -> Self {
        let origin = origin.into();
        Self {
            origin,
            lateral: Lateral::new(origin, config, seed),
            ordered: Rmp::new(origin, rmp::Config::default(), seed),
            bulk: Rdcm::new(origin, rdcm::Config::default(), seed),
            guest: None,
            membership,
            groups: BTreeMap::new(),
            seeking: BTreeSet::new(),
            leaving: BTreeMap::new(),
            starts: Starts::default(),
            events: VecDeque::new(),
            counters: NodeCounters::default(),
        }
    }

    /// Sets the engine of the ordered groups, before any was joined.
    ///
    /// # Panics
    /// If the settings are not [valid](rmp::Config).
    #[must_use]
    pub fn with_ordered(mut self, config: rmp::Config, seed: u64) -> Self {
        self.ordered = Rmp::new(self.origin, config, seed);
        self
    }

    /// Sets the engine of bulk delivery, before any such group was joined.
    ///
    /// # Panics
    /// If the settings are not [valid](rdcm::Config).
    #[must_use]
    pub fn with_bulk(mut self, config: rdcm::Config, seed: u64) -> Self {
        self.bulk = Rdcm::new(self.origin, config, seed);
        self
    }

    /// Gives the node an engine of the caller's own, which carries the groups whose profile is
    /// [`Profile::Guest`]. It must have been made for this node's id.
    #[must_use]
    pub fn with_guest(mut self, guest: Box<dyn Engine>) -> Self {
        self.guest = Some(guest);
        self
    }

    /// The node's id.
    pub fn id(&self) -> NodeId {
        self.origin.node
    }

    /// Multicasts `payload` in `group`; see [`Engine::send`].
    ///
    /// # Errors
    /// The message is the caller's again: nothing of it was sent.
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

    /// Asks the members to confirm what was sent so far; see [`Engine::confirm`].
    pub fn confirm(&mut self, now: Time, group: GroupId) {
        if let Some(engine) = self.engine_of(group) {
            engine.confirm(now, group);
        }
    }

    /// The largest message that can be sent in `group`; `None` if the node is not in it.
    pub fn payload_limit(&self, group: GroupId) -> Option<usize> {
        let profile = self.groups.get(&group)?.settings.profile;
        match profile {
            Profile::TimeCritical(_) => Some(self.lateral.payload_limit(profile)),
            Profile::Ordered(_) => Some(self.ordered.payload_limit(profile)),
            Profile::Bulk => Some(self.bulk.payload_limit(profile)),
            Profile::Guest => self.guest.as_ref().map(|guest| guest.payload_limit(profile)),
        }
    }

    /// These datagrams wait, and will be handled next; see [`Engine::look_ahead`].
    pub fn look_ahead(&self, waiting: &mut dyn Iterator<Item = &[u8]>) {
        self.lateral.look_ahead(waiting);
    }

    /// A datagram arrived from `source`. Returns whose it is, if it is whole and an engine's: that
    /// node can be reached at `source`, whether a view holds it or not.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        source: Endpoint,
        datagram: &[u8],
    ) -> Option<NodeId> {
        let peek = Header::peek(datagram);
        if let Some(peek) = peek.filter(|peek| peek.protocol != Protocol::Membership) {
            match self.starts.look(now, source, peek, datagram) {
                Start::Known => {}
                Start::New => self.on_restart(now, peek.sender),
                Start::Over => {
                    self.counters.datagrams_of_other_starts += 1;
                    return None;
                }
            }
        }
        match peek.map(|it| (it.protocol, it.group)) {
            Some((Protocol::Lateral, group)) if self.concerns(group) => {
                self.counters.datagrams_received += 1;
                let sender = self.lateral.handle_datagram(now, datagram);
                self.forget_if_confirmed(now, group);
                return self.heard_from(now, source, sender);
            }
            Some((Protocol::Membership, _)) => {
                self.counters.datagrams_received += 1;
                self.membership.handle_datagram(now, source, datagram);
                self.take_membership_events(now);
            }
            Some((Protocol::Guest, group)) if self.guest.is_some() && self.concerns(group) => {
                self.counters.datagrams_received += 1;
                let guest = self.guest.as_mut();
                let sender = guest.and_then(|guest| guest.handle_datagram(now, datagram));
                return self.heard_from(now, source, sender);
            }
            Some((Protocol::Ordered, group))
                if self.concerns(group) || self.ordered.calls(group) =>
            {
                self.counters.datagrams_received += 1;
                let sender = self.ordered.handle_datagram(now, datagram);
                self.forget_ended(now);
                return self.heard_from(now, source, sender);
            }
            Some((Protocol::Bulk, group)) if self.concerns(group) => {
                self.counters.datagrams_received += 1;
                let sender = self.bulk.handle_datagram(now, datagram);
                self.forget_if_confirmed(now, group);
                return self.heard_from(now, source, sender);
            }
            Some((Protocol::Lateral | Protocol::Ordered | Protocol::Bulk, _)) => {
                self.counters.datagrams_foreign += 1;
            }
            Some((Protocol::Guest, _)) if self.guest.is_some() => {
                self.counters.datagrams_foreign += 1;
            }
            Some((Protocol::Guest | Protocol::Path, _)) | None => {
                self.counters.datagrams_unknown += 1;
            }
        }
        None
    }

    /// Returns `true` if what comes from `source` in the name of `node` is not believed: the node
    /// is or was heard from its own address, which is another one.
    pub fn is_elsewhere(&self, now: Time, node: NodeId, source: Endpoint) -> bool {
        self.starts.is_elsewhere(now, node, source)
    }

    /// Others reach this node at `endpoint` from now on. Returns whether the membership tells them.
    pub fn set_endpoint(&mut self, now: Time, endpoint: Endpoint) -> bool {
        let is_told = self.membership.set_endpoint(now, endpoint);
        self.take_membership_events(now);
        is_told
    }

    /// Something happened to a link of the membership's; see [`crate::membership::link`].
    pub fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.membership.handle_link(now, link, event);
        self.take_membership_events(now);
    }

    /// The next thing that the membership wants done with a link.
    pub fn poll_link(&mut self) -> Option<LinkCommand> {
        while let Some(request) = self.bulk.poll_request() {
            self.membership.ask_manager(request);
        }
        self.membership.poll_link()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.lateral.handle_timeout(now);
        self.ordered.handle_timeout(now);
        self.forget_ended(now);
        self.bulk.handle_timeout(now);
        if let Some(guest) = &mut self.guest {
            guest.handle_timeout(now);
        }
        self.membership.handle_timeout(now);
        self.take_membership_events(now);
        self.forget_due(now);
    }

    /// Appends the next datagram to `out` and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let Self { lateral, ordered, bulk, guest, membership, .. } = self;
        lateral
            .poll_transmit(out)
            .or_else(|| ordered.poll_transmit(out))
            .or_else(|| guest.as_mut().and_then(|guest| guest.poll_transmit(out)))
            .or_else(|| membership.poll_transmit(out))
            .or_else(|| bulk.poll_transmit(out))
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<NodeEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if let Some(group) = self.bulk.poll_manager_lost() {
            return Some(NodeEvent::ManagerLost(group));
        }
        let Self { lateral, ordered, bulk, guest, .. } = self;
        let event = lateral.poll_event().or_else(|| ordered.poll_event());
        let event = event.or_else(|| bulk.poll_event());
        event.or_else(|| guest.as_mut().and_then(|it| it.poll_event())).map(NodeEvent::Group)
    }

    /// When [`Node::handle_timeout`] should be called next, and why.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let guest = self.guest.as_ref().and_then(|guest| guest.poll_timeout());
        let ours = Wakeup::earlier(self.lateral.poll_timeout(), self.ordered.poll_timeout());
        let ours = Wakeup::earlier(ours, self.bulk.poll_timeout());
        let engines = Wakeup::earlier(ours, guest);
        let left = self.leaving.values().min();
        let left = left.map(|at| Wakeup { at: *at, reason: "a group is left" });
        let engines = Wakeup::earlier(engines, left);
        Wakeup::earlier(engines, self.membership.poll_timeout())
    }

    /// The membership provider, for status.
    pub fn membership(&self) -> &dyn Membership {
        &*self.membership
    }

    /// The lateral engine, for its counters.
    pub fn lateral(&self) -> &Lateral {
        &self.lateral
    }

    /// The engine of the ordered groups, for its counters and rings.
    pub fn ordered(&self) -> &Rmp {
        &self.ordered
    }

    /// The engine of the ordered groups, for the verbs that only it has: locks and requests. Groups
    /// are joined and left by the node's own verbs.
    pub fn ordered_mut(&mut self) -> &mut Rmp {
        &mut self.ordered
    }

    /// The engine of bulk delivery, for its counters, trees and receivers.
    pub fn bulk(&self) -> &Rdcm {
        &self.bulk
    }

    /// The driver's network takes nothing for now, or does again; see [`Rdcm::set_blocked`].
    pub fn set_blocked(&mut self, is_blocked: bool) {
        self.bulk.set_blocked(is_blocked);
    }

    /// IP packets of more bytes do not reach everybody; see [`Engine::set_path_mtu`].
    pub fn set_path_mtu(&mut self, bytes: u16) {
        self.lateral.set_path_mtu(bytes);
        self.ordered.set_path_mtu(bytes);
        self.bulk.set_path_mtu(bytes);
        if let Some(guest) = &mut self.guest {
            guest.set_path_mtu(bytes);
        }
    }

    /// Multicast from here reaches all nodes but these; see [`Rdcm::set_unreached`].
    pub fn set_unreached(&mut self, now: Time, nodes: BTreeSet<NodeId>) {
        self.bulk.set_unreached(now, nodes);
    }

    /// Where a datagram goes whose destination is the [tree](crate::Destination::Tree) of a group;
    /// see [`Engine::hops`].
    pub fn hops(&self, group: GroupId) -> Hops<'_> {
        self.bulk.hops(group)
    }

    /// The application of a bulk group takes no messages for now, or does again; see
    /// [`Rdcm::hold`].
    pub fn hold(&mut self, now: Time, group: GroupId, is_held: bool) {
        self.bulk.hold(now, group, is_held);
    }

    /// The caller's own engine, if the node was given one.
    pub fn guest(&self) -> Option<&dyn Engine> {
        self.guest.as_deref()
    }

    /// Members of `group` that have not confirmed all that this node has sent there, as far as the
    /// group's engine tells.
    pub fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        match self.groups.get(&group).map(|joined| joined.settings.profile) {
            Some(Profile::Ordered(_)) => self.ordered.unconfirmed(group),
            Some(Profile::Bulk) => self.bulk.unconfirmed(group),
            _ => self.lateral.unconfirmed(group),
        }
    }

    /// What became of the datagrams at the door.
    pub fn counters(&self) -> NodeCounters {
        self.counters
    }

    /// Asserts the invariants of all parts.
    ///
    /// # Panics
    /// If one of them is broken: that is a bug.
    pub fn check(&self) {
        self.lateral.check();
        self.ordered.check();
        self.bulk.check();
        if let Some(guest) = &self.guest {
            guest.check();
        }
        self.membership.check();
    }

    fn concerns(&self, group: GroupId) -> bool {
        group == GroupId::NONE || self.groups.contains_key(&group)
    }

    /// What arrives anyway is a sign of life, which spares the membership asking for one. Only the
    /// engine can tell: the sender's id is worth nothing before the checksum was found right.
    fn heard_from(
        &mut self,
        now: Time,
        source: Endpoint,
        sender: Option<NodeId>,
    ) -> Option<NodeId> {
        let sender = sender?;
        self.membership.heard(now, source, sender);
        Some(sender)
    }

    fn engine_of(&mut self, group: GroupId) -> Option<&mut dyn Engine> {
        let profile = self.groups.get(&group)?.settings.profile;
        self.engine_for(profile)
    }

    /// The engine that carries the groups of this profile.
    fn engine_for(&mut self, profile: Profile) -> Option<&mut dyn Engine> {
        match profile {
            Profile::TimeCritical(_) => Some(&mut self.lateral),
            Profile::Ordered(_) => Some(&mut self.ordered),
            Profile::Bulk => Some(&mut self.bulk),
            // A match and not `as_deref_mut`, which would ask for a guest without borrows.
            Profile::Guest => match &mut self.guest {
                Some(guest) => Some(&mut **guest),
                None => None,
            },
        }
    }
}
