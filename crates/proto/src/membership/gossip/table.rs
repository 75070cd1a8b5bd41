//! The subscriptions of one node: its own, or another's as far as they have become known.
//!
//! Every change carries the next version number. A table therefore says what it lacks as ranges
//! of versions, and a range can be sent by anybody who has it, in any order: a subscription's
//! latest change wins. What a node has left is kept for a while as a row without subscription, so
//! that one who lags learns of it. Up to a version called the floor such rows are forgotten. One
//! who lags below it is sent everything from version 0: what is then not listed is gone. Until its
//! own floor is as high it forgets what it thought to know, and from then on it does not listen to
//! those whose floor is lower, because what they have not heard of yet is told no more.
//!
//! Rows are doubtful once their owner has moved to another address, for another node may have sent
//! them in its name. They count, without a version, until all changes of the owner are known.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use super::packet::{Changes, Subscription, Wanted};
use crate::{GroupId, NodeId};

/// The state of one group since its latest change; `None`: left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) version: u32,
    pub(super) group: GroupId,
    pub(super) subscription: Option<Subscription>,
}

/// What a change of the table means for one group: what it was and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) group: GroupId,
    pub(super) now: Option<Subscription>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<GroupId, (u32, Option<Subscription>)>,
    by_version: BTreeMap<u32, GroupId>,
    /// Known ranges `(after, up_to]`: sorted, apart, none empty.
    known: Vec<(u32, u32)>,
    floor: u32,
    live: usize,
    doubtful: BTreeSet<GroupId>,
}

impl Table {
    /// Rows of left groups that are kept.
    pub(super) const MAX_LEFT: usize = 1024;
    /// Ranges known beyond the first gap; more are asked for again.
    const MAX_RANGES: usize = 256;

    /// Everything up to this version is known.
    pub(super) fn version(&self) -> u32 {
        match self.known.first() {
            Some((0, up_to)) => *up_to,
            _ => 0,
        }
    }

    /// How many groups the node is in.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    pub(super) fn subscription(&self, group: GroupId) -> Option<Subscription> {
        self.rows.get(&group).and_then(|(_, subscription)| *subscription)
    }

    pub(super) fn subscriptions(&self) -> impl Iterator<Item = (GroupId, Subscription)> {
        self.rows.iter().filter_map(|(group, (_, subscription))| Some((*group, (*subscription)?)))
    }

    /// The owner changes its subscription of `group`.
    pub(super) fn change(&mut self, group: GroupId, subscription: Option<Subscription>) {
        let version = self.version().checked_add(1).expect("four billion changes take decades");
        self.put(Row { version, group, subscription });
        self.know(version - 1, version);
        if self.rows.len() - self.live > Self::MAX_LEFT {
            // Half of them at once, so that the search for them is paid for by many changes.
            let mut left = self.by_version.iter().filter(|(_, group)| self.is_left(**group));
            let (version, _) = left.nth(Self::MAX_LEFT / 2).expect("there are twice as many");
            self.raise_floor(*version);
        }
    }

    /// Another node's changes become known; says what is different now. Of more than `max_live`
    /// subscriptions the rest is not kept but returned as a count.
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

    /// Marks all rows as doubtful, and forgets which changes are known.
    pub(super) fn doubt(&mut self) {
        self.rows.retain(|_, (_, subscription)| subscription.is_some());
        self.rows.values_mut().for_each(|(version, _)| *version = 0);
        self.doubtful = self.rows.keys().copied().collect();
        self.by_version.clear();
        self.known.clear();
        self.floor = 0;
    }

    /// Returns `true` if rows are doubtful.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Removes the rows that are still doubtful once all changes of the owner are known.
    pub(super) fn settle(&mut self) -> Vec<Difference> {
        let doubtful = core::mem::take(&mut self.doubtful);
        doubtful.iter().for_each(|group| _ = self.remove(*group));
        doubtful.into_iter().map(|group| Difference { group, now: None }).collect()
    }

    /// The next part of what `wanted` asks for, in at most `capacity` rows; `None` if nothing of it
    /// is known here.
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

    /// The first gaps in what is known up to `version`.
    pub(super) fn gaps(&self, node: NodeId, version: u32, count: usize) -> Vec<Wanted> {
        let floor = self.floor;
        let ends = self.known.iter().map(|(_, up_to)| *up_to);
        let starts = self.known.iter().map(|(after, _)| *after).chain([version]);
        let between = core::iter::once(0).chain(ends).zip(starts);
        between
            .map(|(after, start)| Wanted { node, after, up_to: start.min(version), floor })
            .filter(|wanted| wanted.after < wanted.up_to)
            .take(count)
            .collect()
    }

    pub(super) fn check(&self) {
        let live = self.rows.values().filter(|(_, subscription)| subscription.is_some()).count();
        assert_eq!(live, self.live, "the number of subscriptions is miscounted");
        let versions = self.by_version.len() + self.doubtful.len();
        assert_eq!(self.rows.len(), versions, "a row lacks its version");
        assert!(self.doubtful.iter().all(|group| self.rows[group].0 == 0), "no doubt of a row");
        for (version, group) in &self.by_version {
            assert_eq!(self.rows[group].0, *version, "a row is listed under another version");
        }
        assert!(self.known.iter().all(|(after, up_to)| after < up_to), "an empty range is known");
        assert!(self.known.windows(2).all(|two| two[0].1 < two[1].0), "known ranges touch");
        assert!(self.known.len() <= Self::MAX_RANGES, "too many known ranges");
    }

    fn is_left(&self, group: GroupId) -> bool {
        self.subscription(group).is_none()
    }

    /// Returns the subscription that was there before.
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
        if after >= up_to {
            return;
        }
        let mut merged = (after, up_to);
        self.known.retain(|range| {
            let apart = range.1 < merged.0 || merged.1 < range.0;
            if !apart {
                merged = (merged.0.min(range.0), merged.1.max(range.1));
            }
            apart
        });
        let place = self.known.partition_point(|range| range.0 < merged.0);
        self.known.insert(place, merged);
        self.known.truncate(Self::MAX_RANGES);
    }
}

#[cfg(test)]
mod tests;
