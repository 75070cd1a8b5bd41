use std::collections::BTreeMap;
use std::net::SocketAddr;

use carom_proto::codec::{Field as _, rest};
use carom_proto::membership::service::server::Commit;
use carom_proto::membership::service::{Change, PartitionState};
use carom_proto::{GroupId, GroupSettings};

use super::keys::Keys;

/// Last commit of a partition, as stored under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitRecord {
    /// Term of the owner: the revision at which it began. No other owner has the same term.
    pub(super) term: i64,
    /// Version before the first change.
    pub(super) after: u64,
    pub(super) changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Put(String, Vec<u8>),
    Delete(String),
}

carom_proto::fields! {
    CommitRecord { term, after, changes with rest };
}

impl CommitRecord {
    pub(super) fn version(&self) -> u64 {
        self.after + self.changes.len() as u64
    }
}

/// Parses the address of a process. It is stored as text, so that `etcdctl` shows it.
pub(super) fn address(bytes: &[u8]) -> Option<SocketAddr> {
    str::from_utf8(bytes).ok()?.parse().ok()
}

/// Returns the writes of a commit to a partition in the state `before`: at most two per change.
pub(super) fn operations(keys: &Keys, commit: &Commit, before: &PartitionState) -> Vec<Operation> {
    let mut writes = BTreeMap::new();
    let mut heads: BTreeMap<GroupId, Head> = BTreeMap::new();
    for (change, version) in commit.changes.iter().zip(commit.after + 1..) {
        let (group, member) = (change.group(), change.member());
        let known = before.group(group);
        let head = heads.entry(group).or_insert_with(|| Head {
            settings: known.map(|known| known.settings),
            members: known.map_or(0, |known| known.members.len()),
            version,
        });
        head.version = version;
        let key = keys.member(commit.partition, group, member.node);
        let was_there = match writes.get(&key) {
            Some(write) => matches!(write, Operation::Put(..)),
            None => before.member(group, member.node).is_some(),
        };
        let write = match change {
            Change::Join { settings, .. } => {
                head.settings = head.settings.filter(|_| head.members > 0).or(Some(*settings));
                head.members += usize::from(!was_there);
                Operation::Put(key.clone(), member.to_bytes())
            }
            Change::Part { .. } => {
                head.members -= usize::from(was_there);
                Operation::Delete(key.clone())
            }
        };
        writes.insert(key, write);
    }
    let heads = heads.into_iter().map(|(group, head)| {
        let key = keys.group(commit.partition, group);
        let Some(settings) = head.settings.filter(|_| head.members > 0) else {
            return Operation::Delete(key);
        };
        Operation::Put(key, (settings, head.version).to_bytes())
    });
    heads.chain(writes.into_values()).collect()
}

struct Head {
    settings: Option<GroupSettings>,
    members: usize,
    version: u64,
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
