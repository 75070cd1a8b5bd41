//! The network between the hosts: delivery, loss, duplication, and holding back of datagrams.

use std::time::Duration;

use carom_proto::Engine;
use carom_proto::rmp::packet::Packet;
use carom_proto::wire::{Datagram, Header};

use super::{GROUP, MS, World};

impl World {
    pub(crate) fn arrive(&mut self, number: usize, datagram: &[u8]) {
        let now = self.clock(number);
        if let Ok(datagram) = Datagram::parse(datagram) {
            self.hosts[number].engine.handle_datagram(now, &datagram);
        }
        self.drain(number);
    }

    pub(crate) fn forge(&mut self, from: usize, to: usize, packet: &Packet) {
        let mut datagram = Vec::new();
        packet.encode(&mut datagram, GROUP, self.hosts[from].id, 0);
        self.arrive(to, &datagram);
    }

    /// Occupies a host's link for the time that a datagram needs. A multicast occupies it once.
    pub(super) fn occupy_link(&mut self, from: usize, bytes: usize) {
        if let Some(rate) = self.rate {
            let takes = Duration::from_nanos(bytes as u64 * 1_000_000_000 / rate);
            let free_at = &mut self.hosts[from].is_free_at;
            *free_at = (*free_at).max(self.now) + takes;
        }
    }

    pub(super) fn carry(&mut self, from: usize, to: usize, datagram: &[u8]) {
        if self.part[from] != self.part[to] {
            return;
        }
        if let Some(held_back) = &mut self.held_back {
            held_back.push((from, to, datagram.to_vec()));
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(self.duplicates));
        for _ in 0..copies {
            if self.rng.chance(self.loss) {
                continue;
            }
            let (least, most) = self.delay;
            let spread = (most - least).as_nanos() as usize;
            let delay = least + Duration::from_nanos(self.rng.below(spread + 1) as u64);
            self.datagrams += 1;
            let sent_at = self.hosts[from].is_free_at.max(self.now);
            self.in_flight.insert((sent_at + delay, self.datagrams), (to, datagram.to_vec()));
        }
    }

    pub(crate) fn run_until_sent(&mut self, kind: u8, count: u64) {
        while self.datagrams_by_kind.get(&kind).is_none_or(|sent| *sent < count) {
            self.run_for(MS / 100);
        }
    }

    pub(crate) fn hand_over(&mut self, from: usize, to: usize, is_it: fn(&Packet) -> bool) {
        let held_back = self.held_back.as_mut().expect("datagrams are held back");
        let place = held_back.iter().position(|(sender, receiver, datagram)| {
            (*sender, *receiver) == (from, to) && is_it(&packet(datagram))
        });
        let (_, _, datagram) = held_back.remove(place.expect("it was sent"));
        self.arrive(to, &datagram);
    }

    pub(crate) fn time_out_until(&mut self, number: usize, is_it: fn(&Packet) -> bool) {
        for _ in 0..100 {
            let sent = self.held_back.iter().flatten();
            let mut own = sent.filter(|(sender, ..)| *sender == number);
            if own.any(|(_, _, datagram)| is_it(&packet(datagram))) {
                return;
            }
            let due = self.hosts[number].engine.poll_timeout().expect("it waits").at;
            let wait = due.since(self.clock(number));
            self.hosts[number].ahead += wait;
            let now = self.clock(number);
            self.hosts[number].engine.handle_timeout(now);
            self.drain(number);
        }
        panic!("the host never sends such a packet");
    }
}

pub(crate) fn packet(datagram: &[u8]) -> Packet {
    let (header, body) = Header::decode(datagram).expect("an engine has written it");
    Packet::decode(&header, body).expect("an engine has written it")
}
