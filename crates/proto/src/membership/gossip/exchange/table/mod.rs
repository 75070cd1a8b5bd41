//! Subscriptions of one node: this node's own, or those known of another node.
//!
//! Every change has the next version number. The gaps of a table are a set of version ranges, which
//! can be filled in any order, because the latest change to a subscription wins.
//!
//! A group that was left is kept for a while as a row without a subscription. Up to a version
//! called the *floor*, such rows are forgotten. A member whose version is below the floor receives
//! all changes from version 0 on, and then removes the groups that were not listed. Once its own
//! floor is as high, it ignores changes with a lower floor: they may contain groups whose end is no
//! longer reported.
//!
//! Rows are *doubtful* once their owner has moved to another address, because another node may have
//! sent them in its name. They still apply, but without a version, until all changes of the owner
//! are known.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use rangemap::RangeSet;

use crate::membership::gossip::packet::{Changes, Row, Subscription, Wanted};
use crate::{GroupId, NodeId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) group: GroupId,
    pub(crate) now: Option<Subscription>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<GroupId, (u32, Option<Subscription>)>,
    by_version: BTreeMap<u32, GroupId>,
    /// Ranges of known versions. The range `a..b` stands for the versions from `a + 1` to `b`.
    known: RangeSet<u32>,
    floor: u32,
    live: usize,
    doubtful: BTreeSet<GroupId>,
}

impl Table {
    pub(super) const MAX_LEFT: usize = 1024;
    /// Maximum number of known ranges. Further ranges are dropped and requested again.
    const MAX_RANGES: usize = 256;

