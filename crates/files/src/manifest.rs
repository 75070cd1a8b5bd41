//! The manifest of a transfer: the names, sizes and hashes of its entries.
//!
//! The encoded manifest consists of a version byte, a head with the piece size and the numbers of
//! entries and pieces, the entries, and the hashes of all pieces (32 bytes each). The head and the
//! entries are encoded by `postcard`. Each entry is followed by its holes. A hole is encoded as its
//! distance in bytes from the end of the previous hole, if any, and its length in bytes. The memory
//! of the decoder is bounded by the size of the encoded manifest, regardless of the numbers in it.

use serde::{Deserialize, Serialize};

use crate::holes::Holes;
use crate::id::TransferId;
use crate::limits::{
    MAX_ENTRIES, MAX_FILE_BYTES, MAX_HOLES, MAX_MANIFEST_BYTES, MAX_PIECE_BYTES, MAX_PIECES,
    MIN_PIECE_BYTES,
};
use crate::names::{EntryPath, NameError, check_link};
use crate::piece::{Hash, Place};

const VERSION: u8 = 1;
/// Prefix that separates this use of the hash from all others.
const ID_OF: &[u8] = b"carom transfer 1";
/// Permission bits that are transferred. The setuid, setgid and sticky bits are not.
pub(crate) const MODE_BITS: u16 = 0o777;

/// All entries of a transfer, each directory before its contents, and the hashes of their pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    id: TransferId,
    piece_bytes: u32,
    entries: Vec<Entry>,
    /// Number of the first piece of each entry. If an entry has no pieces, it is the number of the
    /// next piece.
    first_pieces: Vec<u32>,
    hashes: Vec<Hash>,
}

/// A file, directory or symlink of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path below the target directory.
    pub path: EntryPath,
    /// The nine permission bits.
    pub mode: u16,
    /// Modification time, or `None` if it is not known.
    pub modified: Option<Modified>,
    /// Kind of the entry, with the attributes that depend on it.
    pub kind: Kind,
}

/// A time since the Unix epoch, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modified {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second, less than 1,000,000,000.
    pub nanoseconds: u32,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Size in bytes, including holes.
        bytes: u64,
        /// Holes of the file, which are not sent.
        holes: Holes,
    },
    /// A symlink to a path in the same tree.
    Symlink {
        /// Target, as stored in the symlink.
        target: Box<[u8]>,
    },
}

/// The reason why bytes or entries are not a valid manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The format, the piece size or the number of hashes is invalid.
    #[error("the manifest is malformed")]
    Malformed,
    /// The manifest has a version that is not supported.
    #[error("manifest version {0} is not supported: expected {VERSION}")]
    Version(u8),
    /// A limit is exceeded.
    #[error(
        "the transfer has too many {0}: expected at most {MAX_ENTRIES} entries, {MAX_PIECES} \
         pieces, {MAX_HOLES} holes and {MAX_MANIFEST_BYTES} bytes of names and hashes"
    )]
    TooMany(&'static str),
    /// A name or the target of a symlink violates the rules for names.
    #[error("the name '{path}' is invalid: {error}")]
    Name {
        /// Path of the entry, escaped for display.
        path: String,
        /// The violated rule.
        error: NameError,
    },
    /// An entry is out of order, occurs twice, or is in a directory that the manifest lacks.
    #[error("entry '{0}' is misplaced in the manifest")]
    Misplaced(String),
    /// An entry has an invalid size, mode, time or hole.
    #[error("entry '{0}' has an invalid size, mode, time or hole")]
    Unbelievable(String),
}

#[derive(Serialize, Deserialize)]
struct Head {
    piece_bytes: u32,
    entries: u32,
    pieces: u32,
}

#[derive(Serialize, Deserialize)]
struct EntryHead<'a> {
    path: &'a [u8],
    mode: u16,
    modified: Option<Modified>,
    kind: KindHead<'a>,
}

#[derive(Serialize, Deserialize)]
enum KindHead<'a> {
    Directory,
    File { bytes: u64, holes: u32 },
    Symlink { target: &'a [u8] },
}

impl Manifest {
    /// Creates a manifest from entries and the hashes of their pieces, in the same order.
    ///
    /// # Errors
    /// Returns an error for the first violated rule.
    pub fn new(
        piece_bytes: u32,
        entries: Vec<Entry>,
        hashes: Vec<Hash>,
    ) -> Result<Self, ManifestError> {
        let mut checked = Checked::new(piece_bytes)?;
        entries.iter().try_for_each(|entry| checked.push(entry))?;
        if checked.pieces as usize != hashes.len() {
            return Err(ManifestError::Malformed);
        }
        let first_pieces = checked.first_pieces;
        let id = TransferId([0; 32]);
        let mut manifest = Self { id, piece_bytes, entries, first_pieces, hashes };
        manifest.id = manifest.hash();
        Ok(manifest)
    }

