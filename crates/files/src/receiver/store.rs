//! Stores the received pieces in the staging directory.
//!
//! The staging directory is `.carom-ID/` in the target directory. It contains `journal`, `data/N`
//! for the data of entry N, and, during the final steps, `tree/` with the entries under their
//! names, `manifest` and `built`. Before the final steps, no name chosen by the sender is used.

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
use crate::receiver::direct::Direct;
use crate::receiver::folder::Folder;
use crate::receiver::journal::Journal;
use crate::scan::read_place;

pub(crate) struct Store {
    pub(super) manifest: Arc<Manifest>,
    pub(super) path: PathBuf,
    pub(super) target: Folder,
    pub(super) stage: Folder,
    pub(super) data: Folder,
    pub(super) overwrite: bool,
    /// `true` if all entries are in `tree/` or were moved from there to their final places.
    pub(super) built: AtomicBool,
    /// `true` if all entries were in the target directory before any piece was received.
    pub(super) there: AtomicBool,
    direct: Direct,
    state: Mutex<StoreState>,
    key: [u8; 16],
}

struct StoreState {
    verified: PieceSet,
    verified_bytes: u64,
    /// `None` once nothing more may be written.
    journal: Option<Journal>,
}

pub(super) const BUILT: &str = "built";
pub(super) const TREE: &str = "tree";
pub(super) const MANIFEST: &str = "manifest";
pub(super) const DATA: &str = "data";
const JOURNAL: &str = "journal";

impl Store {
    /// Opens the store of a transfer. `alive` is called repeatedly, because this may take a long
    /// time.
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
            store.discard();
        }
        taken.map(|()| store)
    }

    pub(crate) fn past_the_cache(self) -> Self {
        Self { direct: Direct::new(true), ..self }
    }

    pub(crate) fn key(&self) -> [u8; 16] {
        self.key
    }

    pub(crate) fn have(&self) -> PieceSet {
        self.state().verified.clone()
    }

    pub(crate) fn has(&self, piece: u32) -> bool {
        self.state().verified.contains(piece)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state().verified.is_full()
    }

    pub(crate) fn verified_bytes(&self) -> u64 {
        self.state().verified_bytes
    }

    /// Writes a verified piece. Returns `false` if it was already received.
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
            // A new file would lack the pieces written before.
            rest => self.data.rewrite(name)?.write_all_at(rest, at + written as u64),
        }
    }

    pub(crate) fn read(&self, piece: u32) -> Option<Bytes> {
        if self.has(piece) { self.read_verified(piece).map(Bytes::from) } else { None }
    }

    pub(crate) fn close(&self) {
        self.state().journal = None;
    }

    pub(crate) fn discard(&self) {
        // No other process may start in the directory before everything is removed.
        let Some(_locked) = self.state().journal.take() else { return };
        if let Err(error) = self.remove_stage() {
            let stage = self.path.join(stage_name(&self.manifest));
            tracing::warn!(stage = %stage.display(), %error, "cannot remove the staging directory");
        }
    }

    fn remove_stage(&self) -> io::Result<()> {
        for folder in [DATA, TREE] {
            self.stage.remove_folder(OsStr::new(folder))?;
        }
        // A crash after the data is removed loses nothing. The locked journal is removed last.
        for file in [MANIFEST, BUILT, JOURNAL] {
            self.stage.remove(OsStr::new(file))?;
        }
        let name = stage_name(&self.manifest);
        match self.target.is_still(&name, &self.stage)? {
            true => self.target.remove_empty(&name),
            false => Err(io::Error::other("another object has this name")),
        }
    }

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
        self.state.lock().expect("no panic while the lock is held")
    }

    pub(super) fn verified(&self, piece: u32) {
        let bytes = self.manifest.place(piece).map_or(0, |place| place.bytes);
        let mut state = self.state();
        if state.verified.insert(piece) {
            state.verified_bytes += u64::from(bytes);
        }
    }

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
                return Err(ReceiveError::InTheWay { path, is: "owned by another user" });
            }
            // The previous owner has just removed the directory, after finishing or giving up.
            Ok(Stage::Removed) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(disk(error)),
        }
    }
    Err(ReceiveError::InUse)
}

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

pub(super) fn random_key() -> io::Result<[u8; 16]> {
    let mut key = [0; 16];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    Ok(key)
}

fn stage_name(manifest: &Manifest) -> OsString {
    format!("{BESIDE}{}", manifest.id().short()).into()
}

pub(super) fn data_name(entry: usize) -> OsString {
    entry.to_string().into()
}
