//! LBRM's packets. Each follows the common header of [`carom_proto::wire`].

use carom_proto::wire::{DecodeError, HEADER_BYTES};
use carom_proto::{NodeId, SeqNo};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::guest::{GuestPacket, read_prefix, read_seqno, write_numbered};

/// An LBRM packet. Its variable parts borrow from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// NAK for packets of a source that the NAK's sender lacks. Kind 2.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 8 | source |
    /// | 44 | 4 n | sequence numbers |
    Nack {
        /// Original sender of the packets.
        source: NodeId,
        /// Sequence numbers, big-endian.
        seqnos: &'a [U32],
    },
    /// Announcement of the end of the sender's stream. Kind 4.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 36 | 4 | sequence number of the sender's next message |
    Heartbeat {
        /// Sequence number of the sender's next message.
        next: SeqNo,
    },
}

/// Size of a NAK before its sequence numbers, in bytes.
pub const NACK_BYTES: usize = HEADER_BYTES + size_of::<U64>();
/// Size of a sequence number in a NAK, in bytes.
pub const NUMBER_BYTES: usize = size_of::<U32>();

const NACK: u8 = 2;
const HEARTBEAT: u8 = 4;

impl<'a> GuestPacket<'a> for Packet<'a> {
    const DATA: u8 = 1;
    const REPAIR: Option<u8> = Some(3);

    fn kind(&self) -> u8 {
        match self {
            Self::Nack { .. } => NACK,
            Self::Heartbeat { .. } => HEARTBEAT,
        }
    }

    fn read(kind: u8, body: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match kind {
            NACK => {
                let (source, rest) = read_prefix::<U64>(body)?;
                let seqnos = <[U32]>::ref_from_bytes(rest).map_err(|_| DecodeError::Length)?;
                Self::Nack { source: NodeId(source.get()), seqnos }
            }
            HEARTBEAT => Self::Heartbeat { next: read_seqno(body)? },
            _ => return Err(DecodeError::Kind),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Nack { source, seqnos } => {
                out.extend_from_slice(&source.0.to_be_bytes());
                out.extend_from_slice(seqnos.as_bytes());
            }
            Self::Heartbeat { next } => write_numbered(next, &[], out),
        }
    }
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
