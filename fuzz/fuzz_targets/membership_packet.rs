//! Fuzz target: arbitrary bytes as packets of the gossip membership. A node that receives several
//! of them, with time passing, must not panic, and its invariants must hold after each.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use carom_proto::membership::Membership as _;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::wire::{Datagram, HEADER_BYTES, Header, MAX_DATAGRAM_BYTES, Protocol};
use carom_proto::{
    Destination, Endpoint, GroupId, GroupSettings, Incarnation, NodeId, Profile, RateOfFire, Time,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const MAX_BODY_BYTES: usize = MAX_DATAGRAM_BYTES - HEADER_BYTES;
/// Maximum number of datagrams or events after one datagram. More indicate an endless loop.
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
    gossip.join(now, GroupId::of_name("prices"), settings).expect("no other node contradicts");
    for arrival in arrivals {
        now = now + Duration::from_millis(arrival.after_ms.into());
        gossip.handle_timeout(now);
        let source = endpoint(7400 + u16::from(arrival.sender % 8));
        let datagram = datagram(&arrival);
        if let Ok(datagram) = Datagram::parse(&datagram) {
            gossip.handle_datagram(now, source, &datagram);
        }
        // A datagram that triggers a challenge is accepted after the response.
        drain(&mut gossip, now, &datagram);
        if let Ok(datagram) = Datagram::parse(&datagram) {
            gossip.handle_datagram(now, source, &datagram);
        }
        drain(&mut gossip, now, &datagram);
    }
});

fn datagram(arrival: &Arrival) -> Vec<u8> {
    let header = Header {
        protocol: Protocol::Membership,
        kind: arrival.kind % 10,
        flags: arrival.flags,
        group: GroupId(0),
        sender: NodeId(u64::from(arrival.sender % 8) + 1),
        incarnation: Incarnation(u64::from(arrival.incarnation)),
        view: 0,
    };
    header.datagram(&arrival.body[..arrival.body.len().min(MAX_BODY_BYTES)])
}

fn drain(gossip: &mut Gossip, now: Time, heard: &[u8]) {
    for _ in 0..MAX_DRAINED {
        let mut sent = Vec::new();
        let Some(transmit) = gossip.poll_transmit(&mut sent) else { break };
        if let (Destination::Endpoint(there), Some(response)) =
            (transmit.destination, path_response(heard, &sent))
        {
            if let Ok(datagram) = Datagram::parse(&response) {
                gossip.handle_datagram(now, there, &datagram);
            }
        }
    }
    assert!(gossip.poll_transmit(&mut Vec::new()).is_none(), "too many datagrams");
    let events = (0..MAX_DRAINED).take_while(|_| gossip.poll_event().is_some()).count();
    assert!(events < MAX_DRAINED, "too many events");
    gossip.check();
}

/// Returns the response to `sent`, if it is a challenge, in the name of the sender of `heard`.
fn path_response(heard: &[u8], sent: &[u8]) -> Option<Vec<u8>> {
    const HELLO: u8 = 2;
    const PATH_CHALLENGE: u8 = 8;
    const PATH_RESPONSE: u8 = 9;
    let (header, body) = Header::decode(sent).ok()?;
    let cookie = body.get(..8).filter(|cookie| **cookie != [0; 8])?;
    if ![HELLO, PATH_CHALLENGE].contains(&header.kind) {
        return None;
    }
    let (Header { sender, incarnation, .. }, _) = Header::decode(heard).ok()?;
    // Identity of the responder: bump, port, IPv4, and an address to be filled in.
    let id = sender.0.to_be_bytes();
    let identity = [&id[..], &[0, 0, 0, 0, 0x1c, 0xe8, 4, 0, 0, 0, 0]].concat();
    let body = [cookie, &[0; 8], &identity].concat();
    let response = Header { kind: PATH_RESPONSE, flags: 0, sender, incarnation, ..header };
    Some(response.datagram(&body))
}
