//! The common header of all datagrams.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 2 | magic | `0xCA70` |
//! | 2 | 1 | version | [`VERSION`] |
//! | 3 | 1 | protocol | [`Protocol`] |
//! | 4 | 1 | kind | packet type, numbered by the protocol |
//! | 5 | 1 | flags | defined by the protocol and the packet type |
//! | 6 | 2 | length | bytes of the whole datagram; modulo 2^16 for a packet sent in parts |
//! | 8 | 4 | checksum | CRC-32 (IEEE) of the whole datagram without this field |
//! | 12 | 4 | group | [`GroupId`], 0 for none or several; in gossip, the network |
//! | 16 | 8 | sender | [`NodeId`] of the node that sent this datagram |
//! | 24 | 8 | incarnation | [`Incarnation`] of that node |
//! | 32 | 4 | view | version of the sender's view of the group, or an epoch |
//!
//! All numbers are big-endian. The checksum is needed for two reasons. First, the checksum of UDP
//! has only 16 bits, is often offloaded to the network card, and is absent on loopback. Second, a
//! corrupt repair would spread its error to other packets. The checksum protects against accidents,
//! not against attackers.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{GroupId, Incarnation, NodeId, Origin};

/// First two bytes of every datagram.
pub const MAGIC: u16 = 0xCA70;
/// Version of the wire format. All other versions are rejected. Version 1 had no incarnation.
pub const VERSION: u8 = 2;
/// Size of the common header in bytes.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Maximum size of a datagram in bytes, which is the limit of UDP over IPv4.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;

const FLAGS_OFFSET: usize = 5;
const CHECKSUM_OFFSET: usize = 8;

/// Protocol of a datagram, which selects the state machine that processes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// Time-critical groups (Ricochet and Slingshot).
    Lateral = 1,
    /// Membership: gossip, and the pings for the registry.
    Membership = 2,
    /// Path detection of the runtime, which finds the members that multicast reaches.
    Path = 3,
    /// Ordered groups (RMP).
    Ordered = 4,
    /// Bulk groups (RDCM).
    Bulk = 5,
    /// An engine from outside this crate ([`Profile::Guest`](crate::Profile::Guest)).
    Guest = 64,
}

/// The decoded common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol of the packet.
    pub protocol: Protocol,
    /// Packet type within the protocol.
    pub kind: u8,
    /// Flags of the packet. The packet type defines their meaning.
    pub flags: u8,
    /// Group of the packet, or [`GroupId::NONE`] if it concerns none or several.
    pub group: GroupId,
    /// Node that sent the datagram.
    pub sender: NodeId,
    /// Incarnation of the sender.
    pub incarnation: Incarnation,
    /// The sender's view version, or an epoch.
    pub view: u32,
}

/// A received datagram, whose header is parsed once.
///
/// The header is not trustworthy until [`Datagram::body`] has verified the datagram. It is
/// sufficient for rejecting packets of foreign groups without computing the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    header: Header,
    bytes: &'a [u8],
}

/// Reason for rejecting a datagram. Engines count rejected datagrams, and report no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The length does not match the packet type or the length field.
    #[error("wrong length")]
    Length,
    /// The datagram is not from Carom.
    #[error("wrong magic")]
    Magic,
    /// The version of the wire format is not supported by this program.
    #[error("unknown version")]
    Version,
    /// The protocol or packet type is not supported by this program.
    #[error("unknown protocol or type")]
    Kind,
    /// The datagram was corrupted in transit.
    #[error("wrong checksum")]
    Checksum,
    /// A field has an impossible value.
    #[error("invalid value")]
    Value,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U16,
    version: u8,
    protocol: u8,
    kind: u8,
    flags: u8,
    length: U16,
    checksum: U32,
    group: U32,
    sender: U64,
    incarnation: U64,
    view: U32,
}

impl Header {
    /// Creates the header of a packet that has no flags and concerns no view.
    pub fn new(protocol: Protocol, kind: u8, group: GroupId, origin: impl Into<Origin>) -> Self {
        let Origin { node: sender, incarnation } = origin.into();
        Self { protocol, kind, flags: 0, group, sender, incarnation, view: 0 }
    }

    /// Returns the datagram that consists of this header and `body`.
    ///
    /// # Panics
    /// Panics if the datagram is longer than UDP allows.
    pub fn datagram(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let start = self.begin(&mut out);
        out.extend_from_slice(body);
        seal(&mut out, start);
        out
    }

    /// Returns the node that sent the datagram, and its incarnation.
    pub fn origin(&self) -> Origin {
        Origin { node: self.sender, incarnation: self.incarnation }
    }

    /// Appends the header to `out`. Call [`seal`] after appending the body.
    ///
    /// Returns the offset in `out` at which the datagram starts.
    pub fn begin(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let raw = RawHeader {
            magic: U16::new(MAGIC),
            version: VERSION,
            protocol: self.protocol as u8,
            kind: self.kind,
            flags: self.flags,
            length: U16::ZERO,
            checksum: U32::ZERO,
            group: U32::new(self.group.0),
            sender: U64::new(self.sender.0),
            incarnation: U64::new(self.incarnation.0),
            view: U32::new(self.view),
        };
        out.extend_from_slice(raw.as_bytes());
        start
    }

