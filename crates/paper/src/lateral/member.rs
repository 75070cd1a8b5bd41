//! A node with one engine, as the world drives it. It sees what arrives, so that it can
//! tell what was lost from what a repair merely overtook.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use carom_proto::lateral::packet::Packet;
use carom_proto::{
    Endpoint, Engine, Event, GroupId, How, Message, PacketId, SendError, SendOptions, SeqNo, Time,
    Transmit, Wakeup,
};
use carom_sim::Machine;

/// An engine, and what its node has seen.
pub(crate) struct Member<E> {
    engine: E,
    told: VecDeque<Told>,
    /// By kind of group: data packets, and repairs as shares of what is in them.
    arrived: Vec<(f64, f64)>,
}

/// What a member tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Told {
    /// A message was delivered.
    Delivered {
        /// Which one.
        id: PacketId,
        /// How it came.
        how: How,
        /// How long after its multicast.
        age: Duration,
        /// How long it was known to be missing.
        missing_for: Duration,
    },
    /// The multicast of a message arrived that had been delivered already: it was not lost.
    Overtaken(PacketId),
}

impl<E: Engine> Member<E> {
    /// A member with `engine`. Arrivals are told apart by group if there are tags: group k has
    /// tag k − 1.
    pub(crate) fn new(engine: E, tags: Option<usize>) -> Self {
        Self { engine, told: VecDeque::new(), arrived: vec![(0.0, 0.0); tags.unwrap_or(0)] }
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &E {
        &self.engine
    }

    /// Data packets of this kind of group that arrived, and repairs as shares of what is in them;
    /// zero if nobody asked for that.
    pub(crate) fn arrived_of(&self, tag: usize) -> (f64, f64) {
        self.arrived.get(tag).copied().unwrap_or_default()
    }

    /// Multicasts a message.
    pub(crate) fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        self.engine.send(now, group, payload, options)
    }

    /// Takes the engine's events; says whether a message was among them that came directly.
    fn take_events(&mut self) -> bool {
        let mut direct = false;
        while let Some(event) = self.engine.poll_event() {
            if let Event::Message(message) = event {
                direct |= message.how == How::Direct;
                let (sender, group, seqno) = (message.sender, message.group, message.seqno);
                let age = message.age.expect("all clocks of this world are one");
                let id = PacketId { sender, group, seqno };
                let Message { how, missing_for, .. } = message;
                self.told.push_back(Told::Delivered { id, how, age, missing_for });
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

impl<E: Engine> Machine for Member<E> {
    type Command = ();
    type Event = Told;

    fn handle_command(&mut self, _now: Time, (): ()) {}

    fn handle_datagram(&mut self, now: Time, _source: Endpoint, datagram: &[u8]) {
        self.engine.handle_datagram(now, datagram);
        if !self.arrived.is_empty() {
            self.count_by_group(datagram);
        }
        let direct = self.take_events();
        if !direct
            && datagram[KIND_AT] == DATA_KIND
            && let Ok((header, Packet::Data { seqno, .. })) = Packet::decode(datagram)
        {
            let (sender, group) = (header.sender, header.group);
            self.told.push_back(Told::Overtaken(PacketId { sender, group, seqno }));
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
        self.take_events();
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.engine.poll_transmit(out)
    }

    fn poll_event(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        self.engine.poll_timeout()
    }

    fn check(&self) {
        self.engine.check();
    }
}

/// Where the common header says which packet of its protocol it is, and a data packet's number.
const KIND_AT: usize = 4;
const DATA_KIND: u8 = 1;
