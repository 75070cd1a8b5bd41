//! Fuzz target: arbitrary bytes as a packet of the lateral engine. Decoding must not panic, and a
//! decoded packet must survive encoding and decoding. Its bytes can change, because undefined flags
//! are ignored.
#![no_main]

mod sealed;

use carom_proto::lateral::packet::Packet;
use carom_proto::wire::Protocol;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Packet::decode(bytes);
    let Some(datagram) = sealed::sealed(bytes, Protocol::Lateral) else { return };
    let Ok((header, packet)) = Packet::decode(&datagram) else { return };
    let mut again = Vec::new();
    packet.encode(header.origin(), header.group, header.view, &mut again);
    let read_again = Packet::decode(&again).expect("an encoded packet can be decoded").1;
    assert_eq!(read_again, packet, "encoding has changed the packet");
});
