//! Gives the entries of a complete transfer their final names, in these steps:
//!
//! 1. All data and the journal are synchronized to the disk.
//! 2. In `tree/`, in the staging directory, directories and symlinks are created, and files are
//!    moved there from `data/`.
//! 3. The directories in `tree/` are synchronized to the disk.
//! 4. The file `built` records that this is done. The file `manifest` is written before it.
//! 5. Files get their modes and times, and symlinks their times. This is not done earlier, because
//!    a file without read permission could not be verified again.
//! 6. Each top-level entry of `tree/` is moved into the target directory. If its name does not
//!    exist there, this is one atomic step. Existing directories are merged file by file.
//! 7. Directories get their modes and times, the innermost first, and are synchronized to the disk.
//! 8. The target directory is synchronized to the disk, and the staging directory is removed.
//!
//! Each step can be interrupted at any point. At the next start, the existing data is read again
//! and checked against the manifest (`existing_data`). If `built` exists and all entries match, the
//! final steps continue after step 4. Otherwise, they start over.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::sync::atomic::Ordering;

use crate::error::ReceiveError;
use crate::manifest::{Entry, Kind};
use crate::receiver::folder::{Folder, Found};
use crate::receiver::store::{BUILT, MANIFEST, Store, TREE, data_name};

/// Maximum number of files or directories that are synchronized one by one. For more, the whole
/// file system is synchronized in a single call.
const SYNCED_ONE_BY_ONE: usize = 256;

pub(super) type Step = fn(&Store) -> Result<(), ReceiveError>;

pub(super) const STEPS: [Step; 8] = [
    Store::sync_data,
    Store::build,
    Store::sync_tree,
    Store::note_built,
    Store::dress_files,
    Store::move_all,
    Store::dress_directories,
    Store::clean_up,
];

impl Store {
    pub(crate) fn publish(&self) -> Result<(), ReceiveError> {
        assert!(self.is_complete(), "only a complete transfer gets its final names");
        if self.there.load(Ordering::Relaxed) {
            // The modes and times of existing entries belong to the user.
            self.discard();
            return Ok(());
        }
        STEPS.iter().try_for_each(|step| step(self))
    }

    fn sync_data(&self) -> Result<(), ReceiveError> {
        if self.built.load(Ordering::Relaxed) {
            return Ok(());
        }
        // After a crash in one of the next steps, resuming relies on the complete journal.
        self.sync_journal().map_err(|error| self.disk_here(error))?;
        let entries = self.manifest.entries().iter().enumerate();
        let with_data = entries.filter(|(_, entry)| entry.file_bytes() > 0);
        if with_data.clone().count() > SYNCED_ONE_BY_ONE {
            let synced = self.stage.sync_all();
            return synced.map_err(|error| self.disk_here(error));
        }
        for (index, entry) in with_data {
            let synced = self.data.read(&data_name(index)).and_then(|file| file.sync_data());
            synced.map_err(|error| self.disk(entry, error))?;
        }
        Ok(())
    }

    fn build(&self) -> Result<(), ReceiveError> {
        if self.built.load(Ordering::Relaxed) {
            return Ok(());
        }
        let tree = &self.stage.make(OsStr::new(TREE)).map_err(|error| self.disk_here(error))?;
        let mut inside: Vec<Folder> = Vec::new();
        for (index, entry) in self.manifest.entries().iter().enumerate() {
            inside.truncate(entry.path.components().count() - 1);
            let parent = inside.last().unwrap_or(tree);
            let made = match &entry.kind {
                Kind::Directory => parent.make(entry.path.name()).map(|made| inside.push(made)),
                Kind::File { .. } => self.build_file(index, entry, parent),
                Kind::Symlink { target } => parent.symlink(entry.path.name(), target),
            };
            made.map_err(|error| self.disk(entry, error))?;
        }
        Ok(())
    }

    fn build_file(&self, index: usize, entry: &Entry, parent: &Folder) -> io::Result<()> {
        let name = entry.path.name();
        if entry.file_bytes() == 0 {
            return parent.write(name).map(drop);
        }
        let data = data_name(index);
        if self.data.read(&data)?.metadata()?.len() != entry.file_bytes() {
            return Err(io::Error::other("the length of the received data has changed"));
        }
        self.data.rename(&data, parent, name, false)
    }

