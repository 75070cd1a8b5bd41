//! One stream, and the rules for believing claims about it; see `receiver/sender_queries`.

use core::time::Duration;

use super::data_buffer::HeldIx;
use super::loss_list::MissingIx;
use super::query::{MAX_OPENS, Query, time_to_answer};
use super::receive_window::ReceiveWindow;
use crate::lateral::config::{Config, StreamStart};
use crate::lateral::index::GroupIx;
use crate::lateral::packet::Packet;
use crate::{GroupId, Incarnation, NodeId, Origin, PacketId, SeqNo, Time};

/// The packets of one sender in one group.
///
/// The fields that every packet needs come first and fill one cache line. With thousands of
/// streams, the line of a packet's stream is rarely in the cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Stream {
    pub(crate) sender: NodeId,
    pub(crate) group: GroupIx,
    pub(crate) group_id: GroupId,
    pub(crate) window: ReceiveWindow,
    /// Incarnation of the sender, or `None` if it is unknown, as before the sender is heard.
    pub(crate) incarnation: Option<Incarnation>,
    /// `true` if the first number that this node is owed is known.
    pub(crate) opened: bool,
    opens: u8,
    pub(crate) query: Option<Query>,
    /// Time at which the sender was last considered silent, after many opens without an answer.
    silent_since: Option<Time>,
    /// End of the stream when its sender left the view. `None` if the sender is in the view or
    /// never was.
    left_at: Option<SeqNo>,
    /// Number that is too far ahead to be believed until another number agrees with it.
    pub(crate) doubted: Option<SeqNo>,
    lost: u32,
    pub(super) place: u32,
}

/// Maximum number of unverified packets that are requested without waiting for the sender's answer.
const CREDIBLE_CLAIMS: u32 = 64;
/// Largest step of a stream, in packets, that is believed without its sender's answer.
const CREDIBLE_STEP: u32 = 256;

impl Stream {
    pub(super) fn new(
        sender: NodeId,
        (group, group_id, place): (GroupIx, GroupId, u32),
        base: SeqNo,
        opened: bool,
    ) -> Self {
        Self {
            sender,
            group,
            group_id,
            window: ReceiveWindow::new(base),
            incarnation: None,
            opened,
            opens: 0,
            query: None,
            silent_since: None,
            left_at: None,
            doubted: None,
            lost: 0,
            place,
        }
    }

    pub(crate) fn id(&self, seqno: SeqNo) -> PacketId {
        PacketId { sender: self.sender, group: self.group_id, seqno }
    }

