//! Scans the sources for their files, holes and hashes.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use crate::error::{SourceError, Unsendable};
use crate::holes::{Holes, Segment};
use crate::limits::{MAX_ENTRIES, MAX_HOLES, MIN_HOLE_BYTES};
use crate::manifest::{Entry, Kind, MODE_BITS, Manifest, ManifestError, Modified};
use crate::names::EntryPath;
use crate::piece::{Place, piece_bytes};
use crate::progress::{Event, Reporter};

/// A source of content to send.
pub enum Source {
    /// A file or directory, sent under the last component of its path. A symlink given here is
    /// followed.
    Path(PathBuf),
    /// All data of a reader, for example standard input, sent as a file with the given name.
    ///
    /// The data is first copied into an unlinked temporary file
    /// ([`SendOptions::spool`](crate::SendOptions::spool)), because hashes are sent before data and
    /// late receivers need the data again.
    Reader {
        /// Name of the file at the receivers.
        name: String,
        /// Reader of the data.
        reader: Box<dyn Read + Send>,
    },
}

enum Origin {
    Nowhere,
    /// Without `follow`, a symlink that has replaced the file since the scan is not opened.
    Path {
        path: PathBuf,
        follow: bool,
    },
    Spooled(File),
}

pub(crate) struct Content {
    pub(crate) manifest: Manifest,
    origins: Vec<Origin>,
    pub(crate) findings: Findings,
}

/// The parts of the sources that are not sent unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Findings {
    /// Entries that were skipped; at most the first five.
    pub unsendable: Vec<Unsendable>,
    /// Number of entries that were skipped.
    pub unsendable_count: usize,
    /// Entries with a setuid, setgid or sticky bit, which is not sent; at most the first five.
    pub special_modes: Vec<String>,
    /// Number of entries with a setuid, setgid or sticky bit.
    pub special_modes_count: usize,
}

const NAMED: usize = 5;
const SPECIAL_MODE_BITS: u32 = 0o7000;

impl Content {
    pub(crate) fn scan(
        sources: Vec<Source>,
        spool: Option<&Path>,
        skip_unsendable: bool,
        reporter: &Reporter,
    ) -> Result<Self, SourceError> {
        let mut found = Found::default();
        let mut roots = Vec::new();
        for source in sources {
            roots.push(Root::new(source, spool)?);
        }
        roots.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = roots.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(SourceError::SameName(pair[0].name.to_string()));
        }
        for root in roots {
            found.add_root(root)?;
        }
        let Findings { unsendable, unsendable_count, .. } = &mut found.findings;
        if !skip_unsendable && *unsendable_count > 0 {
            return Err(SourceError::Unsendable(std::mem::take(unsendable), *unsendable_count));
        }
        if found.entries.is_empty() {
            return Err(SourceError::Nothing);
        }
        found.hash(reporter)
    }

    pub(crate) fn read(&self, piece: u32) -> Result<Bytes, SourceError> {
        let place = self.manifest.place(piece).expect("only pieces of the manifest are read");
        let entry = &self.manifest.entries()[place.entry];
        let file = self.origins[place.entry].open();
        let bytes = file
            .and_then(|file| read_place(entry, place, &file))
            .map_err(|error| SourceError::from_read(&entry.path, error))?;
        match self.manifest.is_piece(piece, &bytes) {
            true => Ok(bytes.into()),
            false => Err(SourceError::Changed(entry.path.to_string())),
        }
    }
}

impl Origin {
    fn open(&self) -> io::Result<File> {
        match self {
            Self::Nowhere => Err(io::Error::other("a directory or symlink has no data")),
            Self::Path { path, follow } => open(path, *follow),
            Self::Spooled(file) => file.try_clone(),
        }
    }
}

pub(crate) fn read_place(entry: &Entry, place: Place, file: &File) -> io::Result<Vec<u8>> {
    let Kind::File { holes, .. } = &entry.kind else {
        return Err(io::Error::other("only files have data"));
    };
    let mut bytes = vec![0; place.bytes as usize];
    let mut rest = &mut bytes[..];
    for Segment { at, bytes } in holes.segments(place.packed, place.bytes as usize) {
        let (here, left) = rest.split_at_mut(bytes);
        file.read_exact_at(here, at)?;
        rest = left;
    }
    Ok(bytes)
}

