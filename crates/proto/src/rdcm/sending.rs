//! The sender of a stream: the packets that it keeps, the timing of its multicast, and the
//! receivers that slow it down (sections 3.3 and 3.5).
//!
//! In the paper a sender releases a packet when one overlay child has it. Here it keeps the packet
//! until all receivers have reported it. It can then serve receivers whose predecessor crashes
//! (3.4), and the application learns which packets each receiver has.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use bytes::Bytes;

use self::holdups::Holdups;
use super::around::{Around, seqno};
use super::config::{Config, Congestion, UDP_AND_IP_BYTES};
use super::epochs;
use super::multicast_manager::ManagerError;
use super::pacing::{Pacing, Span};
use super::packet::{DATA_BYTES, DataPacket, Packet, Piece, Report, RingAck, Way};
use super::placing::{Placing, ReceiverState};
use super::reception::initial_window;
use super::successor::{Patience, Successor};
use crate::{Event, GroupId, LossCause, NodeId, Safe, SendError, SeqNo, Time};

mod holdups;
mod stragglers;

/// The sender of one stream.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) placing: Placing,
    /// Packets that are kept, from `base` on.
    kept: VecDeque<Piece>,
    base: u64,
    kept_bytes: usize,
    /// Number of the next packet to multicast.
    next: u64,
    /// State of the overlay children, from their acknowledgments.
    children: BTreeMap<NodeId, Child>,
    /// All overlay children as one successor: packets that none of them has are multicast again.
    all: Successor,
    pacing: Pacing,
    /// Until when data waits for the receivers to take their places.
    starts_at: Option<Time>,
    announce_at: Time,
    /// Announcements since the last packet.
    announcements: u32,
    watch_at: Time,
    /// Receiver that stalls the others, and since when.
    slowest: Option<(NodeId, Time)>,
    /// Time for which the others waited for each receiver.
    holdups: Holdups,
    /// Requested confirmations: for each, the number after the last packet.
    marks: VecDeque<u64>,
    /// Number of packets that each receiver missed since the last confirmation.
    missed: BTreeMap<NodeId, u32>,
}

/// An overlay child of the sender.
#[derive(Clone, Copy, Debug)]
struct Child {
    known_to: u64,
    limit: u64,
}

/// Maximum time that the stream waits for receivers to take their places.
const START_WITHIN: Duration = Duration::from_millis(500);
/// Ring number of the overlay children as one successor.
const ALL: u32 = u32::MAX;

impl Sending {
    /// Starts a stream to the members in `view`.
    pub(super) fn new(around: &mut Around<'_>, view: &[NodeId]) -> Result<Self, ManagerError> {
        let (now, config) = (around.now, around.config);
        let first = config.first_packet();
        let mut placing = Placing::new(around)?;
        placing.join(around, view, first);
        let burst = config.burst_packets as usize * usize::from(config.path_mtu);
        let mut sending = Self {
            placing,
            kept: VecDeque::new(),
            base: first,
            kept_bytes: 0,
            next: first,
            children: BTreeMap::new(),
            all: Successor::new(now, ALL, around.node, first),
            pacing: Pacing::new(now, burst, config.rate),
            starts_at: Some(now + START_WITHIN),
            announce_at: now + config.announce_every,
            announcements: 0,
            watch_at: now + stragglers::watch_every(config),
            slowest: None,
            holdups: Holdups::default(),
            marks: VecDeque::new(),
            missed: BTreeMap::new(),
        };
        sending.take_children(config);
        Ok(sending)
    }

