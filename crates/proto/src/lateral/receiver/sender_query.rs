//! Queries to the sender of a stream, and its answers: the first number that this node is owed, the
//! next number, and the sender's current incarnation.
//!
//! Any host that receives the group's multicast can forge data packets, repairs and heartbeats. No
//! packet is settled on these alone. A jump to a number far ahead, another incarnation of the
//! sender, and a packet that is about to be reported lost wait for the sender's answer to an
//! *open*. The answer repeats a nonce that no other node has received. If the sender does not
//! answer, claims about its stream are believed.

use core::time::Duration;

use crate::lateral::groups::GroupIx;
use crate::lateral::packet::Packet;
use crate::lateral::streams::former_streams::FormerStream;
use crate::lateral::streams::{Query, StreamIx};
use crate::lateral::{Lateral, StreamStart, TimerKey};
use crate::{Destination, Incarnation, LossCause, NodeId, Origin, SeqNo, Time};

/// Content of a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) next: SeqNo,
    pub(crate) first: Option<SeqNo>,
    pub(crate) nonce: u64,
    pub(crate) confirm: bool,
}

impl Lateral {
    pub(crate) fn on_heartbeat(
        &mut self,
        now: Time,
        from: Origin,
        group: GroupIx,
        heartbeat: Heartbeat,
    ) {
        let Heartbeat { next, first, nonce, confirm } = heartbeat;
        let known = self.streams.find(group, from.node);
        let query = known.and_then(|ix| self.streams.get(ix).query.map(|query| (ix, query)));
        if let Some((ix, query)) = query.filter(|(_, query)| query.nonce == nonce)
            && let Some(first) = first
        {
            self.on_answer(now, ix, (from.incarnation, query), next, first);
        }
        let Some(ix) = self.direct_stream_of(now, group, from, next) else { return };
        if self.notice_up_to(now, ix, next) && confirm {
            self.acknowledge(now, ix);
        }
    }

    /// Queries a stream's sender for the first number owed and the end of the stream. After
    /// [`MAX_OPENS`] without an answer, the sender is considered silent. It is queried again when
    /// it is heard again, because what it sent before is still owed.
    pub(crate) fn ask_to_open(&mut self, now: Time, ix: StreamIx) {
        let nonce = self.nonces.next_u64().max(1);
        let stream = self.streams.get_mut(ix);
        if stream.opened && stream.query.is_none() {
            return;
        }
        if stream.opens >= MAX_OPENS {
            stream.opens -= 1;
            stream.silent_since = Some(now);
            if stream.opened {
                stream.query = None;
            }
            return;
        }
        let wait = OPEN_INTERVAL * (1 << stream.opens.min(4));
        stream.opens += 1;
        let query = Query::new(nonce, stream);
        let nonce = stream.query.get_or_insert(query).nonce;
        let (sender, group) = (stream.sender, stream.group_id);
        self.counters.opens_sent += 1;
        self.transmit(Destination::Node(sender), group, Packet::Open { nonce });
        self.timers.set(TimerKey::Open(ix), now + wait);
    }

    /// Queries the sender of an unopened stream that was heard again, unless a query is scheduled.
    pub(crate) fn ask_again_to_open(&mut self, now: Time, ix: StreamIx) {
        if !self.timers.is_set(TimerKey::Open(ix)) {
            self.ask_to_open(now, ix);
        }
    }

    pub(crate) fn on_open(&mut self, from: NodeId, ix: GroupIx, nonce: u64) {
        let group = self.groups.get(ix);
        let (next, first) = (group.own.next.seqno(), Some(group.own.first_for(from)));
        let (id, confirm) = (group.id, group.own.confirm.is_some());
        self.counters.heartbeats_sent += 1;
        let packet = Packet::Heartbeat { next, first, nonce, confirm };
        self.transmit(Destination::Node(from), id, packet);
    }

    /// Queries the sender of an open stream for its end, unless a query is open.
    pub(crate) fn want_word(&mut self, now: Time, ix: StreamIx) {
        let stream = self.streams.get_mut(ix);
        if stream.query.is_some() {
            self.ask_again_to_open(now, ix);
            return;
        }
        stream.opens = 0;
        stream.query = Some(Query::new(self.nonces.next_u64().max(1), stream));
        self.ask_to_open(now, ix);
    }

