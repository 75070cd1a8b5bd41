//! Delivery of messages and views, at the times of figure 3.2.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::delivery::{Delivery, Grant, Queued, ViewEvent};
use super::super::locks::{LockChange, LockNews};
use super::super::log::{ListChange, ListChangeKind};
use super::super::names::{Place, Process, Timestamp};
use super::super::qos::Qos;
use super::Ring;
use crate::SeqNo;

impl Ring {
    /// Queues consecutive packets, the first at place `first`. Returns the place after them.
    pub(super) fn enqueue(
        &mut self,
        round: Timestamp,
        first: Place,
        source: Process,
        from: SeqNo,
        to: SeqNo,
    ) -> Place {
        let count = to.distance_from(from).max(0) as u32;
        self.queue.extend((0..count).map(|step| {
            let (place, seqno) = (first.plus(step.into()), from.plus(step));
            Queued::Packet { round, place, source, seqno }
        }));
        first.plus(count.into())
    }

    /// Queues a view. While the ring lacks its quorum, any number of members may join and leave.
    /// Views beyond [`MAX_WAITING_VIEWS`] are merged with the last one.
    pub(super) fn enqueue_view(&mut self, round: Timestamp, event: ViewEvent) {
        let views = || self.queue.iter().filter(|it| matches!(it, Queued::View { .. })).count();
        let is_long = self.queue.len() >= MAX_WAITING_VIEWS && views() >= MAX_WAITING_VIEWS;
        let is_long = is_long && self.shortage().is_some();
        if let Some(Queued::View { round: at, event: last }) = self.queue.back_mut()
            && is_long
            && last.takes_in(&event)
        {
            for process in last.take_in(event) {
                self.gone.insert(process, round);
            }
            *at = round;
            self.forget_gone();
            return;
        }
        self.queue.push_back(Queued::View { round, event: Box::new(event) });
    }

    /// Returns the numbers of voters present and needed, while the ring has too few to work. It
    /// then orders nothing, grants no lock, and delivers nothing. An admitted voter counts once it
    /// has taken the token, because until then it may be in another ring.
    pub(in crate::rmp) fn shortage(&self) -> Option<(usize, usize)> {
        let quorum = self.view.quorum()?;
        let here = self.view.voters().filter(|voter| self.has_spoken(*voter)).count();
        (here < quorum).then_some((here, quorum))
    }

    /// Returns `true` if nothing of this ring was ordered, and none of its views was delivered
    /// here.
    pub(in crate::rmp) fn is_unused(&self) -> bool {
        self.ordered == Timestamp(0) && self.shown.is_empty()
    }

    /// Returns the last round that assigned a place to a message or changed a lock; 0 before the
    /// first.
    pub(in crate::rmp) fn ordered(&self) -> Timestamp {
        self.ordered
    }

    /// Returns `true` if a message or a lock, here or elsewhere, waits for more members to take the
    /// token.
    pub(in crate::rmp) fn waits_for_passes(&self) -> bool {
        if self.shortage().is_some() {
            return false;
        }
        let (round, takers) = self.awaited;
        let taken = self.standings.values().filter(|standing| standing.accepted >= round).count();
        let is_awaited = taken < takers.min(self.standings.len());
        is_awaited || matches!(self.queue.front(), Some(Queued::Packet { .. }))
    }

    /// Returns `true` if the token has gone round without work, so that every member is known to
    /// have everything.
    pub(in crate::rmp) fn is_quiet(&self) -> bool {
        self.view.len() == 1 || (self.nulls > self.view.len() && !self.waits_for_passes())
    }