    /// Parses and verifies `datagram`. Returns its header and its body.
    ///
    /// # Errors
    /// Returns an error if the datagram is malformed or corrupted, or if its version or protocol is
    /// unknown.
    pub fn decode(datagram: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let datagram = Datagram::parse(datagram)?;
        Ok((datagram.header, datagram.body()?))
    }
}

impl<'a> Datagram<'a> {
    /// Parses the header of `bytes`.
    ///
    /// # Errors
    /// Returns an error if the datagram is too short or not from Carom, or if its version or
    /// protocol is unknown.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (raw, _) = RawHeader::ref_from_prefix(bytes).map_err(|_| DecodeError::Length)?;
        if raw.magic.get() != MAGIC {
            return Err(DecodeError::Magic);
        }
        if raw.version != VERSION {
            return Err(DecodeError::Version);
        }
        let header = Header {
            protocol: Protocol::from_wire(raw.protocol)?,
            kind: raw.kind,
            flags: raw.flags,
            group: GroupId(raw.group.get()),
            sender: NodeId(raw.sender.get()),
            incarnation: Incarnation(raw.incarnation.get()),
            view: raw.view.get(),
        };
        Ok(Self { header, bytes })
    }

    /// Combines the bytes of a stored datagram with the header that was parsed from them.
    pub fn with_header(header: Header, bytes: &'a [u8]) -> Self {
        Self { header, bytes }
    }

    /// Returns the header, which has not been verified.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the bytes of the whole datagram.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Verifies the length and the checksum, and returns the body.
    ///
    /// # Errors
    /// Returns an error if the datagram is corrupted.
    #[inline]
    pub fn body(&self) -> Result<&'a [u8], DecodeError> {
        let (raw, body) =
            RawHeader::ref_from_prefix(self.bytes).map_err(|_| DecodeError::Length)?;
        if raw.length.get() != self.bytes.len() as u16 {
            return Err(DecodeError::Length);
        }
        if raw.checksum.get() != checksum(self.bytes) {
            return Err(DecodeError::Checksum);
        }
        Ok(body)
    }
}

impl Protocol {
    fn from_wire(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            1 => Ok(Self::Lateral),
            2 => Ok(Self::Membership),
            3 => Ok(Self::Path),
            4 => Ok(Self::Ordered),
            5 => Ok(Self::Bulk),
            64 => Ok(Self::Guest),
            _ => Err(DecodeError::Kind),
        }
    }
}

/// Writes the length and the checksum of the datagram that extends from `start` to the end of
/// `out`.
///
/// # Panics
/// Panics if there is no header at `start`, or if the datagram is longer than
/// [`MAX_DATAGRAM_BYTES`].
pub fn seal(out: &mut [u8], start: usize) {
    let bytes = out.len() - start;
    assert!(bytes <= MAX_DATAGRAM_BYTES, "the datagram is larger than UDP allows");
    seal_in_parts(out, start);
}

/// Like [`seal`], but for a packet that is sent in parts if it does not fit in one datagram.
#[inline]
pub(crate) fn seal_in_parts(out: &mut [u8], start: usize) {
    let datagram = &mut out[start..];
    assert!(datagram.len() >= HEADER_BYTES, "the datagram has no header");
    let length = datagram.len() as u16;
    datagram[6..8].copy_from_slice(&length.to_be_bytes());
    let sum = checksum(datagram);
    datagram[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&sum.to_be_bytes());
}

pub(crate) fn clear_flags(out: &mut [u8], start: usize, flags: u8) {
    out[start + FLAGS_OFFSET] &= !flags;
    seal(out, start);
}

#[inline]
fn checksum(datagram: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&datagram[..CHECKSUM_OFFSET]);
    hasher.update(&datagram[CHECKSUM_OFFSET + 4..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header = Header {
        protocol: Protocol::Lateral,
        kind: 2,
        flags: 1,
        group: GroupId(0x0102_0304),
        sender: NodeId(0x1122_3344_5566_7788),
        incarnation: Incarnation(0x99AA_BBCC_DDEE_FF01),
        view: 9,
    };

    #[test]
    fn the_header_on_the_wire_is_this() {
        let golden = [
            0xCA, 0x70, 2, 1, 2, 1, 0, 38, // magic, version, protocol, kind, flags, length
            0x7D, 0xF7, 0xC6, 0xB5, // checksum
            1, 2, 3, 4, // group
            0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, // sender
            0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 0x01, // incarnation
            0, 0, 0, 9, // view
            0xAB, 0xCD, // body
        ];
        assert_eq!(HEADER.datagram(&[0xAB, 0xCD]), golden);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = HEADER.datagram(b"payload");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn decoding_is_the_inverse_of_encoding(
            kind: u8, flags: u8, group: u32, sender: u64, incarnation: u64, view: u32,
            body in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let header = Header {
                protocol: Protocol::Membership, kind, flags, view,
                group: GroupId(group), sender: NodeId(sender),
                incarnation: Incarnation(incarnation),
            };
            let bytes = header.datagram(&body);
            prop_assert_eq!(Header::decode(&bytes), Ok((header, &body[..])));
            let parsed = Datagram::parse(&bytes).map(|it| *it.header());
            prop_assert_eq!(parsed, Ok(header), "without verification");
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Header::decode(&bytes);
        }
    }
}
