//! The common part of these protocols' packets: the header, and the encoding of messages and
//! sequence numbers.

use carom_proto::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use carom_proto::{Class, GroupId, NodeId, Origin, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Overhead in bytes of a packet that consists of a sequence number and a symbol.
pub const DATA_BYTES: usize = HEADER_BYTES + size_of::<U32>();

/// Overhead in bytes of a repair, which consists of the source, the sequence number and the symbol.
pub const REPAIR_BYTES: usize = HEADER_BYTES + size_of::<RawName>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawName {
    source: U64,
    seqno: U32,
}

/// A packet of one of these protocols. Its variable parts borrow from the datagram. It follows the
/// common header of [`carom_proto::wire`] with protocol [`Protocol::Guest`].
pub trait GuestPacket<'a>: Copy {
    /// Returns the packet's class, for drivers that count or treat classes separately.
    fn class(&self) -> Class;

    /// Returns the packet kind for the header.
    fn kind(&self) -> u8;

    /// Decodes the body, which follows the header.
    ///
    /// # Errors
    /// The first invalid field.
    fn read(kind: u8, body: &'a [u8]) -> Result<Self, DecodeError>;

    /// Appends the body, which follows the header, to `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Decodes a datagram, including its header.
    ///
    /// # Errors
    /// The first invalid field.
    fn decode(datagram: &'a [u8]) -> Result<(Header, Self), DecodeError> {
        let (header, body) = Header::decode(datagram)?;
        if header.protocol != Protocol::Guest {
            return Err(DecodeError::Kind);
        }
        let packet = Self::read(header.kind, body)?;
        Ok((header, packet))
    }

    /// Appends the whole datagram to `out`.
    ///
    /// # Panics
    /// If the datagram exceeds the size limit of UDP. The engine keeps its packets within the path
    /// MTU.
    fn encode(&self, origin: impl Into<Origin>, group: GroupId, view: u32, out: &mut Vec<u8>) {
        let (protocol, kind) = (Protocol::Guest, self.kind());
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags: 0, group, sender, incarnation, view };
        let start = header.begin(out);
        self.write(out);
        wire::seal(out, start);
    }
}

/// Reads a sequence number and returns the rest, usually a [symbol](crate::block).
pub(crate) fn read_numbered(body: &[u8]) -> Result<(SeqNo, &[u8]), DecodeError> {
    let (seqno, rest) = read_prefix::<U32>(body)?;
    Ok((SeqNo(seqno.get()), rest))
}

/// Reads a source and a sequence number, and returns the rest.
pub(crate) fn read_named(body: &[u8]) -> Result<(NodeId, SeqNo, &[u8]), DecodeError> {
    let (raw, rest) = read_prefix::<RawName>(body)?;
    Ok((NodeId(raw.source.get()), SeqNo(raw.seqno.get()), rest))
}

/// Appends a source, a sequence number and the rest.
pub(crate) fn write_named(source: NodeId, seqno: SeqNo, rest: &[u8], out: &mut Vec<u8>) {
    let raw = RawName { source: U64::new(source.0), seqno: U32::new(seqno.0) };
    out.extend_from_slice(raw.as_bytes());
    out.extend_from_slice(rest);
}

/// Reads a sequence number that is the whole body.
pub(crate) fn read_seqno(body: &[u8]) -> Result<SeqNo, DecodeError> {
    read_all::<U32>(body).map(|seqno| SeqNo(seqno.get()))
}

/// Reads fields that are the whole body.
pub(crate) fn read_all<T>(body: &[u8]) -> Result<&T, DecodeError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_bytes(body).map_err(|_| DecodeError::Length)
}

/// Reads the fields at the start, and returns the rest.
pub(crate) fn read_prefix<T>(body: &[u8]) -> Result<(&T, &[u8]), DecodeError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(body).map_err(|_| DecodeError::Length)
}

/// Appends a sequence number and the rest.
pub(crate) fn write_numbered(seqno: SeqNo, rest: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&seqno.0.to_be_bytes());
    out.extend_from_slice(rest);
}

#[cfg(test)]
pub(crate) mod tests {
    use core::fmt::Debug;

    use proptest::prelude::*;

    use super::*;
    use crate::{ack, bimodal, fec, lbrm, rmtp, srm, tmtp};
    use carom_proto::Incarnation;

    const SENDER: NodeId = NodeId(0x1122_3344_5566_7788);
    const GROUP: GroupId = GroupId(0x0102_0304);

    /// Asserts that a packet is encoded with this kind and body, and decodes to itself. The common
    /// header has a golden test of its own. `out` must be empty.
    pub(crate) fn assert_on_the_wire<'a, P>(packet: P, out: &'a mut Vec<u8>, kind: u8, body: &[u8])
    where
        P: GuestPacket<'a> + PartialEq + Debug,
    {
        packet.encode(SENDER, GROUP, 9, out);
        let (header, decoded) = P::decode(out).expect("what was encoded can be decoded");
        assert_eq!(decoded, packet);
        assert_eq!((header.sender, header.group, header.view), (SENDER, GROUP, 9));
        assert_eq!((header.kind, &out[HEADER_BYTES..]), (kind, body));
    }

    fn is_the_same_again<'a, P: GuestPacket<'a>>(datagram: &'a [u8]) {
        if let Ok((header, packet)) = P::decode(datagram) {
            let mut again = Vec::new();
            packet.encode(header.origin(), header.group, header.view, &mut again);
            assert_eq!(again, datagram);
        }
    }

    fn are_the_same_again(datagram: &[u8]) {
        is_the_same_again::<srm::packet::Packet<'_>>(datagram);
        is_the_same_again::<bimodal::packet::Packet<'_>>(datagram);
        is_the_same_again::<fec::packet::Packet<'_>>(datagram);
        is_the_same_again::<ack::packet::Packet<'_>>(datagram);
        is_the_same_again::<lbrm::packet::Packet<'_>>(datagram);
        is_the_same_again::<rmtp::packet::Packet<'_>>(datagram);
        is_the_same_again::<tmtp::packet::Packet<'_>>(datagram);
    }

    proptest! {
        #[test]
        fn body_under_a_valid_header_decodes_to_itself_or_an_error(
            kind in 0..64_u8,
            body in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            let header = Header {
                protocol: Protocol::Guest, kind, flags: 0, group: GROUP, sender: SENDER, view: 4,
                incarnation: Incarnation::default(),
            };
            let mut datagram = Vec::new();
            let start = header.begin(&mut datagram);
            datagram.extend_from_slice(&body);
            wire::seal(&mut datagram, start);
            are_the_same_again(&datagram);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            are_the_same_again(&bytes);
        }
    }
}
