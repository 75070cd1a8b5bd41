//! Reads and verifies the existing data of earlier attempts.
//!
//! If `built` records that `tree/` was complete, and all entries there and in the target directory
//! match the manifest, only the final names are missing. Otherwise, the existing data moves back to
//! `data/`, missing data is received again, and the final steps start over. If all entries in the
//! target directory match, nothing remains to be done.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::Ordering;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::error::ReceiveError;
use crate::holes::Holes;
use crate::manifest::{Entry, Kind, Manifest};
use crate::piece::PieceSet;
use crate::receiver::folder::{Folder, Found};
use crate::receiver::store::{BUILT, Store, TREE, data_name};
use crate::scan::read_place;

enum Home {
    Tree(Folder),
    Target(Folder),
}

impl Store {
    /// Verifies the existing data, records its pieces, and prepares the files for the other pieces.
    ///
    /// `noted` contains the pieces in the journal, if it existed.
    pub(super) fn take_stock(
        &self,
        noted: Option<&PieceSet>,
        alive: &mut dyn FnMut(),
    ) -> Result<(), ReceiveError> {
        let disk = |error| self.disk_here(error);
        let is_built = is_built(&self.stage, &self.manifest).map_err(disk)?;
        if is_built {
            self.open_directories();
            if self.is_whole(alive) {
                self.built.store(true, Ordering::Relaxed);
                (0..self.manifest.pieces()).for_each(|piece| self.verified(piece));
                return Ok(());
            }
            tracing::warn!("some received data was changed or lost; it will be received again");
        }
        let was_complete = self.was_complete();
        if was_complete {
            self.take_back(is_built, alive).map_err(disk)?;
        }
        if self.is_there(alive) {
            self.built.store(true, Ordering::Relaxed);
            self.there.store(true, Ordering::Relaxed);
            (0..self.manifest.pieces()).for_each(|piece| self.verified(piece));
            return Ok(());
        }
        check_existing(&self.target, &self.manifest, self.overwrite)?;
        for piece in 0..self.manifest.pieces() {
            let is_noted = noted.is_some_and(|noted| noted.contains(piece));
            // After a crash of the machine, the journal may lag behind the data.
            if (is_noted || was_complete) && self.read_verified(piece).is_some() {
                self.verified(piece);
                if !is_noted {
                    self.note(piece).map_err(disk)?;
                }
            }
            alive();
        }
        self.make_room(alive)
    }

    pub(super) fn was_complete(&self) -> bool {
        let is_there = |name| self.stage.look(OsStr::new(name)).is_ok_and(|f| f != Found::Nothing);
        is_there(TREE) || is_there(BUILT)
    }

    fn is_whole(&self, alive: &mut dyn FnMut()) -> bool {
        let mut entries = self.manifest.entries().iter().enumerate();
        entries.all(|(index, entry)| match self.home(entry) {
            Some(Home::Tree(home) | Home::Target(home)) => {
                alive();
                self.is_entry(index, &home, alive).unwrap_or(false)
            }
            None => false,
        })
    }

    fn is_there(&self, alive: &mut dyn FnMut()) -> bool {
        let mut entries = self.manifest.entries().iter().enumerate();
        entries.all(|(index, entry)| {
            let home = self.target.parent_of(&entry.path);
            home.is_ok_and(|home| self.is_entry(index, &home, alive).unwrap_or(false))
        })
    }

    fn home(&self, entry: &Entry) -> Option<Home> {
        let parent_in = |top: io::Result<Folder>| {
            let parent = top.and_then(|top| top.parent_of(&entry.path)).ok()?;
            let found = parent.look(entry.path.name()).ok()?;
            (found != Found::Nothing).then_some(parent)
        };
        let in_tree = parent_in(self.stage.folder(OsStr::new(TREE))).map(Home::Tree);
        in_tree.or_else(|| parent_in(self.target.walk([].into_iter())).map(Home::Target))
    }

    fn is_entry(&self, index: usize, home: &Folder, alive: &mut dyn FnMut()) -> io::Result<bool> {
        let entry = &self.manifest.entries()[index];
        let name = entry.path.name();
        Ok(match &entry.kind {
            Kind::Directory => home.look(name)? == Found::Directory,
            Kind::Symlink { target } => home.link(name)? == **target,
            Kind::File { bytes, holes } => {
                let file = home.read_ours(name)?;
                file.metadata()?.len() == *bytes
                    && are_holes(&file, holes)?
                    && self.manifest.pieces_of(index).all(|piece| {
                        alive();
                        self.is_piece_in(piece, entry, &file)
                    })
            }
        })
    }

    fn is_piece_in(&self, piece: u32, entry: &Entry, file: &File) -> bool {
        let place = self.manifest.place(piece).expect("the entry has this piece");
        let bytes = read_place(entry, place, file);
        bytes.is_ok_and(|bytes| self.manifest.is_piece(piece, &bytes))
    }

