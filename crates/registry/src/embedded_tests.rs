use std::sync::{Arc, Mutex, PoisonError};

use carom_proto::membership::service::server::CommitId;
use carom_proto::{Endpoint, GroupSettings, Incarnation, NodeId, Profile, RateOfFire};

use super::*;

const CLUSTER: &str = "test";
const PARTITIONS: u16 = 4;

fn member(node: u64) -> Member {
    let endpoint = Endpoint(([10, 0, 0, 1], 7400).into());
    Member { node: NodeId(node), incarnation: 0, start: Incarnation(0), endpoint }
}

fn settings(c: u8) -> GroupSettings {
    GroupSettings { profile: Profile::TimeCritical(RateOfFire::new(8, c)), name_check: 7 }
}

fn join(group: u32, node: u64) -> Change {
    Change::Join { group: GroupId(group), settings: settings(5), member: member(node) }
}

fn part(group: u32, node: u64) -> Change {
    Change::Part { group: GroupId(group), member: member(node), has_failed: false }
}

fn commit(partition: u16, after: u64, changes: &[Change]) -> Commit {
    Commit { id: CommitId(1), partition, after, changes: changes.to_vec() }
}

fn open(folder: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(folder, CLUSTER, PARTITIONS, false)
}

fn open_anew(folder: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(folder, CLUSTER, PARTITIONS, true)
}

fn stored(store: &mut EmbeddedStore, commits: &[Commit]) -> Result<(), CommitFailure> {
    store.commit(commits).expect("it is sound")
}

/// Returns the state of a partition after `changes`, computed without a store.
fn expected(changes: &[Change]) -> PartitionState {
    let mut state = PartitionState::default();
    changes.iter().for_each(|change| state.apply(change));
    state
}

/// Disk of limited capacity that outlives its databases. A broken disk panics when it syncs.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<(Vec<u8>, u64)>>);

const BROKEN: u64 = u64::MAX;

impl Disk {
    pub(crate) fn of_bytes(capacity: u64) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), capacity))))
    }

    fn set_capacity(&self, capacity: u64) {
        self.with(|_, limit| *limit = capacity);
    }

    pub(crate) fn break_down(&self) {
        self.set_capacity(BROKEN);
    }

    fn used(&self) -> u64 {
        self.with(|bytes, _| bytes.len() as u64)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>, &mut u64) -> T) -> T {
        let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, capacity) = &mut *disk;
        work(bytes, capacity)
    }

    fn store(&self) -> Result<EmbeddedStore, StoreError> {
        let disk = self.clone();
        EmbeddedStore::on(move || disk.clone(), CLUSTER, PARTITIONS)
    }
}

impl redb::StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.used())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|bytes, _| {
            let start = offset as usize;
            out.copy_from_slice(&bytes[start..start + out.len()]);
        });
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|bytes, capacity| match len > *capacity {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => {
                bytes.resize(len as usize, 0);
                Ok(())
            }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        assert!(self.with(|_, capacity| *capacity != BROKEN), "the database panics");
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|bytes, _| {
            let start = offset as usize;
            bytes[start..start + data.len()].copy_from_slice(data);
        });
        Ok(())
    }
}

#[test]
fn committed_changes_survive_the_process() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let changes = [join(1, 1), join(1, 2), join(5, 1), part(1, 1), join(9, 3), part(9, 3)];
    {
        let mut store = open(folder.path()).expect("it opens");
        stored(&mut store, &[commit(1, 0, &changes[..2])]).expect("there is room");
        let (rest, other) = (commit(1, 2, &changes[2..]), commit(2, 0, &[join(2, 7)]));
        stored(&mut store, &[rest, other]).expect("there is room");
    }
    let store = open(folder.path()).expect("it opens again");
    assert_eq!(store.load(1).expect("it is read"), expected(&changes));
    assert_eq!(store.load(2).expect("it is read"), expected(&[join(2, 7)]));
    assert_eq!(store.load(3).expect("it is read"), PartitionState::default());
}

