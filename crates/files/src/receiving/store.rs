//! What has been received so far, beside its final place.
//!
//! In the target directory is `.carom-ID/` with `journal`, `data/N` for the data of entry N, and at
//! the end `tree/`, in which everything gets its name before it is moved. Until then no name of the
//! sender's is used.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use crate::error::ReceiveError;
use crate::manifest::{Entry, Kind, Manifest};
use crate::names::BESIDE;
use crate::piece::PieceSet;
use crate::receiving::direct::Direct;
use crate::receiving::folder::{Folder, Found};
use crate::receiving::journal::{Journal, JournalError};
use crate::scan::read_place;

/// The pieces of one transfer on the disk.
pub(crate) struct Store {
    pub(super) manifest: Arc<Manifest>,
    pub(super) path: PathBuf,
    pub(super) target: Folder,
    pub(super) stage: Folder,
    pub(super) data: Folder,
    pub(super) overwrite: bool,
    /// Whether everything is in `tree/` or further.
    pub(super) built: AtomicBool,
    direct: Direct,
    state: Mutex<StoreState>,
    key: [u8; 16],
}

struct StoreState {
    verified: PieceSet,
    verified_bytes: u64,
    /// `None` when no more is to be written.
    journal: Option<Journal>,
}

/// What tells that everything is in `tree/`.
pub(super) const BUILT: &str = "built";
pub(super) const TREE: &str = "tree";
/// The manifest, from when everything is in `tree/`.
pub(super) const MANIFEST: &str = "manifest";
const DATA: &str = "data";
const JOURNAL: &str = "journal";

impl Store {
    /// Checks whether everything can be written, makes room for it, and reads what is there from
    /// an earlier time. What the journal names is read and verified; `alive` is called in between,
    /// as that may take long.
    pub(crate) fn open(
        path: PathBuf,
        manifest: Arc<Manifest>,
        overwrite: bool,
        alive: &mut dyn FnMut(),
    ) -> Result<Self, ReceiveError> {
        let disk = |error| ReceiveError::disk(path.display(), error);
        fs::create_dir_all(&path).map_err(disk)?;
        let target = Folder::named(&path).map_err(disk)?;
        let name = stage_name(&manifest);
        let is_new = target.look(&name).map_err(disk)? == Found::Nothing;
        let is_built = is_built(&target, &name, &manifest).map_err(disk)?;
        if !is_built {
            check_existing(&target, &manifest, overwrite)?;
        }
        let stage = target.make(&name).map_err(disk)?;
        if !stage.is_ours().map_err(disk)? {
            let path = path.join(&name).display().to_string();
            return Err(ReceiveError::InTheWay { path, is: "somebody else's" });
        }
        let opened =
            Self::fill(path.clone(), manifest, overwrite, (target, stage), is_built, alive);
        if is_new && opened.is_err() {
            // Nothing of use is in it.
            let _ = fs::remove_dir_all(path.join(name));
        }
        opened
    }

    fn fill(
        path: PathBuf,
        manifest: Arc<Manifest>,
        overwrite: bool,
        (target, stage): (Folder, Folder),
        is_built: bool,
        alive: &mut dyn FnMut(),
    ) -> Result<Self, ReceiveError> {
        let disk = |error: io::Error| ReceiveError::disk(path.display(), error);
        let mut new_key = [0; 16];
        rustix::rand::getrandom(&mut new_key, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| disk(error.into()))?;
        let journal = stage.append(OsStr::new(JOURNAL)).map_err(disk)?;
        let opened = Journal::open(journal, &manifest.id(), manifest.pieces(), new_key);
        let (journal, noted) = opened.map_err(|error| match error {
            JournalError::InUse => ReceiveError::InUse,
            JournalError::Io(error) => disk(error),
        })?;
        let data = stage.make(OsStr::new(DATA)).map_err(disk)?;
        let key = journal.key();
        let verified = PieceSet::none_of(manifest.pieces());
        let state = StoreState { verified, verified_bytes: 0, journal: Some(journal) };
        let (built, state) = (AtomicBool::new(is_built), Mutex::new(state));
        let direct = Direct::new(false);
        let store =
            Self { manifest, path, target, stage, data, overwrite, built, direct, state, key };
        if is_built {
            // It was complete and on the disk when this was noted.
            (0..store.manifest.pieces()).for_each(|piece| store.verified(piece));
            return Ok(store);
        }
        for piece in noted.iter() {
            if store.read_verified(piece).is_some() {
                store.verified(piece);
            }
            alive();
        }
        store.make_room(alive)?;
        Ok(store)
    }