    /// Returns `true` if claims about the stream are believed without its sender's answer: the
    /// sender has left the view, does not answer, or is never queried. A sender that has not been
    /// in the view yet can be queried.
    pub(crate) fn is_believed(&self, now: Time, ix: StreamIx) -> bool {
        self.is_silent(now, ix) || self.streams.get(ix).left_at.is_some()
    }

    /// Returns `true` if the sender does not answer or is never queried. In all other cases, only
    /// the sender determines which of its incarnations is current.
    fn is_silent(&self, now: Time, ix: StreamIx) -> bool {
        let is_recent = |since: Time| now < since + self.config.give_up_after;
        self.config.stream_start == StreamStart::FromFirst
            || self.streams.get(ix).silent_since.is_some_and(is_recent)
    }

    /// Returns the time for which a missing packet has to wait for its sender's answer, and queries
    /// the sender. Returns `None` if it need not wait: the sender has vouched for it, claims are
    /// believed, or there are few unverified packets and it is not about to be given up
    /// (`is_over`).
    pub(crate) fn needs_word(
        &mut self,
        now: Time,
        ix: StreamIx,
        seqno: SeqNo,
        is_over: bool,
    ) -> Option<Duration> {
        let stream = self.streams.get(ix);
        if stream.is_vouched(seqno) || !(is_over || stream.claimed() > CREDIBLE_CLAIMS) {
            return None;
        }
        if self.is_believed(now, ix) {
            return None;
        }
        self.want_word(now, ix);
        Some(OPEN_INTERVAL * (1 << self.streams.get(ix).opens.min(4)))
    }

    /// Applies a sender's answer, which overrides all claims.
    fn on_answer(
        &mut self,
        now: Time,
        ix: StreamIx,
        (incarnation, query): (Incarnation, Query),
        next: SeqNo,
        first: SeqNo,
    ) {
        self.cancel_open(ix);
        let (sender, group, known) = self.streams.get(ix).origin();
        let is_other = known.is_none_or(|known| known != incarnation);
        if is_other && !self.is_that_of(ix, next) {
            self.restart_stream(now, ix, incarnation, next);
        } else {
            // If messages queue at the sender, what it owes begins after what it has sent.
            let waiting = first.distance_from(next);
            let owed_from = if (0..MAX_AHEAD).contains(&waiting) { first } else { next };
            // A message that this node knew in part when it left the group ends later.
            let [sent, known] = [next, owed_from].map(|it| self.streams.get(ix).owed_from(it));
            if self.is_too_old(ix, query, (sent, known)) {
                return self.ask_once_more(now, ix);
            }
            if query.end.is_beyond(sent) {
                self.take_back(ix, query, (sent, known));
            }
        }
        let stream = self.streams.get_mut(ix);
        stream.incarnation = Some(incarnation);
        stream.query = None;
        stream.silent_since = None;
        stream.opens = 0;
        if !core::mem::replace(&mut stream.opened, true) {
            // The stream of an unknown incarnation may be one that was followed before.
            let heard = &mut self.groups.get_mut(group).heard;
            let before = known.is_none().then(|| heard.take_start(sender, incarnation)).flatten();
            let owed_from = before.map_or(stream.owed_from(first), |to| to.later(first));
            for missing in self.streams.forget_not_owed(ix, owed_from) {
                self.missing.remove(missing);
            }
            self.notice_down_to(now, ix, owed_from);
            self.end_messages_not_owed(ix);
        }
        let stream = self.streams.get_mut(ix);
        let ahead = next.distance_from(stream.end());
        if ahead > self.config.max_gap as i32 {
            // Packets sent after the jump are owed, unless they are too many as well.
            let near = |doubted: &SeqNo| {
                let behind = next.distance_from(*doubted);
                doubted.is_after(stream.end()) && (0..=self.config.max_gap as i32).contains(&behind)
            };
            let owed = stream.doubted.filter(near).unwrap_or(next);
            self.skip_to(ix, owed);
        }
        self.notice_believed(now, ix, next);
        self.streams.get_mut(ix).vouch_to(next);
        for (_, missing) in self.streams.get(ix).all_missing() {
            let since = self.missing.get(missing).noticed_at;
            if self.missing.get(missing).attempts == 0
                && self.config.nak.as_ref().is_some_and(|nak| now >= since + nak.after)
            {
                self.missing.set_due(missing, now);
            }
        }
    }

