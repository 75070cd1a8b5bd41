use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use rustix::thread::CapabilitySet;

use super::*;
use crate::receiver::final_names::STEPS;
use crate::receiver::final_names::tests::{Sent, assert_whole};
use crate::receiver::recover::recover;

const BUILDING: usize = 2;
const NOTED: usize = 4;
const MOVED: usize = 6;

pub(in crate::receiver) fn large() -> Sent {
    let mut noise = vec![0; (5 << 20) / 2];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    let sent = of_one_file(|file| file.write_all_at(&noise, 0).expect("it can be written"));
    assert_eq!(sent.content.manifest.pieces(), 3);
    sent
}

fn sparse(end: &[u8]) -> Sent {
    of_one_file(|file| {
        file.set_len(1 << 20).expect("it can be sparse");
        file.write_all_at(end, 1 << 20).expect("it can be written");
    })
}

fn of_one_file(fill: impl FnOnce(&File)) -> Sent {
    let folder = tempfile::tempdir().expect("a folder for the test");
    fs::create_dir(folder.path().join("from")).expect("it is new");
    fill(&File::create(folder.path().join("from/large")).expect("it is new"));
    Sent::of(folder, &["large"])
}

fn damage(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it is long enough");
    file.write_all_at(&[!byte[0]], at).expect("it can be written");
}

fn cut(path: &Path, bytes: u64) {
    let file = File::options().write(true).open(path).expect("it is there");
    let length = file.metadata().expect("it is open").len();
    file.set_len(length - bytes).expect("it can be written");
}

fn goes_on(sent: &Sent, overwrite: bool, lacking: u32) {
    let store = sent.store(overwrite).expect("it can be received");
    assert_eq!(sent.give_what_lacks(&store), lacking);
    assert_eq!(store.publish(), Ok(()));
}

fn assert_large(sent: &Sent) {
    let read = |path: PathBuf| blake3::hash(&fs::read(path).expect("it is there"));
    assert_eq!(
        read(sent.to().join("large")),
        read(sent.folder.path().join("from/large")),
        "it has the bytes that were sent"
    );
    assert_eq!(fs::read_dir(sent.to()).expect("it is there").count(), 1, "nothing is left");
}

#[test]
fn piece_damaged_during_building_is_fetched_again_alone() {
    for steps in [BUILDING, NOTED] {
        let sent = large();
        drop(sent.stopped_after(steps, false));
        damage(&sent.stage().join("tree/large"), 3 << 19);
        goes_on(&sent, false, 1);
        assert_large(&sent);
    }
}

#[test]
fn a_journal_that_lags_behind_the_tree_costs_nothing() {
    let sent = large();
    drop(sent.stopped_after(BUILDING, false));
    cut(&sent.stage().join("journal"), 10);
    goes_on(&sent, false, 0);
    assert_large(&sent);
}

#[test]
fn a_journal_that_lags_behind_the_data_costs_what_is_not_in_it() {
    let sent = large();
    drop(sent.stopped_after(0, false));
    cut(&sent.stage().join("journal"), 8);
    goes_on(&sent, false, 2);
    assert_large(&sent);
}

#[test]
fn entries_gone_from_the_tree_are_fetched_again() {
    for steps in [BUILDING, NOTED] {
        let sent = large();
        drop(sent.stopped_after(steps, false));
        fs::remove_file(sent.stage().join("tree/large")).expect("it is there");
        goes_on(&sent, false, 3);
        assert_large(&sent);

        let sent = Sent::new();
        drop(sent.stopped_after(steps, false));
        for lost in ["tree/sub/file", "tree/nothing", "tree/link"] {
            fs::remove_file(sent.stage().join("tree").join(lost)).expect("it is there");
        }
        fs::remove_dir(sent.stage().join("tree/tree/sub/empty")).expect("it is there");
        goes_on(&sent, false, 1);
        assert_whole(&sent.to());
    }
}

#[test]
fn entries_gone_from_the_target_are_fetched_again() {
    for overwrite in [false, true] {
        let sent = Sent::new();
        drop(sent.stopped_after(MOVED, overwrite));
        fs::remove_file(sent.to().join("tree/sub/file")).expect("it is there");
        fs::remove_file(sent.to().join("tree/link")).expect("it is there");
        let recovered = recover(&sent.to(), overwrite);
        assert!(matches!(&recovered[..], [(_, Err(ReceiveError::Disk { .. }))]), "{recovered:?}");
        goes_on(&sent, overwrite, 1);
        assert_whole(&sent.to());
    }
}