    /// Writes past the page cache from now on, where that can be.
    pub(crate) fn past_the_cache(self) -> Self {
        Self { direct: Direct::new(true), ..self }
    }

    /// By what the sender knows this receiver.
    pub(crate) fn key(&self) -> [u8; 16] {
        self.key
    }

    /// The pieces that are here.
    pub(crate) fn have(&self) -> PieceSet {
        self.state().verified.clone()
    }

    /// Whether `piece` is here.
    pub(crate) fn has(&self, piece: u32) -> bool {
        self.state().verified.contains(piece)
    }

    /// Whether all pieces are here.
    pub(crate) fn is_complete(&self) -> bool {
        self.state().verified.is_full()
    }

    /// Bytes of the pieces that are here.
    pub(crate) fn verified_bytes(&self) -> u64 {
        self.state().verified_bytes
    }

    /// Writes a piece that was verified and notes it. False if it was here already.
    pub(crate) fn write(&self, piece: u32, bytes: &[u8]) -> Result<bool, ReceiveError> {
        let place = self.manifest.place(piece).expect("only pieces of the manifest are written");
        let entry = &self.manifest.entries()[place.entry];
        if self.has(piece) {
            return Ok(false);
        }
        let Kind::File { holes, .. } = &entry.kind else { unreachable!("only files have pieces") };
        let name = data_name(place.entry);
        let mut rest = bytes;
        for segment in holes.segments(place.packed, bytes.len()) {
            let (here, left) = rest.split_at(segment.bytes);
            self.write_at(&name, here, segment.at).map_err(|e| self.disk(entry, e))?;
            rest = left;
        }
        let mut state = self.state();
        let journal = state.journal.as_mut().ok_or(ReceiveError::Stopped)?;
        if let Err(error) = journal.note(piece) {
            return Err(self.disk(entry, error));
        }
        let is_new = state.verified.insert(piece);
        state.verified_bytes += if is_new { u64::from(place.bytes) } else { 0 };
        Ok(is_new)
    }

    fn write_at(&self, name: &OsStr, bytes: &[u8], at: u64) -> io::Result<()> {
        let written = self.direct.write(&self.data, name, bytes, at)?;
        match &bytes[written..] {
            [] if written > 0 => Ok(()),
            rest => self.data.write(name)?.write_all_at(rest, at + written as u64),
        }
    }

    /// A piece that is here, verified again. `None` if it is not, or not any more.
    pub(crate) fn read(&self, piece: u32) -> Option<Bytes> {
        if self.has(piece) { self.read_verified(piece).map(Bytes::from) } else { None }
    }

    /// Writes no more; somebody else may.
    pub(crate) fn close(&self) {
        self.state().journal = None;
    }

    /// Removes what is beside the final place.
    pub(crate) fn discard(&self) {
        self.close();
        let stage = self.path.join(stage_name(&self.manifest));
        // What tells that all is done goes last, so that a death in between is no loss.
        for folder in [DATA, TREE] {
            let _ = fs::remove_dir_all(stage.join(folder));
        }
        let _ = fs::remove_file(stage.join(JOURNAL));
        let _ = fs::remove_file(stage.join(BUILT));
        if let Err(error) = fs::remove_dir_all(&stage) {
            tracing::warn!(stage = %stage.display(), %error, "cannot be removed");
        }
    }

    pub(super) fn disk(&self, entry: &Entry, error: io::Error) -> ReceiveError {
        ReceiveError::disk(self.path.join(entry.path.as_path()).display(), error)
    }

    pub(super) fn disk_here(&self, error: io::Error) -> ReceiveError {
        ReceiveError::disk(self.path.display(), error)
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().expect("nobody panics while holding the state")
    }

    fn verified(&self, piece: u32) {
        let bytes = self.manifest.place(piece).map_or(0, |place| place.bytes);
        let mut state = self.state();
        if state.verified.insert(piece) {
            state.verified_bytes += u64::from(bytes);
        }
    }

    fn read_verified(&self, piece: u32) -> Option<Vec<u8>> {
        let place = self.manifest.place(piece)?;
        let entry = &self.manifest.entries()[place.entry];
        let file = self.find(place.entry)?;
        let bytes = read_place(entry, place, &file).ok()?;
        self.manifest.is_piece(piece, &bytes).then_some(bytes)
    }

