use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::node::starts::{Start, Starts};
use carom_proto::wire::{Datagram, Protocol};
use carom_proto::{
    Endpoint, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, SendError, SendOptions,
    SeqNo, Time, Transmit, View, ViewChange, ViewChangeKind, Wakeup,
};

use crate::machine::{Command, GroupMember, Machine};

/// An engine together with the source of its views: its own membership provider, or the world's
/// [`Roster`](crate::Roster).
///
/// It keeps the view of each group, and reports both the engine's events and the view changes. With
/// a concrete engine type `E`, the engine's own methods can be called.
pub struct Member<E: Engine + ?Sized = dyn Engine> {
    engine: Box<E>,
    provider: Option<Box<dyn Membership>>,
    views: BTreeMap<GroupId, View>,
    starts: Starts,
    notices: VecDeque<Notice>,
}

/// A report of a [`Member`].
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// An event of the engine, or a view change.
    Event(Event),
    /// The member has left the group again, because its provider found that it cannot join or the
    /// membership service refused it.
    Refused(GroupId, JoinError),
}

impl<E: Engine + ?Sized> Member<E> {
    /// Creates a member from `engine` and the provider of its views. If `provider` is `None`, the
    /// roster must report the views.
    pub fn new(engine: Box<E>, provider: Option<Box<dyn Membership>>) -> Self {
        let (views, starts) = (BTreeMap::new(), Starts::default());
        Self { engine, provider, views, starts, notices: VecDeque::new() }
    }

    /// Returns the engine, for its status and counters.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Returns the engine, for calls to methods that [`Engine`] does not have.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Returns the provider of the views, or `None` if the views come from the roster.
    pub fn provider(&self) -> Option<&dyn Membership> {
        self.provider.as_deref()
    }

    /// Returns the member's view of `group`, or `None` if it is not in the group.
    pub fn view(&self, group: GroupId) -> Option<&View> {
        self.views.get(&group)
    }

    /// Returns `true` if a datagram of `node` has arrived from the address of `node`.
    pub fn has_heard(&self, node: NodeId) -> bool {
        self.starts.has_heard(node)
    }

    /// Multicasts a message; see [`Engine::send`].
    ///
    /// # Errors
    /// Returns the engine's error. The message is then not sent.
    pub fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        self.engine.send(now, group, payload, options)
    }

    /// Leaves all groups. The provider, if there is one, notifies the other nodes that this node is
    /// about to stop.
    pub fn shut_down(&mut self, now: Time) {
        for group in std::mem::take(&mut self.views).into_keys() {
            self.engine.leave(now, group);
        }
        if let Some(provider) = &mut self.provider {
            provider.shut_down(now);
        }
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        if self.views.remove(&group).is_none() {
            return;
        }
        if let Some(provider) = &mut self.provider {
            provider.leave(now, group);
        }
        self.take_provider_events(now);
        self.engine.leave(now, group);
    }

    /// Handles the first datagram of a new incarnation of `node`. As in a
    /// [`Node`](carom_proto::node::Node), the previous incarnation is reported as failed in all
    /// groups, and the new one as joined.
    fn on_restart(&mut self, now: Time, node: NodeId) {
        let with_it = self.views.iter().filter(|(_, view)| view.contains(node));
        let groups: Vec<_> = with_it.map(|(group, view)| (*group, view.version())).collect();
        for (group, version) in groups {
            for kind in [ViewChangeKind::Failed, ViewChangeKind::Joined] {
                self.on_view(now, ViewChange { group, node, kind, version });
            }
        }
    }

    /// Checks an engine's datagram for forgeries, as a [`Node`](carom_proto::node::Node) does, and
    /// handles a restart of its sender. Returns `true` if the engine may handle the datagram.
    fn admits(&mut self, now: Time, source: Endpoint, datagram: &Datagram<'_>) -> bool {
        let start = self.starts.look(now, source, datagram);
        if start == Start::New {
            self.on_restart(now, datagram.header().sender);
        }
        start != Start::Over
    }

    fn on_view(&mut self, now: Time, change: ViewChange) {
        let Some(view) = self.views.get_mut(&change.group) else { return };
        if view.apply(&change) {
            self.engine.handle_view(now, &change);
            self.notices.push_back(Notice::Event(Event::View(change)));
        }
    }

    /// Forwards the engine's events, so that they precede the next notice.
    fn forward_engine_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            self.notices.push_back(Notice::Event(event));
        }
    }

    fn take_provider_events(&mut self, now: Time) {
        while let Some(event) = self.provider.as_mut().and_then(|it| it.poll_event()) {
            match event {
                MembershipEvent::View(change) => self.on_view(now, change),
                MembershipEvent::Refused(group, why) => {
                    self.views.remove(&group);
                    self.forward_engine_events();
                    self.engine.leave(now, group);
                    self.notices.push_back(Notice::Refused(group, why));
                }
                MembershipEvent::Met(node, endpoint) => self.starts.meet(node, endpoint),
                MembershipEvent::Parted(node) => self.starts.part(now, node),
                MembershipEvent::Settled => {}
                MembershipEvent::Away | MembershipEvent::Returned => {}
            }
        }
    }
}

