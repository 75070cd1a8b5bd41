//! Packets between two doctors.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `CAROMDR1` |
//! | 8 | 1 | kind | [`Kind`] |
//! | 9 | 3 | zero | |
//! | 12 | 4 | size | bytes of the whole datagram |
//! | 16 | 8 | token | drawn by the querying side, repeated in the answer |
//!
//! All numbers are big-endian. The remaining bytes are padding up to `size`. An answer is never
//! larger than its query, which limits the traffic that a listener can be made to send.

use carom_proto::codec::Field;
use carom_proto::variants;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Query by unicast, to be answered by unicast and by multicast.
    Ask,
    /// Query by multicast, to be answered by unicast.
    AskByMulticast,
    Answer,
    AnswerByMulticast,
    /// Answer to [`Kind::AskByMulticast`] by unicast.
    HeardMulticast,
    /// Query by unicast, padded to a size.
    Size,
    /// Answer to [`Kind::Size`] in the same size.
    SizeBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    pub(crate) token: u64,
    pub(crate) size: usize,
}

impl Packet {
    /// Size of a packet without padding, in bytes.
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn new(kind: Kind, token: u64) -> Self {
        Self { kind, token, size: Self::BYTES }
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size);
        (*MAGIC, self.kind, [0_u8; 3], self.size as u32, self.token).put(&mut bytes);
        bytes.resize(self.size.max(Self::BYTES), 0);
        bytes
    }

    pub(crate) fn decode(datagram: &[u8]) -> Option<Self> {
        let mut padding = datagram;
        let (magic, kind, zero, size, token) =
            <([u8; 8], Kind, [u8; 3], u32, u64)>::take(&mut padding).ok()?;
        let size = size as usize;
        let is_intact = magic == *MAGIC && zero == [0; 3] && size == datagram.len();
        (is_intact && padding.iter().all(|byte| *byte == 0)).then_some(Self { kind, token, size })
    }
}

variants! {
    Kind {
        1 => Ask,
        2 => AskByMulticast,
        3 => Answer,
        4 => AnswerByMulticast,
        5 => HeardMulticast,
        6 => Size,
        7 => SizeBack,
    };
}

const MAGIC: &[u8; 8] = b"CAROMDR1";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_is_these_bytes_for_ever() {
        let bytes = Packet::new(Kind::HeardMulticast, 0x0102_0304_0506_0708).encode();
        assert_eq!(bytes, *b"CAROMDR1\x05\0\0\0\0\0\0\x18\x01\x02\x03\x04\x05\x06\x07\x08");
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(kind in 1..=7_u8, token: u64, more in 0..2_000_usize) {
            let kind = Kind::take(&mut &[kind][..]).expect("every number is a kind");
            let packet = Packet { kind, token, size: Packet::BYTES + more };
            prop_assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            honest in any::<bool>(),
        ) {
            let bytes = if honest { [&MAGIC[..], &bytes].concat() } else { bytes };
            let _ = Packet::decode(&bytes);
        }
    }
}
