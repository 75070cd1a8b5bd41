//! State that all members of a ring compute alike from its rounds: view, order, stability,
//! delivery.
//!
//! # Invariants
//!
//! - A round is applied after all rounds before it, and once all the data that it orders has
//!   arrived. The site of a round therefore has everything before it, and `accepted` is correct.
//! - At most one change of the members is not stable. Therefore the majorities of any two views at
//!   different members have a member in common.
//! - Everything that is not stable, or not delivered, is kept.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::delivery::{Grant, Queued, ViewEvent};
use super::locks::Locks;
use super::log::{ListChange, ListChangeKind, Log, Offered, Round, Run, What};
use super::names::{Place, Process, Timestamp};
use super::packet::{Proposal, Snapshot, SourceState};
use super::stream::{Arrival, Data, Stream};
use super::view::{Member, RingView};
use crate::recent::Recent;
use crate::{NodeId, SeqNo};

mod delivering;
mod guests;
mod lacking;
#[cfg(test)]
mod tests;

use self::guests::Guest;
pub(super) use self::guests::GuestArrival;
pub(super) use self::lacking::{Former, Lacks};

/// A ring from the perspective of one member.
#[derive(Debug)]
pub(super) struct Ring {
    me: Process,
    view: RingView,
    log: Log,
    /// Last round that assigned a place to a message or changed a lock.
    ordered: Timestamp,
    token: Process,
    /// See [`Config`](super::Config::first_number).
    first_number: SeqNo,
    streams: BTreeMap<Process, Stream>,
    standings: BTreeMap<Process, Standing>,
    /// Callers that are not members.
    guests: BTreeMap<Process, Guest>,
    /// Guests that were flushed, the latest at the back.
    former: VecDeque<Process>,
    queue: VecDeque<Queued>,
    /// `true` if the list of a reformation holds and its view was not delivered yet.
    is_forming: bool,
    /// Locks of the last delivered view.
    shown_locks: Locks,
    /// Granted locks, until enough members are known to have the grant.
    grants: VecDeque<Grant>,
    /// Members of the last delivered view. Nothing from other sources is delivered.
    shown: BTreeSet<Process>,
    /// `true` if that view has no quorum.
    is_shown_short: bool,
    /// Removed members, with the round that removed them.
    gone: BTreeMap<Process, Timestamp>,
    /// Last life of each node that has taken the token and is no longer a member. A request of such
    /// a life to join is an old one.
    over: Recent<NodeId, u64>,
    /// `true` if that view does not contain this member. Nothing more is delivered to it.
    is_out: bool,
    /// Last round that some message or lock, here or elsewhere, waits for, and the number of
    /// members that must have taken the token since. A member that has taken it counts itself, and
    /// waits for the others.
    awaited: (Timestamp, usize),
    /// Messages that were given up and not reported yet.
    lost: Vec<(Process, Option<SeqNo>)>,
    /// Everything up to this place is at all members.
    settled: Timestamp,
    /// Place of the last view or ordered message that was delivered.
    delivered: Timestamp,
    /// Place of the last stability report.
    told_stable: Timestamp,
    /// Round of the last change of the members, and the number of voters before it.
    last_change: (Timestamp, usize),
    /// Number of consecutive NULL ACKs.
    nulls: usize,
}

/// Maximum number of nodes whose last life is remembered. The oldest entries are forgotten.
const MAX_OVER: usize = 4096;

/// Acceptance state of a member, derived from its rounds.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// The member has nothing from before this place.
    joined: Timestamp,
    /// Place at which it was admitted. A reformation does not change it.
    since: Timestamp,
    /// The member has everything up to this place, its own last round.
    accepted: Timestamp,
    /// Number of its last request that a New List answered.
    request: u32,
}

impl Standing {
    /// Returns the state of a member that was admitted at `since`.
    fn of(since: Timestamp, accepted: Timestamp) -> Self {
        Self { joined: since, since, accepted, request: 0 }
    }
}

impl Ring {
    /// Creates a ring of one member.
    pub(super) fn founded_by(founder: Member, name_check: u32, first_number: SeqNo) -> Self {
        let view = RingView::founded_by(founder, name_check);
        let snapshot = Snapshot {
            view,
            next: Timestamp(1),
            ordered: Timestamp(0),
            token: founder.process,
            is_working: true,
            sources: Vec::new(),
            guests: Vec::new(),
            seen: Vec::new(),
        };
        Self::entered(founder.process, snapshot, first_number)
    }

