//! Layout of the keys in etcd.
//!
//! | key under `/carom/CLUSTER/` | value | lease |
//! |---|---|---|
//! | `about` | [`StoreIdentity`](crate::store_identity::StoreIdentity) | |
//! | `commit/PPPP` | the last commit of the partition: term i64, after u64, changes | |
//! | `owner/PPPP` | address of the process that owns the partition | that of the process |
//! | `process/LEASE` | address of the process, to which nodes connect | that of the process |
//! | `state/PPPP/GROUP` | head of the group | |
//! | `state/PPPP/GROUP/NODE` | the node as a member of the group | |
//!
//! Partition numbers have four decimal digits. Other numbers are hexadecimal, with leading zeros.
//! One watch covers the range from `commit/` to `process/`, and therefore reports changes in order.

use carom_proto::{GroupId, NodeId};

#[derive(Clone, Debug)]
pub(super) struct Keys {
    root: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Process(i64),
    Owner(u16),
    Commit(u16),
    Group(u16, GroupId),
    Member(u16, GroupId, NodeId),
}

impl Keys {
    /// Creates the keys of a cluster. Its name may contain any characters.
    pub(super) fn new(cluster: &str) -> Self {
        let name = cluster.replace('%', "%25").replace('/', "%2F");
        Self { root: format!("/carom/{name}/") }
    }

    pub(super) fn identity(&self) -> String {
        format!("{}about", self.root)
    }

    pub(super) fn process(&self, lease: i64) -> String {
        format!("{}process/{lease:016x}", self.root)
    }

    pub(super) fn owner(&self, partition: u16) -> String {
        format!("{}owner/{partition:04}", self.root)
    }

    pub(super) fn commit(&self, partition: u16) -> String {
        format!("{}commit/{partition:04}", self.root)
    }

    pub(super) fn group(&self, partition: u16, group: GroupId) -> String {
        format!("{}state/{partition:04}/{:08x}", self.root, group.0)
    }

    pub(super) fn member(&self, partition: u16, group: GroupId, node: NodeId) -> String {
        format!("{}/{:016x}", self.group(partition, group), node.0)
    }

    /// Returns the range of keys of commits, owners and processes. The end is exclusive.
    pub(super) fn watched(&self) -> (String, String) {
        (format!("{}commit/", self.root), format!("{}process{AFTER_SLASH}", self.root))
    }

    /// Like [`Keys::watched`], but for groups and members of all partitions.
    pub(super) fn states(&self) -> (String, String) {
        (format!("{}state/", self.root), format!("{}state{AFTER_SLASH}", self.root))
    }

    /// Parses a key. Returns `None` for `about`, malformed keys, and keys of other clusters.
    pub(super) fn read(&self, key: &[u8]) -> Option<Key> {
        let key = str::from_utf8(key).ok()?.strip_prefix(&self.root)?;
        let mut parts = key.split('/');
        let (kind, first) = (parts.next()?, parts.next()?);
        let partition = || first.parse().ok();
        let key = match kind {
            "process" => Key::Process(i64::from_str_radix(first, 16).ok()?),
            "owner" => Key::Owner(partition()?),
            "commit" => Key::Commit(partition()?),
            "state" => {
                let group = GroupId(u32::from_str_radix(parts.next()?, 16).ok()?);
                match parts.next() {
                    None => Key::Group(partition()?, group),
                    Some(node) => {
                        let node = NodeId(u64::from_str_radix(node, 16).ok()?);
                        Key::Member(partition()?, group, node)
                    }
                }
            }
            _ => return None,
        };
        parts.next().is_none().then_some(key)
    }
}

/// Character that follows `/` in ASCII.
const AFTER_SLASH: char = '0';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read_as_what_it_was_made_for() {
        let keys = Keys::new("a/b%");
        let (group, node) = (GroupId(0xBEEF), NodeId(u64::MAX));
        for (key, meaning) in [
            (keys.process(i64::MAX), Key::Process(i64::MAX)),
            (keys.owner(15), Key::Owner(15)),
            (keys.commit(4095), Key::Commit(4095)),
            (keys.group(3, group), Key::Group(3, group)),
            (keys.member(3, group, node), Key::Member(3, group, node)),
        ] {
            assert_eq!(keys.read(key.as_bytes()), Some(meaning), "{key}");
            assert_eq!(Keys::new("a").read(key.as_bytes()), None, "{key} is another cluster's");
            assert_eq!(keys.read(format!("{key}/x").as_bytes()), None);
        }
    }

    #[test]
    fn what_is_watched_is_one_range_without_states_and_about() {
        let keys = Keys::new("");
        let (from, to) = keys.watched();
        let is_watched = |key: String| from <= key && key < to;
        assert!(is_watched(keys.commit(0)) && is_watched(keys.commit(4095)));
        assert!(is_watched(keys.owner(0)) && is_watched(keys.process(i64::MAX)));
        assert!(!is_watched(keys.identity()) && !is_watched(keys.group(0, GroupId(1))));
        let (from, to) = keys.states();
        let member = keys.member(4095, GroupId(u32::MAX), NodeId(u64::MAX));
        assert!(from <= member && member < to && from <= keys.group(0, GroupId(0)));
    }
}
