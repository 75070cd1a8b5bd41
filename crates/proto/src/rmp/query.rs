//! Queries for a group's rings from outside (4.3).
//!
//! A refused change of the list is answered with a New List that contains the current view. A node
//! that is not in a ring therefore sends a request to leave one, which is always refused. The token
//! site answers, and so does the first member of the list, because the query may miss a moving
//! token. All members answer from the third query on, and any query during a reformation, because
//! both of these members may be gone.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::counters::Counters;
use super::ring::Snapshot;
use crate::ring::{Epoch, QueryError, QueryId, QueryOptions, QueryResult, RingStatus, Timestamp};
use crate::{GroupId, NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Queries {
    pub(super) open: Vec<Query>,
    pub(super) over: VecDeque<QueryResult>,
    last: u32,
}

#[derive(Debug)]
pub(super) struct Query {
    id: QueryId,
    pub(super) group: GroupId,
    pub(super) options: QueryOptions,
    sent: u32,
    next_at: Time,
    deadline: Time,
    has_news: bool,
    rings: BTreeMap<Epoch, Seen>,
}

#[derive(Debug)]
struct Seen {
    sight: RingStatus,
    next: Timestamp,
    first: u32,
    last: u32,
}

impl RingStatus {
    fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { view, token, is_working, .. } = snapshot;
        let is_working = *is_working && view.has_quorum();
        Self { view: view.clone(), token: *token, is_working }
    }
}

impl Query {
    pub(super) fn new(now: Time, id: QueryId, group: GroupId, options: QueryOptions) -> Self {
        Self {
            id,
            group,
            options,
            sent: 0,
            next_at: now,
            deadline: now + options.patience,
            has_news: false,
            rings: BTreeMap::new(),
        }
    }

    pub(super) fn next_try(&mut self, now: Time, retry: Duration) -> u32 {
        // After an answer, the tries are counted from 0 again, so that few members answer.
        let tries = if self.rings.is_empty() { self.sent } else { 0 };
        self.next_at = now + retry.saturating_mul(1 << tries.min(16)).min(MOST_RETRY);
        self.sent += 1;
        self.has_news = false;
        tries
    }

    fn due(&self) -> Time {
        self.next_at.min(self.deadline)
    }

    fn has_seen_all(&self) -> bool {
        let least = if self.rings.len() > 1 { 3 } else { 2 };
        self.sent >= least && !self.rings.is_empty() && !self.has_news
    }

    fn add(&mut self, snapshot: &Snapshot) -> bool {
        let (epoch, last) = (snapshot.view.epoch, self.sent);
        let known = self.rings.get(&epoch);
        if known.is_none() && self.rings.len() >= MAX_RINGS {
            return false;
        }
        self.has_news |= known.is_none();
        let first = known.map_or(last, |seen| seen.first);
        let seen = match self.rings.remove(&epoch).filter(|seen| seen.next > snapshot.next) {
            Some(further) => Seen { last, ..further },
            None => Seen { sight: RingStatus::of(snapshot), next: snapshot.next, first, last },
        };
        self.rings.insert(epoch, seen);
        true
    }

    fn is_past(&self, seen: &Seen) -> bool {
        let view = &seen.sight.view;
        self.rings.values().any(|other| {
            let later = &other.sight.view;
            let is_later = later.origin == view.origin && later.epoch.version > view.epoch.version;
            is_later && seen.last <= other.first
        })
    }

    fn result(&self) -> QueryResult {
        let present = self.rings.values().filter(|seen| !self.is_past(seen));
        let rings = present.map(|seen| seen.sight.clone()).collect();
        QueryResult { id: self.id, group: self.group, rings }
    }
}

impl Queries {
    pub(super) fn is_open(&self, group: GroupId) -> bool {
        self.open.iter().any(|query| query.group == group)
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.open.iter().map(Query::due).min()
    }

    pub(super) fn next_id(&mut self) -> Result<QueryId, QueryError> {
        let open = self.open.len() + self.over.len();
        if open >= MAX_QUERIES {
            return Err(QueryError::TooMany { open });
        }
        self.last = self.last.wrapping_add(1);
        Ok(QueryId(self.last))
    }

    pub(super) fn complete(&mut self, id: QueryId, group: GroupId, own: &Snapshot) {
        self.over.push_back(QueryResult { id, group, rings: vec![RingStatus::of(own)] });
    }

    pub(super) fn take_due(&mut self, now: Time) -> Vec<Query> {
        let due = self.open.extract_if(.., |query| query.due() <= now);
        let is_over = |query: &Query| query.deadline <= now || query.has_seen_all();
        let (over, due): (Vec<Query>, Vec<Query>) = due.partition(is_over);
        self.over.extend(over.iter().map(Query::result));
        due
    }

    pub(super) fn on_snapshot(
        &mut self,
        counters: &mut Counters,
        sender: NodeId,
        group: GroupId,
        snapshot: &Snapshot,
    ) -> bool {
        let mut was_asked = false;
        for query in self.open.iter_mut().filter(|query| query.group == group) {
            if snapshot.view.name_check != query.options.name_check {
                counters.name_collisions += 1;
            } else if snapshot.view.process_of(sender).is_none() {
                counters.foreign += 1;
            } else if !query.add(snapshot) {
                counters.looks_too_full += 1;
            }
            was_asked = true;
        }
        was_asked
    }
}

const MAX_QUERIES: usize = 64;
const MAX_RINGS: usize = 64;
const MOST_RETRY: Duration = Duration::from_secs(1);