    /// Creates the ring of a snapshot that contains `me` as a member. Packets of later joiners are
    /// numbered from `first_number`.
    pub(super) fn entered(me: Process, snapshot: Snapshot, first_number: SeqNo) -> Self {
        let Snapshot { view, next, ordered, token, sources, guests, .. } = snapshot;
        let last = Timestamp(next.0.saturating_sub(1));
        let standing = Standing::of(Timestamp(0), last);
        let new_stream = || Stream::new(first_number, first_number);
        let mut ring = Self {
            me,
            log: Log::new(next),
            ordered,
            token,
            first_number,
            streams: view.processes().map(|it| (it, new_stream())).collect(),
            standings: view.processes().map(|process| (process, standing)).collect(),
            guests: BTreeMap::new(),
            former: VecDeque::new(),
            queue: VecDeque::new(),
            is_forming: false,
            shown_locks: view.locks.clone(),
            grants: VecDeque::new(),
            shown: BTreeSet::new(),
            is_shown_short: false,
            gone: BTreeMap::new(),
            over: Recent::default(),
            is_out: false,
            awaited: (Timestamp(0), 0),
            lost: Vec::new(),
            settled: Timestamp(0),
            delivered: Timestamp(0),
            // It is not known here whether the others have the earlier places and this list.
            told_stable: last,
            last_change: (last, view.voters().count()),
            nulls: 0,
            view,
        };
        for state in sources {
            ring.streams.insert(state.source, Stream::new(state.open_from, state.ordered_to));
            if let Some(standing) = ring.standings.get_mut(&state.source) {
                standing.request = state.request;
            }
        }
        ring.enter_guests(guests);
        let joined = ring.view.processes().collect();
        let event = ViewEvent { joined, ..ViewEvent::of(ring.view.clone(), last, token) };
        ring.queue.push_back(Queued::View { round: last, event: Box::new(event) });
        ring
    }

    /// Returns everything that a joiner needs. `is_working` is `true` if the ring works.
    pub(super) fn snapshot(&self, is_working: bool) -> Snapshot {
        let sources = self.streams.iter().map(|(source, stream)| SourceState {
            source: *source,
            open_from: stream.open_from(),
            ordered_to: stream.ordered_to(),
            request: self.standings.get(source).map_or(0, |standing| standing.request),
        });
        Snapshot {
            view: self.view.clone(),
            next: self.log.next(),
            ordered: self.ordered,
            token: self.token,
            is_working,
            sources: sources.filter(|it| self.view.contains(it.source)).collect(),
            guests: self.guest_states(),
            seen: Vec::new(),
        }
    }

    /// Returns the view after the last applied round.
    pub(super) fn view(&self) -> &RingView {
        &self.view
    }

