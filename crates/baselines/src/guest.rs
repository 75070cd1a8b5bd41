//! The common part of all packets in this crate: the header, messages and repairs.

use carom_proto::codec::{Field, Variants};
use carom_proto::wire::{self, DecodeError, HEADER_BYTES, Header, Protocol};
use carom_proto::{Class, GroupId, NodeId, Origin, SeqNo};

/// Overhead, in bytes, of a data packet: the header and the sequence number.
pub const DATA_BYTES: usize = HEADER_BYTES + size_of::<SeqNo>();

/// Overhead, in bytes, of a repair: the header, the source and the sequence number.
pub const REPAIR_BYTES: usize = HEADER_BYTES + size_of::<NodeId>() + size_of::<SeqNo>();

/// A datagram of a protocol with the packets `P`. It consists of the common header of
/// [`carom_proto::wire`] with protocol [`Protocol::Guest`], and one of these bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Datagram<'a, P> {
    /// First transmission of a message to the group.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number |
    /// | 40 | n | [symbol](crate::block) |
    Data { seqno: SeqNo, block: &'a [u8] },
    /// Retransmission of a message by any node that keeps it.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 4 | sequence number |
    /// | 48 | n | [symbol](crate::block) |
    Repair { source: NodeId, seqno: SeqNo, block: &'a [u8] },
    /// A packet of the protocol.
    Own(P),
}

/// The packets of one protocol, in addition to messages and repairs. Their tag is the packet kind.
pub trait GuestPacket<'a>: Variants<'a> + Copy {
    /// Packet kind of [`Datagram::Data`].
    const DATA: u8;
    /// Packet kind of [`Datagram::Repair`], or `None` if the protocol has no such repairs.
    const REPAIR: Option<u8> = None;

    /// Returns the packet's class, by which drivers count and prioritize packets.
    fn class(&self) -> Class {
        Class::Control
    }

    /// Decodes a datagram, including its header.
    ///
    /// # Errors
    /// Returns the first invalid field.
    fn decode(datagram: &'a [u8]) -> Result<(Header, Datagram<'a, Self>), DecodeError> {
        let (header, body) = Header::decode(datagram)?;
        Ok((header, Self::decode_body(&header, body)?))
    }

    /// Decodes the body of a datagram with this header.
    ///
    /// # Errors
    /// Returns the first invalid field.
    fn decode_body(header: &Header, mut body: &'a [u8]) -> Result<Datagram<'a, Self>, DecodeError> {
        if header.protocol != Protocol::Guest {
            return Err(DecodeError::Kind);
        }
        Ok(if header.kind == Self::DATA {
            let (seqno, block) = <(SeqNo, &[u8])>::take(&mut body)?;
            Datagram::Data { seqno, block }
        } else if Some(header.kind) == Self::REPAIR {
            let (source, seqno, block) = <(NodeId, SeqNo, &[u8])>::take(&mut body)?;
            Datagram::Repair { source, seqno, block }
        } else {
            Datagram::Own(Self::take_body(header.kind, body)?)
        })
    }

    /// Appends the datagram with this packet to `out`.
    ///
    /// # Panics
    /// Panics if the datagram exceeds the size limit of UDP. Packets of the engine never do.
    fn encode(&self, origin: impl Into<Origin>, group: GroupId, view: u32, out: &mut Vec<u8>) {
        Datagram::Own(*self).encode(origin, group, view, out);
    }
}

impl<'p, P: GuestPacket<'p>> Datagram<'_, P> {
    /// Returns the datagram's class.
    pub fn class(&self) -> Class {
        match self {
            Self::Data { .. } => Class::Data,
            Self::Repair { .. } => Class::Retransmission,
            Self::Own(packet) => packet.class(),
        }
    }

    /// Appends the datagram to `out`.
    ///
    /// # Panics
    /// Panics if the datagram exceeds the size limit of UDP, or is a repair of a protocol without
    /// repairs. The engine keeps its packets within the path MTU.
    pub fn encode(&self, origin: impl Into<Origin>, group: GroupId, view: u32, out: &mut Vec<u8>) {
        let protocol = Protocol::Guest;
        let kind = match self {
            Self::Data { .. } => P::DATA,
            Self::Repair { .. } => P::REPAIR.expect("the protocol has repairs"),
            Self::Own(packet) => packet.tag(),
        };
        let Origin { node: sender, incarnation } = origin.into();
        let header = Header { protocol, kind, flags: 0, group, sender, incarnation, view };
        let start = header.begin(out);
        match self {
            Self::Data { seqno, block } => (*seqno, *block).put(out),
            Self::Repair { source, seqno, block } => (*source, *seqno, *block).put(out),
            Self::Own(packet) => packet.put_fields(out),
        }
        wire::seal(out, start);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use core::fmt::Debug;

    use proptest::prelude::*;

    use super::*;
    use crate::{ack, bimodal, fec, lbrm, rmtp, srm, tmtp};

    const SENDER: NodeId = NodeId(0x1122_3344_5566_7788);
    const GROUP: GroupId = GroupId(0x0102_0304);

    /// Asserts the encoding of a packet, except the common header. `out` must be empty.
    pub(crate) fn assert_on_the_wire<'a, P>(packet: P, out: &'a mut Vec<u8>, kind: u8, body: &[u8])
    where
        P: GuestPacket<'a> + PartialEq + Debug,
    {
        assert_datagram(Datagram::Own(packet), out, kind, body);
    }

    fn assert_datagram<'a, P>(
        datagram: Datagram<'a, P>,
        out: &'a mut Vec<u8>,
        kind: u8,
        body: &[u8],
    ) where
        P: GuestPacket<'a> + PartialEq + Debug,
    {
        datagram.encode(SENDER, GROUP, 9, out);
        let (header, decoded) = P::decode(out).expect("an encoded packet can be decoded");
        assert_eq!(decoded, datagram);
        assert_eq!((header.sender, header.group, header.view), (SENDER, GROUP, 9));
        assert_eq!((header.kind, &out[HEADER_BYTES..]), (kind, body));
    }

    fn assert_messages<P>(data: u8, repair: Option<u8>)
    where
        P: GuestPacket<'static> + PartialEq + Debug,
    {
        let out = || -> &mut Vec<u8> { Box::leak(Box::default()) };
        let message: Datagram<'_, P> = Datagram::Data { seqno: SeqNo(7), block: &[0xEE, 0xFF] };
        assert_datagram(message, out(), data, &[0, 0, 0, 7, 0xEE, 0xFF]);
        assert_eq!(P::REPAIR, repair);
        if let Some(kind) = repair {
            let (source, seqno) = (NodeId(5), SeqNo(6));
            let repair: Datagram<'_, P> = Datagram::Repair { source, seqno, block: &[1] };
            let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 1];
            assert_datagram(repair, out(), kind, &expected);
        }
    }

    #[test]
    fn messages_and_repairs_on_the_wire_are_these() {
        assert_messages::<srm::packet::Packet<'_>>(1, None);
        assert_messages::<bimodal::packet::Packet<'_>>(16, Some(19));
        assert_messages::<fec::packet::Packet<'_>>(32, None);
        assert_messages::<ack::packet::Packet<'_>>(48, None);
        assert_messages::<lbrm::packet::Packet<'_>>(1, Some(3));
        assert_messages::<rmtp::packet::Packet<'_>>(1, Some(3));
        assert_messages::<tmtp::packet::Packet<'_>>(1, Some(3));
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
            let header = Header::new(Protocol::Guest, kind, GROUP, SENDER);
            are_the_same_again(&Header { view: 4, ..header }.datagram(&body));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            are_the_same_again(&bytes);
        }
    }
}
