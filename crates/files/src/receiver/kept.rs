use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::names::BESIDE;
use crate::receiver::folder::Folder;
use crate::receiver::store::{DATA, random_key};

/// The data that was kept from an incomplete transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Staging directory of the transfer. Its name ends with the start of the transfer id.
    pub directory: PathBuf,
    /// Disk space that the data uses, in bytes.
    pub bytes: u64,
}

/// Returns this user's incomplete transfers in `directory`, interrupted or in progress, in order of
/// their names.
///
/// A transfer that is never resumed uses disk space until its directory is removed.
pub fn kept(directory: &Path) -> Vec<Kept> {
    let mut kept: Vec<Kept> = beside(directory)
        .filter_map(|name| {
            let stage = Folder::named(directory).ok()?.folder(&name).ok()?;
            let data = stage.is_ours().ok()?.then(|| stage.folder(DATA.as_ref()).ok())??;
            Some(Kept { directory: directory.join(name), bytes: data.bytes_on_disk().ok()? })
        })
        .collect();
    kept.sort_by(|one, other| one.directory.cmp(&other.directory));
    kept
}

pub(super) fn beside(directory: &Path) -> impl Iterator<Item = OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names.filter(|name| name.as_bytes().starts_with(BESIDE.as_bytes()))
}

/// Checks that transfers can be received into `directory` by creating an empty directory in it. For
/// a superuser, the permissions alone do not show this.
///
/// # Errors
/// Returns the error of the operating system.
pub fn try_writing(directory: &Path) -> io::Result<()> {
    // Other processes, even on other machines, may perform the check at the same time.
    let number = u128::from_ne_bytes(random_key()?);
    let tried = directory.join(format!("{BESIDE}try-{number:032x}"));
    fs::create_dir(&tried)?;
    fs::remove_dir(&tried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::existing_data::tests::large;

    #[test]
    fn write_test_in_a_directory_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        try_writing(directory.path()).expect("it can be written");
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
        try_writing(&directory.path().join("none")).expect_err("it is not there");
    }

    #[test]
    fn many_try_a_directory_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    (0..50).for_each(|_| try_writing(directory.path()).expect("it can be written"));
                });
            }
        });
    }

    #[test]
    fn unfinished_transfer_is_listed_with_its_size_until_done() {
        let sent = large();
        let bytes = sent.content.read(0).expect("it is there");
        let store = sent.store(false).expect("it can be received");
        fs::create_dir(sent.to().join(".carom-other")).expect("nothing of ours is in it");
        fs::write(sent.to().join("mine"), "mine").expect("it can be written");
        assert_eq!(store.write(0, &bytes), Ok(true));
        let data = fs::File::open(sent.stage().join("data/0")).expect("it is there");
        data.sync_all().expect("it is brought onto the disk");
        let [Kept { directory, bytes }] = &kept(&sent.to())[..] else { panic!("one is kept") };
        assert_eq!(*directory, sent.stage());
        // The first of three pieces exists. The others are sparse if the disk supports holes.
        assert!(*bytes >= 1 << 20, "{bytes}");
        sent.give_what_lacks(&store);
        assert_eq!(store.publish(), Ok(()));
        assert_eq!(kept(&sent.to()), []);
    }
}
