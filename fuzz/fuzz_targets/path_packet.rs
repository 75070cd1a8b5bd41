//! Fuzz target: arbitrary bytes as a path packet. Decoding must not panic, and a decoded packet
//! must be encoded to the same bytes.
#![no_main]

use carom_proto::wire::{self, HEADER_BYTES, MAGIC, Protocol, VERSION};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = carom::fuzz_path_packet(bytes);
    // Random input rarely has a valid header, so each input gets one.
    let mut datagram = bytes.to_vec();
    if !(HEADER_BYTES..=wire::MAX_DATAGRAM_BYTES).contains(&datagram.len()) {
        return;
    }
    datagram[..2].copy_from_slice(&MAGIC.to_be_bytes());
    datagram[2] = VERSION;
    datagram[3] = Protocol::Path as u8;
    wire::seal(&mut datagram, 0);
    if let Some(again) = carom::fuzz_path_packet(&datagram) {
        assert_eq!(again, datagram, "what was decoded is not what is encoded");
    }
});
