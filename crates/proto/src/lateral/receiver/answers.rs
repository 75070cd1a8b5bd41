//! Handling of heartbeats, some of which answer this node's queries. An answer overrides all claims
//! about the stream.

use super::{Heartbeat, Receiver};
use crate::lateral::config::{MAX_AHEAD, StreamStart};
use crate::lateral::context::{Context, TimerKey};
use crate::lateral::index::{GroupIx, StreamIx};
use crate::lateral::streams::{FormerStream, Query};
use crate::{Incarnation, Origin, SeqNo};

#[derive(Clone, Copy, Debug)]
struct Answer {
    incarnation: Incarnation,
    first: SeqNo,
    next: SeqNo,
}

impl Receiver {
    pub(crate) fn on_heartbeat(
        &mut self,
        cx: &mut Context,
        from: Origin,
        group: GroupIx,
        heartbeat: Heartbeat,
    ) {
        let Heartbeat { next, first, nonce, confirm } = heartbeat;
        let known = self.streams.find(group, from.node);
        let query = known.and_then(|ix| Some((ix, self.streams.get(ix).query?)));
        if let Some((ix, query)) = query.filter(|(_, query)| query.nonce == nonce)
            && let Some(first) = first
        {
            self.on_answer(cx, ix, query, Answer { incarnation: from.incarnation, first, next });
        }
        let Some(ix) = self.direct_stream_of(cx, group, from, next) else { return };
        if self.notice_up_to(cx, ix, next) && confirm {
            self.acknowledge(cx, ix);
        }
    }

    fn on_answer(&mut self, cx: &mut Context, ix: StreamIx, query: Query, answer: Answer) {
        let Answer { incarnation, first, next } = answer;
        cx.timers.cancel(TimerKey::Open(ix));
        let stream = self.streams.get(ix);
        let (sender, group, known) = (stream.sender, stream.group, stream.incarnation);
        let is_other = known.is_none_or(|known| known != incarnation);
        let asks_sender = cx.config.stream_start == StreamStart::AskSender;
        if is_other && !(asks_sender && stream.can_be_at(next)) {
            self.restart_stream(cx, ix, incarnation, next);
        } else {
            // If messages are queued at the sender, the owed part begins after the sent part.
            let waiting = first.distance_from(next);
            let owed_from = if (0..MAX_AHEAD).contains(&waiting) { first } else { next };
            // The window's floor may be later than these numbers, because it follows a message that
            // this node had partly received when it left the group.
            let window = &stream.window;
            let [sent, known] = [next, owed_from].map(|number| window.owed_from(number));
            if stream.is_outdated(query, (sent, known)) {
                self.queries.repeat(cx, ix, self.streams.get_mut(ix));
                return;
            }
            if query.is_refuted_by(sent) {
                self.take_back(cx, ix, query, (sent, known));
            }
        }
        if self.streams.get_mut(ix).on_answer(incarnation) {
            // The stream of an unknown incarnation may be a former stream.
            let former = self.streams.former_mut(group);
            let before = match known {
                Some(_) => None,
                None => former.take_start(sender, incarnation),
            };
            let owed_from = self.streams.get(ix).window.owed_from(first);
            let owed_from = before.map_or(owed_from, |to| to.later(first));
            self.streams.forget_not_owed(ix, owed_from);
            self.notice_down_to(cx, ix, owed_from);
            self.delivery(cx).end_messages_not_owed(ix);
        }
        self.notice_answered(cx, ix, next);
    }

    fn notice_answered(&mut self, cx: &mut Context, ix: StreamIx, next: SeqNo) {
        let stream = self.streams.get(ix);
        let end = stream.window.end();
        if next.distance_from(end) > cx.config.max_gap as i32 {
            // Packets sent after the jump are owed, unless there are too many of them.
            let doubted = stream.doubt_before(next, cx.config.max_gap);
            let owed = doubted.filter(|doubted| doubted.is_after(end)).unwrap_or(next);
            self.skip_to(cx, ix, owed);
        }
        self.notice_believed(cx, ix, next);
        self.streams.get_mut(ix).window.vouch_to(next);
        if let Some(nak) = &cx.config.nak {
            self.streams.make_due(ix, cx.now, nak.after);
        }
    }

    /// Forgets numbers that were claimed but not sent. Those before `known` were sent or not owed.
    fn take_back(
        &mut self,
        cx: &mut Context,
        ix: StreamIx,
        query: Query,
        (sent, known): (SeqNo, SeqNo),
    ) {
        let is_refuted = query.is_refuted_by(known);
        cx.counters.claims_refuted += u64::from(is_refuted);
        let sent = query.sent_to(sent, known);
        self.streams.forget_unsent(ix, (sent, known), is_refuted);
        let window = &self.streams.get(ix).window;
        if query.was_settled_beyond(known) && window.is_settled_beyond(known) {
            // All earlier numbers were considered settled, so the stream has to move back.
            self.streams.skip_to(ix, known);
            self.delivery(cx).forget_messages(ix, known);
            self.streams.get_mut(ix).go_back();
        }
    }

    /// Restarts the stream for another incarnation of its sender. The position in the former stream
    /// is remembered, because late packets may make the former incarnation appear to be current
    /// again, and nothing may be delivered twice.
    pub(super) fn restart_stream(
        &mut self,
        cx: &mut Context,
        ix: StreamIx,
        incarnation: Incarnation,
        next: SeqNo,
    ) {
        cx.counters.streams_restarted += 1;
        let stream = self.streams.get(ix);
        let (group, sender, former) = (stream.group, stream.sender, stream.incarnation);
        let former_to = self.move_to(cx, ix, next);
        let others = self.streams.former_mut(group);
        let resumed = others.take_start(sender, incarnation);
        let over = FormerStream { to: former_to, over_since: Some(cx.now) };
        others.note(sender, former, over, cx.config.streams_per_group);
        let stream = self.streams.get_mut(ix);
        stream.restart(incarnation, next);
        if let Some(to) = resumed.filter(|to| next.is_near(*to)) {
            stream.window.resume_at(to);
        }
    }
}
