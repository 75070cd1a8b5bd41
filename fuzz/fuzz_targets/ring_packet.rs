//! Any bytes are a packet of the token ring: it is read or refused, never a panic, and a packet
//! that was understood is the same after it was written and read again.
#![no_main]

use carom_proto::rmp::packet::Packet;
use carom_proto::wire::{self, HEADER_BYTES, Header, MAGIC, Protocol, VERSION};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Few inputs have a right header, so each gets one: what is left to guess is the packet.
    let mut datagram = bytes.to_vec();
    if !(HEADER_BYTES..=wire::MAX_DATAGRAM_BYTES).contains(&datagram.len()) {
        return;
    }
    datagram[..2].copy_from_slice(&MAGIC.to_be_bytes());
    datagram[2] = VERSION;
    datagram[3] = Protocol::Ordered as u8;
    wire::seal(&mut datagram, 0);
    let Some((header, packet)) = decoded(&datagram) else { return };
    let mut again = Vec::new();
    packet.encode(&mut again, header.group, header.sender, header.view);
    let (_, read_again) = decoded(&again).expect("what we encode can be decoded");
    assert_eq!(read_again, packet, "what was encoded is not what was decoded");
});

fn decoded(datagram: &[u8]) -> Option<(Header, Packet)> {
    let (header, body) = Header::decode(datagram).ok()?;
    let packet = Packet::decode(&header, body).ok()?;
    Some((header, packet))
}
