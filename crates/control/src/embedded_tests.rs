use std::sync::{Arc, Mutex, PoisonError};

use carom_proto::membership::service::server::CommitId;
use carom_proto::{Endpoint, GroupSettings, NodeId, Profile, RateOfFire};

use super::*;

const CLUSTER: &str = "test";
const PARTITIONS: u16 = 4;

fn member(node: u64) -> Member {
    let address = std::net::SocketAddr::from(([10, 0, 0, 1], 7400));
    Member { node: NodeId(node), incarnation: 0, endpoint: Endpoint(address) }
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

/// What a partition is after these changes, without a store.
fn expected(changes: &[Change]) -> PartitionState {
    let mut state = PartitionState::default();
    changes.iter().for_each(|change| state.apply(change));
    state
}

/// A disk of so many bytes that outlives the databases on it.
#[derive(Clone, Debug)]
struct Disk(Arc<Mutex<(Vec<u8>, u64)>>);

impl Disk {
    fn of_bytes(capacity: u64) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), capacity))))
    }

    fn set_capacity(&self, capacity: u64) {
        self.with(|_, limit| *limit = capacity);
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
fn what_was_committed_is_there_after_the_process_has_gone() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let changes = [join(1, 1), join(1, 2), join(5, 1), part(1, 1), join(9, 3), part(9, 3)];
    {
        let mut store = EmbeddedStore::open(folder.path(), CLUSTER, PARTITIONS).expect("it opens");
        store.commit(&[commit(1, 0, &changes[..2])]).expect("there is room");
        let (rest, other) = (commit(1, 2, &changes[2..]), commit(2, 0, &[join(2, 7)]));
        store.commit(&[rest, other]).expect("there is room");
    }
    let store = EmbeddedStore::open(folder.path(), CLUSTER, PARTITIONS).expect("it opens again");
    assert_eq!(store.load(1).expect("it is read"), expected(&changes));
    assert_eq!(store.load(2).expect("it is read"), expected(&[join(2, 7)]));
    assert_eq!(store.load(3).expect("it is read"), PartitionState::default());
}

#[test]
fn a_commit_that_is_made_again_changes_nothing() {
    let mut store = Disk::of_bytes(64 << 20).store().expect("it opens");
    let first = commit(1, 0, &[join(1, 1), join(1, 2)]);
    store.commit(std::slice::from_ref(&first)).expect("there is room");
    store.commit(&[first]).expect("it is there");
    assert_eq!(store.load(1).expect("it is read"), expected(&[join(1, 1), join(1, 2)]));
}

#[test]
fn a_commit_that_does_not_follow_what_is_stored_is_refused_whole() {
    let mut store = Disk::of_bytes(64 << 20).store().expect("it opens");
    let good = commit(2, 0, &[join(2, 1)]);
    let late = commit(1, 7, &[join(1, 1)]);
    assert_eq!(store.commit(&[good, late]), Err(CommitFailure::Failed));
    assert_eq!(store.load(2).expect("it is read"), PartitionState::default());
}

#[test]
fn a_full_disk_refuses_the_commit_keeps_what_was_there_and_takes_more_when_there_is_room() {
    let disk = Disk::of_bytes(64 << 20);
    let mut store = disk.store().expect("it opens");
    disk.set_capacity(disk.used());
    let mut kept = Vec::new();
    let failure = (0..100_u32).find_map(|batch| {
        let changes: Vec<Change> =
            (0..1000).map(|node| join(1, u64::from(batch) << 32 | node)).collect();
        let result = store.commit(&[commit(1, kept.len() as u64, &changes)]);
        if result.is_ok() {
            kept.extend(changes);
        }
        result.err()
    });
    assert_eq!(failure, Some(CommitFailure::Full));
    assert_eq!(store.load(1).expect("it is read"), expected(&kept));
    disk.set_capacity(64 << 20);
    store.commit(&[commit(1, kept.len() as u64, &[join(5, 1)])]).expect("there is room now");
    kept.push(join(5, 1));
    drop(store);
    let store = disk.store().expect("it opens again");
    assert_eq!(store.load(1).expect("it is read"), expected(&kept));
}

#[test]
fn a_store_is_one_process_one_clusters_and_of_one_number_of_partitions() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = EmbeddedStore::open(folder.path(), CLUSTER, PARTITIONS).expect("it opens");
    let again = EmbeddedStore::open(folder.path(), CLUSTER, PARTITIONS);
    assert!(matches!(again, Err(StoreError::InUse { .. })), "{again:?}");
    drop(store);
    let other = EmbeddedStore::open(folder.path(), "another", PARTITIONS);
    assert!(matches!(other, Err(StoreError::Other { .. })), "{other:?}");
    let other = EmbeddedStore::open(folder.path(), CLUSTER, PARTITIONS + 1);
    let text = other.expect_err("the partitions differ").to_string();
    assert_eq!(
        text,
        "the store is that of cluster \"test\" with 4 partitions, not of cluster \"test\" with 5 \
         partitions"
    );
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
    let error = EmbeddedStore::open(Path::new("/dev/null/store"), CLUSTER, PARTITIONS);
    let text = error.expect_err("a device has no folders").to_string();
    assert!(text.starts_with("/dev/null/store/membership.redb: "), "{text}");
}
