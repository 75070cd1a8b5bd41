//! Delivery of messages, views and locks at the times of figure 3.2.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::delivery::{DeliveredMessage, Delivery, Grant, Queued};
use super::sources::Sources;
use super::standings::Standings;
use crate::SeqNo;
use crate::ring::{
    ListChange, ListChangeKind, LockChange, LockNews, Locks, Place, Process, Qos, RingView,
    Timestamp, ViewEvent,
};

#[derive(Debug)]
pub(super) struct DeliveryQueue {
    me: Process,
    queue: VecDeque<Queued>,
    /// `true` if the list of a reformation holds and its view has not been delivered yet.
    pub(super) is_forming: bool,
    shown_locks: Locks,
    /// Grants that wait until enough members are known to have them.
    grants: VecDeque<Grant>,
    /// Members of the last delivered view. Only their messages and those of guests are delivered
    /// early.
    shown: BTreeSet<Process>,
    is_shown_short: bool,
    pub(super) is_out: bool,
    /// Last round for which a message or lock of any member waits. The second value is the number
    /// of members that must have taken the token since.
    awaited: (Timestamp, usize),
    pub(super) delivered: Timestamp,
}

pub(super) struct Applied<'a> {
    pub(super) view: &'a RingView,
    pub(super) standings: &'a Standings,
    pub(super) sources: &'a mut Sources,
    pub(super) is_empty: bool,
}

impl DeliveryQueue {
    pub(super) fn new(me: Process, locks: Locks) -> Self {
        Self {
            me,
            queue: VecDeque::new(),
            is_forming: false,
            shown_locks: locks,
            grants: VecDeque::new(),
            shown: BTreeSet::new(),
            is_shown_short: false,
            is_out: false,
            awaited: (Timestamp(0), 0),
            delivered: Timestamp(0),
        }
    }

    pub(super) fn has_shown_view(&self) -> bool {
        !self.shown.is_empty()
    }

    pub(super) fn packets(&self) -> impl Iterator<Item = (Process, SeqNo)> {
        self.queue.iter().filter_map(|queued| match queued {
            Queued::Packet { source, seqno, .. } => Some((*source, *seqno)),
            _ => None,
        })
    }

    pub(super) fn push_packets(
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

    pub(super) fn push_flushed(&mut self, round: Timestamp, guests: Vec<Process>) {
        self.queue.extend(guests.into_iter().map(|source| Queued::Flushed { round, source }));
    }

    // In a ring without a quorum, views beyond `MAX_WAITING_VIEWS` are merged with the last one.
    pub(super) fn push_view(&mut self, ring: Applied<'_>, round: Timestamp, event: ViewEvent) {
        let views = || self.queue.iter().filter(|it| matches!(it, Queued::View { .. })).count();
        let is_long = self.queue.len() >= MAX_WAITING_VIEWS && views() >= MAX_WAITING_VIEWS;
        let is_long = is_long && ring.standings.shortage(ring.view).is_some();
        if let Some(Queued::View { round: at, event: last }) = self.queue.back_mut()
            && is_long
            && last.can_merge(&event)
        {
            *at = round;
            for process in last.merge(event) {
                ring.sources.remove(process, round);
            }
            ring.sources.forget_gone(ring.view, ring.standings.settled());
            return;
        }
        self.queue.push_back(Queued::View { round, event: Box::new(event) });
    }

    pub(super) fn waits_for_passes(&self, standings: &Standings) -> bool {
        let (round, takers) = self.awaited;
        standings.awaits(round, takers) || matches!(self.queue.front(), Some(Queued::Packet { .. }))
    }

    pub(super) fn deliver(
        &mut self,
        ring: &mut Applied<'_>,
        arrived: Option<(Process, SeqNo)>,
    ) -> Vec<Delivery> {
        let mut out = Vec::new();
        // A leaving member receives the view without it, even if the other members have no quorum.
        let is_in = ring.view.contains(self.me);
        let is_unused = ring.is_empty && !self.has_shown_view();
        let is_short = ring.standings.shortage(ring.view).is_some();
        if self.is_out || (is_short && (is_in || is_unused)) {
            return out;
        }
        if let Some((source, seqno)) = arrived {
            self.deliver_early(ring, source, Some(seqno), &mut out);
        }
        while let Some(front) = self.queue.front() {
            // A leaving member gets no message of a ring that lacks its quorum, because the
            // remaining members may never get it. Views after that message are withheld as well.
            let is_withheld = !is_in && self.is_shown_short;
            if let Queued::Packet { round, place, source, seqno } = *front
                && (is_withheld
                    || !self.deliver_packet(ring, round, place, (source, seqno), &mut out))
            {
                break;
            }
            match self.queue.pop_front().expect("the queue has a front") {
                Queued::View { round, event } => {
                    if !self.show(ring, round, event, &mut out) {
                        break;
                    }
                }
                Queued::Flushed { round, source } => {
                    ring.sources.remove(source, round);
                    ring.sources.forget_gone(ring.view, ring.standings.settled());
                }
                Queued::Packet { source, .. } => self.deliver_early(ring, source, None, &mut out),
            }
        }
        if is_in || !self.is_shown_short {
            self.deliver_grants(ring, &mut out);
        }
        out
    }

    pub(super) fn leave_unseen(&mut self, ring: &Applied<'_>) -> bool {
        if ring.view.contains(self.me) || self.is_out {
            return false;
        }
        let is_unused = ring.is_empty && !self.has_shown_view();
        let is_message_next = matches!(self.queue.front(), Some(Queued::Packet { .. }));
        let is_unseen = (is_unused && ring.standings.shortage(ring.view).is_some())
            || (is_message_next && self.is_shown_short);
        if is_unseen {
            self.queue.clear();
            self.is_out = true;
        }
        is_unseen
    }

    // No majority can form a ring without a grant that a majority is known to have.
    fn deliver_grants(&mut self, ring: &Applied<'_>, out: &mut Vec<Delivery>) {
        while let Some(Grant { round, name, holder }) = self.grants.front().copied()
            && self.is_held_enough(ring, Qos::MajorityResilient, round)
        {
            self.grants.pop_front();
            let news = LockNews { name, change: LockChange::Granted { fence: round } };
            out.push(Delivery::Lock { process: holder, request: 0, news });
        }
    }

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

    fn show(
        &mut self,
        ring: &mut Applied<'_>,
        round: Timestamp,
        event: Box<ViewEvent>,
        out: &mut Vec<Delivery>,
    ) -> bool {
        for process in event.left.iter().chain(&event.failed) {
            ring.sources.remove(*process, round);
        }
        ring.sources.forget_gone(ring.view, ring.standings.settled());
        self.shown = event.view.processes().collect();
        self.is_shown_short = !event.view.has_quorum();
        self.is_out = !self.shown.contains(&self.me);
        let is_new_ring = self.is_forming && event.view.epoch == ring.view.epoch;
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
            heard.into_iter().for_each(|process| self.deliver_early(ring, process, None, out));
        }
        !self.is_out
    }

