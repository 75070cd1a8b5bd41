use carom_proto::membership::service::Member;
use carom_proto::membership::service::server::CommitId;
use carom_proto::{Endpoint, Incarnation, NodeId, Profile, RateOfFire, Rng};

use super::super::follower::groups;
use super::super::keys::Key;
use super::*;

const PARTITION: u16 = 3;

fn settings(c: u8) -> GroupSettings {
    GroupSettings { profile: Profile::TimeCritical(RateOfFire::new(8, c)), name_check: 7 }
}

fn member(node: u64, incarnation: u32) -> Member {
    let address = SocketAddr::from(([10, 0, 0, 1], 7400));
    Member { node: NodeId(node), incarnation, start: Incarnation(7), endpoint: Endpoint(address) }
}

fn join(group: u32, c: u8, node: u64) -> Change {
    Change::Join { group: GroupId(group), settings: settings(c), member: member(node, 0) }
}

fn part(group: u32, node: u64) -> Change {
    Change::Part { group: GroupId(group), member: member(node, 0), has_failed: true }
}

/// Returns the partition as it is stored under the keys.
fn restored(keys: &Keys, pairs: &BTreeMap<String, Vec<u8>>, version: u64) -> PartitionState {
    for key in pairs.keys() {
        let read = keys.read(key.as_bytes());
        let is_own = matches!(read, Some(Key::Group(PARTITION, _) | Key::Member(PARTITION, ..)));
        assert!(is_own, "{read:?} is none of the partition's");
    }
    let pairs = pairs.iter().map(|(key, value)| (key.as_bytes(), &value[..]));
    let mut partitions = groups(keys, pairs).expect("every member's group has a head");
    PartitionState::restore(version, partitions.remove(&PARTITION).unwrap_or_default())
}

#[test]
fn keys_hold_the_state_after_any_commits() {
    let keys = Keys::new("test");
    let mut rng = Rng::new(1);
    for _ in 0..200 {
        let mut pairs = BTreeMap::new();
        let mut state = PartitionState::default();
        for _ in 0..6 {
            let changes: Vec<Change> = (0..rng.below(12) + 1)
                .map(|_| {
                    let (group, node) = (rng.below(3) as u32 + 1, rng.below(3) as u64);
                    match rng.below(2) {
                        0 => join(group, rng.below(2) as u8 + 4, node),
                        _ => part(group, node),
                    }
                })
                .collect();
            let (id, after) = (CommitId(1), state.version());
            let commit = Commit { id, partition: PARTITION, after, changes };
            for operation in operations(&keys, &commit, &state) {
                match operation {
                    Operation::Put(key, value) => pairs.insert(key, value),
                    Operation::Delete(key) => pairs.remove(&key),
                };
            }
            // A leave of an absent node changes only the version of an existing group.
            commit.changes.iter().for_each(|change| state.apply(change));
            assert_eq!(restored(&keys, &pairs, state.version()), state, "{commit:?}");
        }
    }
}

#[test]
fn full_commit_fits_a_transaction_and_writes_each_key_once() {
    let keys = Keys::new("test");
    let most = super::super::MAX_COMMIT_CHANGES as u32;
    let changes: Vec<Change> = (1..=most).map(|group| join(group, 5, 1)).collect();
    let commit = Commit { id: CommitId(1), partition: PARTITION, after: 0, changes };
    let writes = operations(&keys, &commit, &PartitionState::default());
    let written: std::collections::BTreeSet<&String> = writes
        .iter()
        .map(|write| match write {
            Operation::Put(key, _) | Operation::Delete(key) => key,
        })
        .collect();
    assert_eq!(written.len(), writes.len());
    assert!(writes.len() < 128, "{} writes and the commit's key", writes.len());
}

#[test]
fn a_commit_record_is_read_as_it_was_written() {
    let changes = vec![join(1, 5, 1), part(2, 2)];
    let record = CommitRecord { term: i64::MAX, after: u64::MAX - 2, changes };
    let bytes = record.to_bytes();
    assert_eq!(CommitRecord::take(&mut &bytes[..]), Ok(record.clone()));
    assert_eq!(record.version(), u64::MAX);
    for end in 0..bytes.len() {
        let cut = CommitRecord::take(&mut &bytes[..end]);
        assert!(cut.is_err() || cut.is_ok_and(|cut| cut.changes.len() < 2));
    }
}