    /// Accepts a message. Returns the number of its first packet.
    pub(super) fn send(
        &mut self,
        around: &mut Around<'_>,
        payload: Bytes,
    ) -> Result<SeqNo, SendError> {
        let count = around.config.packets_of(payload.len());
        let bytes = payload.len() + count * PIECE_COST;
        if self.kept_bytes + bytes > around.config.send_bytes {
            return Err(self.full());
        }
        let first = self.end();
        let size = around.config.piece_bytes();
        for place in 0..count {
            let bytes = payload.slice(place * size..payload.len().min((place + 1) * size));
            let (is_first, is_last) = (place == 0, place + 1 == count);
            self.kept.push_back(Piece { is_first, is_last, bytes });
        }
        self.kept_bytes += bytes;
        Ok(seqno(first))
    }

    /// Returns the reason for which no more is accepted.
    fn full(&self) -> SendError {
        let slowest = self.placing.current().min_by_key(|(_, state)| state.next);
        match slowest {
            Some((by, state)) if state.next < self.next => {
                let behind = u32::try_from(self.next - state.next).unwrap_or(u32::MAX);
                SendError::HeldBack { by, behind }
            }
            _ => SendError::QueueFull { waiting_bytes: self.kept_bytes },
        }
    }

    /// Returns the number after the last packet that is kept.
    fn end(&self) -> u64 {
        self.base + self.kept.len() as u64
    }

    /// Returns the first packet for a receiver that joins now, which begins a message.
    fn first_for_joiner(&self) -> u64 {
        let unsent = (self.next - self.base) as usize;
        let begins = self.kept.iter().skip(unsent).position(|piece| piece.is_first);
        begins.map_or(self.end(), |place| self.next + place as u64)
    }

    /// Adds a node that has joined the group.
    pub(super) fn on_joined(&mut self, around: &mut Around<'_>, node: NodeId) {
        let first = self.first_for_joiner();
        self.placing.join(around, &[node], first);
        self.take_children(around.config);
    }

    /// Removes a node that is no longer a member.
    pub(super) fn on_gone(&mut self, around: &mut Around<'_>, node: NodeId) {
        if let Some(state) = self.placing.receiver(node) {
            let missed = self.next.saturating_sub(state.next);
            self.note_missed(node, missed);
        }
        self.placing.leave(around, node);
        self.take_children(around.config);
        self.on_progress(around);
    }

    fn note_missed(&mut self, node: NodeId, packets: u64) {
        if packets > 0 && !self.marks.is_empty() {
            let missed = self.missed.entry(node).or_default();
            *missed = missed.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
        }
    }

    /// Updates the set of overlay children, after places may have changed.
    pub(super) fn take_children(&mut self, config: &Config) {
        let now = self.placing.children();
        self.children.retain(|child, _| now.contains(child));
        let limit = self.next + initial_window(config);
        for child in now {
            self.children.entry(*child).or_insert(Child { known_to: 0, limit });
        }
    }

    /// Returns the number after the last packet that may be multicast now.
    fn limit(&self) -> u64 {
        self.children.values().map(|child| child.limit).min().unwrap_or(u64::MAX)
    }

    /// Returns the number of the oldest packet that may be in flight.
    fn acknowledged(&self) -> u64 {
        let known_to = self.children.values().map(|child| child.known_to).min();
        known_to.unwrap_or(self.next).max(self.base)
    }

    /// Returns the window over which to pace. Returns `None` if the rate does not follow the
    /// receivers.
    fn span(&self, config: &Config) -> Option<Span> {
        if config.congestion == Congestion::Room || self.children.is_empty() {
            return None;
        }
        let round_trip = self.all.round_trip().smoothed()?;
        let packets = self.limit().saturating_sub(self.acknowledged()).max(2);
        Some(Span { window: packets.saturating_mul(config.path_mtu.into()), round_trip })
    }

    /// Returns `true` if the receivers' windows allow the next packet.
    fn may_send(&self) -> bool {
        self.starts_at.is_none() && self.next < self.end() && self.next < self.limit()
    }

