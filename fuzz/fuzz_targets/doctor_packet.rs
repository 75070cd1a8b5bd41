//! Fuzz target: arbitrary bytes as a packet between two instances of `carom doctor`. Decoding must
//! not panic, and a decoded packet must re-encode to the same bytes.
#![no_main]

// The command has no library, so its decoder is included by file.
#[allow(dead_code, reason = "only the decoder and the encoder are used")]
#[path = "../../crates/cli/src/doctor/packet.rs"]
mod packet;

use libfuzzer_sys::fuzz_target;
use packet::Packet;

fuzz_target!(|datagram: &[u8]| {
    let _ = Packet::decode(datagram);
    // Random input rarely has a valid magic number and size, so each input gets them.
    let mut honest = datagram.to_vec();
    if honest.len() < Packet::BYTES {
        return;
    }
    honest[..8].copy_from_slice(b"CAROMDR1");
    honest[12..16].copy_from_slice(&(datagram.len() as u32).to_be_bytes());
    if let Some(packet) = Packet::decode(&honest) {
        assert_eq!(packet.encode(), honest, "encoding has changed the packet");
    }
});
