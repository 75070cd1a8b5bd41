use alloc::collections::{BTreeMap, BTreeSet};

use crate::membership::service::protocol::frame::{MANAGER_PARTITION, Owners};
use crate::{Endpoint, GroupId};

#[derive(Debug, Default)]
pub(super) struct KnownOwners {
    followed: Option<Owners>,
    /// The latest list of each process, with its number among all lists that were received.
    lists: BTreeMap<Endpoint, (u64, Owners)>,
    received: u64,
    /// The process that last sent a list that names owners.
    source: Option<Endpoint>,
}

impl KnownOwners {
    pub(super) fn followed(&self) -> Option<&Owners> {
        self.followed.as_ref()
    }

    pub(super) fn owner_of(&self, group: GroupId) -> Option<Endpoint> {
        self.followed.as_ref()?.owner_of(group)
    }

    pub(super) fn manager(&self) -> Option<Endpoint> {
        let (partition, address) = self.followed.as_ref()?.owned.first()?;
        (*partition == MANAGER_PARTITION).then_some(*address)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = Endpoint> {
        let owned = self.followed.iter().flat_map(|it| it.owned.iter().map(|(_, at)| *at));
        owned.chain(self.source)
    }

    pub(super) fn is_needed(&self, address: Endpoint, partitions: &BTreeSet<u16>) -> bool {
        let owned = self.followed.iter().flat_map(|it| &it.owned);
        self.source == Some(address)
            || owned.into_iter().any(|(owned, at)| *at == address && partitions.contains(owned))
    }

    pub(super) fn add(&mut self, from: Endpoint, owners: Owners, is_connected: bool) {
        self.received += 1;
        if !owners.owned.is_empty() {
            self.source = Some(from);
        }
        if is_connected {
            self.lists.insert(from, (self.received, owners));
        }
    }

    pub(super) fn forget(&mut self, address: Endpoint) {
        self.lists.remove(&address);
    }

    pub(super) fn forget_all(&mut self) {
        self.lists.clear();
    }

    /// Follows the latest list, and returns it if it has changed. An empty list, which a process
    /// sends just after it has started, is followed only if no other is known.
    pub(super) fn follow(&mut self) -> Option<&Owners> {
        let lists = self.lists.values();
        let latest = lists.max_by_key(|(number, owners)| (!owners.owned.is_empty(), *number));
        let (_, owners) = latest?;
        if self.followed.as_ref().is_some_and(|it| it == owners || owners.owned.is_empty()) {
            return None;
        }
        self.followed = Some(owners.clone());
        self.followed.as_ref()
    }
}