    /// Moves the files of the transfer back to `data/`, and removes `tree/` and `built`. Without
    /// `overwrite`, also removes the transfer's other entries from the target directory.
    ///
    /// Entries in the target directory that do not match the manifest belong to the user.
    fn take_back(&self, was_built: bool, alive: &mut dyn FnMut()) -> io::Result<()> {
        for (index, entry) in self.manifest.entries().iter().enumerate() {
            let (name, data) = (entry.path.name(), data_name(index));
            if entry.file_bytes() == 0 || self.data.look(&data)? != Found::Nothing {
                continue;
            }
            let home = match self.home(entry) {
                Some(Home::Tree(home)) if home.look(name)? == Found::File => home,
                Some(Home::Target(home)) if was_built => match self.is_entry(index, &home, alive) {
                    Ok(true) => home,
                    _ => continue,
                },
                _ => continue,
            };
            home.open_up(name)?;
            home.rename(name, &self.data, &data, false)?;
            if self.data.read(&data)?.metadata()?.nlink() > 1 {
                // A file with another hard link belongs to the user and must not be written to.
                self.data.remove(&data)?;
            }
            alive();
        }
        if was_built && !self.overwrite {
            self.take_back_the_rest(alive)?;
        }
        self.stage.remove_folder(OsStr::new(TREE))?;
        self.stage.remove(OsStr::new(BUILT))?;
        self.stage.sync()
    }

    fn take_back_the_rest(&self, alive: &mut dyn FnMut()) -> io::Result<()> {
        for (index, entry) in self.manifest.entries().iter().enumerate().rev() {
            let name = entry.path.name();
            let Some(Home::Target(home)) = self.home(entry) else { continue };
            if !self.is_entry(index, &home, alive).unwrap_or(false) {
                continue;
            }
            match entry.kind {
                // A directory with other contents remains.
                Kind::Directory => match home.remove_empty(name) {
                    Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                        return Err(error);
                    }
                    _ => {}
                },
                Kind::Symlink { .. } => home.remove(name)?,
                // A file with data belongs to the user, because the transfer's file was already
                // moved back.
                Kind::File { bytes: 0, .. } => home.remove(name)?,
                Kind::File { .. } => {}
            }
        }
        Ok(())
    }

    /// Makes the directories accessible, because a final mode that is already set may deny access.
    ///
    /// The final steps set the modes again.
    fn open_directories(&self) {
        for entry in self.manifest.entries().iter().filter(|entry| entry.kind == Kind::Directory) {
            // A directory that is merged into an existing one is still in the tree.
            if !self.overwrite && !matches!(self.home(entry), Some(Home::Target(_))) {
                continue;
            }
            let home = self.target.parent_of(&entry.path);
            if let Err(error) = home.and_then(|home| home.open_up(entry.path.name())) {
                tracing::debug!(path = %entry.path, %error, "cannot change the permissions");
            }
        }
    }

    fn make_room(&self, alive: &mut dyn FnMut()) -> Result<(), ReceiveError> {
        let mut allocated: u64 = 0;
        let mut unsized_files = Vec::new();
        for (index, entry) in self.manifest.entries().iter().enumerate() {
            if entry.file_bytes() == 0 {
                continue;
            }
            let found = self.data.read(&data_name(index)).and_then(|file| file.metadata());
            let (blocks, bytes) = found.map_or((0, 0), |found| (found.blocks(), found.len()));
            allocated += (blocks * 512).min(entry.data_bytes());
            if bytes != entry.file_bytes() {
                unsized_files.push(index);
            }
            alive();
        }
        let needed = self.manifest.data_bytes() - allocated;
        let free = self.target.free_bytes().map_err(|error| self.disk_here(error))?;
        if needed > free {
            return Err(ReceiveError::NoSpace {
                needed,
                free,
                directory: self.path.display().to_string(),
            });
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

/// Compares the id in full, because the id of another transfer may start with the same digits.
fn is_built(stage: &Folder, manifest: &Manifest) -> io::Result<bool> {
    if stage.look(OsStr::new(BUILT))? == Found::Nothing {
        return Ok(false);
    }
    let mut id = Vec::new();
    stage.read(OsStr::new(BUILT))?.take(64).read_to_end(&mut id)?;
    Ok(id == manifest.id().0)
}

fn are_holes(file: &File, holes: &Holes) -> io::Result<bool> {
    let mut bytes = [0; 64 << 10];
    for (start, length) in holes.iter() {
        let (mut at, end) = (start, start + length);
        while at < end {
            at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => end,
                // The file system does not report holes, so the range is read.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
                found => found?,
            };
            let bytes = &mut bytes[..(end.saturating_sub(at)).min(64 << 10) as usize];
            file.read_exact_at(bytes, at)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
    }
    Ok(true)
}

fn check_existing(
    target: &Folder,
    manifest: &Manifest,
    overwrite: bool,
) -> Result<(), ReceiveError> {
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
            (_, Found::Special) => "a special file",
        };
        return Err(ReceiveError::InTheWay { path, is });
    }
    Ok(())
}

#[cfg(test)]
#[path = "existing_data_tests.rs"]
pub(super) mod tests;
