use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::{Config, Lateral};
use carom_proto::loss::Loss;
use carom_proto::*;

pub(crate) use crate::world::{GROUP, MILLISECOND, SECOND};

pub(crate) type World = crate::world::World<Lateral>;

pub(crate) const RATE: RateOfFire = RateOfFire::new(8, 5);

impl World {
    pub(crate) fn new(hosts: usize, config: &Config, loss: Loss, seed: u64) -> Self {
        let config = config.clone();
        let make = move |origin, seed| Box::new(Lateral::new(origin, config.clone(), seed));
        Self::with_engines(hosts, Profile::TimeCritical(RATE), loss, seed, make)
    }

    pub(crate) fn of_members(hosts: usize, config: &Config, loss: Loss, seed: u64) -> Self {
        let mut world = Self::new(hosts, config, loss, seed);
        (0..hosts).for_each(|host| world.join(host, GROUP));
        world
    }

    pub(crate) fn send_all(&mut self, number: usize, messages: Range<u32>) {
        for message in messages {
            self.send(number, &payload(message));
            self.run_for(MILLISECOND);
        }
    }

    pub(crate) fn record(&mut self) -> Rc<RefCell<Vec<Vec<u8>>>> {
        let seen = Rc::<RefCell<Vec<Vec<u8>>>>::default();
        let kept = Rc::clone(&seen);
        self.filter = Box::new(move |_, _, _, datagram| {
            kept.borrow_mut().push(datagram.to_vec());
            true
        });
        seen
    }

    /// Passes the answer of `sender` to the last open that host `number` sent to it.
    pub(crate) fn answer(&mut self, number: usize, sender: NodeId, next: SeqNo, first: SeqNo) {
        let open = &self.unicasts[&(self.hosts[number].id, sender, OPEN)];
        let Ok((_, Packet::Open { nonce })) = Packet::decode(open) else { panic!("no open") };
        let packet = Packet::Heartbeat { next, first: Some(first), nonce, confirm: false };
        self.inject(number, &datagram(packet, sender, GROUP));
    }

    pub(crate) fn assert_got(&self, hosts: impl IntoIterator<Item = usize>, count: u32) {
        for host in hosts {
            assert!(self.hosts[host].got(NodeId(1)).into_iter().eq(1..=count), "host {host}");
        }
    }
}

pub(crate) fn settings(rate: RateOfFire) -> GroupSettings {
    GroupSettings { profile: Profile::TimeCritical(rate), name_check: 0 }
}

pub(crate) fn datagram(packet: Packet<'_>, sender: impl Into<Origin>, group: GroupId) -> Vec<u8> {
    let mut datagram = Vec::new();
    packet.encode(sender, group, 1, &mut datagram);
    datagram
}

pub(crate) fn data(now: Time, sender: impl Into<Origin>, seqno: SeqNo, payload: &[u8]) -> Vec<u8> {
    let symbol = Symbol::of_message(&mut Arena::default(), now, None, payload);
    datagram(Packet::Data { seqno, confirm: false, symbol: symbol.bytes() }, sender, GROUP)
}

pub(crate) fn heartbeat(next: SeqNo) -> Packet<'static> {
    Packet::Heartbeat { next, first: None, nonce: 0, confirm: false }
}

/// Returns the payload of message `number`. Its length differs from those of adjacent messages.
pub(crate) fn payload(number: u32) -> Vec<u8> {
    payload_of(number, 20 + (number as usize * 37) % 900)
}

pub(crate) fn payload_of(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place as u32 ^ number.wrapping_mul(31)) as u8).collect()
}

/// Offset of a packet's type in a datagram, and packet types of the lateral protocol.
pub(crate) const KIND: usize = 4;
pub(crate) const DATA: u8 = 1;
pub(crate) const REPAIR: u8 = 2;
pub(crate) const OPEN: u8 = 8;