    /// Returns `true` if the answer may be outdated: it refutes a claim, but a packet that it does
    /// not cover has arrived since the query, or more is settled by now. Such a packet may also be
    /// forged, which the answer to a second query shows.
    fn is_too_old(&self, ix: StreamIx, query: Query, (sent, known): (SeqNo, SeqNo)) -> bool {
        let has_come = query.came_to.is_some_and(|to| to.is_after(sent));
        let is_overtaken = query.end.is_beyond(known) && has_come
            || self.streams.get(ix).is_settled_beyond(known) && !query.was_settled_beyond(known);
        is_overtaken && !query.is_second
    }

    fn ask_once_more(&mut self, now: Time, ix: StreamIx) {
        let stream = self.streams.get_mut(ix);
        (stream.query, stream.silent_since) = (None, None);
        self.want_word(now, ix);
        if let Some(query) = &mut self.streams.get_mut(ix).query {
            query.is_second = true;
        }
    }

    /// Forgets the numbers that were claimed before the query and that the sender has not sent.
    /// Numbers before `known` are sent or not owed.
    fn take_back(&mut self, ix: StreamIx, query: Query, (sent, known): (SeqNo, SeqNo)) {
        let is_refuted = query.end.is_beyond(known);
        self.counters.claims_refuted += u64::from(is_refuted);
        // Packets that have arrived since the query count as sent, even if the answer does not
        // cover them.
        let sent = match query.came_to {
            Some(to) if !query.was_settled_beyond(known) => to.later(sent),
            _ => sent,
        };
        for missing in self.streams.forget_unsent(ix, (sent, known), is_refuted) {
            self.missing.remove(missing);
        }
        if query.was_settled_beyond(known) && self.streams.get(ix).is_settled_beyond(known) {
            // Everything before that was considered settled, so the stream has to go back.
            for (_, missing) in self.streams.get(ix).all_missing() {
                self.missing.remove(missing);
            }
            self.streams.skip_to(ix, known);
            self.forget_messages_of(ix, known);
            self.streams.get_mut(ix).go_back();
        }
    }

    /// Restarts the stream of a sender that was restarted. The missing packets of its former stream
    /// are lost. Late packets of the former incarnation may make it seem current again; its
    /// position is remembered so that nothing is delivered twice.
    fn restart_stream(&mut self, now: Time, ix: StreamIx, incarnation: Incarnation, next: SeqNo) {
        self.counters.streams_restarted += 1;
        let stream = self.streams.get(ix);
        let (group, sender, former) = (stream.group, stream.sender, stream.incarnation);
        let former_to = self.move_to(ix, next);
        let heard = &mut self.groups.get_mut(group).heard;
        let resumed = heard.take_start(sender, incarnation);
        let over = FormerStream { to: former_to, over_since: Some(now) };
        heard.note(sender, former, over, self.config.streams_per_group);
        let stream = self.streams.get_mut(ix);
        stream.restart(incarnation, next);
        if let Some(to) = resumed.filter(|to| next.is_near(*to)) {
            stream.resume_at(to);
        }
    }

    /// Handles a number that is more than [`Config::max_gap`](crate::lateral::Config::max_gap) ahead. It is
    /// believed once a second number agrees with it. The packets before the first of the two
    /// numbers are then reported lost. Those between them were sent after the jump, and are owed.
    pub(crate) fn on_jump(&mut self, now: Time, ix: StreamIx, end: SeqNo) -> bool {
        let max_gap = self.config.max_gap as i32;
        let stream = self.streams.get_mut(ix);
        let agrees = |doubted: &SeqNo| (0..=max_gap).contains(&end.distance_from(*doubted));
        let end_here = stream.end();
        let (group, sender) = (stream.group, stream.sender);
        if self.groups.get(group).heard.is_late(now, sender, end) {
            return false;
        }
        let stream = self.streams.get_mut(ix);
        let Some(doubted) = stream.doubted.filter(agrees) else {
            stream.doubted = Some(end);
            self.counters.jumps_doubted += 1;
            return false;
        };
        if self.config.stream_start == StreamStart::FromFirst || doubted.is_near(end_here) {
            self.streams.get_mut(ix).doubted = None;
            self.skip_to(ix, doubted);
            return self.notice_believed(now, ix, end);
        }
        if !self.is_silent(now, ix) {
            // It may belong to another incarnation of the sender, whose numbers begin elsewhere.
            // Only the sender knows what was lost in between.
            self.want_word(now, ix);
            return false;
        }
        // The numbers belong to an unknown incarnation until the sender answers, or to one that was
        // followed before.
        let former = self.streams.get(ix).incarnation;
        let former_to = self.move_to(ix, doubted);
        let heard = &mut self.groups.get_mut(group).heard;
        let resumed = heard.take_near(sender, doubted);
        heard.leave(sender, former, former_to, self.config.streams_per_group);
        let stream = self.streams.get_mut(ix);
        stream.begin_unknown();
        if let Some((incarnation, to)) = resumed {
            stream.resume_at(to);
            stream.incarnation = incarnation;
        }
        self.notice_believed(now, ix, end)
    }

