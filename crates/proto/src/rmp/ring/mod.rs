//! State that all members of a ring compute in the same way from its rounds: view, order,
//! stability, and delivery.
//!
//! # Invariants
//!
//! - A round is applied only after all rounds before it, and once all data that it orders has
//!   arrived. The site of a round therefore has everything before it, and `accepted` is correct.
//! - At most one change of the members is not stable. Therefore, the majorities of any two views at
//!   different members have a member in common.
//! - Everything that is not stable, or not delivered, is kept.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use bytes::Bytes;

use self::delivery_queue::{Applied, DeliveryQueue};
use self::log::Log;
use self::sources::Sources;
use self::standings::Standings;
use crate::recent::Recent;
use crate::ring::{
    Epoch, ListChange, ListChangeKind, Member, Place, Process, RingView, Timestamp, ViewEvent,
};
use crate::{NodeId, SeqNo};

mod delivery;
mod delivery_queue;
mod gaps;
mod log;
mod snapshot;
mod sources;
mod standings;
mod stream;
#[cfg(test)]
mod tests;

pub(super) use self::delivery::{DeliveredMessage, Delivery, FormerRing};
pub(super) use self::gaps::Gaps;
pub(super) use self::log::MAX_CHANGES;
pub use self::log::{Round, Run, What};
pub use self::snapshot::{Accepted, GuestState, Position, Proposal, Snapshot, SourceState};
pub(super) use self::sources::GuestArrival;
pub use self::stream::Data;
pub(super) use self::stream::{Arrival, MAX_SLOTS};

#[derive(Debug)]
pub(super) struct Ring {
    me: Process,
    view: RingView,
    log: Log,
    ordered: Timestamp,
    token: Process,
    first_number: SeqNo,
    sources: Sources,
    standings: Standings,
    deliveries: DeliveryQueue,
    /// Former members that have taken the token. Their requests to join are outdated.
    over: Recent<NodeId, u64>,
    reported_stable: Timestamp,
    nulls: usize,
}

const MAX_OVER: usize = 4096;

impl Ring {
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

    pub(super) fn entered(me: Process, snapshot: Snapshot, first_number: SeqNo) -> Self {
        let Snapshot { view, next, ordered, token, guests, .. } = snapshot;
        let last = Timestamp(next.0.saturating_sub(1));
        let mut ring = Self {
            me,
            log: Log::new(next),
            ordered,
            token,
            first_number,
            sources: Sources::default(),
            standings: Standings::new(me, &view, last),
            deliveries: DeliveryQueue::new(me, view.locks.clone()),
            over: Recent::default(),
            // It is unknown whether the other members have the earlier places and this list.
            reported_stable: last,
            nulls: 0,
            view,
        };
        for process in ring.view.processes() {
            ring.sources.insert(process, first_number, first_number);
        }
        for SourceState { source, open_from, ordered_to, request } in snapshot.sources {
            ring.sources.insert(source, open_from, ordered_to);
            ring.standings.on_answered(source, request);
        }
        ring.sources.enter_guests(guests);
        let joined = ring.view.processes().collect();
        let event = ViewEvent { joined, ..ViewEvent::of(ring.view.clone(), last, token) };
        ring.show_later(last, event);
        ring
    }

    pub(super) fn snapshot(&self, is_working: bool) -> Snapshot {
        Snapshot {
            view: self.view.clone(),
            next: self.log.next(),
            ordered: self.ordered,
            token: self.token,
            is_working,
            sources: self.sources.states(&self.view, &self.standings),
            guests: self.sources.guest_states(),
            seen: Vec::new(),
        }
    }

    pub(super) fn me(&self) -> Process {
        self.me
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.view.epoch
    }

    pub(super) fn view(&self) -> &RingView {
        &self.view
    }

