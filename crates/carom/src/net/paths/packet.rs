//! Encoding of the packets of [`Protocol::Path`]. All begin with the common header, whose group is
//! 0.
//!
//! `Hello`, kind 1, by multicast:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | number of the sender's hello |
//! | 40 | 8 each | asked | up to 63 nodes that should answer, to the datagram's end |
//!
//! `Heard`, kind 2, and `Unheard`, kind 3, by unicast:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | of the answered hello; 0 in `Unheard` |
//! | 40 | 8 | whose | the node whose hello was received, or is no longer received |
//!
//! `Probe`, kind 4, by unicast, has the size for which the path is tested:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | random number, repeated in the answer |
//! | 40 | at least 24 | padding | zeros |
//!
//! `Carried`, kind 5, by unicast, answers a probe:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | of the probe |
//! | 40 | 8 | whose | the node that sent the probe |
//! | 48 | 2 | bytes | size of the probe |
//!
//! `Part`, kind 6, is sent to the destination of the datagram of which it is a part:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | number of the sender's divided datagram |
//! | 40 | 2 | offset | position of the bytes in the datagram |
//! | 42 | 2 | total | size of the datagram |
//! | 44 | | bytes | of the datagram, at least one |

use carom_proto::codec::{Variants, rest, rest_bytes};
use carom_proto::wire::{Datagram, DecodeError, HEADER_BYTES, Header, Protocol, seal};
use carom_proto::{GroupId, NodeId, Origin, fields, variants};

/// Maximum number of nodes listed in one hello. An IPv4 packet with so many has 572 bytes, which
/// fits the smallest path MTU, 576.
pub(super) const MAX_ASKED: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Hello { sequence: u32, asked: Vec<NodeId> },
    Heard { sequence: u32, whose: NodeId },
    Unheard { sequence: u32, whose: NodeId },
    Probe { sequence: u32, bytes: u16 },
    Carried { sequence: u32, whose: NodeId, bytes: u16 },
    Part(Part),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) id: u32,
    pub(crate) offset: u16,
    pub(crate) total: u16,
    pub(crate) bytes: Vec<u8>,
}

variants! {
    Packet {
        1 => Hello { sequence, asked with rest },
        2 => Heard { sequence, whose },
        3 => Unheard { sequence, whose },
        4 => Probe { sequence, bytes with padding },
        5 => Carried { sequence, whose, bytes },
        6 => Part(part),
    } if |packet| match packet {
        Packet::Hello { asked, .. } => asked.len() <= MAX_ASKED,
        Packet::Probe { bytes, .. } => *bytes >= LEAST_PROBE_BYTES,
        _ => true,
    };
}

fields! {
    Part { id, offset, total, bytes with rest_bytes } if |part| {
        let end = usize::from(part.offset) + part.bytes.len();
        !part.bytes.is_empty() && end <= usize::from(part.total)
    };
}

/// Codec of a probe's size: the datagram is padded with zeros up to this size.
mod padding {
    use super::{DecodeError, PROBE_OVERHEAD};

    pub(super) fn put(size: &u16, out: &mut Vec<u8>) {
        out.resize(out.len() + usize::from(*size).saturating_sub(PROBE_OVERHEAD), 0);
    }

    pub(super) fn take(bytes: &mut &[u8]) -> Result<u16, DecodeError> {
        let zeros = core::mem::take(bytes);
        let is_padding = zeros.iter().all(|byte| *byte == 0);
        let size = u16::try_from(PROBE_OVERHEAD + zeros.len()).ok().filter(|_| is_padding);
        size.ok_or(DecodeError::Value)
    }
}

impl Packet {
    pub(crate) fn encode(&self, origin: impl Into<Origin>, out: &mut Vec<u8>) {
        let start = Header::new(Protocol::Path, self.tag(), GroupId(0), origin).begin(out);
        self.put_fields(out);
        seal(out, start);
    }

    pub(crate) fn decode(datagram: &Datagram<'_>) -> Result<Self, DecodeError> {
        let (header, body) = (datagram.header(), datagram.body()?);
        if header.protocol != Protocol::Path {
            return Err(DecodeError::Kind);
        }
        if header.flags != 0 || header.group != GroupId(0) || header.view != 0 {
            return Err(DecodeError::Value);
        }
        Self::take_body(header.kind, body)
    }
}

