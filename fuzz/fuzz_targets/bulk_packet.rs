//! Fuzz target: arbitrary bytes as a packet of bulk delivery. Decoding must not panic, and a
//! decoded packet must survive encoding and decoding. A sender and receivers that get the packet
//! must not panic, and their invariants must hold.
#![no_main]

mod sealed;

use std::time::Duration;

use carom_proto::rdcm::packet::Packet;
use carom_proto::rdcm::{Config, Rdcm};
use carom_proto::wire::{Datagram, Header, Protocol};
use carom_proto::{
    Destination, Engine, GroupId, GroupSettings, NetworkChange, NodeId, Profile, SendOptions, Time,
    ViewChange, ViewChangeKind,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(datagram) = sealed::sealed(bytes, Protocol::Bulk) else { return };
    let Some((header, packet)) = decoded(&datagram) else { return };
    let mut again = Vec::new();
    packet.encode(header.group, header.origin(), header.view, &mut again);
    let (_, read_again) = decoded(&again).expect("an encoded packet can be decoded");
    assert_eq!(read_again, packet, "encoding has changed the packet");
    give_to_members(&packet);
});

fn give_to_members(packet: &Packet) {
    let mut members = Members::new();
    let message = || vec![7; 3000].into();
    let sender = &mut members.engines[0];
    sender.send(members.now, GROUP, message(), SendOptions::default()).expect("no other sender");
    members.run(3);
    for (to, from) in [(0, 1), (1, 0), (1, 2)] {
        let mut datagram = Vec::new();
        packet.encode(GROUP, id(from), members.stream, &mut datagram);
        let datagram = Datagram::parse(&datagram).expect("a datagram");
        members.engines[to].handle_datagram(members.now, &datagram);
        members.run(1);
    }
    // If the packet assigns a place, the receiver forwards the subsequent messages.
    if members.engines[0].send(members.now, GROUP, message(), SendOptions::default()).is_ok() {
        members.run(3);
    }
}

struct Members {
    engines: [Rdcm; 3],
    now: Time,
    stream: u32,
}

impl Members {
    fn new() -> Self {
        let now = Time(1_000_000_000);
        let engines = [0, 1, 2].map(|place| {
            let mut engine = Rdcm::new(id(place), Config::default(), 1);
            let settings = GroupSettings { profile: Profile::Bulk, name_check: 0 };
            engine.join(now, GROUP, settings).expect("it is not in the group");
            for other in (0..3).filter(|other| *other != place) {
                let (node, kind) = (id(other), ViewChangeKind::Joined);
                engine.handle_view(now, &ViewChange { group: GROUP, node, kind, version: 1 });
            }
            engine.handle_network(now, &NetworkChange::Unreached([id(1), id(2)].into()));
            engine
        });
        Self { engines, now, stream: 0 }
    }

    /// Runs `rounds` rounds of 100 ms, and delivers the datagrams of the members to each other.
    fn run(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.now = self.now + Duration::from_millis(100);
            for from in 0..3 {
                self.engines[from].handle_timeout(self.now);
                let mut datagram = Vec::new();
                for _ in 0..MOST_DATAGRAMS {
                    let Some(sent) = self.engines[from].poll_transmit(&mut datagram) else { break };
                    let parsed = Datagram::parse(&datagram).expect("a datagram");
                    self.stream = parsed.header().view;
                    for to in (0..3).filter(|to| *to != from) {
                        if !matches!(sent.destination, Destination::Node(node) if node != id(to)) {
                            self.engines[to].handle_datagram(self.now, &parsed);
                        }
                    }
                    datagram.clear();
                }
            }
            self.engines.iter().for_each(Engine::check);
        }
    }
}

fn id(place: usize) -> NodeId {
    NodeId(place as u64 + 1)
}

fn decoded(datagram: &[u8]) -> Option<(Header, Packet)> {
    let (header, body) = Header::decode(datagram).ok()?;
    let packet = Packet::decode(&header, body).ok()?;
    Some((header, packet))
}

const GROUP: GroupId = GroupId(5);
const MOST_DATAGRAMS: usize = 1000;
