//! Which pieces are here, for whoever comes after a crash.
//!
//! The file is eight bytes that name the format, the id of the transfer, the key by which the
//! sender knows this receiver, and then the numbers of the pieces, four bytes each, big-endian, in
//! the order of their coming. A number is appended when its piece is verified and written. Nothing
//! is synchronised on the way: numbers and data survive the death of the process anyway, and after
//! the death of the machine the numbers only say which pieces are worth reading, as each is
//! verified again. It is brought onto the disk when all pieces are in it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use crate::id::TransferId;
use crate::piece::PieceSet;

const MAGIC: [u8; 8] = *b"CFJRNL1\n";

/// An open journal. Nobody else has it open.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    key: [u8; 16],
}

impl Journal {
    /// Reads a journal, or begins one if there is none or it is of something else, and says which
    /// pieces are in it; `None` if it has been begun. `file` is open to read and to append, and is
    /// locked, which it is until this is dropped.
    pub(crate) fn open(
        mut file: File,
        id: &TransferId,
        pieces: u32,
        new_key: [u8; 16],
    ) -> io::Result<(Self, Option<PieceSet>)> {
        let mut bytes = Vec::new();
        // Each piece is noted once, or a few times if it had to be fetched again after a crash.
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
            // What is written next must not become a part of it.
            file.set_len((head.len() + 16 + 4 * numbers.len()) as u64)?;
        }
        Ok((Self { file, key: *key }, Some(noted)))
    }

    /// By what the sender knows this receiver.
    pub(crate) fn key(&self) -> [u8; 16] {
        self.key
    }

    /// Notes a piece that is verified and written.
    pub(crate) fn note(&mut self, piece: u32) -> io::Result<()> {
        self.file.write_all(&piece.to_be_bytes())
    }

    /// What was noted is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