    fn sync_tree(&self) -> Result<(), ReceiveError> {
        if self.built.load(Ordering::Relaxed) {
            return Ok(());
        }
        let tree = self.tree()?;
        if self.directories().count() > SYNCED_ONE_BY_ONE {
            return tree.sync_all().map_err(|error| self.disk_here(error));
        }
        for entry in self.directories() {
            let synced = tree.walk(entry.path.components()).and_then(|folder| folder.sync());
            synced.map_err(|error| self.disk(entry, error))?;
        }
        tree.sync().map_err(|error| self.disk_here(error))
    }

    fn note_built(&self) -> Result<(), ReceiveError> {
        let noted = || {
            let mut noted = self.stage.write(OsStr::new(MANIFEST))?;
            noted.set_len(0)?;
            noted.write_all(&self.manifest.encode())?;
            noted.sync_data()?;
            let mut built = self.stage.write(OsStr::new(BUILT))?;
            built.write_all(&self.manifest.id().0)?;
            built.sync_data()?;
            self.stage.sync()
        };
        noted().map_err(|error| self.disk_here(error))?;
        self.built.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn dress_files(&self) -> Result<(), ReceiveError> {
        let tree = &self.tree()?;
        let mut inside: Vec<Folder> = Vec::new();
        for entry in self.manifest.entries() {
            let depth = entry.path.components().count() - 1;
            inside.truncate(depth);
            let parent = inside.last().unwrap_or(tree);
            let name = entry.path.name();
            // A missing entry was moved before the last interruption.
            let dressed = match (&entry.kind, inside.len() == depth) {
                (_, false) => Ok(()),
                (Kind::Directory, true) => match parent.folder(name) {
                    Ok(folder) => {
                        inside.push(folder);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                (_, true) => parent.dress_entry(entry),
            };
            match dressed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.disk(entry, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn move_all(&self) -> Result<(), ReceiveError> {
        let tree = &self.tree()?;
        // Pairs of a directory in the tree and the existing directory into which it is merged.
        let mut inside: Vec<(Folder, Folder)> = Vec::new();
        for entry in self.manifest.entries() {
            let depth = entry.path.components().count() - 1;
            inside.truncate(depth);
            if inside.len() < depth {
                // The entry was moved together with its directory.
                continue;
            }
            let (from, to) = inside.last().map_or((tree, &self.target), |(from, to)| (from, to));
            let merged = self.move_entry(entry, from, to).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => ReceiveError::Exists(entry.path.to_string()),
                _ => self.disk(entry, error),
            })?;
            inside.extend(merged);
        }
        Ok(())
    }

    fn move_entry(
        &self,
        entry: &Entry,
        from: &Folder,
        to: &Folder,
    ) -> io::Result<Option<(Folder, Folder)>> {
        let name = entry.path.name();
        if from.look(name)? == Found::Nothing {
            // The entry was moved before the last interruption, and verified when the store was
            // opened.
            return match (&entry.kind, to.look(name)?) {
                (Kind::Directory, Found::Directory)
                | (Kind::File { .. }, Found::File)
                | (Kind::Symlink { .. }, Found::Symlink) => Ok(None),
                _ => Err(io::Error::other("the entry no longer exists")),
            };
        }
        if entry.kind != Kind::Directory {
            from.rename(name, to, name, self.overwrite)?;
            return Ok(None);
        }
        match from.rename(name, to, name, false) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.overwrite => {
                Ok(Some((from.folder(name)?, to.folder(name)?)))
            }
            renamed => renamed.map(|()| None),
        }
    }

    fn tree(&self) -> Result<Folder, ReceiveError> {
        // The tree may be missing, because it is removed before the file `built`.
        self.stage.make(OsStr::new(TREE)).map_err(|error| self.disk_here(error))
    }

    fn clean_up(&self) -> Result<(), ReceiveError> {
        let synced = match self.directories().count() > SYNCED_ONE_BY_ONE {
            true => self.target.sync_all(),
            false => self.target.sync(),
        };
        synced.map_err(|error| self.disk_here(error))?;
        self.discard();
        Ok(())
    }

    fn dress_directories(&self) -> Result<(), ReceiveError> {
        let is_synced_here = self.directories().count() <= SYNCED_ONE_BY_ONE;
        for entry in self.directories().rev() {
            let dress = |directory: Folder| {
                directory.dress(entry)?;
                // The final mode of the directory may deny access to this user.
                if is_synced_here { directory.sync() } else { Ok(()) }
            };
            let dressed = self.target.walk(entry.path.components()).and_then(dress);
            dressed.map_err(|error| self.disk(entry, error))?;
        }
        Ok(())
    }

    fn directories(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.manifest.entries().iter().filter(|entry| entry.kind == Kind::Directory)
    }
}

#[cfg(test)]
#[path = "final_names_tests.rs"]
pub(super) mod tests;