    /// Appends the next packet to `out`. Returns `false` if no packet may be multicast now.
    pub(super) fn poll_data(&mut self, around: &mut Around<'_>, out: &mut Vec<u8>) -> bool {
        self.note_wait(around);
        if !self.may_send() {
            return false;
        }
        let (now, config) = (around.now, around.config);
        let span = self.span(config);
        if self.pacing.next_at(now, span) > now {
            return false;
        }
        let number = self.next;
        let piece = self.kept[(number - self.base) as usize].clone();
        let bytes = UDP_AND_IP_BYTES + DATA_BYTES + piece.bytes.len();
        let way = Way::tree(number - self.acknowledged() + 1);
        let data = DataPacket { number, piece, way, is_relayed: false };
        Packet::Data(data).encode(around.group, around.origin, around.stream, out);
        around.counters.data_sent += 1;
        self.pacing.on_sent(bytes);
        self.next += 1;
        if self.children.is_empty() {
            self.all.is_not_asked();
            self.on_progress(around);
        } else {
            self.all.await_ack(now, number, &again_after(config));
        }
        self.announcements = 0;
        self.announce_at = now + self.announce_after(config);
        true
    }

    /// Handles acknowledgments of an overlay child.
    pub(super) fn on_ack(&mut self, around: &mut Around<'_>, from: NodeId, acks: &[RingAck]) {
        // The sender is the parent in the highest ring of a child, which is the last one in its
        // packet.
        let stopped_for = self.stopped_for(around.now, around.config);
        let Some(child) = self.children.get_mut(&from) else { return };
        // A joiner acknowledges everything before its first packet, which may not be sent yet.
        let Some(ack) = acks.last().map(|ack| ack.below(self.next)) else { return };
        child.known_to = child.known_to.max(ack.known_to);
        if !stopped_for.is_zero() {
            // The time for which this node stood still is not part of the round trip.
            self.all.is_not_asked();
        }
        if ack.limit < child.limit {
            self.pacing.on_reduction();
        }
        child.limit = ack.limit;
        let known_to = self.children.values().map(|child| child.known_to).min().unwrap_or(0);
        let mut all = RingAck::new(ALL, &ack.has, known_to, 0, 0);
        // All packets that a child has count as received through the tree, so that each step
        // measures the round trip.
        all.by_tree = all.known_to as u32;
        let fresh = self.all.on_ack(around.now, &all, &again_after(around.config));
        let due = around.now + around.config.detect_after;
        for number in fresh.start.max(self.base)..fresh.end {
            self.all.misses(number, due);
        }
    }

    /// Handles the progress report of a receiver.
    pub(super) fn on_report(&mut self, around: &mut Around<'_>, from: NodeId, report: &Report) {
        around.counters.reports_received += 1;
        if report.next > self.end() {
            around.counters.malformed += 1;
            return;
        }
        let silence = self.silence_of(around, from);
        let has_restarted = self.placing.has_restarted(from, report);
        let is_current = self.placing.on_report(around, from, report);
        self.charge_silence(around.now, from, silence);
        if !is_current {
            self.readmit(around, from, report);
        } else if report.epoch == epochs::NONE || has_restarted {
            self.resume(around, from, report.next);
        }
        if self.starts_at.is_some() && self.placing.is_settled() {
            self.starts_at = None;
        }
        self.note_wait(around);
        let settled_after = self.settled_after(around.config);
        self.holdups.look(around.now, self.next, settled_after, self.placing.current());
        self.on_progress(around);
    }

    /// Retransmits packets to a receiver that cannot get them from others.
    pub(super) fn on_ask(&mut self, around: &mut Around<'_>, from: NodeId, ranges: &[Range<u64>]) {
        around.counters.asks_answered += 1;
        let mut left = ANSWERED_AT_ONCE;
        for range in ranges {
            for number in range.start.max(self.base)..range.end.min(self.next) {
                // A receiver that gets only a part of them repeats the request.
                if left == 0 || around.outbox.waiting_bytes() >= ANSWERS_WAITING {
                    return;
                }
                left -= 1;
                let piece = self.kept[(number - self.base) as usize].clone();
                around.counters.repairs_asked_for += 1;
                let data = DataPacket { number, piece, way: Way::Repair, is_relayed: false };
                around.unicast(from, &Packet::Data(data));
            }
        }
    }

