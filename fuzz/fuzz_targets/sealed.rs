//! Adds valid headers to arbitrary bytes, because random input rarely has one.

use carom_proto::wire::{self, HEADER_BYTES, MAGIC, Protocol, VERSION};

/// Returns the bytes with a header of `protocol`, or `None` if they are too few or too many.
pub fn sealed(bytes: &[u8], protocol: Protocol) -> Option<Vec<u8>> {
    let mut datagram = bytes.to_vec();
    if !(HEADER_BYTES..=wire::MAX_DATAGRAM_BYTES).contains(&datagram.len()) {
        return None;
    }
    datagram[..2].copy_from_slice(&MAGIC.to_be_bytes());
    datagram[2] = VERSION;
    datagram[3] = protocol as u8;
    wire::seal(&mut datagram, 0);
    Some(datagram)
}