    /// Returns the transfer id.
    pub fn id(&self) -> TransferId {
        self.id
    }

    /// Returns the piece size, in bytes. Only the last piece of a file may be shorter.
    pub fn piece_bytes(&self) -> u32 {
        self.piece_bytes
    }

    /// Returns all entries, each directory before its contents.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of pieces.
    pub fn pieces(&self) -> u32 {
        self.hashes.len() as u32
    }

    /// Returns the expected hash of `piece`.
    ///
    /// # Panics
    /// Panics if the piece does not exist.
    pub fn hash_of(&self, piece: u32) -> &Hash {
        &self.hashes[piece as usize]
    }

    /// Returns `true` if the piece exists and `bytes` match its hash.
    pub fn is_piece(&self, piece: u32, bytes: &[u8]) -> bool {
        self.hashes.get(piece as usize).is_some_and(|hash| blake3::hash(bytes) == *hash)
    }

    /// Returns the position of `piece`, or `None` if the piece does not exist.
    pub fn place(&self, piece: u32) -> Option<Place> {
        if piece >= self.pieces() {
            return None;
        }
        // An entry without pieces has the same first piece as the next entry with pieces.
        let entry = self.first_pieces.partition_point(|first| *first <= piece) - 1;
        let packed = u64::from(piece - self.first_pieces[entry]) * u64::from(self.piece_bytes);
        let left = self.entries[entry].data_bytes() - packed;
        let bytes = left.min(self.piece_bytes.into()) as u32;
        Some(Place { entry, packed, bytes })
    }

    /// Returns the numbers of the pieces of an entry, which must exist.
    pub fn pieces_of(&self, entry: usize) -> std::ops::Range<u32> {
        let next = self.first_pieces.get(entry + 1).copied();
        self.first_pieces[entry]..next.unwrap_or(self.pieces())
    }

    /// Returns the total size of all files, in bytes, including holes. Saturates at `u64::MAX`.
    pub fn total_bytes(&self) -> u64 {
        // Each file is bounded, but the sum of very many sparse files can exceed a `u64`.
        self.entries.iter().map(Entry::file_bytes).fold(0, u64::saturating_add)
    }

    /// Returns the total size of all pieces, in bytes.
    pub fn data_bytes(&self) -> u64 {
        self.entries.iter().map(Entry::data_bytes).sum()
    }

    /// Encodes the manifest.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoded = vec![VERSION];
        let entries = self.entries.len() as u32;
        let head = Head { piece_bytes: self.piece_bytes, entries, pieces: self.pieces() };
        append(&head, &mut encoded);
        for entry in &self.entries {
            entry.encode(entry.mode, entry.modified, &mut encoded);
        }
        encoded.extend(self.hashes.as_flattened());
        encoded
    }

    /// Decodes a manifest encoded by [`encode`](Self::encode).
    ///
    /// # Errors
    /// Returns an error for the first violated rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_MANIFEST_BYTES as usize {
            return Err(ManifestError::TooMany("bytes of names and hashes"));
        }
        let (version, rest) = bytes.split_first().ok_or(ManifestError::Malformed)?;
        if *version != VERSION {
            return Err(ManifestError::Version(*version));
        }
        let (head, mut rest): (Head, _) = take(rest)?;
        let mut checked = Checked::new(head.piece_bytes)?;
        let mut entries = Vec::new();
        for _ in 0..head.entries {
            let (entry, left) = Entry::decode(rest)?;
            checked.push(&entry)?;
            entries.push(entry);
            rest = left;
        }
        let (hashes, left) = rest.as_chunks::<32>();
        let is_whole = left.is_empty() && hashes.len() == head.pieces as usize;
        if !is_whole {
            return Err(ManifestError::Malformed);
        }
        Self::new(head.piece_bytes, entries, hashes.to_vec())
    }

    fn hash(&self) -> TransferId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(ID_OF);
        hasher.update(&self.piece_bytes.to_be_bytes());
        let mut encoded = Vec::new();
        for entry in &self.entries {
            encoded.clear();
            entry.encode(0, None, &mut encoded);
            hasher.update(&(encoded.len() as u64).to_be_bytes());
            hasher.update(&encoded);
        }
        hasher.update(self.hashes.as_flattened());
        TransferId(hasher.finalize().into())
    }
}

impl Entry {
    /// Returns the size of a file, in bytes, including holes, or 0 for other kinds.
    pub fn file_bytes(&self) -> u64 {
        if let Kind::File { bytes, .. } = &self.kind { *bytes } else { 0 }
    }

    /// Returns the size of a file without its holes, in bytes, or 0 for other kinds.
    pub fn data_bytes(&self) -> u64 {
        if let Kind::File { bytes, holes } = &self.kind { bytes - holes.bytes() } else { 0 }
    }

