//! The journal of the received pieces, for resuming after a crash.
//!
//! The file contains eight bytes that identify the format, the transfer id, the key by which the
//! sender recognizes this receiver, and the numbers of the verified and written pieces (four bytes
//! each, big-endian). The file is synchronized only when it contains all pieces. At the next start,
//! each piece is verified again: the numbers only show which pieces are worth reading.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use crate::id::TransferId;
use crate::piece::PieceSet;

const MAGIC: [u8; 8] = *b"CFJRNL1\n";

#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    key: [u8; 16],
}

impl Journal {
    /// Opens a journal, and returns its pieces, or `None` if the file had to be initialized.
    ///
    /// The file must be readable, appendable and locked.
    pub(crate) fn open(
        mut file: File,
        id: &TransferId,
        pieces: u32,
        new_key: [u8; 16],
    ) -> io::Result<(Self, Option<PieceSet>)> {
        let mut bytes = Vec::new();
        // Each piece is recorded once, or a few times if it had to be fetched again after crashes.
        let most = 64 * u64::from(pieces) + 4096;
        (&mut file).take(most).read_to_end(&mut bytes)?;
        let head = [&MAGIC[..], &id.0].concat();
        let mut noted = PieceSet::none_of(pieces);
        let found = bytes.strip_prefix(&head[..]).and_then(<[u8]>::split_first_chunk::<16>);
        let Some((key, numbers)) = found else {
            file.set_len(0)?;
            let mut journal = Self { file, key: new_key };
            journal.file.write_all(&[&head[..], &new_key].concat())?;
            return Ok((journal, None));
        };
        let (numbers, torn) = numbers.as_chunks::<4>();
        for number in numbers {
            noted.insert(u32::from_be_bytes(*number));
        }
        if !torn.is_empty() {
            // The next number must not be appended to a torn one.
            file.set_len((head.len() + 16 + 4 * numbers.len()) as u64)?;
        }
        Ok((Self { file, key: *key }, Some(noted)))
    }

    pub(crate) fn key(&self) -> [u8; 16] {
        self.key
    }

    pub(crate) fn note(&mut self, piece: u32) -> io::Result<()> {
        self.file.write_all(&piece.to_be_bytes())
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