    pub(super) fn version(&self) -> u32 {
        self.known.first().filter(|range| range.start == 0).map_or(0, |range| range.end)
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    pub(super) fn subscription(&self, group: GroupId) -> Option<Subscription> {
        self.rows.get(&group).and_then(|(_, subscription)| *subscription)
    }

    pub(super) fn subscriptions(&self) -> impl Iterator<Item = (GroupId, Subscription)> {
        self.rows.iter().filter_map(|(group, (_, subscription))| Some((*group, (*subscription)?)))
    }

    pub(super) fn change(&mut self, group: GroupId, subscription: Option<Subscription>) {
        let version = self.version().checked_add(1).expect("four billion changes take decades");
        self.put(Row { version, group, subscription });
        self.know(version - 1, version);
        if self.rows.len() - self.live > Self::MAX_LEFT {
            // Forgets half of the left groups at once, so that the search is needed only rarely.
            let mut left = self.by_version.iter().filter(|(_, group)| self.is_left(**group));
            let (version, _) = left.nth(Self::MAX_LEFT / 2).expect("more groups were left");
            self.raise_floor(*version);
        }
    }

    /// Applies changes. Returns the differences, and the number of rows rejected by `max_live`.
    pub(super) fn absorb(&mut self, changes: &Changes, max_live: usize) -> (Vec<Difference>, u64) {
        let (mut differences, mut overflow) = (Vec::new(), 0);
        if changes.floor < self.floor && changes.after < self.floor {
            return (differences, overflow);
        }
        if changes.floor > self.floor && self.version() < changes.floor && changes.after == 0 {
            self.known.clear();
            self.raise_floor(changes.floor);
        }
        let covered = (Bound::Excluded(changes.after), Bound::Included(changes.up_to));
        let mut held = Vec::new();
        if changes.after < changes.up_to {
            held.extend(self.by_version.range(covered).map(|(version, group)| (*version, *group)));
        }
        held.retain(|(version, group)| {
            let listed = changes.rows.binary_search_by_key(version, |row| row.version);
            listed.is_err() || listed.is_ok_and(|place| changes.rows[place].group != *group)
        });
        for (_, group) in held {
            if self.remove(group).is_some() {
                differences.push(Difference { group, now: None });
            }
        }
        for row in &changes.rows {
            let held = self.rows.get(&row.group);
            if held.is_some_and(|(version, _)| *version >= row.version) {
                continue;
            }
            let is_new = row.subscription.is_some() && self.subscription(row.group).is_none();
            if is_new && self.live >= max_live {
                let Some(group) = self.doubtful.pop_first() else {
                    overflow += 1;
                    continue;
                };
                self.remove(group);
                differences.push(Difference { group, now: None });
            }
            let was = self.put(*row);
            if was != row.subscription {
                differences.push(Difference { group: row.group, now: row.subscription });
            }
        }
        self.know(changes.after, changes.up_to);
        if changes.floor > self.floor && self.version() >= changes.floor {
            self.raise_floor(changes.floor);
        }
        (differences, overflow)
    }

    pub(super) fn doubt(&mut self) {
        self.rows.retain(|_, (_, subscription)| subscription.is_some());
        self.rows.values_mut().for_each(|(version, _)| *version = 0);
        self.doubtful = self.rows.keys().copied().collect();
        self.by_version.clear();
        self.known.clear();
        self.floor = 0;
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Removes and returns the doubtful rows. All changes of the owner must be known.
    pub(super) fn settle(&mut self) -> Vec<Difference> {
        let doubtful = core::mem::take(&mut self.doubtful);
        doubtful.iter().for_each(|group| _ = self.remove(*group));
        doubtful.into_iter().map(|group| Difference { group, now: None }).collect()
    }

    pub(super) fn changes(&self, wanted: Wanted, capacity: usize) -> Option<Changes> {
        let lags = wanted.after < self.floor && wanted.floor < self.floor;
        let after = if lags { 0 } else { wanted.after };
        let mut up_to = wanted.up_to.min(self.version());
        if after >= up_to {
            return None;
        }
        let range = (Bound::Excluded(after), Bound::Included(up_to));
        let mut listed = self.by_version.range(range).map(|(version, group)| {
            let subscription = self.subscription(*group);
            Row { version: *version, group: *group, subscription }
        });
        let rows: Vec<Row> = listed.by_ref().take(capacity).collect();
        if let (Some(last), Some(_)) = (rows.last(), listed.next()) {
            up_to = last.version;
        }
        let owner = wanted.node;
        let floor = self.floor;
        let (answer_wanted, more, unknown) = (false, false, 0);
        Some(Changes { answer_wanted, more, owner, after, up_to, floor, rows, unknown })
    }

    pub(super) fn gaps(&self, node: NodeId, version: u32, count: usize) -> Vec<Wanted> {
        let (all, floor) = (0..version, self.floor);
        let gaps = self.known.gaps(&all).take(count);
        gaps.map(|gap| Wanted { node, after: gap.start, up_to: gap.end, floor }).collect()
    }

    pub(super) fn check(&self) {
        let live = self.rows.values().filter(|(_, subscription)| subscription.is_some()).count();
        assert_eq!(live, self.live, "the number of subscriptions is miscounted");
        let versions = self.by_version.len() + self.doubtful.len();
        assert_eq!(self.rows.len(), versions, "a row lacks its version");
        assert!(
            self.doubtful.iter().all(|group| self.rows[group].0 == 0),
            "a doubtful row has a version"
        );
        for (version, group) in &self.by_version {
            assert_eq!(self.rows[group].0, *version, "a row is listed under another version");
        }
        assert!(self.known.len() <= Self::MAX_RANGES, "too many known ranges");
    }

    fn is_left(&self, group: GroupId) -> bool {
        self.subscription(group).is_none()
    }

    fn put(&mut self, row: Row) -> Option<Subscription> {
        let was = self.remove(row.group);
        self.by_version.insert(row.version, row.group);
        self.rows.insert(row.group, (row.version, row.subscription));
        self.live += usize::from(row.subscription.is_some());
        was
    }

    fn remove(&mut self, group: GroupId) -> Option<Subscription> {
        let (version, subscription) = self.rows.remove(&group)?;
        self.by_version.remove(&version);
        self.doubtful.remove(&group);
        self.live -= usize::from(subscription.is_some());
        subscription
    }

    fn raise_floor(&mut self, floor: u32) {
        let below: Vec<GroupId> =
            self.by_version.range(..=floor).map(|(_, group)| *group).collect();
        for group in below {
            if self.is_left(group) {
                self.remove(group);
            }
        }
        self.floor = floor;
    }

    fn know(&mut self, after: u32, up_to: u32) {
        if after < up_to {
            self.known.insert(after..up_to);
        }
        while self.known.len() > Self::MAX_RANGES
            && let Some(last) = self.known.last().cloned()
        {
            self.known.remove(last);
        }
    }
}

#[cfg(test)]
mod tests;
