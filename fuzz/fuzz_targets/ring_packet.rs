//! Fuzz target: arbitrary bytes as a packet of the token ring. Decoding must not panic, and a
//! decoded packet must survive encoding and decoding. A member that gets the packet must not panic,
//! and its invariants must hold.
#![no_main]

mod sealed;

use std::time::Duration;

use carom_proto::ring::{LockName, Quorum};
use carom_proto::rmp::packet::Packet;
use carom_proto::rmp::{Config, Rmp};
use carom_proto::wire::{Datagram, Header, Protocol};
use carom_proto::{Engine, GroupId, GroupSettings, NodeId, Profile, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(datagram) = sealed::sealed(bytes, Protocol::Ordered) else { return };
    let Some((header, packet)) = decoded(&datagram) else { return };
    let mut again = Vec::new();
    packet.encode(&mut again, header.group, header.origin(), header.view);
    let (_, read_again) = decoded(&again).expect("an encoded packet can be decoded");
    assert_eq!(read_again, packet, "encoding has changed the packet");
    give_to_member(header, &packet);
});

/// Delivers the packet to a node that is alone in its ring and holds the lock of a handler.
fn give_to_member(header: Header, packet: &Packet) {
    let (group, mut now) = (GroupId(5), Time(1_000_000_000));
    let mut engine = Rmp::new(NodeId(1), Config::default(), 1);
    let profile = Profile::Ordered(Quorum::AtLeast(1));
    engine.join(now, group, GroupSettings { profile, name_check: 0 }).expect("it is outside");
    while engine.view(group).is_none() {
        now = engine.poll_timeout().expect("it repeats its request").at;
        engine.handle_timeout(now);
    }
    engine.lock(now, group, LockName(0)).expect("it is free");
    let mut datagram = Vec::new();
    packet.encode(&mut datagram, group, header.sender, header.view);
    if let Ok(datagram) = Datagram::parse(&datagram) {
        engine.handle_datagram(now, &datagram);
    }
    engine.check();
    engine.handle_timeout(now + Duration::from_millis(100));
    engine.check();
}

fn decoded(datagram: &[u8]) -> Option<(Header, Packet)> {
    let (header, body) = Header::decode(datagram).ok()?;
    let packet = Packet::decode(&header, body).ok()?;
    Some((header, packet))
}
