//! What goes over TCP: frames.
//!
//! A frame is its length in four bytes, big-endian, and as many bytes of `postcard`. A connection
//! begins with an [`Opening`] of who has connected. After [`Opening::Hello`] it is that of a
//! receiver with the sender: [`FromReceiver`] one way, [`FromSender`] the other. After
//! [`Opening::Ask`] it is one for pieces, answered by [`PieceAnswer`], and more `Ask`s may follow.
//! Two frames say that so many bytes, not in a frame, come right behind them: the manifest and a
//! piece.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::id::TransferId;
use crate::limits::{MAX_FRAME_BYTES, MAX_TEXT_BYTES};

/// What both ends must speak.
pub const PROTOCOL_VERSION: u16 = 2;

/// The first frame of a connection, from whoever has connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// A receiver wants to take part.
    Hello {
        /// [`PROTOCOL_VERSION`].
        version: u16,
        /// The transfer that it wants.
        id: TransferId,
        /// What the receiver is called.
        name: String,
        /// Which directory of which machine it receives into; nothing else tells apart two that
        /// are called the same.
        place: [u8; 16],
        /// Whether it has the manifest from an earlier connection.
        knows_manifest: bool,
    },
    /// Somebody wants a piece.
    Ask {
        /// Of which transfer.
        id: TransferId,
        /// Which.
        piece: u32,
    },
}

/// Pieces from the first to the last of each pair.
pub type Ranges = Vec<(u32, u32)>;

/// How a receiver came by a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// By the multicast stream.
    Stream,
    /// From another receiver.
    Peer,
    /// From the sender over TCP.
    Sender,
}

/// Why a fetch did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchFailure {
    /// It does not answer, or stopped doing so.
    Unreachable,
    /// It does not have the piece.
    NotThere,
    /// The bytes are not those of the piece.
    Wrong,
}

/// From a receiver to the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromReceiver {
    /// It has checked the manifest and its disk, and can begin.
    Ready {
        /// By what it is known again when it comes back.
        key: [u8; 16],
        /// The port at which it gives pieces to others.
        piece_port: u16,
        /// The pieces that it has, as [`PieceSet::to_bytes`](crate::PieceSet::to_bytes) has them.
        have: Vec<u8>,
    },
    /// Further pieces were verified and written.
    Have {
        /// How they came.
        way: Way,
        /// Which.
        pieces: Ranges,
    },
    /// These do not come by the stream any more, and have to be fetched.
    Missed {
        /// Which.
        pieces: Ranges,
        /// How many of them did come, and were wrong.
        wrong: u32,
    },
    /// After [`FromSender::StreamOver`]: nothing has come by the stream for a while.
    Settled,
    /// A fetch did not succeed.
    FetchFailed {
        /// The piece.
        piece: u32,
        /// Whom it was told to ask, as in [`FromSender::Fetch`].
        source: u32,
        /// Why.
        why: FetchFailure,
    },
    /// Everything has its final name.
    Finished,
    /// It has given up.
    Failed {
        /// Why.
        reason: String,
    },
    /// It lives.
    Alive,
}

/// From the sender to a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSender {
    /// The answer to [`Opening::Hello`].
    Welcome {
        /// Bytes of the manifest that follow; none if it is known.
        manifest_bytes: u32,
    },
    /// It is not taken, or not any more.
    Refused {
        /// Why.
        reason: String,
    },
    /// Everything has been multicast.
    StreamOver,
    /// Get a piece from somebody.
    Fetch {
        /// Which.
        piece: u32,
        /// A number for whom, to speak of it.
        source: u32,
        /// Where; `None` is the sender itself.
        address: Option<SocketAddr>,
    },
    /// The transfer ends without success, for everybody.
    Aborted {
        /// Why.
        reason: String,
        /// Whether what was received is of no use any more.
        discard: bool,
    },
    /// All are done.
    Done,
    /// It lives.
    Alive,
}

/// The answer to [`Opening::Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PieceAnswer {
    /// The bytes of the piece follow.
    Piece {
        /// How many.
        bytes: u32,
    },
    /// Not to be had here.
    NotThere,
}

/// Writes a frame.
///
/// # Errors
/// Those of the writer.
pub fn write(to: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let mut bytes = postcard::to_extend(frame, vec![0; 4]).expect("a Vec takes all");
    let length = u32::try_from(bytes.len() - 4).expect("frames are short");
    assert!(length <= MAX_FRAME_BYTES, "a frame that we write is within its bound");
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    to.write_all(&bytes)
}

/// Reads a frame of at most `most` bytes.
///
/// # Errors
/// Those of the reader, and [`io::ErrorKind::InvalidData`] for what is no such frame.
pub fn read<T: DeserializeOwned>(from: &mut impl Read, most: u32) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > most {
        return Err(nonsense("a frame is too long"));
    }
    let bytes = read_bytes(from, length)?;
    match postcard::take_from_bytes(&bytes) {
        Ok((frame, [])) => Ok(frame),
        _ => Err(nonsense("a frame cannot be read")),
    }
}

/// Reads exactly `length` bytes; takes no more memory than has come.
///
/// # Errors
/// Those of the reader.
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

/// Text that came from somebody else, or goes to them: not too long, and nothing in it that would
/// move a terminal's cursor.
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
        write(&mut bytes, &frame).expect("a Vec takes all");
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
    fn every_frame_is_read_as_it_was_written_and_not_before_it_is_whole() {
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
    fn a_frame_is_written_as_the_documentation_says() {
        let mut bytes = Vec::new();
        let have = FromReceiver::Have { way: Way::Peer, pieces: vec![(1, 300)] };
        write(&mut bytes, &have).expect("a Vec takes all");
        assert_eq!(bytes, [0, 0, 0, 6, 1, 1, 1, 1, 0xAC, 0x02]);
    }

    #[test]
    fn a_hello_is_written_as_the_documentation_says() {
        let mut bytes = Vec::new();
        let (id, name, place) = (TransferId([7; 32]), "n".to_owned(), [9; 16]);
        let version = PROTOCOL_VERSION;
        write(&mut bytes, &Opening::Hello { version, id, name, place, knows_manifest: true })
            .expect("a Vec takes all");
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