    /// The file of an entry, wherever it is by now.
    fn find(&self, entry: usize) -> Option<File> {
        if let Ok(file) = self.data.read(&data_name(entry)) {
            return Some(file);
        }
        let path = &self.manifest.entries()[entry].path;
        let tree = self.stage.folder(OsStr::new(TREE));
        let in_tree = tree.and_then(|tree| tree.parent_of(path)?.read(path.name()));
        if let Ok(file) = in_tree {
            return Some(file);
        }
        if !self.built.load(Ordering::Relaxed) {
            return None;
        }
        self.target.parent_of(path).and_then(|parent| parent.read(path.name())).ok()
    }

    /// Checks that there is space for what is missing, and makes all files in their final size.
    fn make_room(&self, alive: &mut dyn FnMut()) -> Result<(), ReceiveError> {
        let mut allocated: u64 = 0;
        let with_data = self.manifest.entries().iter().enumerate();
        let with_data = with_data.filter(|(_, entry)| entry.data_bytes() > 0);
        let mut unsized_files = Vec::new();
        for (index, entry) in with_data {
            let metadata = self.find(index).and_then(|file| file.metadata().ok());
            let (blocks, bytes) = metadata.map_or((0, 0), |found| (found.blocks(), found.len()));
            allocated += (blocks * 512).min(entry.data_bytes());
            if bytes != entry.file_bytes() {
                unsized_files.push(index);
            }
            alive();
        }
        let needed = self.manifest.data_bytes() - allocated;
        let free = self.target.free_bytes().map_err(|error| self.disk_here(error))?;
        if needed > free {
            return Err(ReceiveError::NoSpace { needed, free });
        }
        for index in unsized_files {
            let entry = &self.manifest.entries()[index];
            let file = self.data.write(&data_name(index));
            let sized = file.and_then(|file| file.set_len(entry.file_bytes()));
            sized.map_err(|error| self.disk(entry, error))?;
            alive();
        }
        Ok(())
    }
}

/// The directory beside the target.
fn stage_name(manifest: &Manifest) -> OsString {
    format!("{BESIDE}{}", manifest.id().short()).into()
}

/// The file for the data of an entry.
pub(super) fn data_name(entry: usize) -> OsString {
    entry.to_string().into()
}

/// Whether everything of this transfer, and not of one whose id begins alike, is in the tree.
fn is_built(target: &Folder, stage: &OsStr, manifest: &Manifest) -> io::Result<bool> {
    if target.look(stage)? == Found::Nothing {
        return Ok(false);
    }
    let stage = target.folder(stage)?;
    if stage.look(OsStr::new(BUILT))? == Found::Nothing {
        return Ok(false);
    }
    let mut id = Vec::new();
    stage.read(OsStr::new(BUILT))?.take(64).read_to_end(&mut id)?;
    Ok(id == manifest.id().0)
}

/// Checks that nothing is in the way of any entry.
fn check_existing(
    target: &Folder,
    manifest: &Manifest,
    overwrite: bool,
) -> Result<(), ReceiveError> {
    // The directories that the entry is in, as far as they are there already.
    let mut inside: Vec<Folder> = Vec::new();
    for entry in manifest.entries() {
        let path = entry.path.to_string();
        let depth = entry.path.components().count() - 1;
        inside.truncate(depth);
        if inside.len() < depth {
            continue;
        }
        let parent = inside.last().unwrap_or(target);
        let disk = |error| ReceiveError::disk(&path, error);
        let found = parent.look(entry.path.name()).map_err(disk)?;
        if found != Found::Nothing && !overwrite {
            return Err(ReceiveError::Exists(path));
        }
        let is = match (&entry.kind, found) {
            (_, Found::Nothing) => continue,
            (Kind::Directory, Found::Directory) => {
                inside.push(parent.folder(entry.path.name()).map_err(disk)?);
                continue;
            }
            (Kind::Directory, _) => "not a directory",
            (_, Found::File | Found::Symlink) => continue,
            (_, Found::Directory) => "a directory",
            (_, Found::Special) => "neither a file nor a directory nor a symlink",
        };
        return Err(ReceiveError::InTheWay { path, is });
    }
    Ok(())
}
