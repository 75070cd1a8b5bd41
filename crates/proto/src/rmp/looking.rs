//! Queries of a group's rings from outside (4.3).
//!
//! A refused change of the list is answered with a New List that contains the current view. A node
//! that is in no ring sends a request to leave one, which is always refused and changes nothing.
//! The token site answers, and also the first member of the list, because the query may miss a
//! moving token. All members answer the third query, or any query during a reformation, because
//! those two may be gone.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::around::Around;
use super::group::Group;
use super::log::{ListChange, ListChangeKind};
use super::names::{Epoch, Process, Timestamp};
use super::packet::{FORWARD, NewList, Packet, Snapshot};
use super::view::RingView;
use super::{Counters, Rmp};
use crate::{Class, Destination, GroupId, NodeId, Time, Transmit};

/// Options of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookOptions {
    /// The [check](GroupId::name_check) of the group's name. Rings of another group with the same
    /// id are ignored.
    pub name_check: u32,
    /// Maximum time to wait for answers.
    pub patience: Duration,
    /// A member that forwards the query, for a host without multicast.
    pub via: Option<NodeId>,
}

/// Identifier of a query of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookId(pub u32);

/// A ring, as reported by one of its members, or by this node if it is in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSight {
    /// The members in ring order, and the locks.
    pub view: RingView,
    /// The token holder.
    pub token: Process,
    /// `true` if the ring works: it is not being reformed, may continue, and has its quorum.
    pub is_working: bool,
}

/// Result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The query.
    pub id: LookId,
    /// The group.
    pub group: GroupId,
    /// Its rings, by epoch. Empty if no member answered. Several if the group is partitioned.
    pub rings: Vec<RingSight>,
}

/// Reason why a query was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// Too many queries are in progress or were not [fetched](Rmp::poll_looked).
    #[error("too many ring queries: {open} are in progress or not fetched")]
    TooMany {
        /// Number of these queries.
        open: usize,
    },
}

/// Queries of this node.
#[derive(Debug, Default)]
pub(super) struct Looks {
    open: Vec<Look>,
    /// Results that were not fetched yet.
    over: VecDeque<Looked>,
    last: u32,
}

#[derive(Debug)]
struct Look {
    id: LookId,
    group: GroupId,
    options: LookOptions,
    /// Number of query packets sent.
    asked: u32,
    next_at: Time,
    deadline: Time,
    /// `true` if a new ring has answered since the last query packet.
    has_news: bool,
    rings: BTreeMap<Epoch, Seen>,
}

/// A ring that has answered.
#[derive(Debug)]
struct Seen {
    sight: RingSight,
    /// Position of the member that answered.
    next: Timestamp,
    /// Number of query packets before its first answer.
    first: u32,
    /// Number of query packets before its last answer.
    last: u32,
}

impl RingSight {
    fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { view, token, is_working, .. } = snapshot;
        let is_working = *is_working && view.has_quorum();
        Self { view: view.clone(), token: *token, is_working }
    }
}

impl Look {
    fn due(&self) -> Time {
        self.next_at.min(self.deadline)
    }

    /// Returns `true` if the known rings have had the time to answer again, and no other ring has
    /// answered.
    fn has_seen_all(&self) -> bool {
        let least = if self.rings.len() > 1 { 3 } else { 2 };
        self.asked >= least && !self.rings.is_empty() && !self.has_news
    }

    fn see(&mut self, snapshot: &Snapshot) -> bool {
        let (epoch, last) = (snapshot.view.epoch, self.asked);
        let known = self.rings.get(&epoch);
        if known.is_none() && self.rings.len() >= MAX_RINGS {
            return false;
        }
        self.has_news |= known.is_none();
        let first = known.map_or(last, |seen| seen.first);
        let seen = match self.rings.remove(&epoch).filter(|seen| seen.next > snapshot.next) {
            Some(further) => Seen { last, ..further },
            None => Seen { sight: RingSight::of(snapshot), next: snapshot.next, first, last },
        };
        self.rings.insert(epoch, seen);
        true
    }

    /// Returns `true` if all members of this ring seem to have moved to a later one: since the
    /// later ring first answered, this one has answered no query packet.
    fn is_past(&self, seen: &Seen) -> bool {
        let view = &seen.sight.view;
        self.rings.values().any(|other| {
            let later = &other.sight.view;
            let is_later = later.origin == view.origin && later.epoch.version > view.epoch.version;
            is_later && seen.last <= other.first
        })
    }

    fn over(self) -> Looked {
        let present = self.rings.values().filter(|seen| !self.is_past(seen));
        let rings = present.map(|seen| seen.sight.clone()).collect();
        Looked { id: self.id, group: self.group, rings }
    }
}

impl Looks {
    pub(super) fn is_open(&self, group: GroupId) -> bool {
        self.open.iter().any(|look| look.group == group)
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.open.iter().map(Look::due).min()
    }

    /// Adds a snapshot to the queries of its group. Returns `true` if there is one.
    fn on_snapshot(
        &mut self,
        counters: &mut Counters,
        sender: NodeId,
        group: GroupId,
        snapshot: &Snapshot,
    ) -> bool {
        let mut was_asked = false;
        for look in self.open.iter_mut().filter(|look| look.group == group) {
            if snapshot.view.name_check != look.options.name_check {
                counters.name_collisions += 1;
            } else if snapshot.view.process_of(sender).is_none() {
                counters.foreign += 1;
            } else if !look.see(snapshot) {
                counters.looks_too_full += 1;
            }
            was_asked = true;
        }
        was_asked
    }
}

