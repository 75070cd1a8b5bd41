//! Fuzz target: arbitrary bytes as a datagram. A decoded header must re-encode to the same bytes.
#![no_main]

use carom_proto::wire::{self, Datagram, Header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    // Random input rarely has the magic number and a valid checksum, so each input is tried with
    // both.
    let mut sealed = datagram.to_vec();
    if (wire::HEADER_BYTES..=wire::MAX_DATAGRAM_BYTES).contains(&sealed.len()) {
        sealed[..2].copy_from_slice(&wire::MAGIC.to_be_bytes());
        sealed[2] = wire::VERSION;
        wire::seal(&mut sealed, 0);
    }
    for datagram in [datagram, &sealed] {
        let Ok(parsed) = Datagram::parse(datagram) else { continue };
        let (header, Ok(body)) = (parsed.header(), parsed.body()) else { continue };
        assert_eq!(header.datagram(body), datagram, "encoding has changed the datagram");
        assert_eq!(Header::decode(datagram), Ok((*header, body)));
    }
});
