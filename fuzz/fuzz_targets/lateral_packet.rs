//! Any bytes are a packet of the lateral engine: it is read or refused, never a panic, and a
//! packet that was understood is the same after it was written and read again. Its bytes need not
//! be: flags that nobody has given a meaning are ignored.
#![no_main]

use carom_proto::lateral::packet::Packet;
use carom_proto::wire::{self, HEADER_BYTES, MAGIC, Protocol, VERSION};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Packet::decode(bytes);
    // Few inputs have a right header, so each gets one: what is left to guess is the packet.
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
