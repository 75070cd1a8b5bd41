//! The engines of one process behind one door.

use alloc::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::lateral::{self, Lateral};
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
            membership,
            groups: BTreeMap::new(),
            events: VecDeque::new(),
            counters: NodeCounters::default(),
        }
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
        self.lateral.join(now, group, settings)?;
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
        for group in core::mem::take(&mut self.groups).into_keys() {
            self.lateral.leave(now, group);
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
        self.lateral.send(now, group, payload, options)
    }

    /// Asks the members to confirm what was sent so far; see [`Engine::confirm`].
    pub fn confirm(&mut self, now: Time, group: GroupId) {
        self.lateral.confirm(now, group);
    }

    /// The largest message that can be sent in `group`; `None` if the node is not in it.
    pub fn payload_limit(&self, group: GroupId) -> Option<usize> {
        self.groups.get(&group).map(|joined| self.lateral.payload_limit(joined.settings.profile))
    }

    /// A datagram arrived from `source`.
    pub fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        match Header::peek(datagram) {
            Some((Protocol::Lateral, group)) if self.concerns(group) => {
                self.counters.datagrams_received += 1;
                self.lateral.handle_datagram(now, datagram);
            }
            Some((Protocol::Membership, _)) => {
                self.counters.datagrams_received += 1;
                self.membership.handle_datagram(now, source, datagram);
                self.take_membership_events(now);
            }
            Some((Protocol::Lateral, _)) => self.counters.datagrams_foreign += 1,
            Some((Protocol::Path, _)) | None => self.counters.datagrams_unknown += 1,
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.lateral.handle_timeout(now);
        self.membership.handle_timeout(now);
        self.take_membership_events(now);
    }

    /// Appends the next datagram to `out` and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.lateral.poll_transmit(out).or_else(|| self.membership.poll_transmit(out))
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<NodeEvent> {
        let event = self.events.pop_front();
        event.or_else(|| self.lateral.poll_event().map(NodeEvent::Group))
    }

    /// When [`Node::handle_timeout`] should be called next, and why.
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        Wakeup::earlier(self.lateral.poll_timeout(), self.membership.poll_timeout())
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
        self.membership.check();
    }

    fn concerns(&self, group: GroupId) -> bool {
        group == GroupId::NONE || self.groups.contains_key(&group)
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
            self.lateral.handle_view(now, &change);
            self.events.push_back(NodeEvent::Group(Event::View(change)));
        }
    }

    fn forget(&mut self, now: Time, group: GroupId) {
        if self.groups.remove(&group).is_some() {
            self.lateral.leave(now, group);
        }
    }
}