    fn deliver_packet(
        &mut self,
        ring: &mut Applied<'_>,
        round: Timestamp,
        place: Place,
        (source, seqno): (Process, SeqNo),
        out: &mut Vec<Delivery>,
    ) -> bool {
        let Some(stream) = ring.sources.get(source) else { return true };
        let Some(qos) = stream.ends_undelivered(seqno) else { return true };
        if !self.is_held_enough(ring, qos, round) {
            return false;
        }
        let stream = ring.sources.get_mut(source).expect("the stream exists");
        let Some(data) = stream.take_whole_around(seqno) else { return false };
        // Below total order, other members may have delivered the message at another place.
        let place = Some(place).filter(|_| data.qos >= Qos::TotallyOrdered);
        self.delivered = place.map_or(self.delivered, |place| place.at);
        let round = Some(round);
        out.push(Delivery::Message(DeliveredMessage { source, data, round, place }));
        true
    }

    fn deliver_early(
        &mut self,
        ring: &mut Applied<'_>,
        source: Process,
        arrived: Option<SeqNo>,
        out: &mut Vec<Delivery>,
    ) {
        if !ring.sources.get(source).is_some_and(|stream| stream.may_have_early(arrived)) {
            return;
        }
        // Packets that arrive after the list of a reformation was accepted wait for its view.
        let is_known = self.shown.contains(&source) && ring.standings.has_spoken(source);
        if self.is_forming || !(is_known || ring.sources.is_guest(source)) {
            return;
        }
        let Some(stream) = ring.sources.get_mut(source) else { return };
        let (round, place) = (None, None);
        let message = |data| Delivery::Message(DeliveredMessage { source, data, round, place });
        out.extend(stream.take_early(arrived).into_iter().map(message));
    }

    /// Returns `true` if enough members hold the round for this guarantee. Counts only members that
    /// have since taken the token, because the source may not know the place.
    fn is_held_enough(&mut self, ring: &Applied<'_>, qos: Qos, round: Timestamp) -> bool {
        if qos <= Qos::TotallyOrdered {
            return true;
        }
        let Applied { view, standings, .. } = ring;
        let has_clients = view.has_clients();
        let is_counted = |process| match qos {
            Qos::MajorityResilient if has_clients => view.is_voter(process),
            _ => true,
        };
        let (count, holders) = standings.holders(round, is_counted);
        let counts_me = !view.contains(self.me) || view.is_voter(self.me);
        let needed = match qos {
            Qos::Resilient(k) => usize::from(k).min(count),
            Qos::MajorityResilient => standings.majority(view) - usize::from(counts_me),
            Qos::TotallyResilient => count,
            _ => 0,
        };
        if needed > 0 {
            // Clients take their turns between those of the awaited voters.
            let takers = if has_clients { view.len() } else { needed + 1 };
            let (last, most) = self.awaited;
            self.awaited = if round > last { (round, takers) } else { (last, most.max(takers)) };
        }
        round <= standings.settled() || holders >= needed
    }
}

const MAX_WAITING_VIEWS: usize = 256;