    /// Returns the messages and views that can be delivered now, in order. `arrived` is a packet
    /// that may be delivered even if packets before it are missing.
    pub(in crate::rmp) fn deliver(&mut self, arrived: Option<(Process, SeqNo)>) -> Vec<Delivery> {
        let mut out = Vec::new();
        // A leaving member receives the view without it, whether or not the rest has a quorum.
        let is_in = self.view.contains(self.me);
        if self.is_out || (self.shortage().is_some() && (is_in || self.is_unused())) {
            return out;
        }
        if let Some((source, seqno)) = arrived {
            self.deliver_early(source, Some(seqno), &mut out);
        }
        while let Some(front) = self.queue.front() {
            // A leaving member gets no message of a ring that lacks its quorum, because the
            // remaining members may never get it. Views after that message are withheld as well.
            let is_withheld = !is_in && self.is_shown_short;
            if let Queued::Packet { round, place, source, seqno } = *front
                && (is_withheld || !self.deliver_packet(round, place, (source, seqno), &mut out))
            {
                break;
            }
            match self.queue.pop_front().expect("it was looked at") {
                Queued::View { round, event } => {
                    if !self.show(round, event, &mut out) {
                        break;
                    }
                }
                Queued::Flushed { round, source } => {
                    self.gone.insert(source, round);
                    self.forget_gone();
                }
                Queued::Packet { source, .. } => self.deliver_early(source, None, &mut out),
            }
        }
        if is_in || !self.is_shown_short {
            self.deliver_grants(&mut out);
        }
        out
    }

    /// Ends the delivery if this member has left a ring without a quorum and cannot receive the
    /// view of its departure: the ring never had a quorum, or the next entry is a message that only
    /// the remaining members may get. Returns `true` if it has ended the delivery.
    pub(in crate::rmp) fn leave_unseen(&mut self) -> bool {
        if self.view.contains(self.me) || self.is_out {
            return false;
        }
        let is_message_next = matches!(self.queue.front(), Some(Queued::Packet { .. }));
        let is_unseen = (self.is_unused() && self.shortage().is_some())
            || (is_message_next && self.is_shown_short);
        if is_unseen {
            self.queue.clear();
            self.is_out = true;
        }
        is_unseen
    }

    /// Delivers grants that a majority is known to have. No reformation loses them.
    fn deliver_grants(&mut self, out: &mut Vec<Delivery>) {
        while let Some(Grant { round, name, holder }) = self.grants.front().copied()
            && self.is_held_enough(Qos::MajorityResilient, round)
        {
            self.grants.pop_front();
            let news = LockNews { name, change: LockChange::Granted { fence: round } };
            out.push(Delivery::Lock { process: holder, request: 0, news });
        }
    }

    /// Records the grants of a delivered view. Returns the answer to its lock request, if any.
    fn show_locks(&mut self, round: Timestamp, event: &ViewEvent) -> Option<Delivery> {
        let locks = &event.view.locks;
        self.grants.retain(|grant| locks.holder(grant.name) == Some(grant.holder));
        let before = core::mem::replace(&mut self.shown_locks, locks.clone());
        for (name, holder) in locks.held().filter(|(name, it)| before.holder(*name) != Some(*it)) {
            self.grants.push_back(Grant { round, name, holder });
        }
        let ListChange { process, request, kind } = event.answered?;
        let (name, change) = match kind {
            ListChangeKind::Refused(name) => {
                (name, LockChange::Refused { holder: locks.holder(name) })
            }
            ListChangeKind::Unlock(name) => (name, LockChange::Released),
            _ => return None,
        };
        Some(Delivery::Lock { process, request, news: LockNews { name, change } })
    }

    /// Delivers a view. Returns `true` if it contains this member.
    fn show(&mut self, round: Timestamp, event: Box<ViewEvent>, out: &mut Vec<Delivery>) -> bool {
        let gone = event.left.iter().chain(&event.failed);
        self.gone.extend(gone.map(|process| (*process, round)));
        self.forget_gone();
        self.shown = event.view.processes().collect();
        self.is_shown_short = !event.view.has_quorum();
        self.is_out = !self.shown.contains(&self.me);
        let is_new_ring = self.is_forming && event.view.epoch == self.view.epoch;
        let heard = match is_new_ring {
            true => event.view.processes().collect(),
            false => event.joined.clone(),
        };
        self.is_forming &= !is_new_ring;
        let answer = self.show_locks(round, &event);
        self.delivered = event.place.at;
        out.push(Delivery::View(event));
        out.extend(answer);
        if !self.is_out {
            heard.into_iter().for_each(|process| self.deliver_early(process, None, out));
        }
        !self.is_out
    }

