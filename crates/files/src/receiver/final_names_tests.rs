//! Tests interruptions after and within each of the final steps.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::names::BESIDE;
use crate::progress::Reporter;
use crate::receiver::recover::recover;
use crate::scan::{Content, Source};

pub(in crate::receiver) struct Sent {
    pub(in crate::receiver) folder: tempfile::TempDir,
    pub(in crate::receiver) content: Content,
}

impl Sent {
    pub(in crate::receiver) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let root = folder.path().join("from/tree");
        fs::create_dir_all(root.join("sub/empty")).expect("it is new");
        fs::write(root.join("sub/file"), "in sub").expect("it can be written");
        fs::write(root.join("file"), "text").expect("it can be written");
        fs::write(root.join("nothing"), "").expect("it can be written");
        symlink("sub/file", root.join("link")).expect("it is new");
        fs::write(folder.path().join("from/alone"), "alone").expect("it can be written");
        let mode = |path: &str, mode| {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(folder.path().join("from").join(path), permissions)
                .expect("it is ours");
        };
        mode("tree/file", 0o400);
        mode("tree/sub", 0o555);
        Self::of(folder, &["alone", "tree"])
    }

    pub(in crate::receiver) fn of(folder: tempfile::TempDir, names: &[&str]) -> Self {
        let source = |name| Source::Path(folder.path().join("from").join(name));
        let sources = names.iter().map(source).collect();
        let content = Content::scan(sources, None, false, &Reporter::none());
        let content = content.expect("it can be sent");
        Self { folder, content }
    }

    pub(in crate::receiver) fn to(&self) -> std::path::PathBuf {
        self.folder.path().join("to")
    }

    pub(in crate::receiver) fn stage(&self) -> std::path::PathBuf {
        self.to().join(format!("{BESIDE}{}", self.content.manifest.id().short()))
    }

    pub(in crate::receiver) fn store(&self, overwrite: bool) -> Result<Store, ReceiveError> {
        let manifest = Arc::new(self.content.manifest.clone());
        Store::open(self.to(), manifest, overwrite, &mut || {})
    }

    pub(in crate::receiver) fn complete(&self, overwrite: bool) -> Store {
        let store = self.store(overwrite).expect("it can be received");
        assert_eq!(self.give_what_lacks(&store), self.content.manifest.pieces());
        store
    }

    pub(in crate::receiver) fn stopped_after(&self, steps: usize, overwrite: bool) -> Store {
        let store = self.complete(overwrite);
        for step in &STEPS[..steps] {
            assert_eq!(step(&store), Ok(()));
        }
        store
    }

    pub(in crate::receiver) fn give_what_lacks(&self, store: &Store) -> u32 {
        let have = store.have();
        for piece in (0..have.pieces()).filter(|piece| !have.contains(*piece)) {
            let bytes = self.content.read(piece).expect("it is there");
            assert_eq!(store.write(piece, &bytes), Ok(true));
        }
        have.pieces() - have.count()
    }

    fn again(&self, overwrite: bool) {
        let store = self.store(overwrite).expect("it can be received");
        assert!(store.is_complete(), "nothing has to be sent again");
        assert_eq!(store.publish(), Ok(()));
        assert_whole(&self.to());
    }
}

pub(in crate::receiver) fn assert_whole(to: &Path) {
    let read = |path: &str| fs::read_to_string(to.join(path)).expect("it is there");
    assert_eq!([read("alone"), read("tree/file")], ["alone", "text"]);
    assert_eq!([read("tree/nothing"), read("tree/link")], ["", "in sub"]);
    assert!(to.join("tree/sub/empty").is_dir());
    let mode = |path: &str| {
        let metadata = fs::metadata(to.join(path)).expect("it is there");
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!((mode("tree/file"), mode("tree/sub")), (0o400, 0o555));
    let left = fs::read_dir(to).expect("it is there").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "nothing is left beside it: {left:?}");
}

#[test]
fn publication_resumes_after_each_step() {
    for steps in 0..=STEPS.len() {
        for overwrite in [false, true] {
            let sent = Sent::new();
            if overwrite {
                fs::create_dir_all(sent.to().join("tree/sub")).expect("it is new");
                fs::write(sent.to().join("tree/sub/file"), "old").expect("it can be written");
                fs::write(sent.to().join("alone"), "old").expect("it can be written");
            }
            drop(sent.stopped_after(steps, overwrite));
            if steps < STEPS.len() {
                sent.again(overwrite);
            }
            assert_whole(&sent.to());
        }
    }
}

#[test]
fn publication_resumes_amid_building_and_moving() {
    let sent = Sent::new();
    let store = sent.complete(false);
    let stage = sent.stage();
    fs::create_dir_all(stage.join("tree/tree/sub")).expect("it is new");
    fs::rename(stage.join("data/0"), stage.join("tree/alone")).expect("it is there");
    drop(store);
    let store = sent.store(false).expect("it can be received");
    for step in &STEPS[..5] {
        assert_eq!(step(&store), Ok(()));
    }
    fs::rename(stage.join("tree/alone"), sent.to().join("alone")).expect("it is there");
    drop(store);
    sent.again(false);
}

#[test]
fn transfer_that_lacks_only_its_name_needs_no_sender() {
    for (steps, finished) in [(2, 0), (3, 0), (4, 1), (6, 1), (7, 1)] {
        let sent = Sent::new();
        let store = sent.stopped_after(steps, false);
        assert_eq!(recover(&sent.to(), false), [], "somebody is at it");
        drop(store);
        let recovered = recover(&sent.to(), false);
        assert_eq!(recovered, vec![(sent.content.manifest.id(), Ok(())); finished], "{steps}");
        if finished == 1 {
            assert_whole(&sent.to());
        }
    }
}

#[test]
fn file_created_in_between_is_not_replaced() {
    let sent = Sent::new();
    let store = sent.complete(false);
    fs::write(sent.to().join("alone"), "mine").expect("it can be written");
    assert_eq!(store.publish(), Err(ReceiveError::Exists("alone".into())));
    drop(store);
    fs::remove_file(sent.to().join("alone")).expect("it is there");
    sent.again(false);
}

#[test]
fn a_symlink_that_has_come_in_between_is_not_followed() {
    for place in ["tree", "tree/sub"] {
        let sent = Sent::new();
        fs::create_dir_all(sent.to().join("tree/sub")).expect("it is new");
        let store = sent.complete(true);
        let outside = sent.folder.path().join("outside");
        fs::create_dir_all(outside.join("sub")).expect("it is new");
        fs::remove_dir_all(sent.to().join(place)).expect("it is there");
        symlink(&outside, sent.to().join(place)).expect("nothing is there");
        let published = store.publish();
        assert!(matches!(published, Err(ReceiveError::Disk { .. })), "{place}: {published:?}");
        let found: usize = [outside.join("sub"), outside]
            .map(|folder| fs::read_dir(folder).expect("it is there").count())
            .iter()
            .sum();
        assert_eq!(found, 1, "{place}: nothing was written outside");
    }
}