    pub(super) fn token(&self) -> Process {
        self.token
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn ordered(&self) -> Timestamp {
        self.ordered
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    pub(super) fn sources_mut(&mut self) -> &mut Sources {
        &mut self.sources
    }

    pub(super) fn standings(&self) -> &Standings {
        &self.standings
    }

    pub(super) fn offer(&mut self, round: Round) -> Arrival {
        self.log.offer(round)
    }

    // An impossible round is dropped and counted in `impossible`.
    pub(super) fn apply_next(&mut self, impossible: &mut u64) -> Option<Round> {
        let round = self.log.ready()?;
        self.sources.admit_guests(round);
        if !self.is_possible(round) {
            tracing::warn!(?round, view = ?self.view, "invalid round");
            *impossible += 1;
            self.log.reject();
            return None;
        }
        if !self.sources.have_all(round) {
            return None;
        }
        let round = self.log.apply()?;
        *impossible += self.log.drop_overlapped();
        self.on_applied(&round);
        Some(round)
    }

    /// Returns packets that can get places now, and `true` if they may wait for more.
    pub(super) fn orderable(&self, limit: usize, max_runs: usize) -> (Vec<Run>, bool) {
        let (mut runs, mut left, mut may_wait) = (Vec::new(), limit, true);
        if self.shortage().is_some() {
            return (runs, false);
        }
        for (source, stream) in self.sources.iter() {
            let (first, end) = (stream.ordered_to(), stream.received_to());
            let count = (end.distance_from(first).max(0) as usize).min(left);
            let may_order = self.view.contains(source) || self.sources.is_guest(source);
            if count == 0 || runs.len() == max_runs || !may_order {
                continue;
            }
            let run = Run { source, first, count: count as u16 };
            may_wait &= stream.packet(run.end().minus(1)).is_some_and(|data| data.may_wait);
            left -= count;
            runs.push(run);
        }
        let may_wait = may_wait && left > 0 && !runs.is_empty();
        (runs, may_wait)
    }

    /// Applies a reformation's list. Returns the messages given up, with their numbers if known.
    pub(super) fn form(&mut self, proposal: &Proposal) -> Vec<(Process, Option<SeqNo>)> {
        let round = self.log.next();
        let mut place = Place { ring: proposal.view.epoch, at: round };
        for (source, to) in &proposal.position.received {
            let Some(stream) = self.sources.get_mut(*source) else { continue };
            let first = stream.ordered_to();
            stream.order_to(*to);
            place = self.deliveries.push_packets(round, place, *source, first, *to);
        }
        let at = place.at;
        let failed = self.view.processes().filter(|process| !proposal.view.contains(*process));
        let event = ViewEvent {
            failed: failed.collect(),
            ..ViewEvent::of(proposal.view.clone(), at, proposal.view.epoch.creator)
        };
        event.failed.iter().for_each(|process| self.note_over(*process));
        self.view = proposal.view.clone();
        self.token = self.view.epoch.creator;
        self.log = Log::new(at.plus(1));
        self.standings.on_formed(&self.view, at);
        self.nulls = 0;
        let (lost, flushed) = self.sources.give_up_open();
        self.deliveries.push_flushed(at, flushed);
        self.sources.settle_all();
        self.show_later(at, event);
        // Packets that arrive from now on are withheld until this view is delivered.
        self.deliveries.is_forming = true;
        lost
    }

    pub(super) fn check(&self) {
        self.log.check();
        assert!(!self.view.is_empty(), "a ring without members");
        self.standings.check(&self.view);
        self.sources.check(&self.view);
        assert!(self.standings.settled() < self.log.next(), "a future place is settled");
    }

    pub(super) fn is_over(&self, process: Process) -> bool {
        self.over.get(process.node).is_some_and(|life| {
            let over = Process { life: *life, ..process };
            over == process || over.follows(process)
        })
    }

    pub(super) fn shortage(&self) -> Option<(usize, usize)> {
        self.standings.shortage(&self.view)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.ordered == Timestamp(0) && !self.deliveries.has_shown_view()
    }

    pub(super) fn waits_for_passes(&self) -> bool {
        self.shortage().is_none() && self.deliveries.waits_for_passes(&self.standings)
    }

    /// Returns `true` if this member is alone, or if the token has gone around the ring without
    /// work, so that every member has everything.
    pub(super) fn is_quiet(&self) -> bool {
        self.view.len() == 1 || (self.nulls > self.view.len() && !self.waits_for_passes())
    }

    pub(super) fn deliver(&mut self, arrived: Option<(Process, SeqNo)>) -> Vec<Delivery> {
        let (queue, mut applied) = self.parts();
        queue.deliver(&mut applied, arrived)
    }

    pub(super) fn leave_unseen(&mut self) -> bool {
        let (queue, applied) = self.parts();
        queue.leave_unseen(&applied)
    }

    fn show_later(&mut self, round: Timestamp, event: ViewEvent) {
        let (queue, applied) = self.parts();
        queue.push_view(applied, round, event);
    }

    fn parts(&mut self) -> (&mut DeliveryQueue, Applied<'_>) {
        let Self { view, standings, sources, deliveries, ordered, .. } = self;
        (deliveries, Applied { view, standings, sources, is_empty: *ordered == Timestamp(0) })
    }

    pub(super) fn calls_in_queue(&self) -> impl Iterator<Item = (Process, Bytes)> {
        self.deliveries.packets().filter_map(|(source, seqno)| {
            Some((source, self.sources.get(source)?.head_of_call(seqno)?))
        })
    }

    /// Includes the messages of members that have taken the token or were `heard` in a reformation.
    pub(super) fn position(&self, heard: &BTreeSet<Process>) -> Position {
        // A member that has left gets no more places, even if that view has not been delivered yet.
        let is_heard = |source| heard.contains(&source) && self.view.contains(source);
        let received = self.sources.iter().filter_map(|(source, stream)| {
            let to = stream.received_to();
            let has_more = to != stream.ordered_to();
            let counts = has_more && (self.standings.has_spoken(source) || is_heard(source));
            counts.then_some((source, to))
        });
        let (next, is_whole) = (self.log.next(), self.sources.are_whole());
        Position { next, is_whole, received: received.collect() }
    }

    /// Returns `true` if the member has taken the token since the last round other than NULL ACKs.
    pub(super) fn has_all(&self, process: Process) -> bool {
        let open = self.log.range(self.standings.settled().plus(1), self.log.next());
        let last = open.filter(|round| !round.is_null()).last();
        process == self.me
            || last.is_none_or(|round| self.standings.has_accepted(process, round.at))
    }

    pub(super) fn reached(&self) -> Place {
        Place { ring: self.view.epoch, at: Timestamp(self.log.next().0.saturating_sub(1)) }
    }

    pub(super) fn as_former(&self) -> FormerRing {
        // A joiner that has received no view has delivered nothing yet.
        let delivered = self.deliveries.delivered.max(self.reported_stable);
        FormerRing { epoch: self.view.epoch, origin: self.view.origin, delivered }
    }

    pub(super) fn new_stable(&self) -> Option<Place> {
        let (next, delivered) = (self.log.next(), self.deliveries.delivered);
        if self.deliveries.is_out || delivered <= self.reported_stable {
            return None;
        }
        // The site of a round has everything that the round orders.
        let open = self.log.range(self.standings.settled().plus(1), next).next();
        let open = open.map_or(next, |round| round.at);
        let at = delivered.min(Timestamp(open.0.saturating_sub(1)));
        (at > self.reported_stable).then_some(Place { ring: self.view.epoch, at })
    }

    pub(super) fn on_stable_reported(&mut self, place: Place) {
        self.reported_stable = place.at;
    }

    pub(super) fn gaps(&self) -> Gaps {
        Gaps::new(&self.log, &self.sources, &self.view)
    }

    pub(super) fn gaps_to(&self, target: &Position) -> Gaps {
        Gaps::up_to(target, &self.log, &self.sources, &self.view)
    }

    fn note_over(&mut self, process: Process) {
        if self.standings.has_spoken(process) {
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
        let fit = round
            .runs()
            .iter()
            .all(|run| self.sources.get(run.source).is_some_and(|it| it.ordered_to() == run.first));
        is_turn && is_next && is_alone && fit
    }

    fn on_applied(&mut self, round: &Round) {
        self.token = round.next;
        self.standings.on_round(round.site, round.at);
        self.nulls = if round.is_null() { self.nulls + 1 } else { 0 };
        match &round.what {
            What::Order(runs) => {
                if !runs.is_empty() {
                    self.ordered = round.at;
                }
                let mut place = Place { ring: self.view.epoch, at: round.at.plus(1) };
                for run in runs {
                    if let Some(stream) = self.sources.get_mut(run.source) {
                        stream.order_to(run.end());
                    }
                    let (at, first, end) = (round.at, run.first, run.end());
                    place = self.deliveries.push_packets(at, place, run.source, first, end);
                }
                let flushed = self.sources.on_ordered(round);
                self.deliveries.push_flushed(round.at, flushed);
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
        self.standings.on_answered(change.process, change.request);
        match change.kind {
            ListChangeKind::Join { member, .. } => {
                self.view.insert_after(round.site, member);
                self.standings.admit(member.process, round.at);
                self.sources.insert(member.process, self.first_number, self.first_number);
                joined.push(member.process);
            }
            ListChangeKind::Leave => {
                self.note_over(change.process);
                self.view.remove(change.process);
                self.standings.remove(change.process);
                left.push(change.process);
            }
            ListChangeKind::Lock { name, .. } => {
                self.ordered = round.at;
                self.view.locks.ask(name, change.process);
            }
            ListChangeKind::Unlock(name) => self.view.locks.release(name, change.process),
            ListChangeKind::Refused(_) => {}
        }
        if self.view.len() != before.0 {
            self.standings.last_change = (round.at, before.1);
            self.view.settle_force();
        }
        self.view.version = self.view.version.wrapping_add(1);
        let answered = Some(change);
        let view = ViewEvent::of(self.view.clone(), at, round.site);
        self.show_later(round.at, ViewEvent { joined, left, answered, ..view });
    }

    fn settle(&mut self) {
        let last = self.log.last().map_or(self.standings.settled(), |round| round.at);
        let Some(settled) = self.standings.settle(last) else { return };
        for round in self.log.forget_to(settled) {
            for run in round.runs() {
                if let Some(stream) = self.sources.get_mut(run.source) {
                    stream.settle_to(run.end());
                }
            }
        }
        self.sources.forget_gone(&self.view, settled);
    }
}