    pub(super) fn token(&self) -> Process {
        self.token
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the packets of a source.
    pub(super) fn stream(&self, source: Process) -> Option<&Stream> {
        self.streams.get(&source)
    }

    /// Returns the number of the last request of `process` that a New List answered.
    pub(super) fn answered(&self, process: Process) -> u32 {
        self.standings.get(&process).map_or(0, |standing| standing.request)
    }

    /// Inserts a data packet. Returns `None` if its source is unknown here.
    pub(super) fn insert(&mut self, source: Process, seqno: SeqNo, data: Data) -> Option<Arrival> {
        let stream = self.streams.get_mut(&source)?;
        Some(stream.insert(seqno, data))
    }

    pub(super) fn offer(&mut self, round: Round) -> Offered {
        self.log.offer(round)
    }

    /// Applies the next round if it and all its data have arrived. An impossible round is dropped
    /// and counted in `impossible`.
    pub(super) fn apply_next(&mut self, impossible: &mut u64) -> Option<Round> {
        self.admit_guests();
        let round = self.log.ready()?;
        if !self.is_possible(round) {
            tracing::warn!(?round, view = ?self.view, "invalid round");
            *impossible += 1;
            self.log.reject();
            return None;
        }
        let has_all = round.runs().iter().all(|run| {
            let stream = self.streams.get(&run.source);
            stream.is_some_and(|it| it.received_to().distance_from(run.end()) >= 0)
        });
        if !has_all {
            return None;
        }
        let round = self.log.apply()?;
        *impossible += self.log.drop_overlapped();
        self.on_applied(&round);
        Some(round)
    }

    /// Returns the packets that can get places now, and `true` if all of them may wait for more.
    /// From each source it takes the packets that follow without a gap, in total at most `limit`
    /// packets and `max_runs` runs.
    pub(super) fn orderable(&self, limit: usize, max_runs: usize) -> (Vec<Run>, bool) {
        let (mut runs, mut left, mut may_wait) = (Vec::new(), limit, true);
        if self.shortage().is_some() {
            return (runs, false);
        }
        for (source, stream) in self.streams.iter().filter(|(it, _)| self.may_order(**it)) {
            let (first, end) = (stream.ordered_to(), stream.received_to());
            let count = (end.distance_from(first).max(0) as usize).min(left);
            if count == 0 || runs.len() == max_runs {
                continue;
            }
            let run = Run { source: *source, first, count: count as u16 };
            may_wait &= stream.packet(run.end().minus(1)).is_some_and(|data| data.may_wait);
            left -= count;
            runs.push(run);
        }
        let may_wait = may_wait && left > 0 && !runs.is_empty();
        (runs, may_wait)
    }

    /// Returns the place up to which all members have everything.
    pub(super) fn settled(&self) -> Timestamp {
        self.settled
    }

    /// Returns the other members that are not known to have everything up to `place`.
    pub(super) fn others_before(&self, place: Timestamp) -> impl Iterator<Item = NodeId> {
        let others = self.standings.iter().filter(|(process, _)| **process != self.me);
        others.filter(move |(_, it)| it.accepted < place).map(|(process, _)| process.node)
    }

    /// Returns the other members that were in the ring at `place`.
    pub(super) fn others_since(&self, place: Timestamp) -> impl Iterator<Item = NodeId> {
        let others = self.standings.iter().filter(|(process, _)| **process != self.me);
        others.filter(move |(_, it)| it.since <= place).map(|(process, _)| process.node)
    }

    /// Returns `true` if `process` is a member that has taken the token since it was admitted.
    /// Until then, its request may have been an old one of a member that is gone, and packets in
    /// its name may be old as well.
    pub(super) fn has_spoken(&self, process: Process) -> bool {
        self.standings.get(&process).is_some_and(|standing| standing.accepted >= standing.joined)
    }

    /// Returns `true` if a member may be added or removed now.
    pub(super) fn may_change_members(&self) -> bool {
        self.last_change.0 <= self.settled
    }

    /// Installs the list of a reformation. All its members have accepted it at the position that it
    /// contains.
    pub(super) fn form(&mut self, proposal: &Proposal) {
        let round = self.log.next();
        let mut place = Place { ring: proposal.view.epoch, at: round };
        for (source, to) in &proposal.position.received {
            let Some(stream) = self.streams.get_mut(source) else { continue };
            let first = stream.ordered_to();
            stream.order_to(*to);
            place = self.enqueue(round, place, *source, first, *to);
        }
        let at = place.at;
        let old: Vec<Process> = self.view.processes().collect();
        let failed = old.into_iter().filter(|process| !proposal.view.contains(*process));
        let event = ViewEvent {
            failed: failed.collect(),
            ..ViewEvent::of(proposal.view.clone(), at, proposal.view.epoch.creator)
        };
        event.failed.iter().for_each(|process| self.note_over(*process));
        self.view = proposal.view.clone();
        self.token = self.view.epoch.creator;
        self.log = Log::new(at.plus(1));
        let standings = core::mem::take(&mut self.standings);
        self.standings = standings.into_iter().filter(|(it, _)| self.view.contains(*it)).collect();
        for standing in self.standings.values_mut() {
            (standing.joined, standing.accepted) = (at, at);
        }
        (self.settled, self.last_change, self.nulls) = (at, (at, self.view.voters().count()), 0);
        self.give_up_open(at);
        for stream in self.streams.values_mut() {
            stream.settle_to(stream.ordered_to());
        }
        self.enqueue_view(at, event);
        self.is_forming = true;
    }

    /// Gives up messages whose beginnings no remaining member has. No member will ever get them:
    /// their sources are gone, or are guests, which introduce themselves again.
    fn give_up_open(&mut self, round: Timestamp) {
        let mut flushed = Vec::new();
        for (source, stream) in &mut self.streams {
            let Some(message) = stream.give_up_open() else { continue };
            self.lost.push((*source, message));
            if self.guests.contains_key(source) {
                flushed.push(*source);
            }
        }
        flushed.into_iter().for_each(|source| self.flush(source, round));
    }

    /// Returns the messages given up since the last call, with their numbers if they are known.
    pub(super) fn take_lost(&mut self) -> Vec<(Process, Option<SeqNo>)> {
        core::mem::take(&mut self.lost)
    }

    /// Returns the number of bytes of the kept messages.
    pub(super) fn held_bytes(&self) -> usize {
        self.streams.values().map(Stream::held_bytes).sum()
    }

    pub(super) fn check(&self) {
        self.log.check();
        self.streams.values().for_each(Stream::check);
        assert!(!self.view.is_empty(), "a ring without members");
        let standing: Vec<Process> = self.standings.keys().copied().collect();
        let mut members: Vec<Process> = self.view.processes().collect();
        members.sort_unstable();
        assert_eq!(standing, members, "who stands is who is a member");
        for member in members {
            assert!(self.streams.contains_key(&member), "{member:?} has no stream");
        }
        self.check_guests();
        assert!(self.settled < self.log.next(), "more is settled than there is");
    }

    /// Returns `true` if this life of a node is known to be over.
    pub(super) fn is_over(&self, process: Process) -> bool {
        self.over.get(process.node).is_some_and(|life| {
            let over = Process { life: *life, ..process };
            over == process || over.follows(process)
        })
    }

    fn note_over(&mut self, process: Process) {
        if self.has_spoken(process) {
            self.over.insert(process.node, process.life, MAX_OVER);
        }
    }

    fn is_possible(&self, round: &Round) -> bool {
        let is_turn = round.site == self.token && self.view.contains(round.site);
        let is_next = match round.joiner() {
            Some(member) => {
                round.next == member.process && self.view.process_of(member.process.node).is_none()
            }
            None => self.view.contains(round.next),
        };
        let changes = round.changes();
        let is_alone = changes.len() <= 1 || !changes.iter().any(|it| it.kind.is_of_members());
        let fit = round.runs().iter().all(|run| {
            self.streams.get(&run.source).is_some_and(|it| it.ordered_to() == run.first)
        });
        is_turn && is_next && is_alone && fit
    }

    fn on_applied(&mut self, round: &Round) {
        self.token = round.next;
        if let Some(standing) = self.standings.get_mut(&round.site) {
            standing.accepted = round.at;
        }
        self.nulls = if round.is_null() { self.nulls + 1 } else { 0 };
        match &round.what {
            What::Order(runs) => {
                if !runs.is_empty() {
                    self.ordered = round.at;
                }
                let mut place = Place { ring: self.view.epoch, at: round.at.plus(1) };
                for run in runs {
                    if let Some(stream) = self.streams.get_mut(&run.source) {
                        stream.order_to(run.end());
                    }
                    place = self.enqueue(round.at, place, run.source, run.first, run.end());
                }
                self.on_guests_ordered(round);
            }
            What::List(changes) => {
                for (place, change) in (0..).zip(changes) {
                    self.change_list(round, round.at.plus(place), *change);
                }
            }
        }
        self.settle();
    }

    fn change_list(&mut self, round: &Round, at: Timestamp, change: ListChange) {
        let before = (self.view.len(), self.view.voters().count());
        let (mut joined, mut left) = (Vec::new(), Vec::new());
        if let Some(standing) = self.standings.get_mut(&change.process) {
            standing.request = change.request;
        }
        match change.kind {
            ListChangeKind::Join { member, .. } => {
                self.view.insert_after(round.site, member);
                let accepted = Timestamp(round.at.0.saturating_sub(1));
                let standing = Standing::of(round.at, accepted);
                self.standings.insert(member.process, standing);
                let stream = Stream::new(self.first_number, self.first_number);
                self.streams.insert(member.process, stream);
                joined.push(member.process);
            }
            ListChangeKind::Leave => {
                self.note_over(change.process);
                self.view.remove(change.process);
                self.standings.remove(&change.process);
                left.push(change.process);
            }
            ListChangeKind::Lock { name, .. } => {
                self.ordered = round.at;
                self.view.locks.ask(name, change.process);
            }
            ListChangeKind::Unlock(name) => self.view.locks.give_back(name, change.process),
            ListChangeKind::Refused(_) => {}
        }
        if self.view.len() != before.0 {
            self.last_change = (round.at, before.1);
            self.view.settle_force();
        }
        self.view.version = self.view.version.wrapping_add(1);
        let answered = Some(change);
        let view = ViewEvent::of(self.view.clone(), at, round.site);
        let event = ViewEvent { joined, left, answered, ..view };
        self.enqueue_view(round.at, event);
    }

    /// Forgets everything that all members have.
    fn settle(&mut self) {
        // This member has everything that it has applied, even before the others can conclude it.
        let others = self.standings.iter().filter(|(process, _)| **process != self.me);
        let last = self.log.last().map_or(self.settled, |round| round.at);
        let least = others.map(|(_, standing)| standing.accepted).fold(last, Timestamp::min);
        if least <= self.settled {
            return;
        }
        self.settled = least;
        for round in self.log.forget_to(least) {
            for run in round.runs() {
                if let Some(stream) = self.streams.get_mut(&run.source) {
                    stream.settle_to(run.end());
                }
            }
        }
        self.forget_gone();
    }
}
