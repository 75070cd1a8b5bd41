//! Handles of directories. They never resolve a name through a symlink.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::limits::MAX_COMPONENTS;
use crate::manifest::{Entry, Modified};
use crate::names::EntryPath;

#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Directory,
    File,
    Symlink,
    Special,
}

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);
#[cfg(target_os = "linux")]
const DIRECT: OFlags = OFlags::DIRECT;
#[cfg(not(target_os = "linux"))]
const DIRECT: OFlags = OFlags::empty();
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

impl Folder {
    pub(crate) fn named(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        Ok(Self(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    pub(crate) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(&self.0, name, DIRECTORY, Mode::empty())?))
    }

    pub(crate) fn make(&self, name: &OsStr) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.folder(name),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn walk<'a>(&self, path: impl Iterator<Item = &'a OsStr>) -> io::Result<Self> {
        let mut at = Self(self.0.try_clone()?);
        for component in path {
            at = at.folder(component)?;
        }
        Ok(at)
    }

    pub(crate) fn parent_of(&self, path: &EntryPath) -> io::Result<Self> {
        let mut components = path.components();
        components.next_back();
        self.walk(components)
    }

    pub(crate) fn look(&self, name: &OsStr) -> io::Result<Found> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Found::Nothing),
            Err(error) => Err(error.into()),
            Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Found::Directory,
                FileType::RegularFile => Found::File,
                FileType::Symlink => Found::Symlink,
                _ => Found::Special,
            }),
        }
    }

    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.file(name, OFlags::RDONLY)
    }

    pub(crate) fn write(&self, name: &OsStr) -> io::Result<File> {
        self.file(name, OFlags::RDWR | OFlags::CREATE)
    }

    pub(crate) fn rewrite(&self, name: &OsStr) -> io::Result<File> {
        self.file(name, OFlags::RDWR)
    }

    pub(crate) fn rewrite_direct(&self, name: &OsStr) -> io::Result<File> {
        self.file(name, OFlags::RDWR | DIRECT)
    }

    pub(crate) fn append(&self, name: &OsStr) -> io::Result<File> {
        self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)
    }

    fn file(&self, name: &OsStr, how: OFlags) -> io::Result<File> {
        // This is the mode of a file that the call creates.
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(rustix::fs::openat(&self.0, name, FILE | how, mode)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("not a regular file")),
        }
    }

    pub(crate) fn symlink(&self, name: &OsStr, target: &[u8]) -> io::Result<()> {
        match rustix::fs::symlinkat(target, &self.0, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn link(&self, name: &OsStr) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    pub(crate) fn open_up(&self, name: &OsStr) -> io::Result<()> {
        self.permit(name, Mode::RWXU).map(drop)
    }

    /// Opens a file of the transfer for reading.
    ///
    /// If the mode of the file denies reading, it is changed for the call and restored.
    pub(crate) fn read_ours(&self, name: &OsStr) -> io::Result<File> {
        match self.read(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let before = self.permit(name, Mode::RUSR)?;
                let file = self.read(name)?;
                rustix::fs::fchmod(&file, before)?;
                Ok(file)
            }
            file => file,
        }
    }

    /// Adds permissions, and returns the previous ones. A file does not get execute permission.
    fn permit(&self, name: &OsStr, more: Mode) -> io::Result<Mode> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&handle)?;
        let more = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => more,
            FileType::RegularFile => more - Mode::XUSR,
            _ => return Err(io::Error::other("not a file or directory")),
        };
        let mode = Mode::from_raw_mode(stat.st_mode);
        if !mode.contains(more) {
            // A handle with `O_PATH` is changed by its name in `/proc`, which leads to no other
            // object.
            let handle = format!("/proc/self/fd/{}", handle.as_raw_fd());
            rustix::fs::chmod(handle, mode | more)?;
        }
        Ok(mode)
    }

    /// Moves an entry to `new_name` in `to`. This name must not exist unless `replace` is set.
    pub(crate) fn rename(
        &self,
        name: &OsStr,
        to: &Self,
        new_name: &OsStr,
        replace: bool,
    ) -> io::Result<()> {
        if replace {
            return Ok(rustix::fs::renameat(&self.0, name, &to.0, new_name)?);
        }
        let only_new = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.0, name, &to.0, new_name, only_new) {
            // Another process may create the name between the check and the rename.
            Err(Errno::INVAL | Errno::NOSYS) => match to.look(new_name)? {
                Found::Nothing => Ok(rustix::fs::renameat(&self.0, name, &to.0, new_name)?),
                _ => Err(Errno::EXIST.into()),
            },
            renamed => Ok(renamed?),
        }
    }

    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        self.remove_levels(name, MAX_COMPONENTS + 1)
    }

    fn remove_levels(&self, name: &OsStr, levels: usize) -> io::Result<()> {
        let folder = match self.folder(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folder => folder?,
        };
        let levels = levels.checked_sub(1).ok_or_else(|| io::Error::other("too deeply nested"))?;
        for child in folder.names()? {
            match rustix::fs::unlinkat(&folder.0, &*child, AtFlags::empty()) {
                // The error for a directory depends on the operating system.
                Err(Errno::ISDIR | Errno::PERM) => folder.remove_levels(&child, levels)?,
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.remove_empty(name)
    }

    pub(crate) fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push(OsStr::from_bytes(name).to_owned()),
            }
        }
        Ok(names)
    }

    pub(crate) fn bytes_on_disk(&self) -> io::Result<u64> {
        let mut blocks: u64 = 0;
        for name in self.names()? {
            match rustix::fs::statat(&self.0, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    blocks = blocks.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0))
                }
                // The file was moved in the meantime.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(blocks.saturating_mul(512))
    }

    pub(crate) fn is_still(&self, name: &OsStr, handle: impl AsFd) -> io::Result<bool> {
        let open = rustix::fs::fstat(handle)?;
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
            Ok(named) => Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)),
        }
    }

    pub(crate) fn dress(&self, entry: &Entry) -> io::Result<()> {
        rustix::fs::fchmod(&self.0, Mode::from_raw_mode(entry.mode.into()))?;
        let Some(modified) = entry.modified else { return Ok(()) };
        Ok(rustix::fs::futimens(&self.0, &timestamps(modified))?)
    }

    /// Sets the time of an entry of the manifest, if known, and its mode if it is a file.
    pub(crate) fn dress_entry(&self, entry: &Entry) -> io::Result<()> {
        let name = entry.path.name();
        if self.look(name)? == Found::File {
            let mode = Mode::from_raw_mode(entry.mode.into());
            rustix::fs::chmodat(&self.0, name, mode, AtFlags::empty())?;
        }
        let Some(modified) = entry.modified else { return Ok(()) };
        let times = timestamps(modified);
        Ok(rustix::fs::utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.0)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    pub(crate) fn is_ours(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstat(&self.0)?.st_uid == rustix::process::geteuid().as_raw())
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    pub(crate) fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.0)?)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn timestamps(modified: Modified) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    }
}
