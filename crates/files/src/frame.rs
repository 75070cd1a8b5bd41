//! Encoding of the frames on TCP connections.
//!
//! A frame is a length of four bytes, big-endian, followed by that many bytes of `postcard`. The
//! first frame of a connection is an [`Opening`] from the side that connects. [`Opening::Hello`]
//! opens the connection of a receiver to the sender: the receiver then sends [`FromReceiver`]
//! frames, and the sender [`FromSender`] frames. [`Opening::Ask`] opens a connection for pieces:
//! the other side replies with a [`PieceAnswer`], and further `Ask` frames may follow.
//! [`FromSender::Welcome`] and [`PieceAnswer::Piece`] are directly followed by the raw bytes of the
//! manifest or piece.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::id::TransferId;
use crate::limits::{MAX_FRAME_BYTES, MAX_TEXT_BYTES};

/// Version of the protocol. Both sides must have the same version.
pub const PROTOCOL_VERSION: u16 = 2;

/// The first frame of a connection, sent by the side that connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// A receiver joins the transfer.
    Hello {
        /// [`PROTOCOL_VERSION`] of the receiver.
        version: u16,
        /// Id of the requested transfer.
        id: TransferId,
        /// Name of the receiver.
        name: String,
        /// Hash of the host's name and the target directory. Together with the host's address, it
        /// distinguishes receivers of the same name.
        place: [u8; 16],
        /// `true` if the receiver has the manifest from an earlier connection.
        knows_manifest: bool,
    },
    /// A receiver requests a piece.
    Ask {
        /// Id of the transfer.
        id: TransferId,
        /// Piece number.
        piece: u32,
    },
}

/// Ranges of pieces, each given by its first and last piece.
pub type Ranges = Vec<(u32, u32)>;

/// The path by which a receiver obtained a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// The multicast stream.
    Stream,
    /// Another receiver, over TCP.
    Peer,
    /// The sender, over TCP.
    Sender,
}

/// The reason why a fetch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchFailure {
    /// The source does not answer, has stopped sending, or is no longer trusted.
    Unreachable,
    /// The source does not have the piece.
    NotThere,
    /// The reply is malformed, or the received bytes do not match the piece's hash.
    Wrong,
}

/// A frame from a receiver to the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromReceiver {
    /// The receiver has checked the manifest and its disk, and is ready.
    Ready {
        /// Key by which the sender recognizes the receiver when it returns.
        key: [u8; 16],
        /// TCP port at which the receiver serves pieces to other receivers.
        piece_port: u16,
        /// Pieces that the receiver has, encoded by
        /// [`PieceSet::to_bytes`](crate::PieceSet::to_bytes).
        have: Vec<u8>,
    },
    /// Pieces that were verified and written since the last report.
    Have {
        /// Path by which the pieces were obtained.
        way: Way,
        /// Ranges of pieces.
        pieces: Ranges,
    },
    /// The stream will not deliver these pieces, so they must be fetched.
    Missed {
        /// Ranges of pieces.
        pieces: Ranges,
        /// Number of pieces since the last report that the stream delivered with a wrong hash.
        wrong: u32,
    },
    /// The stream is over for this receiver: after [`FromSender::StreamOver`], no block arrived for
    /// `settle`.
    Settled,
    /// An assigned fetch has failed.
    FetchFailed {
        /// Piece number.
        piece: u32,
        /// Source number of the fetch; see [`FromSender::Fetch`].
        source: u32,
        /// Reason for the failure.
        why: FetchFailure,
    },
    /// All entries of the transfer have their final names.
    Finished,
    /// The receiver has given up.
    Failed {
        /// Reason, which the sender's summary contains.
        reason: String,
    },
    /// A keepalive.
    Alive,
}

/// A frame from the sender to a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSender {
    /// The reply to an accepted [`Opening::Hello`].
    Welcome {
        /// Size of the manifest that follows, in bytes, or 0 if the receiver has the manifest.
        manifest_bytes: u32,
    },
    /// The receiver is rejected or was given up.
    Refused {
        /// Reason for the rejection, or for giving up.
        reason: String,
    },
    /// The multicast stream has ended.
    StreamOver,
    /// The receiver must fetch a piece.
    Fetch {
        /// Piece number.
        piece: u32,
        /// Number of the source. The report of a failed fetch contains it.
        source: u32,
        /// Address of the source, or `None` for the sender itself.
        address: Option<SocketAddr>,
    },
    /// The sender has ended the transfer with an error.
    Aborted {
        /// Reason why the transfer has ended.
        reason: String,
        /// `true` if the received pieces are useless and must be removed.
        discard: bool,
    },
    /// The receiver is no longer needed, because the transfer has ended or all connected receivers
    /// have all pieces.
    Done,
    /// A keepalive.
    Alive,
}

/// The reply to [`Opening::Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PieceAnswer {
    /// The bytes of the piece follow.
    Piece {
        /// Size of the piece, in bytes.
        bytes: u32,
    },
    /// The source does not have the piece.
    NotThere,
}

/// Writes a frame.
///
/// # Errors
/// Returns the errors of the writer.
///
/// # Panics
/// Panics if the encoded frame exceeds [`MAX_FRAME_BYTES`].
pub fn write(to: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let mut bytes = postcard::to_extend(frame, vec![0; 4]).expect("a Vec never fails");
    let length = u32::try_from(bytes.len() - 4).expect("frames are short");
    assert!(length <= MAX_FRAME_BYTES, "an encoded frame is within its bound");
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    to.write_all(&bytes)
}