    /// Drops the streams of processes that are gone once all members have what they sent. A process
    /// that has returned before its departure was delivered keeps its stream.
    pub(super) fn forget_gone(&mut self) {
        let settled = self.settled;
        let Self { streams, view, guests, .. } = self;
        self.gone.retain(|process, round| {
            if view.contains(*process) || guests.contains_key(process) {
                return false;
            }
            let is_over = *round <= settled;
            if is_over {
                streams.remove(process);
            }
            !is_over
        });
    }

    /// Delivers the message that ends with this packet, if there is one. Returns `false` if the
    /// queue has to wait.
    fn deliver_packet(
        &mut self,
        round: Timestamp,
        place: Place,
        (source, seqno): (Process, SeqNo),
        out: &mut Vec<Delivery>,
    ) -> bool {
        let Some(stream) = self.streams.get(&source) else { return true };
        let Some(qos) = stream.ends_undelivered(seqno) else { return true };
        if !self.is_held_enough(qos, round) {
            return false;
        }
        let stream = self.streams.get_mut(&source).expect("it was there");
        let Some(whole) = stream.take_whole_around(seqno) else { return false };
        // Below total order, other members may have delivered the message at another place.
        let place = Some(place).filter(|_| whole.qos >= Qos::TotallyOrdered);
        self.delivered = place.map_or(self.delivered, |place| place.at);
        out.push(Delivery::Message { source, whole, round: Some(round), place });
        true
    }

    fn deliver_early(&mut self, source: Process, arrived: Option<SeqNo>, out: &mut Vec<Delivery>) {
        if !self.streams.get(&source).is_some_and(|stream| stream.may_have_early(arrived)) {
            return;
        }
        // Packets that arrive after the list of a reformation was accepted are not delivered before
        // it.
        let is_known = self.shown.contains(&source) && self.has_spoken(source);
        if self.is_forming || !(is_known || self.is_guest(source)) {
            return;
        }
        let Some(stream) = self.streams.get_mut(&source) else { return };
        let early = stream.take_early(arrived).into_iter();
        let (round, place) = (None, None);
        out.extend(early.map(|whole| Delivery::Message { source, whole, round, place }));
    }

    /// Returns `true` if enough members are known to have everything that this round orders.
    ///
    /// Only members that have since taken the token count. The source does not: it has the message,
    /// but not its place.
    fn is_held_enough(&mut self, qos: Qos, round: Timestamp) -> bool {
        if qos <= Qos::TotallyOrdered {
            return true;
        }
        let others =
            self.standings.iter().filter(|(process, it)| **process != self.me && it.joined < round);
        let has_clients = self.view.has_clients();
        let is_counted = |process| match qos {
            Qos::MajorityResilient if has_clients => self.view.is_voter(process),
            _ => true,
        };
        let (mut count, mut holders) = (0, 0);
        for (process, standing) in others {
            count += 1;
            holders += usize::from(standing.accepted >= round && is_counted(*process));
        }
        let counts_me = !self.view.contains(self.me) || self.view.is_voter(self.me);
        let needed = match qos {
            Qos::Resilient(k) => usize::from(k).min(count),
            Qos::MajorityResilient => self.majority() - usize::from(counts_me),
            Qos::TotallyResilient => count,
            _ => 0,
        };
        if needed > 0 {
            // The turns of clients come between those of the awaited voters.
            let takers = if has_clients { self.view.len() } else { needed + 1 };
            let (last, most) = self.awaited;
            self.awaited = if round > last { (round, takers) } else { (last, most.max(takers)) };
        }
        round <= self.settled || holders >= needed
    }

    /// Returns the number of voters that are a majority: of the electorate, or else of the largest
    /// view that a member may still be in (MaxN, 3.2).
    fn majority(&self) -> usize {
        if let Some(quorum) = self.view.quorum() {
            return quorum;
        }
        let voters = self.view.voters().count();
        let widest = match self.may_change_members() {
            true => voters,
            false => voters.max(self.last_change.1),
        };
        widest / 2 + 1
    }
}

/// Number of queued views beyond which consecutive views are merged. Each contains all members.
const MAX_WAITING_VIEWS: usize = 256;