#[test]
fn a_commit_that_is_made_again_changes_nothing() {
    let mut store = Disk::of_bytes(64 << 20).store().expect("it opens");
    let first = commit(1, 0, &[join(1, 1), join(1, 2)]);
    stored(&mut store, std::slice::from_ref(&first)).expect("there is room");
    stored(&mut store, &[first]).expect("it is there");
    assert_eq!(store.load(1).expect("it is read"), expected(&[join(1, 1), join(1, 2)]));
}

#[test]
fn commit_out_of_sequence_is_refused_as_a_whole() {
    let disk = Disk::of_bytes(64 << 20);
    let mut store = disk.store().expect("it opens");
    let good = commit(2, 0, &[join(2, 1)]);
    let late = commit(1, 7, &[join(1, 1)]);
    let error = store.commit(&[good, late]).expect_err("the first changes are missing");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    drop(store);
    let store = disk.store().expect("it opens again");
    assert_eq!(store.load(2).expect("it is read"), PartitionState::default());
}

#[test]
fn errors_of_the_database_have_their_fix_and_no_system_numbers() {
    let old = cannot_use(Path::new("s/carom.redb"), DatabaseError::UpgradeRequired(2));
    let old = crate::RegistryError::from(old);
    assert_eq!(old.to_string(), "s/carom.redb has file format 2, which is not supported");
    assert!(old.fix().contains("the version of carom that wrote it"), "{}", old.fix());
    let broken = StoreError::from(redb::Error::Io(io::Error::from_raw_os_error(5)));
    assert_eq!(broken.to_string(), "the store failed: input/output error");
}

#[test]
fn full_disk_refuses_commits_until_there_is_room_again() {
    let disk = Disk::of_bytes(64 << 20);
    let mut store = disk.store().expect("it opens");
    disk.set_capacity(disk.used());
    let mut kept = Vec::new();
    let failure = (0..100_u32).find_map(|batch| {
        let changes: Vec<Change> =
            (0..1000).map(|node| join(1, u64::from(batch) << 32 | node)).collect();
        let result = stored(&mut store, &[commit(1, kept.len() as u64, &changes)]);
        if result.is_ok() {
            kept.extend(changes);
        }
        result.err()
    });
    assert_eq!(failure, Some(CommitFailure::Full));
    assert_eq!(store.load(1).expect("it is read"), expected(&kept));
    disk.set_capacity(64 << 20);
    stored(&mut store, &[commit(1, kept.len() as u64, &[join(5, 1)])]).expect("there is room now");
    kept.push(join(5, 1));
    drop(store);
    let store = disk.store().expect("it opens again");
    assert_eq!(store.load(1).expect("it is read"), expected(&kept));
}

#[test]
fn store_belongs_to_one_process_cluster_and_partition_count() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = open(folder.path()).expect("it opens");
    let again = open(folder.path());
    assert!(matches!(again, Err(StoreError::InUse { .. })), "{again:?}");
    drop(store);
    let other = EmbeddedStore::open(folder.path(), "another", PARTITIONS, false);
    assert!(matches!(other, Err(StoreError::Other { .. })), "{other:?}");
    let other = EmbeddedStore::open(folder.path(), CLUSTER, PARTITIONS + 1, false);
    let text = other.expect_err("the partitions differ").to_string();
    assert_eq!(
        text,
        "the store belongs to cluster \"test\" with 4 partitions, not to cluster \"test\" with 5 \
         partitions"
    );
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
    let error = open(Path::new("/dev/null/store"));
    let text = error.expect_err("a device has no folders").to_string();
    assert!(text.starts_with("cannot open /dev/null/store/membership.redb: "), "{text}");
}

/// Creates a directory with a store of 20 groups that was closed cleanly.
fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let mut store = open(folder.path()).expect("it opens");
    let changes: Vec<Change> = (0..300).map(|node| join(node as u32 % 20, node)).collect();
    for (batch, changes) in changes.chunks(50).enumerate() {
        stored(&mut store, &[commit(1, batch as u64 * 50, changes)]).expect("there is room");
    }
    folder
}

