//! The packets of [`Protocol::Path`]. All begin with the common header, whose group is 0.
//!
//! `Hello`, kind 1, by multicast:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | number of the sender's hello |
//! | 40 | 8 each | asked | up to 64 nodes that should answer, to the datagram's end |
//!
//! `Heard`, kind 2, and `Unheard`, kind 3, by unicast:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | of the answered hello; 0 in `Unheard` |
//! | 40 | 8 | whose | the node whose hello was received, or is no longer received |
//!
//! `Probe`, kind 4, by unicast, as long as the datagrams for which the path is tested:
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
//! `Part`, kind 6, to the destination of the datagram of which it is a part:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | number of the sender's divided datagram |
//! | 40 | 2 | offset | position of the bytes in the datagram |
//! | 42 | 2 | total | size of the datagram |
//! | 44 | | bytes | of the datagram, at least one |

use carom_proto::wire::{Datagram, DecodeError, HEADER_BYTES, Header, Protocol, seal};
use carom_proto::{GroupId, NodeId, Origin};

/// Maximum number of nodes listed in one hello, which then fits into the MTU of any path.
pub(super) const MAX_ASKED: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// Announces the sender by multicast, and requests answers of the listed nodes.
    Hello { sequence: u32, asked: Vec<NodeId> },
    /// Confirms that the sender has received this node's hello.
    Heard { sequence: u32, whose: NodeId },
    /// Reports that the sender no longer receives this node's hellos.
    Unheard { sequence: u32, whose: NodeId },
    /// Tests whether datagrams of this size arrive.
    Probe { sequence: u32, bytes: u16 },
    /// Confirms that the sender has received this node's probe of this size.
    Carried { sequence: u32, whose: NodeId, bytes: u16 },
    /// Part of a datagram that is too large for the path.
    Part(Part),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Number of the sender's divided datagram.
    pub(crate) id: u32,
    pub(crate) offset: u16,
    pub(crate) total: u16,
    pub(crate) bytes: Vec<u8>,
}

impl Packet {
    pub(crate) fn encode(&self, origin: impl Into<Origin>, out: &mut Vec<u8>) {
        let (kind, sequence) = match self {
            Self::Hello { sequence, .. } => (HELLO, sequence),
            Self::Heard { sequence, .. } => (HEARD, sequence),
            Self::Unheard { sequence, .. } => (UNHEARD, sequence),
            Self::Probe { sequence, .. } => (PROBE, sequence),
            Self::Carried { sequence, .. } => (CARRIED, sequence),
            Self::Part(Part { id, .. }) => (PART, id),
        };
        let (protocol, group) = (Protocol::Path, GroupId(0));
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags: 0, group, sender, incarnation, view: 0 };
        let start = header.begin(out);
        out.extend_from_slice(&sequence.to_be_bytes());
        match self {
            Self::Hello { asked, .. } => {
                asked.iter().for_each(|node| out.extend_from_slice(&node.0.to_be_bytes()));
            }
            Self::Heard { whose, .. } | Self::Unheard { whose, .. } => {
                out.extend_from_slice(&whose.0.to_be_bytes());
            }
            Self::Probe { bytes, .. } => out.resize(start + usize::from(*bytes), 0),
            Self::Carried { whose, bytes, .. } => {
                out.extend_from_slice(&whose.0.to_be_bytes());
                out.extend_from_slice(&bytes.to_be_bytes());
            }
            Self::Part(Part { offset, total, bytes, .. }) => {
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&total.to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
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
        let (sequence, rest) = body.split_first_chunk().ok_or(DecodeError::Length)?;
        let sequence = u32::from_be_bytes(*sequence);
        Ok(match header.kind {
            HELLO => Self::Hello { sequence, asked: nodes(rest)? },
            HEARD => Self::Heard { sequence, whose: node(rest)? },
            UNHEARD => Self::Unheard { sequence, whose: node(rest)? },
            PROBE if datagram.bytes().len() < usize::from(LEAST_PROBE_BYTES) => {
                return Err(DecodeError::Length);
            }
            PROBE if rest.iter().any(|byte| *byte != 0) => return Err(DecodeError::Value),
            PROBE => Self::Probe { sequence, bytes: datagram.bytes().len() as u16 },
            CARRIED => {
                let (whose, bytes) = rest.split_last_chunk().ok_or(DecodeError::Length)?;
                let bytes = u16::from_be_bytes(*bytes);
                Self::Carried { sequence, whose: node(whose)?, bytes }
            }
            PART => Self::Part(Part::decode(sequence, rest)?),
            _ => return Err(DecodeError::Kind),
        })
    }
}

impl Part {
    fn decode(id: u32, rest: &[u8]) -> Result<Self, DecodeError> {
        let (offset, rest) = rest.split_first_chunk().ok_or(DecodeError::Length)?;
        let (total, bytes) = rest.split_first_chunk().ok_or(DecodeError::Length)?;
        let (offset, total) = (u16::from_be_bytes(*offset), u16::from_be_bytes(*total));
        if bytes.is_empty() || usize::from(offset) + bytes.len() > usize::from(total) {
            return Err(DecodeError::Value);
        }
        Ok(Self { id, offset, total, bytes: bytes.to_vec() })
    }
}

fn nodes(bytes: &[u8]) -> Result<Vec<NodeId>, DecodeError> {
    let (chunks, remainder) = bytes.as_chunks::<8>();
    if !remainder.is_empty() || chunks.len() > MAX_ASKED {
        return Err(DecodeError::Length);
    }
    Ok(chunks.iter().map(|bytes| NodeId(u64::from_be_bytes(*bytes))).collect())
}

fn node(bytes: &[u8]) -> Result<NodeId, DecodeError> {
    match nodes(bytes)?[..] {
        [node] => Ok(node),
        _ => Err(DecodeError::Length),
    }
}

/// Size of the smallest probe in bytes. It exceeds that of its answer, so that a forged probe gains
/// nothing.
pub(crate) const LEAST_PROBE_BYTES: u16 = 64;
pub(crate) const PART_OVERHEAD: usize = HEADER_BYTES + 8;

const HELLO: u8 = 1;
const HEARD: u8 = 2;
const UNHEARD: u8 = 3;
const PROBE: u8 = 4;
const CARRIED: u8 = 5;
const PART: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::Incarnation;
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
            let mut out = Vec::new();
            let protocol = Protocol::Path;
            let (group, sender) = (GroupId(0), NodeId(1));
            let incarnation = Incarnation::default();
            let header = Header { protocol, kind, flags: 0, group, sender, incarnation, view: 0 };
            let start = header.begin(&mut out);
            out.extend_from_slice(&body);
            seal(&mut out, start);
            let datagram = Datagram::parse(&out).expect("a datagram");
            if let Ok(packet) = Packet::decode(&datagram) {
                prop_assert_eq!(encoded(sender, &packet), out);
            }
        }
    }
}