    /// Handles a report that the tree does not reach a receiver.
    pub(super) fn on_cut(&mut self, around: &mut Around<'_>, ring: u32, successor: NodeId) {
        around.counters.cuts_heard += 1;
        if self.placing.on_cut(around, ring, successor) {
            self.take_children(around.config);
        }
    }

    /// Releases packets and reports confirmations, after receivers may have progressed.
    fn on_progress(&mut self, around: &mut Around<'_>) {
        self.release();
        while let Some(mark) = self.marks.front().copied()
            && mark <= self.base
        {
            self.marks.pop_front();
            let incomplete = self.incomplete(mark);
            let members = self.placing.confirmed(mark);
            around.events.push_back(Event::Safe(Safe {
                group: around.group,
                up_to: seqno(mark - 1),
                members,
                incomplete,
            }));
        }
    }

    /// Returns the receivers that have not got all packets before a mark, with the number that each
    /// lacks.
    fn incomplete(&mut self, mark: u64) -> Vec<(NodeId, u32)> {
        let mut missed = core::mem::take(&mut self.missed);
        let left_behind = self.placing.all().filter(|(_, it)| it.left_behind_at.is_some());
        for (node, state) in left_behind.filter(|(_, it)| it.next < mark) {
            let lacks = u32::try_from(mark - state.next).unwrap_or(u32::MAX);
            missed.insert(node, missed.get(&node).map_or(lacks, |known| lacks.max(*known)));
        }
        missed.into_iter().collect()
    }

    /// Releases the packets that all receivers have.
    fn release(&mut self) {
        let all_below = self.placing.current().map(|(_, state)| state.next).min();
        let edge = all_below.unwrap_or(self.next).min(self.next);
        while self.base < edge
            && let Some(piece) = self.kept.pop_front()
        {
            self.kept_bytes -= piece.bytes.len() + PIECE_COST;
            self.base += 1;
        }
    }

    /// Requests a confirmation of all messages accepted so far.
    pub(super) fn confirm(&mut self, around: &mut Around<'_>) {
        let mark = self.end();
        if self.marks.back() != Some(&mark) {
            self.marks.push_back(mark);
        }
        self.on_progress(around);
    }

    /// Returns the receivers that are not known to have all accepted messages.
    pub(super) fn unconfirmed(&self) -> Vec<NodeId> {
        let lacks = |it: &(NodeId, &ReceiverState)| it.1.next < self.end();
        self.placing.all().filter(lacks).map(|(node, _)| node).collect()
    }

    pub(super) fn handle_timeout(&mut self, around: &mut Around<'_>) {
        let now = around.now;
        if self.placing.handle_timeout(around) {
            self.take_children(around.config);
        }
        if self.starts_at.is_some_and(|at| at <= now) {
            self.starts_at = None;
        }
        self.multicast_again(around);
        if self.announce_at <= now {
            self.announce(around);
        }
        if self.watch_at <= now {
            let stopped_for = self.stopped_for(now, around.config);
            self.placing.make_up_for_stop(now, stopped_for);
            self.watch_at = now + stragglers::watch_every(around.config);
            self.watch(around);
        }
    }

    /// Multicasts packets again that no receiver has (3.3).
    fn multicast_again(&mut self, around: &mut Around<'_>) {
        if self.children.is_empty() || around.is_blocked {
            return;
        }
        let patience = again_after(around.config);
        let (base, next) = (self.base, self.next);
        while let Some(number) =
            self.all.poll_repair(around.now, &patience, |number| (base..next).contains(&number))
        {
            let piece = self.kept[(number - self.base) as usize].clone();
            around.counters.data_multicast_again += 1;
            let data = DataPacket { number, piece, way: Way::Again, is_relayed: false };
            around.along_tree(&Packet::Data(data));
        }
    }

