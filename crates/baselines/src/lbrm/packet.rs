//! The packets of LBRM. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::HEADER_BYTES;
use carom_proto::{NodeId, SeqNo};
use zerocopy::byteorder::big_endian::U32;

use crate::guest::GuestPacket;

/// An LBRM packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables describe the fields")]
pub enum Packet<'a> {
    /// NAK for packets of a source that the sender of the NAK lacks. Kind 2.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 4 n | sequence numbers |
    Nack { source: NodeId, seqnos: &'a [U32] },
    /// Announcement of the end of the sender's stream. Kind 4.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number of the sender's next message |
    Heartbeat { next: SeqNo },
}

/// Size, in bytes, of a NAK before its sequence numbers.
pub const NACK_BYTES: usize = HEADER_BYTES + size_of::<NodeId>();
/// Size, in bytes, of a sequence number in a NAK.
pub const NUMBER_BYTES: usize = size_of::<U32>();

carom_proto::variants! {
    Packet<'a> {
        2 => Nack { source, seqnos },
        4 => Heartbeat { next },
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
        let (source, seqnos) = (NodeId(5), &[U32::new(2), U32::new(9)]);
        let expected = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 9];
        assert_on_the_wire(Packet::Nack { source, seqnos }, &mut Vec::new(), 2, &expected);
        let heartbeat = Packet::Heartbeat { next: SeqNo(9) };
        assert_on_the_wire(heartbeat, &mut Vec::new(), 4, &[0, 0, 0, 9]);
    }
}
