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
//! All numbers are big-endian. The rest is padding up to `size`. An answer is never larger than its
//! query, so that a listener cannot amplify traffic.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Query by unicast, to be answered by unicast and by multicast.
    Ask = 1,
    /// Query by multicast, to be answered by unicast.
    AskByMulticast = 2,
    /// Answer to [`Kind::Ask`] by unicast.
    Answer = 3,
    /// Answer to [`Kind::Ask`] by multicast.
    AnswerByMulticast = 4,
    /// Answer to [`Kind::AskByMulticast`] by unicast.
    HeardMulticast = 5,
    /// Query by unicast, padded to a size.
    Size = 6,
    /// Answer to [`Kind::Size`] in the same size.
    SizeBack = 7,
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
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        bytes.extend_from_slice(&(self.size as u32).to_be_bytes());
        bytes.extend_from_slice(&self.token.to_be_bytes());
        bytes.resize(self.size.max(Self::BYTES), 0);
        bytes
    }

    pub(crate) fn decode(datagram: &[u8]) -> Option<Self> {
        let rest = datagram.strip_prefix(MAGIC)?;
        let (head, rest) = rest.split_first_chunk::<4>()?;
        let (size, rest) = rest.split_first_chunk::<4>()?;
        let (token, padding) = rest.split_first_chunk::<8>()?;
        let &[kind, 0, 0, 0] = head else { return None };
        let kind = Kind::of(kind)?;
        let size = u32::from_be_bytes(*size) as usize;
        let intact = size == datagram.len() && padding.iter().all(|byte| *byte == 0);
        intact.then_some(Self { kind, token: u64::from_be_bytes(*token), size })
    }
}

impl Kind {
    fn of(number: u8) -> Option<Self> {
        let all = [
            Self::Ask,
            Self::AskByMulticast,
            Self::Answer,
            Self::AnswerByMulticast,
            Self::HeardMulticast,
            Self::Size,
            Self::SizeBack,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
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
            let kind = Kind::of(kind).expect("all of them are kinds");
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