/// Size of the smallest probe, in bytes. It exceeds the size of the answer, so that forged
/// probes cannot amplify traffic.
pub(crate) const LEAST_PROBE_BYTES: u16 = 64;
pub(crate) const PART_OVERHEAD: usize = HEADER_BYTES + 8;

const PROBE_OVERHEAD: usize = HEADER_BYTES + 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(sender: NodeId, packet: &Packet) -> Vec<u8> {
        let mut out = Vec::new();
        packet.encode(sender, &mut out);
        out
    }

    #[test]
    fn the_packets_on_the_wire_are_these() {
        let sender = NodeId(0x1122_3344_5566_7788);
        let (sequence, node) = (0x0102_0304, NodeId(0xA1A2_A3A4_A5A6_A7A8));
        let mut golden = vec![0xCA, 0x70, 2, 3, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0, 0];
        golden.extend([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 0]);
        golden.extend([0; 8]);
        golden.extend([1, 2, 3, 4, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8]);
        let packets = [
            (Packet::Hello { sequence, asked: vec![node] }, 1, 0xA4B3_6947),
            (Packet::Heard { sequence, whose: node }, 2, 0x8E0F_D9CF),
            (Packet::Unheard { sequence, whose: node }, 3, 0x214B_4B88),
        ];
        for (packet, kind, checksum) in packets {
            golden[4] = kind;
            golden[8..12].copy_from_slice(&u32::to_be_bytes(checksum));
            assert_eq!(encoded(sender, &packet), golden, "{packet:?}");
        }
    }

    #[test]
    fn largest_hello_fits_the_smallest_path() {
        let hello = Packet::Hello { sequence: 1, asked: vec![NodeId(2); MAX_ASKED] };
        const SMALLEST_PATH_MTU: usize = 576;
        const IPV4_AND_UDP_HEADERS: usize = 28;
        let bytes = encoded(NodeId(1), &hello).len() + IPV4_AND_UDP_HEADERS;
        assert!(bytes <= SMALLEST_PATH_MTU, "{bytes} bytes");
    }

    fn any_packet() -> impl Strategy<Value = Packet> {
        let nodes = prop::collection::vec(any::<u64>().prop_map(NodeId), 0..=MAX_ASKED);
        prop_oneof![
            (any::<u32>(), nodes).prop_map(|(sequence, asked)| Packet::Hello { sequence, asked }),
            any::<(u32, u64)>()
                .prop_map(|(sequence, it)| Packet::Heard { sequence, whose: NodeId(it) }),
            any::<(u32, u64)>()
                .prop_map(|(sequence, it)| Packet::Unheard { sequence, whose: NodeId(it) }),
            (any::<u32>(), LEAST_PROBE_BYTES..9000)
                .prop_map(|(sequence, bytes)| Packet::Probe { sequence, bytes }),
            any::<(u32, u64, u16)>().prop_map(|(sequence, it, bytes)| {
                Packet::Carried { sequence, whose: NodeId(it), bytes }
            }),
            (any::<u32>(), 0_u16..60_000, prop::collection::vec(any::<u8>(), 1..1500)).prop_map(
                |(id, offset, bytes)| {
                    let total = offset + bytes.len() as u16;
                    Packet::Part(Part { id, offset, total, bytes })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn decoding_is_the_inverse_of_encoding(sender: u64, packet in any_packet()) {
            let bytes = encoded(NodeId(sender), &packet);
            let datagram = Datagram::parse(&bytes).expect("a datagram");
            prop_assert_eq!(datagram.header().sender, NodeId(sender));
            prop_assert_eq!(Packet::decode(&datagram), Ok(packet));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            let _ = Datagram::parse(&bytes).and_then(|it| Packet::decode(&it));
        }

        #[test]
        fn a_sound_header_with_any_body_never_panics(
            kind: u8, body in prop::collection::vec(any::<u8>(), 0..700),
        ) {
            let sender = NodeId(1);
            let out = Header::new(Protocol::Path, kind, GroupId(0), sender).datagram(&body);
            let datagram = Datagram::parse(&out).expect("a datagram");
            if let Ok(packet) = Packet::decode(&datagram) {
                prop_assert_eq!(encoded(sender, &packet), out);
            }
        }
    }
}