    fn encode(&self, mode: u16, modified: Option<Modified>, into: &mut Vec<u8>) {
        let kind = match &self.kind {
            Kind::Directory => KindHead::Directory,
            Kind::File { bytes, holes } => {
                KindHead::File { bytes: *bytes, holes: holes.len() as u32 }
            }
            Kind::Symlink { target } => KindHead::Symlink { target },
        };
        append(&EntryHead { path: self.path.as_bytes(), mode, modified, kind }, into);
        if let Kind::File { holes, .. } = &self.kind {
            let mut end = 0;
            for (at, bytes) in holes.iter() {
                append(&(at - end, bytes), into);
                end = at + bytes;
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), ManifestError> {
        let (head, mut rest): (EntryHead<'_>, _) = take(bytes)?;
        let shown = || head.path.escape_ascii().to_string();
        let path = EntryPath::new(head.path);
        let path = path.map_err(|error| ManifestError::Name { path: shown(), error })?;
        let kind = match head.kind {
            KindHead::Directory => Kind::Directory,
            KindHead::Symlink { target } => Kind::Symlink { target: target.into() },
            KindHead::File { bytes, holes: count } => {
                let mut holes = Holes::default();
                let mut end: u64 = 0;
                for _ in 0..count {
                    let ((gap, hole), left): ((u64, u64), _) = take(rest)?;
                    let at = end.saturating_add(gap);
                    if holes.len() >= MAX_HOLES as usize || !holes.push(at, hole, bytes) {
                        return Err(ManifestError::Unbelievable(shown()));
                    }
                    (end, rest) = (at + hole, left);
                }
                Kind::File { bytes, holes }
            }
        };
        Ok((Self { path, mode: head.mode, modified: head.modified, kind }, rest))
    }
}

struct Checked {
    piece_bytes: u32,
    first_pieces: Vec<u32>,
    pieces: u32,
    holes: u32,
    last: Option<EntryPath>,
    /// Directories from the top down to the last entry, which is included if it is a directory.
    inside: Vec<EntryPath>,
}

impl Checked {
    fn new(piece_bytes: u32) -> Result<Self, ManifestError> {
        let sizes = MIN_PIECE_BYTES..=MAX_PIECE_BYTES;
        if !sizes.contains(&piece_bytes) || !piece_bytes.is_power_of_two() {
            return Err(ManifestError::Malformed);
        }
        let (first_pieces, inside) = (Vec::new(), Vec::new());
        Ok(Self { piece_bytes, first_pieces, pieces: 0, holes: 0, last: None, inside })
    }

    fn push(&mut self, entry: &Entry) -> Result<(), ManifestError> {
        if self.first_pieces.len() >= MAX_ENTRIES as usize {
            return Err(ManifestError::TooMany("entries"));
        }
        self.check_place(entry)?;
        let nanoseconds = entry.modified.map_or(0, |modified| modified.nanoseconds);
        let is_possible = entry.mode & !MODE_BITS == 0
            && nanoseconds < 1_000_000_000
            && entry.file_bytes() <= MAX_FILE_BYTES;
        if !is_possible {
            return Err(ManifestError::Unbelievable(entry.path.to_string()));
        }
        if let Kind::Symlink { target } = &entry.kind {
            let path = || entry.path.to_string();
            check_link(&entry.path, target)
                .map_err(|error| ManifestError::Name { path: path(), error })?;
        }
        if let Kind::File { holes, .. } = &entry.kind {
            self.holes = self.holes.saturating_add(holes.len() as u32);
        }
        self.first_pieces.push(self.pieces);
        let pieces = entry.data_bytes().div_ceil(self.piece_bytes.into());
        let pieces = u64::from(self.pieces) + pieces;
        if pieces > MAX_PIECES.into() {
            return Err(ManifestError::TooMany("pieces"));
        }
        if self.holes > MAX_HOLES {
            return Err(ManifestError::TooMany("holes"));
        }
        self.pieces = pieces as u32;
        Ok(())
    }

    /// Checks that the entry follows the last one in order, and that its directory precedes it.
    fn check_place(&mut self, entry: &Entry) -> Result<(), ManifestError> {
        let path = &entry.path;
        let is_next = self.last.as_ref().is_none_or(|last| last.components().lt(path.components()));
        while self.inside.last().is_some_and(|dir| Some(dir.as_bytes()) != path.parent()) {
            self.inside.pop();
        }
        if !is_next || (self.inside.is_empty() && !path.is_root()) {
            return Err(ManifestError::Misplaced(path.to_string()));
        }
        if entry.kind == Kind::Directory {
            self.inside.push(path.clone());
        }
        self.last = Some(path.clone());
        Ok(())
    }
}

fn append(value: &impl Serialize, into: &mut Vec<u8>) {
    *into = postcard::to_extend(value, std::mem::take(into)).expect("a Vec never fails");
}

fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), ManifestError> {
    postcard::take_from_bytes(bytes).map_err(|_| ManifestError::Malformed)
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