impl Rmp {
    /// Queries the rings of a group. This node does not become a member, and nothing changes at the
    /// members. [`Rmp::poll_looked`] returns the result once the rings that answered have had time
    /// to answer again and no other ring has answered since, at the latest after
    /// [`LookOptions::patience`].
    ///
    /// A node that is in a ring of the group reports that ring, and sends no query.
    ///
    /// # Errors
    /// Too many of this node's queries are in progress, or were not fetched.
    pub fn look(
        &mut self,
        now: Time,
        group: GroupId,
        options: LookOptions,
    ) -> Result<LookId, LookError> {
        let open = self.looks.open.len() + self.looks.over.len();
        if open >= MAX_LOOKS {
            return Err(LookError::TooMany { open });
        }
        self.counters.looks_made += 1;
        self.looks.last = self.looks.last.wrapping_add(1);
        let id = LookId(self.looks.last);
        let state = self.groups.get(&group).filter(|_| self.is_in(group));
        if let Some(own) = state.and_then(Group::own_snapshot) {
            let rings = vec![RingSight::of(&own)];
            self.looks.over.push_back(Looked { id, group, rings });
            return Ok(id);
        }
        let (deadline, rings) = (now + options.patience, BTreeMap::new());
        let (asked, next_at, has_news) = (0, now, false);
        let look = Look { id, group, options, asked, next_at, deadline, has_news, rings };
        let look = self.ask_to_see(now, look);
        self.looks.open.push(look);
        Ok(id)
    }

    /// Returns the result of the next completed query.
    pub fn poll_looked(&mut self) -> Option<Looked> {
        self.looks.over.pop_front()
    }

    /// Returns `true` if this node's ring of a group works: it is not being reformed, may continue,
    /// and has its quorum.
    pub fn is_working(&self, group: GroupId) -> bool {
        let state = self.groups.get(&group);
        state.is_some_and(|it| it.ring.is_some() && it.reforming.is_idle() && !it.is_short())
    }

    /// Repeats the queries that are due, or completes them.
    pub(super) fn look_again(&mut self, now: Time) {
        let due: Vec<Look> = self.looks.open.extract_if(.., |look| look.due() <= now).collect();
        for look in due {
            if look.deadline <= now || look.has_seen_all() {
                self.looks.over.push_back(look.over());
            } else {
                let look = self.ask_to_see(now, look);
                self.looks.open.push(look);
            }
        }
    }

    fn ask_to_see(&mut self, now: Time, look: Look) -> Look {
        let (group, node, origin) = (look.group, self.id, self.origin);
        // Once a ring has answered, the query is repeated as if for the first time, so that few
        // members answer.
        let tries = if look.rings.is_empty() { look.asked } else { 0 };
        let process = Process { node, life: self.lives };
        let change = ListChange { process, request: tries, kind: ListChangeKind::Leave };
        let packet = Packet::ListChangeRequest { epoch: None, change };
        let via = look.options.via.filter(|via| *via != node).map(Destination::Node);
        for destination in [Some(Destination::Group(group)), via].into_iter().flatten() {
            let flags = if matches!(destination, Destination::Node(_)) { FORWARD } else { 0 };
            let transmit = Transmit { destination, class: Class::Control };
            self.outbox.push(transmit, |out| packet.encode_with(flags, out, group, origin, 0));
        }
        let wait = self.config.join_retry.saturating_mul(1 << tries.min(16)).min(MOST_RETRY);
        Look { asked: look.asked + 1, next_at: now + wait, has_news: false, ..look }
    }

    /// Handles a snapshot of a ring. Returns `true` if this node [has](Rmp::has) the group. A node
    /// that only queries or calls the group does not need the snapshot otherwise.
    pub(super) fn on_whole_list(
        &mut self,
        sender: NodeId,
        group: GroupId,
        snapshot: &Snapshot,
    ) -> bool {
        let was_asked = self.looks.on_snapshot(&mut self.counters, sender, group, snapshot);
        let is_for_group = self.has(group);
        self.counters.lists_unasked += u64::from(!was_asked && !is_for_group);
        is_for_group
    }
}

impl Group {
    /// Answers the query of a node that is in no ring.
    pub(super) fn on_look(&mut self, cx: &mut Around<'_>, sender: NodeId, tries: u32) {
        let Some(ring) = self.ring.as_ref().filter(|ring| ring.view().contains(self.me)) else {
            return;
        };
        let is_first = ring.view().processes().next() == Some(self.me);
        let is_on_duty = is_first || ring.token() == self.me;
        if !is_on_duty && self.reforming.is_idle() && tries < 2 {
            return;
        }
        if !self.notices.may_go(cx.now, cx.config.least_timeout, sender) {
            cx.counters.looks_too_often += 1;
            return;
        }
        let Some(mut snapshot) = self.own_snapshot() else { return };
        if snapshot.view.process_of(sender).is_some() {
            // A life of that node is in the ring. It must not enter the ring with an incomplete
            // snapshot.
            snapshot.seen = self.seen_for_joiner();
        } else {
            (snapshot.sources, snapshot.guests) = (Vec::new(), Vec::new());
        }
        cx.counters.looks_answered += 1;
        cx.unicast(sender, &Packet::NewList(NewList::Whole(snapshot)));
    }

    fn own_snapshot(&self) -> Option<Snapshot> {
        self.ring.as_ref().map(|ring| ring.snapshot(self.reforming.is_idle()))
    }
}

/// Maximum number of queries in progress or not fetched.
const MAX_LOOKS: usize = 64;
/// Maximum number of rings in the result of one query. Others are counted.
const MAX_RINGS: usize = 64;
/// Maximum interval between two query packets.
const MOST_RETRY: Duration = Duration::from_secs(1);