    pub(crate) fn ack(&self) -> Option<Packet<'static>> {
        let to = Origin { node: self.sender, incarnation: self.incarnation? };
        Some(Packet::Ack { to, settled_to: self.window.settled_to(), lost: self.lost })
    }

    pub(crate) fn count_lost(&mut self, count: u32) {
        self.lost = self.lost.saturating_add(count);
    }

    #[inline]
    pub(super) fn hold(&mut self, seqno: SeqNo, held: HeldIx) {
        if let Some(query) = &mut self.query {
            query.record_arrival(seqno);
        }
        self.window.hold(seqno, held);
    }

    pub(super) fn push_missing_before(&mut self, missing: MissingIx) {
        self.window.push_missing_before(missing);
        if let Some(query) = &mut self.query {
            query.settled = query.settled.earlier(self.window.start());
        }
    }

    pub(crate) fn restart(&mut self, incarnation: Incarnation, base: SeqNo) {
        assert!(self.window.is_empty(), "a stream is restarted with packets in its window");
        *self = Self::new(self.sender, (self.group, self.group_id, self.place), base, false);
        self.incarnation = Some(incarnation);
    }

    /// Continues with numbers that may belong to another incarnation of the sender.
    pub(crate) fn begin_unknown(&mut self) {
        self.go_back();
        self.window.drop_floor();
        (self.opened, self.incarnation) = (false, None);
    }

    pub(crate) fn go_back(&mut self) {
        self.window.go_back();
        self.doubted = None;
        if let Some(query) = &mut self.query {
            query.came_to = None;
        }
    }

    pub(crate) fn begin_query(&mut self, nonce: u64) {
        self.opens = 0;
        self.query = Some(Query::new(nonce, &self.window));
    }

    pub(crate) fn drop_query(&mut self) {
        (self.query, self.silent_since) = (None, None);
    }

    pub(crate) fn mark_query_repeated(&mut self) {
        if let Some(query) = &mut self.query {
            query.is_second = true;
        }
    }

    /// Returns the query's nonce and the time to wait for the answer, if an open is to be sent.
    ///
    /// A sender that has not answered [`MAX_OPENS`] opens is considered silent. It is queried again
    /// when it is heard again, because the packets that it sent before are still owed.
    pub(crate) fn next_open(&mut self, now: Time, nonce: u64) -> Option<(u64, Duration)> {
        if self.opened && self.query.is_none() {
            return None;
        }
        if self.opens >= MAX_OPENS {
            self.opens -= 1;
            self.silent_since = Some(now);
            if self.opened {
                self.query = None;
            }
            return None;
        }
        let wait = self.time_to_answer();
        self.opens += 1;
        let query = Query::new(nonce, &self.window);
        Some((self.query.get_or_insert(query).nonce, wait))
    }

    pub(crate) fn time_to_answer(&self) -> Duration {
        time_to_answer(self.opens)
    }

    pub(crate) fn on_answer(&mut self, incarnation: Incarnation) -> bool {
        self.drop_query();
        self.incarnation = Some(incarnation);
        self.opens = 0;
        !core::mem::replace(&mut self.opened, true)
    }

    /// Returns `true` if the sender does not answer or is never queried. In all other cases, only
    /// the sender determines which of its incarnations is current.
    pub(crate) fn is_silent(&self, now: Time, config: &Config) -> bool {
        let is_recent = |since: Time| now < since + config.give_up_after;
        config.stream_start == StreamStart::FromFirst || self.silent_since.is_some_and(is_recent)
    }

    /// Returns `true` if claims are believed without the sender's answer. A sender that has not
    /// been in the view yet can be queried.
    pub(crate) fn is_believed(&self, now: Time, config: &Config) -> bool {
        self.is_silent(now, config) || self.left_at.is_some()
    }

    /// Returns `true` if the sender has returned, and claims in its name were believed in the
    /// meantime.
    pub(crate) fn on_view_change(&mut self, has_left: bool) -> bool {
        let end = self.window.end();
        let left_at = core::mem::replace(&mut self.left_at, has_left.then_some(end));
        !has_left && left_at.is_some_and(|before| end.is_beyond(before))
    }

    /// Returns `true` if a missing packet still needs its sender's confirmation. It does if there
    /// are many unverified packets, or if it is about to be given up (`is_over`).
    pub(crate) fn is_unverified(&self, seqno: SeqNo, is_over: bool) -> bool {
        !self.window.is_vouched(seqno) && (is_over || self.window.claimed() > CREDIBLE_CLAIMS)
    }

    #[inline]
    pub(crate) fn is_large_step(&self, end: SeqNo, max_gap: u32) -> bool {
        let credible = CREDIBLE_STEP.min(max_gap) as i32;
        let ahead = end.distance_from(self.window.end());
        ahead > credible && !self.window.is_vouched(end.minus(1))
    }

    /// Returns the doubted number if it agrees with `end`.
    pub(crate) fn doubt_before(&self, end: SeqNo, max_gap: u32) -> Option<SeqNo> {
        let agrees = |doubted: &SeqNo| (0..=max_gap as i32).contains(&end.distance_from(*doubted));
        self.doubted.filter(agrees)
    }

    /// Returns `true` if `next` is close enough to the stream to belong to the same incarnation.
    /// Repairs and retransmissions do not contain the incarnation, but each incarnation begins with
    /// a different number. The numbers of two incarnations are close to each other only by chance.
    /// If the incarnation is known, only a step that is believed without the sender's answer is
    /// close enough.
    pub(crate) fn can_be_at(&self, next: SeqNo) -> bool {
        let end = self.window.end();
        match self.incarnation {
            None => next.is_near(end),
            Some(_) => next.distance_from(end).unsigned_abs() <= CREDIBLE_STEP,
        }
    }

    /// Returns `true` if the answer to `query` may be outdated. An answer is outdated if it refutes
    /// a claim, but a packet that it does not cover has arrived since the query, or more is settled
    /// by now. Such a packet may also be forged, which the answer to a second query shows.
    pub(crate) fn is_outdated(&self, query: Query, (sent, known): (SeqNo, SeqNo)) -> bool {
        let has_come = query.came_to.is_some_and(|to| to.is_after(sent));
        let is_overtaken = query.is_refuted_by(known) && has_come
            || self.window.is_settled_beyond(known) && !query.was_settled_beyond(known);
        is_overtaken && !query.is_second
    }
}
