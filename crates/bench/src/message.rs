//! The content of a benchmark message: a header of 32 bytes, then a fill pattern.

use std::fmt;
use std::str::FromStr;

/// Bytes of the header, and the minimum size of a message.
pub const HEADER_BYTES: usize = 32;

/// The first bytes of all messages of a run. They separate the run from earlier ones, and identify
/// messages within captured datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Magic(pub [u8; 8]);

/// The text of a [`Magic`] is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("magic '{0}' is invalid: expected 16 hexadecimal digits")]
pub struct MagicError(String);

impl Magic {
    /// Returns the magic of messages that accompany a run and are not part of it: those of a
    /// warm-up or of a background transfer.
    pub fn of_background(self) -> Self {
        Self(self.0.map(|byte| !byte))
    }
}

/// The header of a message.
///
/// | offset | bytes | content |
/// |---|---|---|
/// | 0 | 8 | magic of the run |
/// | 8 | 4 | index of the sender, little-endian |
/// | 12 | 4 | number of the message, from 0, little-endian |
/// | 16 | 8 | `CLOCK_MONOTONIC` before the send call in ns, little-endian |
/// | 24 | 8 | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Magic of the run.
    pub magic: Magic,
    /// Index of the sender.
    pub sender: u32,
    /// Number of the message among those of its sender, over all groups.
    pub number: u32,
    /// Time before the send call, in nanoseconds.
    pub sent_ns: u64,
}

impl Header {
    /// Writes the header, and fills the rest of the message with the pattern of its number.
    ///
    /// # Panics
    /// Panics if `message` is shorter than [`HEADER_BYTES`].
    pub fn write(&self, message: &mut [u8]) {
        assert!(message.len() >= HEADER_BYTES, "a message must hold its header");
        let (header, body) = message.split_at_mut(HEADER_BYTES);
        header[..8].copy_from_slice(&self.magic.0);
        header[8..12].copy_from_slice(&self.sender.to_le_bytes());
        header[12..16].copy_from_slice(&self.number.to_le_bytes());
        header[24..].fill(0);
        for (chunk, word) in body.chunks_mut(8).zip(pattern(self.number)) {
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        self.write_time(message);
    }

    /// Writes only the time, into a message that has the rest of the header. It keeps the time of
    /// the fill pattern out of the latency.
    ///
    /// # Panics
    /// Panics if `message` is shorter than [`HEADER_BYTES`].
    pub fn write_time(&self, message: &mut [u8]) {
        message[16..24].copy_from_slice(&self.sent_ns.to_le_bytes());
    }

    /// Reads the header of a message. Returns `None` if the message is too short.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (header, _) = message.split_first_chunk::<HEADER_BYTES>()?;
        Some(Self {
            magic: Magic(*header.first_chunk()?),
            sender: u32::from_le_bytes(*header[8..].first_chunk()?),
            number: u32::from_le_bytes(*header[12..].first_chunk()?),
            sent_ns: u64::from_le_bytes(*header[16..].first_chunk()?),
        })
    }

    /// Returns `true` if `message` is followed by the pattern of its number over its whole length.
    pub fn is_intact(&self, message: &[u8]) -> bool {
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        body.chunks(8).zip(pattern(self.number)).all(|(chunk, word)| *chunk == word[..chunk.len()])
    }
}

impl FromStr for Magic {
    type Err = MagicError;

    fn from_str(text: &str) -> Result<Self, MagicError> {
        let is_hex = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(|number| Self(number.to_be_bytes())).ok_or_else(|| MagicError(text.to_owned()))
    }
}

impl fmt::Display for Magic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// Returns the words of the pattern. Each depends on the number and on its place, so that moved
/// parts of a message are noticed too.
fn pattern(number: u32) -> impl Iterator<Item = [u8; 8]> {
    let start = u64::from(number) << 32;
    (0_u64..).map(move |place| {
        ((start | (place & 0xFFFF_FFFF)) + 1).wrapping_mul(ODD).rotate_left(29).to_le_bytes()
    })
}

/// The golden ratio in 64 bits, which spreads the bits of small numbers.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: Header = Header {
        magic: Magic(*b"\x01\x02\x03\x04\x05\x06\x07\x08"),
        sender: 2,
        number: 770,
        sent_ns: 5,
    };

    #[test]
    fn header_has_its_golden_bytes() {
        let mut message = [0xFF; HEADER_BYTES];
        HEADER.write(&mut message);
        let golden = [
            1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0, 2, 3, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0,
        ];
        assert_eq!(message, golden);
        assert_eq!(Header::read(&message), Some(HEADER));
        assert_eq!(Header::read(&message[1..]), None);
    }

    #[test]
    fn every_changed_byte_of_the_pattern_is_noticed() {
        let mut message = vec![0; 61];
        HEADER.write(&mut message);
        assert!(HEADER.is_intact(&message));
        for place in HEADER_BYTES..message.len() {
            message[place] ^= 1;
            assert!(!HEADER.is_intact(&message), "byte {place}");
            message[place] ^= 1;
        }
        assert!(!Header { number: 771, ..HEADER }.is_intact(&message));
    }

    #[test]
    fn magic_is_sixteen_digits_and_nothing_else() {
        let magic: Magic = "0102030405060708".parse().expect("it is valid");
        assert_eq!((magic, magic.to_string().as_str()), (HEADER.magic, "0102030405060708"));
        for wrong in ["", "010203040506070", "+102030405060708", "01020304050607080"] {
            let error = wrong.parse::<Magic>().expect_err("it is invalid");
            assert!(error.to_string().contains(&format!("'{wrong}'")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            sender: u32, number: u32, sent_ns: u64, magic: [u8; 8], bytes in 32..300_usize,
        ) {
            let header = Header { magic: Magic(magic), sender, number, sent_ns };
            let mut message = vec![0; bytes];
            header.write(&mut message);
            prop_assert_eq!(Header::read(&message), Some(header));
            prop_assert!(header.is_intact(&message));
        }
    }
}
