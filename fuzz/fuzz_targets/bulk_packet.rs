//! Any bytes are a packet of bulk delivery: it is read or refused, never a panic, and a packet that
//! was understood is the same after it was written and read again. A sender and a receiver that are
//! given it go on.
#![no_main]

use std::time::Duration;

use carom_proto::rdcm::packet::Packet;
use carom_proto::rdcm::{Config, Rdcm};
use carom_proto::wire::{self, HEADER_BYTES, Header, MAGIC, Protocol, VERSION};
use carom_proto::{
    Engine, GroupId, GroupSettings, NodeId, Profile, SendOptions, Time, ViewChange, ViewChangeKind,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Few inputs have a right header, so each gets one: what is left to guess is the packet.
    let mut datagram = bytes.to_vec();
    if !(HEADER_BYTES..=wire::MAX_DATAGRAM_BYTES).contains(&datagram.len()) {
        return;
    }
    datagram[..2].copy_from_slice(&MAGIC.to_be_bytes());
    datagram[2] = VERSION;
    datagram[3] = Protocol::Bulk as u8;
    wire::seal(&mut datagram, 0);
    let Some((header, packet)) = decoded(&datagram) else { return };
    let mut again = Vec::new();
    packet.encode(header.group, header.sender, header.view, &mut again);
    let (_, read_again) = decoded(&again).expect("what we encode can be decoded");
    assert_eq!(read_again, packet, "what was encoded is not what was decoded");
    give_to_members(&packet);
});

/// The packet as it comes to the sender of a stream, and to its receiver.
fn give_to_members(packet: &Packet) {
    let (sender, receiver) = (NodeId(1), NodeId(2));
    let (mut a, mut b) = (member(sender, receiver), member(receiver, sender));
    a.set_unreached(NOW, [receiver].into());
    let message = vec![7; 3000].into();
    a.send(NOW, GROUP, message, SendOptions::default()).expect("nobody else sends");
    let mut stream = 0;
    for _ in 0..4 {
        stream = carry(&mut a, &mut b).unwrap_or(stream);
        carry(&mut b, &mut a);
    }
    for (engine, from) in [(&mut a, receiver), (&mut b, sender)] {
        let mut datagram = Vec::new();
        packet.encode(GROUP, from, stream, &mut datagram);
        engine.handle_datagram(NOW, &datagram);
        engine.check();
        engine.handle_timeout(NOW + Duration::from_millis(100));
        engine.check();
    }
    // Where the packet was a place, the receiver passes on what follows.
    if a.send(NOW, GROUP, vec![8; 3000].into(), SendOptions::default()).is_ok() {
        carry(&mut a, &mut b);
        carry(&mut b, &mut a);
        a.check();
        b.check();
    }
}

fn member(id: NodeId, other: NodeId) -> Rdcm {
    let mut engine = Rdcm::new(id, Config::default(), 1);
    let settings = GroupSettings { profile: Profile::Bulk, name_check: 0 };
    engine.join(NOW, GROUP, settings).expect("it is new to it");
    let kind = ViewChangeKind::Joined;
    engine.handle_view(NOW, &ViewChange { group: GROUP, node: other, kind, version: 1 });
    engine
}

/// What one has to send comes to the other; the number of the stream, if it was anything.
fn carry(from: &mut Rdcm, to: &mut Rdcm) -> Option<u32> {
    from.handle_timeout(NOW);
    let (mut stream, mut datagram) = (None, Vec::new());
    while from.poll_transmit(&mut datagram).is_some() {
        stream = Header::decode(&datagram).ok().map(|(header, _)| header.view);
        to.handle_datagram(NOW, &datagram);
        datagram.clear();
    }
    stream
}

fn decoded(datagram: &[u8]) -> Option<(Header, Packet)> {
    let (header, body) = Header::decode(datagram).ok()?;
    let packet = Packet::decode(&header, body).ok()?;
    Some((header, packet))
}

const GROUP: GroupId = GroupId(5);
const NOW: Time = Time(1_000_000_000);
