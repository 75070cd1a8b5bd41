//! Gaps in streams. The packets in a gap are recorded as missing, or skipped if there are too many.

use super::Receiver;
use crate::lateral::config::StreamStart;
use crate::lateral::context::Context;
use crate::lateral::index::StreamIx;
use crate::lateral::recovery::first_wait;
use crate::lateral::streams::FormerStream;
use crate::{LossCause, SeqNo, Time};

/// Maximum number of missing packets. A node that is missing more cannot catch up.
const MAX_MISSING: usize = 1 << 18;

impl Receiver {
    /// Records the unknown packets before `end` as missing. Returns `false` if `end` is not
    /// believed, because the sender must first confirm a jump.
    #[inline]
    pub(crate) fn notice_up_to(&mut self, cx: &mut Context, ix: StreamIx, end: SeqNo) -> bool {
        let max_gap = cx.config.max_gap;
        let stream = self.streams.get_mut(ix);
        if stream.is_large_step(end, max_gap) {
            if !stream.is_believed(cx.now, &cx.config) {
                stream.doubted = stream.doubt_before(end, max_gap).or(Some(end));
                cx.counters.jumps_doubted += 1;
                self.query_sender(cx, ix);
                return false;
            }
            if cx.config.stream_start == StreamStart::AskSender {
                // The number may be of another incarnation, which is as unconfirmed as the jump.
                stream.incarnation = None;
            }
        }
        self.notice_believed(cx, ix, end)
    }

    /// Like [`Self::notice_up_to`], but for numbers that are confirmed or believed.
    #[inline]
    pub(super) fn notice_believed(&mut self, cx: &mut Context, ix: StreamIx, end: SeqNo) -> bool {
        let stream = self.streams.get_mut(ix);
        let ahead = end.distance_from(stream.window.end());
        if ahead <= 0 {
            return true;
        }
        if ahead as u32 > cx.config.max_gap {
            return self.on_jump(cx, ix, end);
        }
        stream.doubted = None;
        if self.streams.losses.len() + ahead as usize > MAX_MISSING {
            self.skip_to(cx, ix, end);
            return true;
        }
        for _ in 0..ahead {
            self.notice_next(cx, ix);
        }
        true
    }

    pub(super) fn notice_down_to(&mut self, cx: &mut Context, ix: StreamIx, first: SeqNo) {
        let window = &self.streams.get(ix).window;
        let (first, start) = (window.owed_from(first), window.start());
        let before = start.distance_from(first);
        if before <= 0 {
            return;
        }
        if before as u32 > cx.config.max_gap
            || !window.reaches_back()
            || self.streams.losses.len() + before as usize > MAX_MISSING
        {
            cx.counters.missing += before as u64;
            let range = (first, start.minus(1));
            self.delivery(cx).lose(ix, range, LossCause::TooFarBehind);
            return;
        }
        for _ in 0..before {
            let due = count_missing(cx);
            self.streams.push_missing_before(cx.now, ix, due);
        }
    }

    fn notice_next(&mut self, cx: &mut Context, ix: StreamIx) {
        let seqno = self.streams.get(ix).window.end();
        if self.reassembly.is_unwanted(ix, seqno) {
            self.streams.push_settled(ix);
            self.reassembly.forget_unwanted_before(ix, seqno.next());
            return;
        }
        let due = count_missing(cx);
        self.streams.push_missing(cx.now, ix, due);
    }

    pub(super) fn skip_to(&mut self, cx: &mut Context, ix: StreamIx, end: SeqNo) {
        let known_to = self.empty_window(cx, ix, end);
        // Packets beyond the end that belong to a message that is over were reported with it.
        let first = self.reassembly.reported_to(ix, known_to);
        if end.is_after(first) {
            cx.counters.missing += end.distance_from(first) as u64;
            let range = (first, end.minus(1));
            self.delivery(cx).lose(ix, range, LossCause::TooFarBehind);
        }
        self.reassembly.forget_unwanted_before(ix, end);
    }

    /// Continues the stream at `end`, which may belong to another incarnation of its sender.
    pub(super) fn move_to(&mut self, cx: &mut Context, ix: StreamIx, end: SeqNo) -> SeqNo {
        let known_to = self.empty_window(cx, ix, end);
        self.delivery(cx).forget_messages(ix, known_to)
    }

    fn empty_window(&mut self, cx: &mut Context, ix: StreamIx, end: SeqNo) -> SeqNo {
        self.delivery(cx).end_messages(ix, LossCause::TooFarBehind);
        let known_to = self.streams.get(ix).window.end();
        for seqno in self.streams.skip_to(ix, end) {
            self.delivery(cx).lose(ix, (seqno, seqno), LossCause::TooFarBehind);
        }
        known_to
    }

    /// Handles a number that is more than [`max_gap`](crate::lateral::Config::max_gap) ahead. It is
    /// doubted until a second number agrees with it. If both can belong to the same incarnation,
    /// the packets before the first number are then reported as lost, and those between the two are
    /// owed. If not, the sender is queried, and the stream moves only if the sender is silent.
    fn on_jump(&mut self, cx: &mut Context, ix: StreamIx, end: SeqNo) -> bool {
        let stream = self.streams.get(ix);
        let (sender, group, former) = (stream.sender, stream.group, stream.incarnation);
        if self.streams.is_late(cx.now, group, sender, end) {
            return false;
        }
        let stream = self.streams.get_mut(ix);
        let Some(doubted) = stream.doubt_before(end, cx.config.max_gap) else {
            stream.doubted = Some(end);
            cx.counters.jumps_doubted += 1;
            return false;
        };
        let from_first = cx.config.stream_start == StreamStart::FromFirst;
        if from_first || doubted.is_near(stream.window.end()) {
            stream.doubted = None;
            self.skip_to(cx, ix, doubted);
            return self.notice_believed(cx, ix, end);
        }
        if !stream.is_silent(cx.now, &cx.config) {
            // The number may belong to another incarnation of the sender, which begins with another
            // number. Only the sender knows which packets were lost in between.
            self.query_sender(cx, ix);
            return false;
        }
        // Until the sender answers, the incarnation is unknown. It may be a former one.
        let former_to = self.move_to(cx, ix, doubted);
        let others = self.streams.former_mut(group);
        let resumed = others.take_near(sender, doubted);
        let left = FormerStream { to: former_to, over_since: None };
        others.note(sender, former, left, cx.config.streams_per_group);
        let stream = self.streams.get_mut(ix);
        stream.begin_unknown();
        if let Some((incarnation, to)) = resumed {
            stream.window.resume_at(to);
            stream.incarnation = incarnation;
        }
        self.notice_believed(cx, ix, end)
    }
}

/// Counts a missing packet. Returns the time of its first NAK, or the time at which it is given up.
fn count_missing(cx: &mut Context) -> Time {
    cx.counters.missing += 1;
    let give_up_after = cx.config.give_up_after;
    let nak = cx.config.nak.as_ref();
    let wait = nak.map_or(give_up_after, |nak| first_wait(nak, &mut cx.rng));
    cx.now + wait.min(give_up_after)
}
