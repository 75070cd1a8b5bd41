//! Fuzz target: arbitrary bytes as a datagram. Decoding the common header must not panic, and a
//! decoded header must be encoded to the same bytes.
#![no_main]

use carom_proto::wire::{self, Header, Peek};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let _ = Header::peek(datagram);
    // Random input rarely has the magic number and a valid checksum. Each input is therefore also
    // tried with both.
    let mut sealed = datagram.to_vec();
    if (wire::HEADER_BYTES..=wire::MAX_DATAGRAM_BYTES).contains(&sealed.len()) {
        sealed[..2].copy_from_slice(&wire::MAGIC.to_be_bytes());
        sealed[2] = wire::VERSION;
        wire::seal(&mut sealed, 0);
    }
    for datagram in [datagram, &sealed] {
        let Ok((header, body)) = Header::decode(datagram) else { continue };
        let mut again = Vec::new();
        let start = header.begin(&mut again);
        again.extend_from_slice(body);
        wire::seal(&mut again, start);
        assert_eq!(again, datagram, "what was decoded is not what is encoded");
        let Header { protocol, kind, group, sender, incarnation, .. } = header;
        let peek = Peek { protocol, kind, group, sender, incarnation };
        assert_eq!(Header::peek(datagram), Some(peek));
    }
});
