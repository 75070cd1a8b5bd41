//! What lies in a directory of transfers that were not completed, and whether there can be more.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::names::BESIDE;
use crate::receiving::folder::Folder;
use crate::receiving::store::{DATA, random_key};

/// What is kept of a transfer that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where; its name ends with the beginning of the transfer's id.
    pub directory: PathBuf,
    /// Bytes that its data takes on the disk.
    pub bytes: u64,
}

/// What is kept in `directory` of transfers that are not complete, in the order of their names:
/// those that another process is receiving, and those that were broken off. A transfer that never
/// goes on takes its space until somebody removes it.
pub fn kept(directory: &Path) -> Vec<Kept> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name());
    let beside = names.filter(|name| name.as_bytes().starts_with(BESIDE.as_bytes()));
    let mut kept: Vec<Kept> = beside
        .filter_map(|name| {
            let stage = Folder::named(directory).ok()?.folder(&name).ok()?;
            let data = stage.is_ours().ok()?.then(|| stage.folder(DATA.as_ref()).ok())??;
            Some(Kept { directory: directory.join(name), bytes: data.bytes_on_disk().ok()? })
        })
        .collect();
    kept.sort_by(|one, other| one.directory.cmp(&other.directory));
    kept
}

/// Tries whether a transfer can be received into `directory`, by making an empty directory in it
/// and removing that again: permissions do not tell, of a superuser or of a file system in which
/// nothing can be made.
///
/// # Errors
/// What the operating system says against it.
pub fn try_writing(directory: &Path) -> io::Result<()> {
    // A name of nobody else's: others may try at the same time, on other machines, too.
    let number = u128::from_ne_bytes(random_key()?);
    let tried = directory.join(format!("{BESIDE}try-{number:032x}"));
    fs::create_dir(&tried)?;
    fs::remove_dir(&tried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiving::stock::tests::large;

    #[test]
    fn what_is_tried_in_a_directory_leaves_nothing_behind() {
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
    fn what_was_broken_off_is_told_with_its_size_and_what_is_finished_is_not() {
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
        // The first of three pieces; the others are sparse yet, as far as the disk has that.
        assert!(*bytes >= 1 << 20, "{bytes}");
        sent.give_what_lacks(&store);
        assert_eq!(store.publish(), Ok(()));
        assert_eq!(kept(&sent.to()), []);
    }
}
