//! Any bytes are a packet of the gossip membership: a node that gets several of them, in any order
//! and with time passing, does not panic, and its invariants hold after each.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use carom_proto::membership::Membership as _;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::wire::{self, Header, Protocol};
use carom_proto::{
    Endpoint, GroupId, GroupSettings, Incarnation, NodeId, Profile, RateOfFire, Time,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// What is drained after one datagram at most: more is an endless loop.
const MAX_DRAINED: usize = 10_000;

#[derive(Arbitrary, Debug)]
struct Arrival {
    after_ms: u16,
    kind: u8,
    flags: u8,
    sender: u8,
    incarnation: u8,
    body: Vec<u8>,
}

fuzz_target!(|arrivals: Vec<Arrival>| {
    let endpoint = |port| Endpoint(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let mut gossip = Gossip::new(NodeId(1), endpoint(7400), Config::default(), 1);
    let mut now = Time(1_000_000_000);
    let settings = GroupSettings::new("prices", Profile::TimeCritical(RateOfFire::new(8, 5)));
    gossip.join(now, GroupId::of_name("prices"), settings).expect("nobody contradicts yet");
    for arrival in arrivals {
        now = now + Duration::from_millis(arrival.after_ms.into());
        gossip.handle_timeout(now);
        let source = endpoint(7400 + u16::from(arrival.sender % 8));
        gossip.handle_datagram(now, source, &datagram(&arrival));
        drain(&mut gossip);
    }
});

fn datagram(arrival: &Arrival) -> Vec<u8> {
    let header = Header {
        protocol: Protocol::Membership,
        kind: arrival.kind % 8,
        flags: arrival.flags,
        group: GroupId(0),
        sender: NodeId(u64::from(arrival.sender % 8) + 1),
        incarnation: Incarnation(u64::from(arrival.incarnation)),
        view: 0,
    };
    let mut datagram = Vec::new();
    let start = header.begin(&mut datagram);
    datagram.extend_from_slice(&arrival.body);
    datagram.truncate(wire::MAX_DATAGRAM_BYTES);
    wire::seal(&mut datagram, start);
    datagram
}

fn drain(gossip: &mut Gossip) {
    let mut out = Vec::new();
    let drained = (0..MAX_DRAINED).take_while(|_| gossip.poll_transmit(&mut out).is_some()).count();
    assert!(drained < MAX_DRAINED, "the membership transmits without end");
    let events = (0..MAX_DRAINED).take_while(|_| gossip.poll_event().is_some()).count();
    assert!(events < MAX_DRAINED, "the membership has events without end");
    gossip.check();
}