struct Root {
    name: EntryPath,
    origin: Origin,
}

impl Root {
    fn new(source: Source, spool: Option<&Path>) -> Result<Self, SourceError> {
        let named = |name: &OsStr| {
            EntryPath::new(name.as_bytes()).map_err(|error| SourceError::Name {
                path: name.as_bytes().escape_ascii().to_string(),
                error,
            })
        };
        match source {
            Source::Path(path) => {
                let name = match path.file_name() {
                    Some(name) => named(name)?,
                    // The file system resolves `.` and `a/..` to a directory that has a name.
                    None => {
                        let real = path.canonicalize().map_err(|e| SourceError::read(&path, e))?;
                        named(real.file_name().ok_or(SourceError::Nameless(path.clone()))?)?
                    }
                };
                Ok(Self { name, origin: Origin::Path { path, follow: true } })
            }
            Source::Reader { name, mut reader } => {
                let name = named(OsStr::new(&name))?;
                if !name.is_root() {
                    return Err(SourceError::Nameless(name.as_path().to_owned()));
                }
                let directory = spool.map_or_else(std::env::temp_dir, Path::to_owned);
                let spooled = tempfile::tempfile_in(&directory).and_then(|mut file| {
                    io::copy(&mut reader, &mut file)?;
                    Ok(file)
                });
                let file = spooled.map_err(|error| SourceError::Spool {
                    directory: directory.display().to_string(),
                    error,
                })?;
                Ok(Self { name, origin: Origin::Spooled(file) })
            }
        }
    }
}

#[derive(Default)]
struct Found {
    entries: Vec<Entry>,
    origins: Vec<Origin>,
    holes: usize,
    findings: Findings,
}

impl Found {
    fn add_root(&mut self, root: Root) -> Result<(), SourceError> {
        match root.origin {
            Origin::Path { path, .. } => {
                let metadata = fs::metadata(&path).map_err(|e| SourceError::read(&path, e))?;
                let given = path.clone();
                self.note_mode(&path, &metadata);
                match self.add(root.name, path, &metadata, true)? {
                    None => Ok(()),
                    Some(_) => Err(SourceError::Special(given)),
                }
            }
            Origin::Spooled(file) => {
                let spooled =
                    file.metadata().map_err(|e| SourceError::read(root.name.as_path(), e));
                let bytes = spooled?.len();
                let kind = Kind::File { bytes, holes: Holes::default() };
                let entry = Entry { path: root.name, mode: 0o644, modified: None, kind };
                self.push(entry, Origin::Spooled(file))
            }
            Origin::Nowhere => unreachable!("a root is a path or spooled"),
        }
    }

    fn note_mode(&mut self, path: &Path, metadata: &Metadata) {
        if metadata.mode() & SPECIAL_MODE_BITS != 0 && !metadata.is_symlink() {
            note(&mut self.findings.special_modes, || path.display().to_string());
            self.findings.special_modes_count += 1;
        }
    }

    fn leave_out(&mut self, path: &Path, why: String) {
        let path = path.as_os_str().as_bytes().escape_ascii().to_string();
        note(&mut self.findings.unsendable, || Unsendable { path, why });
        self.findings.unsendable_count += 1;
    }

    fn add(
        &mut self,
        name: EntryPath,
        path: PathBuf,
        metadata: &Metadata,
        follow: bool,
    ) -> Result<Option<String>, SourceError> {
        let mut entry = Entry {
            path: name,
            mode: metadata.mode() as u16 & MODE_BITS,
            modified: Some(Modified {
                seconds: metadata.mtime(),
                nanoseconds: metadata.mtime_nsec() as u32,
            }),
            kind: Kind::Directory,
        };
        if metadata.is_dir() {
            let name = entry.path.clone();
            self.push(entry, Origin::Nowhere)?;
            self.add_children(&name, &path)?;
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(|e| SourceError::read(&path, e))?;
            let target = target.into_os_string().into_vec().into_boxed_slice();
            if let Err(error) = crate::names::check_link(&entry.path, &target) {
                return Ok(Some(error.to_string()));
            }
            entry.kind = Kind::Symlink { target };
            self.push(entry, Origin::Nowhere)?;
        } else if metadata.is_file() {
            let file = open(&path, follow).map_err(|e| SourceError::read(&path, e))?;
            let bytes = file.metadata().map_err(|e| SourceError::read(&path, e))?.len();
            let most = MAX_HOLES as usize - self.holes;
            let holes = find_holes(&file, bytes, most).map_err(|e| SourceError::read(&path, e))?;
            self.holes += holes.len();
            entry.kind = Kind::File { bytes, holes };
            self.push(entry, Origin::Path { path, follow })?;
        } else {
            return Ok(Some("not a file, directory or symlink".to_owned()));
        }
        Ok(None)
    }