impl<E: Engine + ?Sized> GroupMember for Member<E> {
    fn join_group(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.engine.join(now, group, settings)?;
        self.views.insert(group, View::default());
        if let Some(provider) = &mut self.provider
            && let Err(error) = provider.join(now, group, settings)
        {
            self.views.remove(&group);
            self.engine.leave(now, group);
            return Err(error);
        }
        self.take_provider_events(now);
        Ok(())
    }
}

impl<E: Engine + ?Sized> Machine for Member<E> {
    type Command = Command;
    type Event = Notice;

    fn handle_command(&mut self, now: Time, command: Command) {
        match command {
            Command::Join(group, settings) => _ = self.join_group(now, group, settings),
            Command::Leave(group) => self.leave(now, group),
            Command::Send(group, payload, options) => {
                _ = self.send(now, group, payload, options);
            }
            Command::Confirm(group) => self.engine.confirm(now, group),
            Command::View(change) => self.on_view(now, change),
            Command::Met(node, endpoint) => self.starts.meet(node, endpoint),
            Command::Parted(node) => self.starts.part(now, node),
        }
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        let Ok(datagram) = Datagram::parse(datagram) else { return };
        let protocol = datagram.header().protocol;
        if let (Protocol::Membership, Some(provider)) = (protocol, &mut self.provider) {
            provider.handle_datagram(now, source, &datagram);
            self.take_provider_events(now);
        } else if self.admits(now, source, &datagram) {
            let sender = Engine::handle_datagram(&mut *self.engine, now, &datagram);
            if let (Some(provider), Some(sender)) = (&mut self.provider, sender) {
                provider.heard(now, source, sender);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
        if let Some(provider) = &mut self.provider {
            provider.handle_timeout(now);
        }
        self.take_provider_events(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.engine.poll_transmit(out);
        transmit.or_else(|| self.provider.as_mut()?.poll_transmit(out))
    }

    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        if let Some(provider) = &mut self.provider {
            provider.handle_link(now, link, event);
        }
        self.take_provider_events(now);
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        self.provider.as_mut()?.poll_link()
    }

    fn poll_event(&mut self) -> Option<Notice> {
        let notice = self.notices.pop_front();
        notice.or_else(|| self.engine.poll_event().map(Notice::Event))
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let provider = self.provider.as_ref().and_then(|provider| provider.poll_timeout());
        Wakeup::earlier(self.engine.poll_timeout(), provider)
    }

    fn check(&self) {
        self.engine.check();
        if let Some(provider) = &self.provider {
            provider.check();
        }
    }
}
