//! The engines of one process behind one door.

use alloc::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::lateral::{self, Lateral};
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::membership::{Membership, MembershipEvent};
use crate::wire::{Header, Protocol};
use crate::{
    Endpoint, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, Profile, SendError,
    SendOptions, SeqNo, Time, Transmit, View, ViewChange, Wakeup,
};

/// One node: its engines, its membership provider and its groups. It is driven as an
/// [engine](crate::engine) is.
pub struct Node {
    id: NodeId,
    lateral: Lateral,
    guest: Option<Box<dyn Engine>>,
    membership: Box<dyn Membership>,
    groups: BTreeMap<GroupId, Joined>,
    events: VecDeque<NodeEvent>,
    counters: NodeCounters,
}

struct Joined {
    settings: GroupSettings,
    view: View,
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
    /// The membership service is not reached: views stay as they were last known.
    Away,
    /// The membership service is there again, and all views are as it says.
    Returned,
    /// The group could not be joined after all: this node is not in it any more.
    Refused(GroupId, JoinError),
}

/// What became of the datagrams at the door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Datagrams handed to an engine or the membership.
    pub datagrams_received: u64,
    /// Datagrams of groups that this node is not in: they share an address or a host with ours.
    pub datagrams_foreign: u64,
    /// Datagrams that are not Carom's, or of a version or protocol that is not known here.
    pub datagrams_unknown: u64,
}

impl Node {
    /// A node with no groups yet. `seed` is the source of all its randomness.
    pub fn new(
        id: NodeId,
        config: lateral::Config,
        membership: Box<dyn Membership>,
        seed: u64,
    ) -> Self {
        Self {
            id,
            lateral: Lateral::new(id, config, seed),
            guest: None,
            membership,
            groups: BTreeMap::new(),
            events: VecDeque::new(),
            counters: NodeCounters::default(),
        }
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
        self.id
    }

    /// Joins the group called `name`.
    ///
    /// # Errors
    /// The settings are out of bounds or contradict what is known already; the node is not in the
    /// group then. A contradiction that becomes known later is a [`NodeEvent::Refused`].
    pub fn join(&mut self, now: Time, name: &str, profile: Profile) -> Result<GroupId, JoinError> {
        let group = GroupId::of_name(name);
        let settings = GroupSettings::new(name, profile);
        if let Some(joined) = self.groups.get(&group) {
            let same_name = joined.settings.name_check == settings.name_check;
            return Err(if same_name {
                JoinError::AlreadyJoined
            } else {
                JoinError::NameCollision
            });
        }
        let engine = self.engine_for(profile).ok_or(JoinError::NoEngine { profile })?;
        engine.join(now, group, settings)?;
        self.groups.insert(group, Joined { settings, view: View::default() });
        let joined = self.membership.join(now, group, settings);
        self.take_membership_events(now);
        if let Err(error) = joined {
            tracing::debug!(node = %self.id, %group, name, %error, "join refused");
            self.forget(now, group);
            return Err(error);
        }
        tracing::debug!(node = %self.id, %group, name, %profile, "joined");
        Ok(group)
    }

    /// Leaves the group, if the node is in it.
    pub fn leave(&mut self, now: Time, group: GroupId) {
        tracing::debug!(node = %self.id, %group, "leaves");
        self.membership.leave(now, group);
        self.take_membership_events(now);
        self.forget(now, group);
    }

    /// Leaves all groups and tells the other nodes that this one is about to stop.
    pub fn shut_down(&mut self, now: Time) {
        for (group, joined) in core::mem::take(&mut self.groups) {
            if let Some(engine) = self.engine_for(joined.settings.profile) {
                engine.leave(now, group);
            }
        }
        self.membership.shut_down(now);
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
            Profile::Ordered(_) => None,
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
        match Header::peek(datagram).map(|it| (it.protocol, it.group)) {
            Some((Protocol::Lateral, group)) if self.concerns(group) => {
                self.counters.datagrams_received += 1;
                let sender = self.lateral.handle_datagram(now, datagram);
                return self.heard_from(now, sender);
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
                return self.heard_from(now, sender);
            }
            Some((Protocol::Lateral, _)) => self.counters.datagrams_foreign += 1,
            Some((Protocol::Guest, _)) if self.guest.is_some() => {
                self.counters.datagrams_foreign += 1;
            }
            Some((Protocol::Guest | Protocol::Path | Protocol::Ordered, _)) | None => {
                self.counters.datagrams_unknown += 1;
            }
        }
        None
    }