    fn add_children(&mut self, name: &EntryPath, path: &Path) -> Result<(), SourceError> {
        let mut names = Vec::new();
        for child in fs::read_dir(path).map_err(|e| SourceError::read(path, e))? {
            names.push(child.map_err(|e| SourceError::read(path, e))?.file_name());
            if self.entries.len() + names.len() > MAX_ENTRIES as usize {
                return Err(ManifestError::TooMany("entries").into());
            }
        }
        names.sort();
        for child in names {
            let path = path.join(&child);
            let name = match name.join(&child) {
                Ok(name) => name,
                Err(error) => {
                    self.leave_out(&path, error.to_string());
                    continue;
                }
            };
            let metadata = fs::symlink_metadata(&path).map_err(|e| SourceError::read(&path, e))?;
            self.note_mode(&path, &metadata);
            if let Some(why) = self.add(name, path.clone(), &metadata, false)? {
                self.leave_out(&path, why);
            }
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry, origin: Origin) -> Result<(), SourceError> {
        if self.entries.len() >= MAX_ENTRIES as usize {
            return Err(ManifestError::TooMany("entries").into());
        }
        self.entries.push(entry);
        self.origins.push(origin);
        Ok(())
    }

    fn hash(self, reporter: &Reporter) -> Result<Content, SourceError> {
        let total: u64 = self.entries.iter().map(Entry::data_bytes).sum();
        let size = piece_bytes(total);
        let mut hashes = Vec::new();
        let mut done = 0;
        for (entry, origin) in self.entries.iter().zip(&self.origins) {
            let read_error = |error| SourceError::from_read(&entry.path, error);
            if entry.data_bytes() == 0 {
                continue;
            }
            let file = origin.open().map_err(read_error)?;
            let mut packed = 0;
            while packed < entry.data_bytes() {
                let bytes = (entry.data_bytes() - packed).min(size.into()) as u32;
                let place = Place { entry: 0, packed, bytes };
                let data = read_place(entry, place, &file).map_err(read_error)?;
                hashes.push(blake3::hash(&data).into());
                packed += u64::from(bytes);
                done += u64::from(bytes);
                reporter.report(Event::Scanned { bytes: done, of: total });
            }
        }
        let manifest = Manifest::new(size, self.entries, hashes)?;
        Ok(Content { manifest, origins: self.origins, findings: self.findings })
    }
}

fn note<T>(named: &mut Vec<T>, one: impl FnOnce() -> T) {
    if named.len() < NAMED {
        named.push(one());
    }
}

fn open(path: &Path, follow: bool) -> io::Result<File> {
    // A pipe that has replaced a file since the scan must not block the sender.
    let mut flags = OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

fn find_holes(file: &File, bytes: u64, most: usize) -> io::Result<Holes> {
    let mut holes = Holes::default();
    let mut at = 0;
    while at < bytes && holes.len() < most {
        let hole = match rustix::fs::seek(file, SeekFrom::Hole(at)) {
            Ok(hole) if hole < bytes => hole,
            Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(error.into()),
        };
        let data = match rustix::fs::seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data.min(bytes),
            // The hole extends to the end of the file.
            Err(Errno::NXIO) => bytes,
            Err(error) => return Err(error.into()),
        };
        if data - hole >= MIN_HOLE_BYTES {
            holes.push(hole, data - hole, bytes);
        }
        // Ensures progress even if the file changes during the scan.
        at = data.max(at + 1);
    }
    Ok(holes)
}
