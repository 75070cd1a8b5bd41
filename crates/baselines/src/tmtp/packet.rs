//! The packets of TMTP. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::HEADER_BYTES;
use carom_proto::{NodeId, SeqNo};
use zerocopy::byteorder::big_endian::U32;

use crate::guest::GuestPacket;

/// A TMTP packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Packet<'a> {
    /// NAK to the domain for packets of a source that the sender of the NAK lacks. Kind 2.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 8 | domain manager that must repair them |
    /// | 52 | 4 n | sequence numbers |
    Nack { source: NodeId, to: NodeId, seqnos: &'a [U32] },
    /// Acknowledgment of a source's packets, to the manager. Kind 4.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 4 | position before which all packets are settled |
    Ack { source: NodeId, settled_to: SeqNo },
    /// Status of a source's stream, from a domain manager that waits for an acknowledgment. Kind 5.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 4 | sequence number after the last known packet |
    Status { source: NodeId, next: SeqNo },
}

/// Size, in bytes, of a NAK before its sequence numbers.
pub const NACK_BYTES: usize = HEADER_BYTES + 2 * size_of::<NodeId>();
/// Size, in bytes, of a sequence number in a NAK.
pub const NUMBER_BYTES: usize = size_of::<U32>();

carom_proto::variants! {
    Packet<'a> {
        2 => Nack { source, to, seqnos },
        4 => Ack { source, settled_to },
        5 => Status { source, next },
    };
}

impl<'a> GuestPacket<'a> for Packet<'a> {
    const DATA: u8 = 1;
    const REPAIR: Option<u8> = Some(3);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::assert_on_the_wire;

    #[test]
    fn packets_on_the_wire_are_this() {
        let (source, to, seqnos) = (NodeId(5), NodeId(6), &[U32::new(2), U32::new(9)]);
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, // source, to
            0, 0, 0, 2, 0, 0, 0, 9, // sequence numbers
        ];
        assert_on_the_wire(Packet::Nack { source, to, seqnos }, &mut Vec::new(), 2, &expected);
        let (ack, status) = (
            Packet::Ack { source, settled_to: SeqNo(9) },
            Packet::Status { source, next: SeqNo(9) },
        );
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 9];
        assert_on_the_wire(ack, &mut Vec::new(), 4, &expected);
        assert_on_the_wire(status, &mut Vec::new(), 5, &expected);
    }
}
