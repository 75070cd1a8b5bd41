//! The end: everything gets its name.
//!
//! 1. All data is brought onto the disk.
//! 2. In `tree/`, beside the target, directories are made, files moved there from `data/`, symlinks
//!    made.
//! 3. The file `built` notes that this is done.
//! 4. Files get their modes and times; not sooner, as what cannot be read cannot be verified again.
//! 5. What is at the top of `tree/` is moved into the target, where nothing is there yet in one
//!    step each; where directories are merged, file by file.
//! 6. Directories get their modes and times, the innermost first.
//! 7. What is beside the target is removed.
//!
//! Each step can be broken off anywhere and be done again from its beginning.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::sync::atomic::Ordering;

use crate::error::ReceiveError;
use crate::manifest::{Entry, Kind};
use crate::receiving::folder::{Folder, Found};
use crate::receiving::store::{BUILT, MANIFEST, Store, TREE, data_name};

/// Up to so many files are brought onto the disk one by one; else all of the file system is, which
/// may have other things to do, but does it in one go.
const SYNCED_ONE_BY_ONE: usize = 256;

type Step = fn(&Store) -> Result<(), ReceiveError>;

const STEPS: [Step; 7] = [
    Store::sync_data,
    Store::build,
    Store::note_built,
    Store::dress_files,
    Store::move_all,
    Store::dress_directories,
    Store::clean_up,
];

impl Store {
    /// Gives everything its final name. All pieces are here.
    pub(crate) fn publish(&self) -> Result<(), ReceiveError> {
        assert!(self.is_complete(), "only what is complete gets its name");
        STEPS.iter().try_for_each(|step| step(self))
    }

    fn sync_data(&self) -> Result<(), ReceiveError> {
        if self.built.load(Ordering::Relaxed) {
            return Ok(());
        }
        let entries = self.manifest.entries().iter().enumerate();
        let with_data = entries.filter(|(_, entry)| entry.data_bytes() > 0);
        if with_data.clone().count() > SYNCED_ONE_BY_ONE {
            let synced = self.stage.sync_all();
            return synced.map_err(|error| self.disk_here(error));
        }
        for (index, entry) in with_data {
            match self.data.read(&data_name(index)) {
                Ok(file) => file.sync_data().map_err(|error| self.disk(entry, error))?,
                // It is in the tree already, and was on the disk before it was moved there.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.disk(entry, error)),
            }
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
        if entry.data_bytes() == 0 {
            // Nothing, or nothing but a hole.
            parent.remove(name)?;
            let file = parent.write(name)?;
            return file.set_len(entry.file_bytes());
        }
        match self.data.rename(&data_name(index), parent, name, true) {
            // It was moved before the last time broke off.
            Err(error) if error.kind() == io::ErrorKind::NotFound => match parent.look(name)? {
                Found::File => Ok(()),
                _ => Err(error),
            },
            renamed => renamed,
        }
    }

    /// Notes that nothing but the tree is needed any more.
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

    /// Gives modes and times to the files that are still in the tree, and times to the symlinks.
    fn dress_files(&self) -> Result<(), ReceiveError> {
        let tree = &self.tree()?;
        let mut inside: Vec<Folder> = Vec::new();
        for entry in self.manifest.entries() {
            let depth = entry.path.components().count() - 1;
            inside.truncate(depth);
            let parent = inside.last().unwrap_or(tree);
            let name = entry.path.name();
            // What is not there was moved before the last time broke off.
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

    /// Moves what is still in the tree to the target.
    fn move_all(&self) -> Result<(), ReceiveError> {
        let tree = &self.tree()?;
        // Pairs of a directory in the tree and the one in the target that it is merged into.
        let mut inside: Vec<(Folder, Folder)> = Vec::new();
        for entry in self.manifest.entries() {
            let depth = entry.path.components().count() - 1;
            inside.truncate(depth);
            if inside.len() < depth {
                // It was moved with the directory that it is in.
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
            // It was moved before the last time broke off.
            return Ok(None);
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
        self.stage.folder(OsStr::new(TREE)).map_err(|error| self.disk_here(error))
    }

    fn clean_up(&self) -> Result<(), ReceiveError> {
        self.target.sync().map_err(|error| self.disk_here(error))?;
        self.discard();
        Ok(())
    }

    fn dress_directories(&self) -> Result<(), ReceiveError> {
        let directories = self.manifest.entries().iter().rev();
        for entry in directories.filter(|entry| entry.kind == Kind::Directory) {
            let directory = self.target.walk(entry.path.components());
            let dressed = directory.and_then(|directory| directory.dress(entry));
            dressed.map_err(|error| self.disk(entry, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
