//! The packets of [`Protocol::Path`]. All begin with the common header, whose group is 0.
//!
//! `Hello`, kind 1, by multicast:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | the sender's hellos, counted |
//! | 40 | 8 each | asked | up to 64 nodes that should answer, to the datagram's end |
//!
//! `Heard`, kind 2, and `Unheard`, kind 3, by unicast:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 36 | 4 | sequence | of the hello that is answered; 0 in `Unheard` |
//! | 40 | 8 | whose | the node whose hello was heard, or is no longer heard |

use carom_proto::wire::{DecodeError, Header, Protocol, seal};
use carom_proto::{GroupId, NodeId, Origin};

/// Nodes that one hello asks at most: it fits into any path's MTU.
pub(super) const MAX_ASKED: usize = 64;

/// A packet about paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// The sender speaks by multicast and asks some nodes whether they hear it.
    Hello { sequence: u32, asked: Vec<NodeId> },
    /// The sender has heard this node's hello.
    Heard { sequence: u32, whose: NodeId },
    /// The sender does not hear this node's hellos any more.
    Unheard { sequence: u32, whose: NodeId },
}

impl Packet {
    /// Appends the datagram to `out`.
    pub(super) fn encode(&self, origin: impl Into<Origin>, out: &mut Vec<u8>) {
        let (kind, sequence, nodes) = match self {
            Self::Hello { sequence, asked } => (HELLO, *sequence, &asked[..]),
            Self::Heard { sequence, whose } => (HEARD, *sequence, std::slice::from_ref(whose)),
            Self::Unheard { sequence, whose } => (UNHEARD, *sequence, std::slice::from_ref(whose)),
        };
        let (protocol, group) = (Protocol::Path, GroupId(0));
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags: 0, group, sender, incarnation, view: 0 };
        let start = header.begin(out);
        out.extend_from_slice(&sequence.to_be_bytes());
        for node in nodes {
            out.extend_from_slice(&node.0.to_be_bytes());
        }
        seal(out, start);
    }

    /// Reads a datagram; returns its sender with the packet.
    pub(super) fn decode(datagram: &[u8]) -> Result<(NodeId, Self), DecodeError> {
        let (header, body) = Header::decode(datagram)?;
        if header.protocol != Protocol::Path {
            return Err(DecodeError::Kind);
        }
        if header.flags != 0 || header.group != GroupId(0) || header.view != 0 {
            return Err(DecodeError::Value);
        }
        let (sequence, rest) = body.split_first_chunk().ok_or(DecodeError::Length)?;
        let sequence = u32::from_be_bytes(*sequence);
        let (chunks, remainder) = rest.as_chunks::<8>();
        if !remainder.is_empty() || chunks.len() > MAX_ASKED {
            return Err(DecodeError::Length);
        }
        let mut nodes = chunks.iter().map(|bytes| NodeId(u64::from_be_bytes(*bytes)));
        let packet = match header.kind {
            HELLO => Self::Hello { sequence, asked: nodes.collect() },
            HEARD | UNHEARD => {
                let (Some(whose), None) = (nodes.next(), nodes.next()) else {
                    return Err(DecodeError::Length);
                };
                match header.kind {
                    HEARD => Self::Heard { sequence, whose },
                    _ => Self::Unheard { sequence, whose },
                }
            }
            _ => return Err(DecodeError::Kind),
        };
        Ok((header.sender, packet))
    }
}

const HELLO: u8 = 1;
const HEARD: u8 = 2;
const UNHEARD: u8 = 3;

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
        let mut golden = vec![0xCA, 0x70, 1, 3, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0];
        golden.extend([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 0]);
        golden.extend([1, 2, 3, 4, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8]);
        let packets = [
            (Packet::Hello { sequence, asked: vec![node] }, 1, 0xA9A5_C51F),
            (Packet::Heard { sequence, whose: node }, 2, 0x60BA_CDA0),
            (Packet::Unheard { sequence, whose: node }, 3, 0x9160_C80A),
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
        ]
    }

    proptest! {
        #[test]
        fn decoding_is_the_inverse_of_encoding(sender: u64, packet in any_packet()) {
            let bytes = encoded(NodeId(sender), &packet);
            prop_assert_eq!(Packet::decode(&bytes), Ok((NodeId(sender), packet)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            let _ = Packet::decode(&bytes);
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
            if let Ok((sender, packet)) = Packet::decode(&out) {
                prop_assert_eq!(encoded(sender, &packet), out);
            }
        }
    }
}
