//! Fuzz target: arbitrary bytes as a packet of the lateral engine. Decoding must not panic, and a
//! decoded packet must survive encoding and decoding. Its bytes can change, because undefined flags
//! are ignored.
#![no_main]

use carom_proto::lateral::packet::Packet;
use carom_proto::wire::{self, HEADER_BYTES, MAGIC, Protocol, VERSION};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Packet::decode(bytes);
    // Random input rarely has a valid header, so each input gets one.
    let mut datagram = bytes.to_vec();
    if !(HEADER_BYTES..=wire::MAX_DATAGRAM_BYTES).contains(&datagram.len()) {
        return;
    }
    datagram[..2].copy_from_slice(&MAGIC.to_be_bytes());
    datagram[2] = VERSION;
    datagram[3] = Protocol::Lateral as u8;
    wire::seal(&mut datagram, 0);
    let Ok((header, packet)) = Packet::decode(&datagram) else { return };
    let mut again = Vec::new();
    packet.encode(header.origin(), header.group, header.view, &mut again);
    let read_again = Packet::decode(&again).expect("what we encode can be decoded").1;
    assert_eq!(read_again, packet, "what was encoded is not what was decoded");
});
