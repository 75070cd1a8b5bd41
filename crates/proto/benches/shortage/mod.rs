//! A node that lacks 1000 packets after an overload, and receives repairs of several packets each.

use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::packet::{Packet, WireId};
use carom_proto::lateral::{Config, Lateral, StreamStart};
use carom_proto::wire::Datagram;
use carom_proto::*;

const GROUP: GroupId = GroupId(1);
const SENDER: NodeId = NodeId(1);
const HELPER: NodeId = NodeId(2);
/// Number of missing packets, which are numbered from 1.
const UNKNOWN: u32 = 1000;
const PENDING: u32 = 256;

pub(crate) struct Shortage {
    engine: Lateral,
    repairs: Vec<Vec<u8>>,
    out: Vec<u8>,
}

impl Shortage {
    /// Prepares a repair of packet 1 and as many other packets as fit. Each pending repair contains
    /// packet 1 and one other packet. The new one is reduced to packet 1, which solves all of them.
    pub(crate) fn with_avalanche(r: u8) -> Self {
        let mut shortage = Self::new(r);
        for number in 2..=PENDING {
            let repair = repair(r, &[1, number]);
            shortage.receive(&repair);
        }
        // The number of other packets is even, so that packet 1 does not cancel out.
        let others = (u32::from(r) - 1) / 2 * 2;
        shortage.repairs.push(repair(r, &Vec::from_iter(1..=others + 1)));
        shortage
    }

    /// Prepares `count` repairs of r random packets each, while the maximum number is pending.
    pub(crate) fn at_random(r: u8, count: usize) -> Self {
        let mut shortage = Self::new(r);
        let (mut rng, mut numbers) = (Rng::new(3), Vec::from_iter(1..=UNKNOWN));
        let mut next = || {
            rng.choose_to_front(&mut numbers, usize::from(r));
            repair(r, &numbers[..usize::from(r)])
        };
        for _ in 0..PENDING {
            let repair = next();
            shortage.receive(&repair);
        }
        shortage.repairs = (0..count).map(|_| next()).collect();
        shortage
    }

    fn new(r: u8) -> Self {
        let config = Config { stream_start: StreamStart::FromFirst, ..Config::default() };
        let mut engine = Lateral::new(NodeId(0), config, 5);
        let profile = Profile::TimeCritical(RateOfFire::new(r, 5));
        let settings = GroupSettings { profile, name_check: 0 };
        engine.join(Time(0), GROUP, settings).expect("the settings are right");
        let kind = ViewChangeKind::Joined;
        engine.handle_view(Time(0), &ViewChange { group: GROUP, node: HELPER, kind, version: 1 });
        let mut shortage = Self { engine, repairs: Vec::new(), out: Vec::with_capacity(2048) };
        let next = SeqNo(UNKNOWN + 1);
        let packet = Packet::Heartbeat { next, first: None, nonce: 0, confirm: false };
        let mut datagram = Vec::new();
        packet.encode(SENDER, GROUP, 1, &mut datagram);
        shortage.receive(&datagram);
        assert_eq!(shortage.engine.bins_and_missing().1, UNKNOWN as usize);
        shortage
    }

    pub(crate) fn run(&mut self) -> usize {
        let repairs = core::mem::take(&mut self.repairs);
        repairs.iter().map(|repair| self.receive(repair)).sum()
    }

    fn receive(&mut self, datagram: &[u8]) -> usize {
        self.engine.handle_datagram(Time(0), &Datagram::parse(datagram).expect("a datagram"));
        while self.engine.poll_transmit(&mut self.out).is_some() {
            self.out.clear();
        }
        let mut delivered = 0;
        while let Some(event) = self.engine.poll_event() {
            delivered += usize::from(matches!(event, Event::Message(_)));
        }
        delivered
    }
}

fn repair(r: u8, numbers: &[u32]) -> Vec<u8> {
    let bytes = Config::default().packet_limit(RateOfFire::new(r, 5));
    let mut sum = Vec::new();
    for number in numbers {
        let payload = vec![*number as u8; bytes];
        let symbol = Symbol::of_message(&mut Arena::default(), Time(0), None, &payload);
        sum.resize(symbol.bytes().len(), 0);
        sum.iter_mut().zip(symbol.bytes()).for_each(|(sum, byte)| *sum ^= byte);
    }
    let id = |number: &u32| PacketId { sender: SENDER, group: GROUP, seqno: SeqNo(*number) };
    let ids: Vec<WireId> = numbers.iter().map(|number| id(number).into()).collect();
    let mut datagram = Vec::new();
    Packet::Repair { ids: &ids, sum: &sum }.encode(HELPER, GroupId::NONE, 1, &mut datagram);
    datagram
}
