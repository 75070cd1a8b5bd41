use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::packet::{Packet, WireId};
use carom_proto::wire::{HEADER_BYTES, seal};
use carom_proto::*;

use crate::net::{MEMBERS, Net, origin};

fn group() -> Net {
    let mut net = Net::new(MEMBERS, Profile::TimeCritical(RateOfFire::default()));
    (0..MEMBERS).for_each(|number| send(&mut net, number, 0));
    net.run(1000);
    net.loss = 0.3;
    net
}

fn send(net: &mut Net, number: usize, turn: u32) {
    net.send(number, payload(number, turn), SendOptions::default());
}

fn payload(number: usize, turn: u32) -> Vec<u8> {
    let mut payload = vec![number as u8; 20 + turn as usize % 60];
    payload[..4].copy_from_slice(&turn.to_be_bytes());
    payload
}

fn attack_in_vain(net: &mut Net, datagram: &[u8]) {
    let before = others(net);
    assert_eq!(net.attack(datagram), [0; MEMBERS], "{:?}", Packet::decode(datagram));
    assert_eq!(others(net), before + MEMBERS as u64 - 1, "{:?}", Packet::decode(datagram));
}

fn others(net: &Net) -> u64 {
    net.nodes.iter().map(|node| node.counters().datagrams_of_other_starts).sum()
}

fn last_numbers(net: &Net) -> [SeqNo; MEMBERS] {
    core::array::from_fn(|number| {
        let own = net.seen.iter().rev().filter_map(|datagram| match Packet::decode(datagram) {
            Ok((header, Packet::Data { seqno, .. })) if header.origin() == origin(number) => {
                Some(seqno)
            }
            _ => None,
        });
        own.max_by_key(|seqno| seqno.0).expect("it has sent something")
    })
}

struct Forger {
    group: GroupId,
    last: [SeqNo; MEMBERS],
    number: usize,
    datagrams: Vec<Vec<u8>>,
}

impl Forger {
    fn push(&mut self, group: GroupId, packet: Packet<'_>) {
        let mut datagram = Vec::new();
        packet.encode(origin(self.number), group, 1, &mut datagram);
        self.datagrams.push(datagram);
    }

    fn id(&self, of: usize, ahead: i32) -> WireId {
        let last = self.last[of];
        let seqno = match u32::try_from(ahead) {
            Ok(ahead) => last.plus(ahead),
            Err(_) => last.minus(ahead.unsigned_abs()),
        };
        PacketId { sender: origin(of).node, group: self.group, seqno }.into()
    }

    fn add_data(&mut self, symbol: &[u8]) {
        for ahead in [1, 2, 40, 65_000, (1 << 31) - 10] {
            let (seqno, confirm) = (self.last[self.number].plus(ahead), true);
            self.push(self.group, Packet::Data { seqno, confirm, symbol });
        }
        for (of, back) in (0..MEMBERS).flat_map(|of| (0..3).map(move |back| (of, back))) {
            let (origin, seqno) = (origin(of).node, self.last[of].minus(back));
            self.push(self.group, Packet::Retransmission { origin, seqno, symbol });
        }
    }

    fn add_repairs(&mut self, symbol: &[u8]) {
        for of in 0..MEMBERS {
            for ids in [&[1][..], &[0], &[-1], &[1, 2], &[0, -1, -2], &[40]] {
                let ids: Vec<WireId> = ids.iter().map(|ahead| self.id(of, *ahead)).collect();
                self.push(GroupId::NONE, Packet::Repair { ids: &ids, sum: symbol });
            }
        }
        let next: Vec<WireId> = (0..MEMBERS).map(|of| self.id(of, 1)).collect();
        self.push(GroupId::NONE, Packet::Repair { ids: &next, sum: symbol });
    }

    fn add_heartbeats(&mut self) {
        let last = self.last[self.number];
        for ahead in [1, 6, 500, 65_000, (1 << 31) - 10] {
            for first in [None, Some(last.plus(ahead / 2))] {
                let (next, confirm) = (last.plus(ahead), true);
                self.push(self.group, Packet::Heartbeat { next, first, nonce: 0, confirm });
            }
        }
    }

    fn add_control(&mut self) {
        for of in 0..MEMBERS {
            for settled_to in [self.last[of].plus(1), self.last[of].plus(1000)] {
                self.push(self.group, Packet::Ack { to: origin(of), settled_to, lost: 0 });
            }
            let ids: Vec<WireId> = (-5..5).map(|ahead| self.id(of, ahead)).collect();
            for cookie in [0, 7] {
                self.push(GroupId::NONE, Packet::Nak { cookie, ids: &ids });
                self.push(GroupId::NONE, Packet::Challenge { cookie, ids: &ids });
            }
            for expired in [false, true] {
                self.push(GroupId::NONE, Packet::HaveNot { ids: &ids, expired });
            }
        }
        [0, 7].into_iter().for_each(|nonce| self.push(self.group, Packet::Open { nonce }));
    }
}