fn read_all(folder: &Path) -> Result<Vec<PartitionState>, StoreError> {
    let store = open(folder)?;
    (0..PARTITIONS).map(|partition| store.load(partition)).collect()
}

#[test]
fn damaged_bytes_anywhere_are_an_error_or_change_nothing() {
    let folder = filled();
    let path = folder.path().join(DATABASE);
    let sound = std::fs::read(&path).expect("it is there");
    let expected = read_all(folder.path()).expect("it is sound");
    let mut errors = 0;
    // The damage is at the head of a page or at an odd offset, and more often in the file's header.
    let places = (0..sound.len()).step_by(4096).map(|at| at + (at / 4096 % 3) * 1037);
    for at in (0..320).step_by(16).chain(places) {
        let mut damaged = sound.clone();
        let end = (at + 16).min(damaged.len());
        damaged[at..end].iter_mut().for_each(|byte| *byte = !*byte);
        std::fs::write(&path, damaged).expect("there is room");
        match read_all(folder.path()) {
            Ok(found) => assert_eq!(found, expected, "damage at {at} changes what is read"),
            Err(error) => {
                errors += 1;
                let is_named = matches!(error, StoreError::Damaged { .. });
                assert!(is_named, "damage at {at}: {error:?}");
            }
        }
    }
    assert!(errors > 10, "only {errors} damages were noticed");
}

#[test]
fn lost_store_is_recreated_only_on_request() {
    for is_emptied in [true, false] {
        let folder = filled();
        let path = folder.path().join(DATABASE);
        match is_emptied {
            true => std::fs::write(&path, "").expect("it is ours"),
            false => std::fs::remove_file(&path).expect("it is ours"),
        }
        let error = open(folder.path()).expect_err("there was a store");
        assert!(matches!(error, StoreError::Lost { .. }), "{error:?}");
        assert!(error.to_string().contains("membership.redb"), "{error}");
        let store = open_anew(folder.path()).expect("that was asked for");
        assert_eq!(store.load(1).expect("it is read"), PartitionState::default());
        drop(store);
        open(folder.path()).expect("it is a store again");
    }
}

#[test]
fn request_for_a_new_store_sets_aside_only_a_damaged_one() {
    let folder = filled();
    let store = open_anew(folder.path()).expect("it is sound");
    assert_ne!(store.load(1).expect("it is read"), PartitionState::default());
    drop(store);
    let path = folder.path().join(DATABASE);
    let mut damaged = std::fs::read(&path).expect("it is there");
    let half = damaged.len() / 2;
    damaged[4096..half].fill(0xAA);
    std::fs::write(&path, &damaged).expect("there is room");
    let error = open(folder.path()).expect_err("it is damaged");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    let store = open_anew(folder.path()).expect("that was asked for");
    assert_eq!(store.load(1).expect("it is read"), PartitionState::default());
    assert!(folder.path().join(ASIDE).exists(), "what was damaged is kept");
}

#[test]
fn a_file_that_is_no_database_is_a_damaged_store() {
    let folder = filled();
    let path = folder.path().join(DATABASE);
    let sound = std::fs::read(&path).expect("it is there");
    let mut without_magic = sound.clone();
    without_magic[0] ^= 1;
    for bytes in [&without_magic[..], b"notes\n", &sound[..100]] {
        std::fs::write(&path, bytes).expect("there is room");
        let error = open(folder.path()).expect_err("it is no database");
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        assert!(crate::RegistryError::from(error).fix().contains("--new-store"));
    }
    open_anew(folder.path()).expect("that was asked for");
}

#[test]
fn failed_first_start_does_not_hinder_the_second() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let marker = folder.path().join(MARKER);
    std::os::unix::fs::symlink(folder.path().join("nowhere/else"), &marker).expect("it is ours");
    let error = open(folder.path()).expect_err("the marker cannot be written");
    assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    std::fs::remove_file(marker).expect("it is ours");
    open(folder.path()).expect("it opens");
}
