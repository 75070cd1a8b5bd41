//! Fuzz target: arbitrary bytes as a path packet. Decoding must not panic, and a decoded packet
//! must re-encode to the same bytes.
#![no_main]

mod sealed;

use carom_proto::wire::Protocol;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = carom::fuzz_path_packet(bytes);
    let Some(datagram) = sealed::sealed(bytes, Protocol::Path) else { return };
    if let Some(again) = carom::fuzz_path_packet(&datagram) {
        assert_eq!(again, datagram, "encoding has changed the packet");
    }
});
