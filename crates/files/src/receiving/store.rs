//! What has been received so far, beside its final place.
//!
//! In the target directory is `.carom-ID/` with `journal`, `data/N` for the data of entry N, and at
//! the end `tree/`, in which everything gets its name before it is moved. Until then no name of the
//! sender's is used.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use crate::error::ReceiveError;
use crate::manifest::{Entry, Kind, Manifest};
use crate::names::BESIDE;
use crate::piece::PieceSet;
use crate::receiving::direct::Direct;
use crate::receiving::folder::Folder;
use crate::receiving::journal::Journal;
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
    /// Whether everything was in the target before any of it came.
    pub(super) there: AtomicBool,
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
pub(super) const DATA: &str = "data";
const JOURNAL: &str = "journal";

impl Store {
    /// Checks whether everything can be written, makes room for it, and reads what is there from
    /// an earlier time. What may be here is read and verified; `alive` is called in between, as
    /// that may take long.
    pub(crate) fn open(
        path: PathBuf,
        manifest: Arc<Manifest>,
        overwrite: bool,
        alive: &mut dyn FnMut(),
    ) -> Result<Self, ReceiveError> {
        let disk = |error: io::Error| ReceiveError::disk(path.display(), error);
        let new_key = random_key().map_err(disk)?;
        fs::create_dir_all(&path).map_err(disk)?;
        let target = Folder::named(&path).map_err(disk)?;
        let (stage, journal) = open_stage(&target, &path, &manifest)?;
        let opened = Journal::open(journal, &manifest.id(), manifest.pieces(), new_key);
        let (journal, noted) = opened.map_err(disk)?;
        let data = stage.make(OsStr::new(DATA)).map_err(disk)?;
        let key = journal.key();
        let verified = PieceSet::none_of(manifest.pieces());
        let state = StoreState { verified, verified_bytes: 0, journal: Some(journal) };
        let (built, state) = (AtomicBool::new(false), Mutex::new(state));
        let (there, direct) = (AtomicBool::new(false), Direct::new(false));
        let store = Self {
            manifest,
            path,
            target,
            stage,
            data,
            overwrite,
            built,
            there,
            direct,
            state,
            key,
        };
        let is_new = noted.is_none() && !store.was_complete();
        let taken = store.take_stock(noted.as_ref(), alive);
        if is_new && taken.is_err() {
            // Nothing of use is in it.
            store.discard();
        }
        taken.map(|()| store)
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
            // The file was made when there was room for it. If it is not there any more, another
            // would lack what was in it.
            rest => self.data.rewrite(name)?.write_all_at(rest, at + written as u64),
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

    /// Removes what is beside the final place, and writes no more.
    pub(crate) fn discard(&self) {
        // Until all is gone nobody else may begin in it. Who has no lock removes nothing.
        let Some(_locked) = self.state().journal.take() else { return };
        if let Err(error) = self.remove_stage() {
            let stage = self.path.join(stage_name(&self.manifest));
            tracing::warn!(stage = %stage.display(), %error, "cannot be removed");
        }
    }

    fn remove_stage(&self) -> io::Result<()> {
        for folder in [DATA, TREE] {
            self.stage.remove_folder(OsStr::new(folder))?;
        }
        // What tells that all is done goes late, so that a death in between is no loss, and what
        // is locked goes last.
        for file in [MANIFEST, BUILT, JOURNAL] {
            self.stage.remove(OsStr::new(file))?;
        }
        let name = stage_name(&self.manifest);
        match self.target.is_still(&name, &self.stage)? {
            true => self.target.remove_empty(&name),
            false => Err(io::Error::other("something else has its name")),
        }
    }

    /// Brings the journal onto the disk.
    pub(super) fn sync_journal(&self) -> io::Result<()> {
        self.state().journal.as_ref().map_or(Ok(()), Journal::sync)
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

    /// Counts a piece as being here.
    pub(super) fn verified(&self, piece: u32) {
        let bytes = self.manifest.place(piece).map_or(0, |place| place.bytes);
        let mut state = self.state();
        if state.verified.insert(piece) {
            state.verified_bytes += u64::from(bytes);
        }
    }

    /// Notes a piece in the journal that was verified and is not in it.
    pub(super) fn note(&self, piece: u32) -> io::Result<()> {
        self.state().journal.as_mut().map_or(Ok(()), |journal| journal.note(piece))
    }

    pub(super) fn read_verified(&self, piece: u32) -> Option<Vec<u8>> {
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
}

/// Opens the directory beside the target, and the journal in it, which nobody else has open.
fn open_stage(
    target: &Folder,
    path: &Path,
    manifest: &Manifest,
) -> Result<(Folder, File), ReceiveError> {
    let name = stage_name(manifest);
    let disk = |error: io::Error| ReceiveError::disk(path.join(&name).display(), error);
    for _ in 0..OPENED_AT_MOST {
        match lock_stage(target, &name) {
            Ok(Stage::Locked(stage, journal)) => return Ok((stage, journal)),
            Ok(Stage::InUse) => return Err(ReceiveError::InUse),
            Ok(Stage::NotOurs) => {
                let path = path.join(&name).display().to_string();
                return Err(ReceiveError::InTheWay { path, is: "somebody else's" });
            }
            // Who had it has just finished or given up, and has removed it.
            Ok(Stage::Removed) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(disk(error)),
        }
    }
    Err(ReceiveError::InUse)
}

/// How often the directory beside the target is opened if others remove it meanwhile.
const OPENED_AT_MOST: usize = 16;

enum Stage {
    Locked(Folder, File),
    InUse,
    NotOurs,
    Removed,
}

fn lock_stage(target: &Folder, name: &OsStr) -> io::Result<Stage> {
    let stage = target.make(name)?;
    if !stage.is_ours()? {
        return Ok(Stage::NotOurs);
    }
    let journal = stage.append(OsStr::new(JOURNAL))?;
    match journal.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Stage::InUse),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let is_there =
        target.is_still(name, &stage)? && stage.is_still(OsStr::new(JOURNAL), &journal)?;
    Ok(if is_there { Stage::Locked(stage, journal) } else { Stage::Removed })
}

/// What nobody else has.
pub(super) fn random_key() -> io::Result<[u8; 16]> {
    let mut key = [0; 16];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    Ok(key)
}

/// The directory beside the target.
fn stage_name(manifest: &Manifest) -> OsString {
    format!("{BESIDE}{}", manifest.id().short()).into()
}

/// The file for the data of an entry.
pub(super) fn data_name(entry: usize) -> OsString {
    entry.to_string().into()
}
