//! Any bytes are a packet between two doctors: it is read or refused, never a panic, and a packet
//! that was understood is written again as it was.
#![no_main]

// The command is no library: its decoder is taken from its file.
#[allow(dead_code, reason = "only the decoder and the encoder are wanted")]
#[path = "../../crates/cli/src/doctor/packet.rs"]
mod packet;

use libfuzzer_sys::fuzz_target;
use packet::Packet;

fuzz_target!(|datagram: &[u8]| {
    let _ = Packet::decode(datagram);
    // Few inputs have a right magic and size, so each gets them: what is left to guess is the rest.
    let mut honest = datagram.to_vec();
    if honest.len() < Packet::BYTES {
        return;
    }
    honest[..8].copy_from_slice(b"CAROMDR1");
    honest[12..16].copy_from_slice(&(datagram.len() as u32).to_be_bytes());
    if let Some(packet) = Packet::decode(&honest) {
        assert_eq!(packet.encode(), honest, "what was decoded is not what is encoded");
    }
});