fn forgeries(net: &Net, number: usize) -> Vec<Vec<u8>> {
    let symbol = Symbol::of_message(&mut Arena::default(), net.now, None, b"forged");
    let (group, last) = (net.group, last_numbers(net));
    let mut forger = Forger { group, last, number, datagrams: Vec::new() };
    forger.add_data(symbol.bytes());
    forger.add_repairs(symbol.bytes());
    forger.add_heartbeats();
    forger.add_control();
    forger.datagrams
}

fn assert_all_arrived(net: &mut Net) {
    net.run(20_000);
    for (number, given) in net.given.iter().enumerate() {
        let others = (0..MEMBERS).filter(|from| *from != number);
        let sent = |from| (0..TURNS).map(move |turn| (origin(from).node, payload(from, turn)));
        let mut expected: Vec<_> = others.flat_map(sent).collect();
        let mut given = given.clone();
        expected.sort();
        given.sort();
        assert_eq!(given, expected, "member {number}");
    }
    assert_eq!(net.lost, []);
    for node in &net.nodes {
        let counters = node.engines().lateral.counters();
        assert!(counters.recovered > 0 && counters.retransmitted > 0, "{counters:?}");
    }
}

#[test]
fn packets_in_a_members_name_from_elsewhere_change_nothing() {
    let mut net = group();
    for turn in 1..TURNS {
        for number in 0..MEMBERS {
            send(&mut net, number, turn);
            let forged = forgeries(&net, number);
            forged.iter().for_each(|datagram| attack_in_vain(&mut net, datagram));
        }
        net.run(2);
    }
    assert_all_arrived(&mut net);
}

#[test]
fn mutations_and_replays_from_elsewhere_change_nothing() {
    let mut net = group();
    let mut rng = Rng::new(5);
    for turn in 1..TURNS {
        (0..MEMBERS).for_each(|number| send(&mut net, number, turn));
        for _ in 0..200 {
            let recent = rng.below(net.seen.len().min(100));
            let mut datagram = net.seen[net.seen.len() - 1 - recent].clone();
            if rng.below(8) > 0 {
                mutate(&mut rng, &mut datagram);
            }
            attack_in_vain(&mut net, &datagram);
        }
        net.run(2);
    }
    assert_all_arrived(&mut net);
}

/// Changes the kind, the flags or the body, and seals the datagram. The sender is unchanged.
fn mutate(rng: &mut Rng, datagram: &mut [u8]) {
    for _ in 0..1 + rng.below(3) {
        let (before, body) = (rng.below(2), datagram.len() - HEADER_BYTES);
        let at = if rng.below(4) == 0 { 4 + before } else { HEADER_BYTES + rng.below(body) };
        let byte = &mut datagram[at];
        *byte = match rng.below(4) {
            0 => rng.below(10) as u8,
            1 => byte.wrapping_add(1),
            2 => byte.wrapping_sub(1),
            _ => rng.next_u64() as u8,
        };
    }
    seal(datagram, 0);
}

const TURNS: u32 = 100;

/// A node that is not a member sends members' packets, in its own name and from its own address.
#[test]
fn repairs_and_retransmissions_of_strangers_are_not_taken_in() {
    let stranger = Origin { node: NodeId(99), incarnation: Incarnation(9 << 45) };
    let mut net = group();
    for turn in 1..TURNS {
        for number in 0..MEMBERS {
            let symbol = Symbol::of_message(&mut Arena::default(), net.now, None, b"forged");
            let (group, symbol) = (net.group, symbol.bytes());
            let (sender, last) = (origin(number).node, last_numbers(&net)[number]);
            send(&mut net, number, turn);
            let mut datagrams = vec![Vec::new(); 3];
            for (datagram, seqno) in datagrams.iter_mut().zip([last, last.plus(1)]) {
                Packet::Retransmission { origin: sender, seqno, symbol }
                    .encode(stranger, group, 1, datagram);
            }
            let id = PacketId { sender, group, seqno: last.plus(1) };
            let repair = Packet::Repair { ids: &[id.into()], sum: symbol };
            repair.encode(stranger, GroupId::NONE, 1, &mut datagrams[2]);
            for datagram in &datagrams {
                assert_eq!(net.attack(datagram), [0; MEMBERS], "{:?}", Packet::decode(datagram));
            }
        }
        net.run(2);
    }
    assert_all_arrived(&mut net);
}