#[test]
fn target_changed_before_the_end_is_not_reported_finished() {
    let sent = large();
    drop(sent.stopped_after(MOVED, false));
    let published = sent.to().join("large");
    damage(&published, 0);
    let changed = fs::read(&published).expect("it is there");
    let again = sent.store(false).map(drop);
    assert_eq!(again, Err(ReceiveError::Exists("large".into())));
    assert!(fs::read(&published).expect("it is there") == changed, "it is left to its owner");
    fs::remove_file(&published).expect("it is there");
    goes_on(&sent, false, 3);
    assert_large(&sent);

    let sent = large();
    drop(sent.stopped_after(MOVED, true));
    damage(&sent.to().join("large"), 0);
    goes_on(&sent, true, 3);
    assert_large(&sent);
}

#[test]
fn foreign_data_in_a_hole_is_not_published() {
    let sent = sparse(b"end");
    drop(sent.stopped_after(NOTED, false));
    damage(&sent.stage().join("tree/large"), 1000);
    let store = sent.store(false).expect("it can be received");
    assert!(!store.built.load(Ordering::Relaxed), "an entry does not match");
}

#[test]
fn data_lost_at_the_very_end_is_an_error() {
    let sent = large();
    let store = sent.complete(false);
    cut(&sent.stage().join("data/0"), 1);
    let published = store.publish();
    assert!(matches!(published, Err(ReceiveError::Disk { .. })), "{published:?}");
    assert!(!sent.to().join("large").exists());
    drop(store);
    goes_on(&sent, false, 1);
    assert_large(&sent);

    let sent = large();
    let store = sent.complete(false);
    for (number, step) in STEPS.iter().enumerate() {
        if number == NOTED {
            fs::remove_file(sent.stage().join("tree/large")).expect("it is there");
        }
        match step(&store) {
            Ok(()) => assert_ne!(number + 1, MOVED, "it was not moved"),
            Err(ReceiveError::Disk { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_piece_makes_no_file_anew() {
    let sent = large();
    let store = sent.store(false).expect("it can be received");
    fs::remove_file(sent.stage().join("data/0")).expect("it was made");
    let bytes = sent.content.read(1).expect("it is there");
    let written = store.write(1, &bytes);
    assert!(matches!(written, Err(ReceiveError::Disk { .. })), "{written:?}");
    assert!(!sent.stage().join("data/0").exists());
    assert!(!store.has(1));
}

#[test]
fn nothing_but_a_hole_has_its_size_from_the_beginning() {
    let sent = sparse(b"");
    assert_eq!(sent.content.manifest.pieces(), 0);
    let store = sent.store(false).expect("it can be received");
    let made = fs::metadata(sent.stage().join("data/0")).expect("it was made");
    assert_eq!(made.len(), 1 << 20);
    assert_eq!(store.publish(), Ok(()));
    assert_large(&sent);
}

#[test]
fn empty_directory_in_place_of_the_stage_is_not_removed() {
    let sent = large();
    let store = sent.complete(false);
    fs::rename(sent.stage(), sent.folder.path().join("aside")).expect("it is there");
    fs::create_dir(sent.stage()).expect("nothing is there");
    store.discard();
    assert!(sent.stage().is_dir());
}

#[test]
fn foreign_content_in_place_of_the_stage_is_not_removed() {
    for is_symlink in [false, true] {
        let sent = large();
        let store = sent.complete(false);
        let elsewhere = sent.folder.path().join("elsewhere");
        let stage = sent.stage();
        fs::rename(&stage, sent.folder.path().join("aside")).expect("it is there");
        let in_its_place = if is_symlink { &elsewhere } else { &stage };
        for folder in ["data", "tree"] {
            fs::create_dir_all(in_its_place.join(folder).join("deep")).expect("it is new");
        }
        for file in ["journal", "built", "manifest", "data/0"] {
            fs::write(in_its_place.join(file), "mine").expect("it can be written");
        }
        if is_symlink {
            std::os::unix::fs::symlink(&elsewhere, &stage).expect("nothing is there");
        }
        store.discard();
        for path in ["data/deep", "tree/deep", "journal", "built", "manifest", "data/0"] {
            assert!(in_its_place.join(path).exists(), "{path} is somebody else's");
        }
        assert!(stage.exists());
        let aside = fs::read_dir(sent.folder.path().join("aside")).expect("it is there");
        assert_eq!(aside.count(), 0, "what was received is removed");
    }
}

/// Runs `run` in a thread for which file modes are enforced, even if the user is root.
fn with_modes_that_hold(run: impl FnOnce() + Send) {
    let held = || {
        let mut held = rustix::thread::capabilities(None).expect("they can be read");
        let over_modes = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        held.effective -= over_modes;
        rustix::thread::set_capabilities(None, held).expect("less is always allowed");
        run();
    };
    std::thread::scope(|scope| scope.spawn(held).join().expect("it does not panic"));
}

#[test]
fn entries_closed_to_their_owner_are_still_published() {
    for overwrite in [false, true] {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let root = folder.path().join("from/tree");
        fs::create_dir_all(root.join("sub")).expect("it is new");
        fs::write(root.join("sub/file"), "text").expect("it can be written");
        let mut sent = Sent::of(folder, &["tree"]);
        let manifest = &sent.content.manifest;
        let closed = |entry: &Entry| Entry { mode: 0, ..entry.clone() };
        let entries = manifest.entries().iter().map(closed).collect();
        let hashes = (0..manifest.pieces()).map(|piece| *manifest.hash_of(piece)).collect();
        let manifest = Manifest::new(manifest.piece_bytes(), entries, hashes);
        sent.content.manifest = manifest.expect("it is as good as before");
        with_modes_that_hold(|| {
            if overwrite {
                fs::create_dir_all(sent.to().join("tree/sub")).expect("it is new");
            }
            drop(sent.stopped_after(STEPS.len() - 1, overwrite));
            assert!(fs::read_dir(sent.to().join("tree")).is_err(), "it is closed");
            goes_on(&sent, overwrite, 0);
            let mode = |path: &str| {
                let path = sent.to().join(path);
                let mode = fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
                fs::set_permissions(path, Permissions::from_mode(0o700)).expect("it is ours");
                mode
            };
            let modes = ["tree", "tree/sub", "tree/sub/file"].map(mode);
            assert_eq!(modes, [0; 3]);
            let read = fs::read_to_string(sent.to().join("tree/sub/file"));
            assert_eq!(read.expect("it is there"), "text");
            assert_eq!(fs::read_dir(sent.to()).expect("it is there").count(), 1);
        });
    }
}

#[test]
fn one_of_many_simultaneous_receivers_wins_unharmed() {
    const STARTS: usize = 8;
    for _ in 0..50 {
        let sent = large();
        let (begin, end) = (Barrier::new(STARTS), Barrier::new(STARTS));
        let start = || {
            begin.wait();
            let opened = sent.store(false);
            end.wait();
            match opened {
                Ok(store) => {
                    assert_eq!(sent.give_what_lacks(&store), 3);
                    assert_eq!(store.publish(), Ok(()));
                    1
                }
                Err(error) => {
                    assert_eq!(error, ReceiveError::InUse);
                    0
                }
            }
        };
        let started: usize = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..STARTS).map(|_| scope.spawn(start)).collect();
            starts.into_iter().map(|start| start.join().expect("it does not panic")).sum()
        });
        assert_eq!(started, 1);
        assert_large(&sent);
    }
}

#[test]
fn receiver_started_at_anothers_end_finds_busy_or_complete() {
    for _ in 0..50 {
        let sent = large();
        let store = sent.complete(false);
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                assert_eq!(store.publish(), Ok(()));
            });
            begin.wait();
            loop {
                match sent.store(false).map(|store| store.is_complete()) {
                    Err(ReceiveError::InUse) => {}
                    Ok(true) => break,
                    other => panic!("{other:?}"),
                }
            }
        });
        drop(store);
        assert!(sent.to().join("large").exists());
    }
}

#[test]
fn transfer_recovered_before_its_offer_is_complete() {
    for sent in [Sent::new(), large()] {
        drop(sent.stopped_after(NOTED, false));
        let recovered = recover(&sent.to(), false);
        assert!(matches!(recovered[..], [(_, Ok(()))]), "{recovered:?}");
        goes_on(&sent, false, 0);
        assert_eq!(recover(&sent.to(), false), []);
        assert!(!sent.stage().exists());
    }
}

#[test]
fn existing_file_that_differs_anywhere_is_refused() {
    let sent = large();
    drop(sent.stopped_after(STEPS.len(), false));
    let large = sent.to().join("large");
    damage(&large, 2 << 20);
    let exists = Err(ReceiveError::Exists("large".into()));
    assert_eq!(sent.store(false).map(drop), exists);
    damage(&large, 2 << 20);
    File::options().append(true).open(&large).and_then(|file| file.set_len(3 << 20)).expect("room");
    assert_eq!(sent.store(false).map(drop), exists);
}