    fn announce(&mut self, around: &mut Around<'_>) {
        self.announcements += 1;
        self.announce_at = around.now + self.announce_after(around.config);
        around.counters.announces_sent += 1;
        around.multicast(&Packet::Announce { epoch: epochs::NONE, end: self.next });
    }

    /// Returns the delay of the next announcement of the stream's end, after the last packet or
    /// announcement. If no packet follows, the first announcement is sent soon and repeated after
    /// pauses that double, as in LBRM, because the last packets or the announcements may be lost.
    fn announce_after(&self, config: &Config) -> Duration {
        let every = config.announce_every;
        if self.next < self.end() {
            return every;
        }
        match self.base == self.next && self.announcements > 0 {
            true => every * IDLE_PART,
            false => every.min(config.ack_delay / FIRST_PART * (1 << self.announcements.min(16))),
        }
    }

    /// Ends the stream, because this node has found another sender in the group and yields to it.
    /// Packets that are not confirmed are reported as lost. Returns the number after the last
    /// packet, the epoch of the places, and the receivers that have everything.
    pub(super) fn give_way(&mut self, around: &mut Around<'_>) -> (u64, u32, Vec<NodeId>) {
        let whole = self.placing.all().filter(|(_, state)| state.next >= self.next);
        let whole = whole.map(|(node, _)| node).collect();
        self.placing.close(around);
        around.lose(around.node, self.base, self.end(), LossCause::AnotherSender);
        (self.next, self.placing.epoch(), whole)
    }

    /// Returns when [`Sending::handle_timeout`] is to be called. Data does not count while the
    /// network is blocked.
    pub(super) fn poll_timeout(&mut self, now: Time, config: &Config, is_blocked: bool) -> Time {
        let mut due = self.announce_at.min(self.watch_at).min(self.placing.poll_timeout());
        due = due.min(self.starts_at.unwrap_or(Time::MAX));
        if self.may_send() && !is_blocked {
            let span = self.span(config);
            due = due.min(self.pacing.next_at(now, span));
        } else {
            self.pacing.rest();
        }
        if !self.children.is_empty() && !is_blocked {
            let again = self.all.next_repair(&again_after(config));
            due = due.min(again.unwrap_or(Time::MAX));
        }
        due
    }

    /// Returns the bytes of the packets that are kept.
    pub(super) fn held_bytes(&self) -> usize {
        self.kept_bytes
    }

    pub(super) fn check(&self, config: &Config, group: GroupId) {
        self.placing.check();
        let bytes: usize = self.kept.iter().map(|piece| piece.bytes.len() + PIECE_COST).sum();
        assert_eq!(bytes, self.kept_bytes, "{group}: bytes are counted wrongly");
        assert!(bytes <= config.send_bytes, "{group}: more is kept than there is room for");
        assert!((self.base..=self.end()).contains(&self.next), "{group}: it is beyond its end");
        for (node, state) in self.placing.current() {
            assert!(state.next >= self.base, "{node} lacks what is not kept");
        }
    }
}

/// Returns the timing of repeated multicast. The delay is longer than that of receivers, because
/// acknowledgments pass through several rings on their way up.
fn again_after(config: &Config) -> Patience {
    let patience = config.patience();
    Patience { silent_after: patience.silent_after * 4, ..patience }
}

/// Overhead of a packet that is kept, in bytes.
pub(super) const PIECE_COST: usize = size_of::<Piece>();
/// Maximum number of packets that are retransmitted for one request.
const ANSWERED_AT_ONCE: u64 = 256;
/// Bytes in the outbox from which on requests are not answered.
const ANSWERS_WAITING: usize = 1 << 20;
/// Part of the maximum acknowledgment delay after which the end is first announced.
const FIRST_PART: u32 = 4;
/// Factor by which announcements become rarer once all receivers have everything.
pub(super) const IDLE_PART: u32 = 10;