    /// Continues the stream at `end`, which may belong to another incarnation of its sender.
    /// Missing packets are reported lost. Returns the number before which every packet was
    /// delivered or reported lost.
    fn move_to(&mut self, ix: StreamIx, end: SeqNo) -> SeqNo {
        self.end_messages_of(ix, LossCause::TooFarBehind);
        for (seqno, missing) in self.streams.get(ix).all_missing() {
            self.missing.remove(missing);
            self.lose(ix, seqno, seqno, LossCause::TooFarBehind);
        }
        let told_to = self.forget_messages_of(ix, self.streams.get(ix).end());
        self.streams.skip_to(ix, end);
        told_to
    }

    /// Returns `true` if the known stream can be that of the sender's incarnation whose stream is
    /// at `next`. Repairs and retransmissions do not contain the incarnation, but each incarnation
    /// numbers its packets from elsewhere. Two incarnations are near each other only by chance. If
    /// the sender was heard directly, only numbers that were believed without its answer can belong
    /// to the other incarnation.
    fn is_that_of(&self, ix: StreamIx, next: SeqNo) -> bool {
        let stream = self.streams.get(ix);
        self.config.stream_start == StreamStart::AskSender
            && match stream.incarnation {
                None => next.is_near(stream.end()),
                Some(_) => next.distance_from(stream.end()).unsigned_abs() <= CREDIBLE_STEP,
            }
    }

    /// Returns the stream of a sender that was heard directly. Returns `None` if there is no room
    /// for it, or if it belongs to another incarnation than the known one. In the latter case, the
    /// sender is queried.
    pub(crate) fn direct_stream_of(
        &mut self,
        now: Time,
        group: GroupIx,
        from: Origin,
        base: SeqNo,
    ) -> Option<StreamIx> {
        let ix = self.stream_of(now, group, from.node, base)?;
        // A stream known only from repairs has no incarnation, and may belong to any.
        let is_its = match self.streams.get(ix).incarnation {
            Some(known) => known == from.incarnation,
            None => self.config.stream_start == StreamStart::FromFirst || self.is_that_of(ix, base),
        };
        if is_its {
            self.streams.get_mut(ix).incarnation = Some(from.incarnation);
            return Some(ix);
        }
        self.counters.other_incarnations += 1;
        if self.is_silent(now, ix) && self.is_that_of(ix, base) {
            self.streams.get_mut(ix).incarnation = Some(from.incarnation);
            return Some(ix);
        }
        if self.is_silent(now, ix) {
            self.restart_stream(now, ix, from.incarnation, base);
            self.ask_to_open(now, ix);
            return Some(ix);
        }
        self.want_word(now, ix);
        None
    }
}

/// Time from the first open to the second. The interval doubles four times.
const OPEN_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of opens sent in a row.
const MAX_OPENS: u8 = 20;
/// Number of unverified packets that are requested without the sender's answer.
const CREDIBLE_CLAIMS: u32 = 64;
/// Bound for the number of packets queued in one group of a sender. A number that seems to be
/// further ahead is an old one.
pub(crate) const MAX_AHEAD: i32 = 1 << 24;
/// Largest step of a stream that is believed without its sender's answer.
pub(crate) const CREDIBLE_STEP: u32 = 256;