    /// Something happened to a link of the membership's; see [`crate::membership::link`].
    pub fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.membership.handle_link(now, link, event);
        self.take_membership_events(now);
    }

    /// The next thing that the membership wants done with a link.
    pub fn poll_link(&mut self) -> Option<LinkCommand> {
        self.membership.poll_link()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.lateral.handle_timeout(now);
        if let Some(guest) = &mut self.guest {
            guest.handle_timeout(now);
        }
        self.membership.handle_timeout(now);
        self.take_membership_events(now);
    }

    /// Appends the next datagram to `out` and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let Self { lateral, guest, membership, .. } = self;
        lateral
            .poll_transmit(out)
            .or_else(|| guest.as_mut().and_then(|guest| guest.poll_transmit(out)))
            .or_else(|| membership.poll_transmit(out))
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<NodeEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let guest = &mut self.guest;
        let event = self.lateral.poll_event();
        event.or_else(|| guest.as_mut().and_then(|it| it.poll_event())).map(NodeEvent::Group)
    }

    /// When [`Node::handle_timeout`] should be called next, and why.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let guest = self.guest.as_ref().and_then(|guest| guest.poll_timeout());
        let engines = Wakeup::earlier(self.lateral.poll_timeout(), guest);
        Wakeup::earlier(engines, self.membership.poll_timeout())
    }

    /// The groups this node is in, with their settings and views.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &GroupSettings, &View)> {
        self.groups.iter().map(|(group, joined)| (*group, &joined.settings, &joined.view))
    }

    /// The view of `group`; `None` if the node is not in it.
    pub fn view(&self, group: GroupId) -> Option<&View> {
        self.groups.get(&group).map(|joined| &joined.view)
    }

    /// The membership provider, for status.
    pub fn membership(&self) -> &dyn Membership {
        &*self.membership
    }

    /// The lateral engine, for its counters.
    pub fn lateral(&self) -> &Lateral {
        &self.lateral
    }

    /// The caller's own engine, if the node was given one.
    pub fn guest(&self) -> Option<&dyn Engine> {
        self.guest.as_deref()
    }

    /// Members of `group` that have not confirmed all that this node has sent there, as far as the
    /// group's engine tells.
    pub fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        self.lateral.unconfirmed(group)
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
    fn heard_from(&mut self, now: Time, sender: Option<NodeId>) -> Option<NodeId> {
        let sender = sender?;
        self.membership.heard(now, sender);
        Some(sender)
    }

    fn take_membership_events(&mut self, now: Time) {
        while let Some(event) = self.membership.poll_event() {
            match event {
                MembershipEvent::View(change) => self.on_view_change(now, change),
                MembershipEvent::Met(node, endpoint) => {
                    self.events.push_back(NodeEvent::Met(node, endpoint));
                }
                MembershipEvent::Parted(node) => self.events.push_back(NodeEvent::Parted(node)),
                MembershipEvent::Settled => self.events.push_back(NodeEvent::Settled),
                MembershipEvent::Away => {
                    tracing::info!(node = %self.id, "the membership service is away");
                    self.events.push_back(NodeEvent::Away);
                }
                MembershipEvent::Returned => {
                    tracing::info!(node = %self.id, "the membership service is back");
                    self.events.push_back(NodeEvent::Returned);
                }
                MembershipEvent::Refused(group, error) => {
                    tracing::debug!(node = %self.id, %group, %error, "refused");
                    self.forget(now, group);
                    self.events.push_back(NodeEvent::Refused(group, error));
                }
            }
        }
    }

    fn on_view_change(&mut self, now: Time, change: ViewChange) {
        let Some(joined) = self.groups.get_mut(&change.group) else { return };
        if joined.view.apply(&change) {
            let ViewChange { group, node: member, kind, version } = change;
            tracing::info!(node = %self.id, %group, %member, ?kind, version, "view change");
            if let Some(engine) = self.engine_of(group) {
                engine.handle_view(now, &change);
            }
            self.events.push_back(NodeEvent::Group(Event::View(change)));
        }
    }

    fn forget(&mut self, now: Time, group: GroupId) {
        if let Some(joined) = self.groups.remove(&group)
            && let Some(engine) = self.engine_for(joined.settings.profile)
        {
            engine.leave(now, group);
        }
    }

    fn engine_of(&mut self, group: GroupId) -> Option<&mut dyn Engine> {
        let profile = self.groups.get(&group)?.settings.profile;
        self.engine_for(profile)
    }

    /// The engine that carries the groups of this profile.
    fn engine_for(&mut self, profile: Profile) -> Option<&mut dyn Engine> {
        match profile {
            Profile::TimeCritical(_) => Some(&mut self.lateral),
            Profile::Ordered(_) => None,
            // A match and not `as_deref_mut`, which would ask for a guest without borrows.
            Profile::Guest => match &mut self.guest {
                Some(guest) => Some(&mut **guest),
                None => None,
            },
        }
    }
}