/// Reads a frame of at most `most` bytes.
///
/// # Errors
/// Returns the errors of the reader, and [`io::ErrorKind::InvalidData`] if the frame is too long or
/// not valid for this type.
pub fn read<T: DeserializeOwned>(from: &mut impl Read, most: u32) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > most {
        return Err(nonsense("the frame is too long"));
    }
    let bytes = read_bytes(from, length)?;
    match postcard::take_from_bytes(&bytes) {
        Ok((frame, [])) => Ok(frame),
        _ => Err(nonsense("the frame is malformed")),
    }
}

/// Reads exactly `length` bytes. Allocates more than 64 KiB only as the bytes arrive.
///
/// # Errors
/// Returns the errors of the reader.
pub fn read_bytes(from: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length.min(1 << 16) as usize);
    from.take(length.into()).read_to_end(&mut bytes)?;
    if bytes.len() == length as usize {
        Ok(bytes)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

pub(crate) fn nonsense(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Truncates text to [`MAX_TEXT_BYTES`] and replaces control characters, which could move a cursor.
pub(crate) fn plain_text(text: &str) -> String {
    let mut plain = String::new();
    for char in text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }) {
        if plain.len() + char.len_utf8() > MAX_TEXT_BYTES {
            break;
        }
        plain.push(char);
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(frame: T) {
        let mut bytes = Vec::new();
        write(&mut bytes, &frame).expect("a Vec never fails");
        let mut rest = &bytes[..];
        assert_eq!(read::<T>(&mut rest, MAX_FRAME_BYTES).expect("it was written so"), frame);
        assert!(rest.is_empty());
        for cut in 0..bytes.len() {
            assert!(
                read::<T>(&mut &bytes[..cut], MAX_FRAME_BYTES).is_err(),
                "{cut} bytes of {frame:?}"
            );
        }
    }

    #[test]
    fn frame_is_decoded_as_encoded_and_only_when_complete() {
        let id = TransferId([7; 32]);
        round_trip(Opening::Hello {
            version: 1,
            id,
            name: "n".into(),
            place: [2; 16],
            knows_manifest: true,
        });
        round_trip(Opening::Ask { id, piece: 7 });
        round_trip(FromReceiver::Ready { key: [1; 16], piece_port: 9, have: vec![1, 2, 3] });
        round_trip(FromReceiver::Have { way: Way::Peer, pieces: vec![(1, 2), (300, 70_000)] });
        round_trip(FromReceiver::Missed { pieces: vec![(5, 5)], wrong: 1 });
        round_trip(FromReceiver::Settled);
        round_trip(FromReceiver::FetchFailed { piece: 1, source: 2, why: FetchFailure::Wrong });
        round_trip(FromReceiver::Finished);
        round_trip(FromReceiver::Failed { reason: "full".into() });
        round_trip(FromReceiver::Alive);
        round_trip(FromSender::Welcome { manifest_bytes: 7 });
        round_trip(FromSender::Refused { reason: "no".into() });
        round_trip(FromSender::StreamOver);
        let address = Some("127.0.0.1:5".parse().expect("an address"));
        round_trip(FromSender::Fetch { piece: 1, source: 2, address });
        round_trip(FromSender::Aborted { reason: "no".into(), discard: true });
        round_trip(FromSender::Done);
        round_trip(FromSender::Alive);
        round_trip(PieceAnswer::Piece { bytes: 1 << 20 });
        round_trip(PieceAnswer::NotThere);
    }

    #[test]
    fn frame_is_encoded_as_documented() {
        let mut bytes = Vec::new();
        let have = FromReceiver::Have { way: Way::Peer, pieces: vec![(1, 300)] };
        write(&mut bytes, &have).expect("a Vec never fails");
        assert_eq!(bytes, [0, 0, 0, 6, 1, 1, 1, 1, 0xAC, 0x02]);
    }

    #[test]
    fn hello_is_encoded_as_documented() {
        let mut bytes = Vec::new();
        let (id, name, place) = (TransferId([7; 32]), "n".to_owned(), [9; 16]);
        let version = PROTOCOL_VERSION;
        write(&mut bytes, &Opening::Hello { version, id, name, place, knows_manifest: true })
            .expect("a Vec never fails");
        let parts = [&[0, 0, 0, 53, 0, 2][..], &[7; 32], &[1, b'n'], &[9; 16], &[1]];
        assert_eq!(bytes, parts.concat());
    }

    #[test]
    fn a_frame_that_claims_to_be_long_takes_no_memory() {
        let mut bytes = &[0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3][..];
        let error = read::<FromSender>(&mut bytes, MAX_FRAME_BYTES).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(read_bytes(&mut &[1, 2, 3][..], u32::MAX).is_err());
    }

    #[test]
    fn text_of_others_is_cut_and_moves_no_cursor() {
        assert_eq!(plain_text("a\u{1b}[2J\n"), "a\u{fffd}[2J\u{fffd}");
        assert_eq!(plain_text(&"\u{fc}".repeat(300)).len(), 254);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes: Vec<u8>) {
            let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
            framed.extend(&bytes);
            for bytes in [&bytes, &framed] {
                let _ = read::<Opening>(&mut &bytes[..], MAX_FRAME_BYTES);
                let _ = read::<FromReceiver>(&mut &bytes[..], MAX_FRAME_BYTES);
                let _ = read::<FromSender>(&mut &bytes[..], MAX_FRAME_BYTES);
                let _ = read::<PieceAnswer>(&mut &bytes[..], MAX_FRAME_BYTES);
            }
        }
    }
}
