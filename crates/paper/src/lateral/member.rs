//! A node with one engine, driven by the simulated world. It inspects arriving datagrams to
//! distinguish lost packets from packets that a repair overtook. View changes come from the world,
//! or from the node's own membership provider.

use std::collections::VecDeque;
use std::time::Duration;

use carom_proto::lateral::packet::Packet;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::wire::{Datagram, Header, Protocol};
use carom_proto::{
    Endpoint, Engine, Event, GroupId, GroupSettings, How, JoinError, Message, PacketId, Time,
    Transmit, Wakeup,
};
use carom_sim::{Command, GroupMember, Machine};

pub(crate) struct Member<E> {
    pub(super) engine: E,
    pub(super) provider: Option<Box<dyn Membership>>,
    told: VecDeque<Told>,
    /// Data packets and repairs that arrived, by tag. A repair is divided among its groups.
    arrived: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Told {
    Delivered {
        id: PacketId,
        how: How,
        age: Duration,
        missing_for: Duration,
    },
    /// The multicast of an already delivered message arrived. The message was therefore not lost.
    Overtaken(PacketId),
    GaveUp(u32),
}

impl<E: Engine> Member<E> {
    /// Creates a member. With `tags`, arrivals are counted by group: group k has tag k − 1.
    pub(crate) fn new(engine: E, tags: Option<usize>) -> Self {
        let arrived = vec![(0.0, 0.0); tags.unwrap_or(0)];
        Self { engine, provider: None, told: VecDeque::new(), arrived }
    }

    /// Returns the numbers of data packets and of repairs with this tag that arrived. A repair is
    /// divided among the groups of its packets. Both are zero if arrivals are not counted by group.
    pub(crate) fn arrived_of(&self, tag: usize) -> (f64, f64) {
        self.arrived.get(tag).copied().unwrap_or_default()
    }

    pub(crate) fn shut_down(&mut self, now: Time, groups: impl Iterator<Item = GroupId>) {
        groups.for_each(|group| self.engine.leave(now, group));
        if let Some(provider) = &mut self.provider {
            provider.shut_down(now);
        }
    }

    fn take_provider_events(&mut self, now: Time) {
        while let Some(event) = self.provider.as_mut().and_then(|it| it.poll_event()) {
            if let MembershipEvent::View(change) = event {
                self.engine.handle_view(now, &change);
            }
        }
    }

    /// Collects the engine's events. Returns `true` if a message was delivered directly.
    fn take_events(&mut self) -> bool {
        let mut direct = false;
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Message(message) => {
                    direct |= message.how == How::Direct;
                    let (sender, group, seqno) = (message.sender, message.group, message.seqno);
                    let age = message.age.expect("the world has only one clock");
                    let id = PacketId { sender, group, seqno };
                    let Message { how, missing_for, .. } = message;
                    self.told.push_back(Told::Delivered { id, how, age, missing_for });
                }
                Event::Lost(lost) => self.told.push_back(Told::GaveUp(lost.count())),
                _ => {}
            }
        }
        direct
    }

    fn count_by_group(&mut self, datagram: &[u8]) {
        let Ok((header, packet)) = Packet::decode(datagram) else { return };
        let tag = |group: GroupId| group.0 as usize - 1;
        match packet {
            Packet::Data { .. } => self.arrived[tag(header.group)].0 += 1.0,
            Packet::Repair { ids, .. } => {
                for id in ids {
                    let group = PacketId::from(*id).group;
                    self.arrived[tag(group)].1 += 1.0 / ids.len() as f64;
                }
            }
            _ => {}
        }
    }
}

impl<E: Engine> GroupMember for Member<E> {
    fn join_group(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.engine.join(now, group, settings)?;
        if let Some(provider) = &mut self.provider {
            provider.join(now, group, settings)?;
        }
        self.take_provider_events(now);
        Ok(())
    }
}

impl<E: Engine> Machine for Member<E> {
    type Command = Command;
    type Event = Told;

    /// Handles commands that cannot fail. Other operations are called through
    /// [`carom_sim::World::with`].
    fn handle_command(&mut self, now: Time, command: Command) {
        match command {
            Command::Leave(group) => self.engine.leave(now, group),
            Command::View(change) => self.engine.handle_view(now, &change),
            Command::Confirm(group) => self.engine.confirm(now, group),
            Command::Join(..) | Command::Send(..) | Command::Met(..) | Command::Parted(_) => {}
        }
        self.take_events();
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        let Ok(datagram) = &Datagram::parse(datagram) else { return };
        if let Some(provider) = &mut self.provider
            && datagram.header().protocol == Protocol::Membership
        {
            provider.handle_datagram(now, source, datagram);
            self.take_provider_events(now);
            return;
        }
        self.engine.handle_datagram(now, datagram);
        if !self.arrived.is_empty() {
            self.count_by_group(datagram.bytes());
        }
        let direct = self.take_events();
        if !direct
            && datagram.header().kind == DATA_KIND
            && let Ok((header, Packet::Data { seqno, .. })) = Packet::decode(datagram.bytes())
        {
            let Header { sender, group, .. } = header;
            self.told.push_back(Told::Overtaken(PacketId { sender, group, seqno }));
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
        if let Some(provider) = &mut self.provider {
            provider.handle_timeout(now);
            self.take_provider_events(now);
        }
        self.take_events();
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let provider = &mut self.provider;
        self.engine.poll_transmit(out).or_else(|| provider.as_mut()?.poll_transmit(out))
    }

    fn poll_event(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let provider = self.provider.as_ref().and_then(|provider| provider.poll_timeout());
        Wakeup::earlier(self.engine.poll_timeout(), provider)
    }

    fn check(&self) {
        self.engine.check();
    }
}

/// Kind of a lateral data packet.
const DATA_KIND: u8 = 1;
