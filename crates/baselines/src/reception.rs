//! Streams of joined groups. An owed packet is delivered, reported as lost, or abandoned on leave.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use carom_proto::{
    Event, GroupId, GroupSettings, How, JoinError, LossCause, Lost, Message, NodeId, PacketId,
    Profile, SeqNo, Time, Timers, View, ViewChange,
};

use crate::block::Block;
use crate::config::{Owed, StreamConfig};
use crate::stream::{Arrival, Gap, Stream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) streams: StreamConfig,
    pub(crate) give_up_after: Duration,
}

#[derive(Debug)]
pub(crate) struct Reception {
    id: NodeId,
    terms: Terms,
    groups: BTreeMap<GroupId, Group>,
    left_at: BTreeMap<GroupId, LeftAt>,
    give_up: Timers<(GroupId, NodeId)>,
    events: VecDeque<Event>,
    counters: Counters,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) view: View,
    next: SeqNo,
    streams: BTreeMap<NodeId, Stream>,
    heard_to: BTreeMap<NodeId, SeqNo>,
}

#[derive(Debug)]
struct LeftAt {
    next: SeqNo,
    heard_to: BTreeMap<NodeId, SeqNo>,
}

carom_proto::counters! {
    struct Counters {
        data_received,
        duplicates,
        not_owed,
        streams_refused,
        missing,
        /// Set when the counters are read.
        missing_now,
        late,
        recovered,
        retransmitted,
        lost,
        abandoned,
        discovery_ns,
        missing_ns,
    }
}

/// Maximum number of left groups whose positions are kept.
const MAX_LEFT_GROUPS: usize = 4096;

impl Reception {
    pub(crate) fn new(id: NodeId, terms: Terms) -> Self {
        Self {
            id,
            terms,
            groups: BTreeMap::new(),
            left_at: BTreeMap::new(),
            give_up: Timers::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn join(
        &mut self,
        group: GroupId,
        settings: &GroupSettings,
    ) -> Result<(), JoinError> {
        if settings.profile != Profile::Guest {
            return Err(JoinError::NoEngine { profile: settings.profile });
        }
        if self.groups.contains_key(&group) {
            return Err(JoinError::AlreadyJoined);
        }
        let before = self.left_at.remove(&group);
        let LeftAt { next, heard_to } =
            before.unwrap_or(LeftAt { next: SeqNo::FIRST, heard_to: BTreeMap::new() });
        let (view, streams) = (View::default(), BTreeMap::new());
        self.groups.insert(group, Group { view, next, streams, heard_to });
        Ok(())
    }

    /// Removes the node from `group`. Missing packets are abandoned, not reported as lost.
    pub(crate) fn leave(&mut self, group: GroupId) {
        let Some(left) = self.groups.remove(&group) else { return };
        let mut heard_to = left.heard_to;
        for (sender, stream) in left.streams {
            self.give_up.cancel((group, sender));
            self.counters.abandoned += stream.missing_count() as u64;
            heard_to.insert(sender, stream.next());
        }
        trim(&mut heard_to, self.terms.streams.max_streams);
        self.left_at.insert(group, LeftAt { next: left.next, heard_to });
        trim(&mut self.left_at, MAX_LEFT_GROUPS);
    }

    pub(crate) fn handle_view(&mut self, change: &ViewChange) -> bool {
        let foreign = change.node != self.id;
        self.groups.get_mut(&change.group).is_some_and(|it| foreign && it.view.apply(change))
    }

    pub(crate) fn group(&self, group: GroupId) -> Option<&Group> {
        self.groups.get(&group)
    }

    pub(crate) fn view_version(&self, group: GroupId) -> u32 {
        self.group(group).map_or(0, |it| it.view.version())
    }

    pub(crate) fn take_seqno(&mut self, group: GroupId) -> Option<SeqNo> {
        let next = &mut self.groups.get_mut(&group)?.next;
        let seqno = *next;
        *next = seqno.next();
        Some(seqno)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.groups.keys().copied()
    }

    pub(crate) fn on_data(&mut self, now: Time, id: PacketId, block: &Block) -> Option<Gap> {
        self.on_sent(now, id, block, How::Direct)
    }

    /// Processes a message from its sender, multicast or retransmitted. The first opens the stream.
    pub(crate) fn on_sent(
        &mut self,
        now: Time,
        id: PacketId,
        block: &Block,
        how: How,
    ) -> Option<Gap> {
        if !self.open(id.group, id.sender, id.seqno) {
            return None;
        }
        self.on_block(now, id, block, how)
    }

    /// Delivers a message from any node. Returns `None` if it is a duplicate or not owed.
    pub(crate) fn on_block(
        &mut self,
        now: Time,
        id: PacketId,
        block: &Block,
        how: How,
    ) -> Option<Gap> {
        let max_missing = self.terms.streams.max_missing;
        let group = self.groups.get_mut(&id.group)?;
        let Some(stream) = group.streams.get_mut(&id.sender) else {
            self.counters.not_owed += 1;
            return None;
        };
        let (arrival, gap) = stream.arrive(now, id.seqno, max_missing);
        match arrival {
            Arrival::Fresh(missing_for) => {
                self.deliver(now, id, block, how, missing_for);
                self.take_gap(id.group, id.sender, &gap);
                return Some(gap);
            }
            Arrival::Repeated => self.counters.duplicates += 1,
            Arrival::NotOwed => self.counters.not_owed += 1,
        }
        None
    }

    /// Processes a trusted announcement of a sender's next message, which may open the stream.
    /// Returns the packets that are newly missing or lost.
    pub(crate) fn on_announced(
        &mut self,
        now: Time,
        group: GroupId,
        sender: NodeId,
        next: SeqNo,
    ) -> Gap {
        if !self.open(group, sender, next) {
            return Gap::default();
        }
        self.on_reported(now, group, sender, next)
    }

    /// Processes another member's report. It opens no stream: the sender may have left long ago.
    pub(crate) fn on_reported(
        &mut self,
        now: Time,
        group: GroupId,
        sender: NodeId,
        next: SeqNo,
    ) -> Gap {
        let max_missing = self.terms.streams.max_missing;
        let Some(stream) = self.stream_mut(group, sender) else { return Gap::default() };
        let gap = stream.reach(now, next, max_missing);
        self.take_gap(group, sender, &gap);
        gap
    }

    pub(crate) fn is_missing(&self, id: PacketId) -> bool {
        self.stream(id.group, id.sender).is_some_and(|stream| stream.is_missing(id.seqno))
    }

    pub(crate) fn stream(&self, group: GroupId, sender: NodeId) -> Option<&Stream> {
        self.groups.get(&group)?.streams.get(&sender)
    }

    pub(crate) fn give_up_one(&mut self, id: PacketId, cause: LossCause) {
        let PacketId { sender, group, seqno } = id;
        if self.stream_mut(group, sender).is_some_and(|stream| stream.give_up_one(seqno)) {
            self.report(group, sender, &[(seqno, seqno)], cause);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let noticed_by = now.before(self.terms.give_up_after);
        while let Some((group, sender)) = self.give_up.pop_due(now) {
            let Some(stream) = self.stream_mut(group, sender) else { continue };
            let lost = stream.give_up(noticed_by);
            let since = stream.missing_since();
            self.report(group, sender, &lost, LossCause::DeadlinePassed);
            if let Some(since) = since {
                self.give_up.set((group, sender), since + self.terms.give_up_after);
            }
        }
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.give_up.next_due()
    }

    pub(crate) fn push_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn missing_count(&self) -> usize {
        let streams = self.groups.values().flat_map(|group| group.streams.values());
        streams.map(Stream::missing_count).sum()
    }

    pub(crate) fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Counters { missing_now: self.missing_count() as u64, ..self.counters }.by_name()
    }

    pub(crate) fn check(&self) {
        let mut missing = 0;
        for (id, group) in &self.groups {
            let streams = group.streams.len();
            assert!(streams <= self.terms.streams.max_streams, "too many streams");
            assert!(
                group.heard_to.len() <= self.terms.streams.max_streams,
                "too many positions are kept"
            );
            for (sender, stream) in &group.streams {
                stream.check(self.terms.streams.max_missing);
                missing += stream.missing_count();
                let is_watched = self.give_up.is_set((*id, *sender));
                assert!(stream.missing_count() == 0 || is_watched, "no timer for missing packets");
            }
        }
        let it = self.counters;
        let settled = it.late + it.recovered + it.retransmitted + it.lost + it.abandoned;
        assert!(missing as u64 + settled >= it.missing, "a missing packet is not accounted for");
        assert!(self.left_at.len() <= MAX_LEFT_GROUPS, "too many left groups are kept");
    }

    /// Opens a stream unless it is open. Returns `false` if the stream cannot be opened.
    fn open(&mut self, group: GroupId, sender: NodeId, heard_of: SeqNo) -> bool {
        let StreamConfig { owed, max_streams, .. } = self.terms.streams;
        let Some(group) = self.groups.get_mut(&group) else { return false };
        if group.streams.contains_key(&sender) {
            return true;
        }
        if sender == self.id {
            self.counters.not_owed += 1;
            return false;
        }
        if group.streams.len() >= max_streams && !group.close_idle(max_streams) {
            self.counters.streams_refused += 1;
            return false;
        }
        let first = match owed {
            Owed::FirstHeard => heard_of,
            Owed::First => SeqNo::FIRST,
        };
        let heard_to = group.heard_to.remove(&sender);
        let first = heard_to.map_or(first, |heard_to| first.later(heard_to));
        group.streams.insert(sender, Stream::owed_from(first));
        true
    }

    fn stream_mut(&mut self, group: GroupId, sender: NodeId) -> Option<&mut Stream> {
        self.groups.get_mut(&group)?.streams.get_mut(&sender)
    }

    fn deliver(
        &mut self,
        now: Time,
        id: PacketId,
        block: &Block,
        how: How,
        missing_for: Option<Duration>,
    ) {
        let PacketId { sender, group, seqno } = id;
        let sent_at = block.sent_at();
        let age = (now >= sent_at).then(|| now.since(sent_at));
        let counters = &mut self.counters;
        match (how, missing_for) {
            (How::Direct, None) => counters.data_received += 1,
            (How::Direct, Some(_)) => {
                counters.data_received += 1;
                counters.late += 1;
            }
            (How::Recovered(_), _) => counters.recovered += 1,
            (How::Retransmitted(_), _) => counters.retransmitted += 1,
        }
        let missing_for = match how {
            How::Direct => Duration::ZERO,
            // The packet was not known to be missing before it arrived.
            How::Recovered(_) | How::Retransmitted(_) => missing_for.unwrap_or_default(),
        };
        if how != How::Direct
            && let Some(age) = age
        {
            counters.missing_ns += missing_for.as_nanos() as u64;
            counters.discovery_ns += age.saturating_sub(missing_for).as_nanos() as u64;
        }
        let payload = block.payload();
        let place = None;
        let message = Message { group, sender, seqno, payload, how, age, missing_for, place };
        self.events.push_back(Event::Message(message));
    }

    fn take_gap(&mut self, group: GroupId, sender: NodeId, gap: &Gap) {
        self.counters.missing += gap.missing.len() as u64;
        self.report(group, sender, &gap.lost, LossCause::TooFarBehind);
        let since = self.stream(group, sender).and_then(Stream::missing_since);
        if let Some(since) = since {
            self.give_up.set_no_later((group, sender), since + self.terms.give_up_after);
        }
    }

    fn report(
        &mut self,
        group: GroupId,
        sender: NodeId,
        lost: &[(SeqNo, SeqNo)],
        cause: LossCause,
    ) {
        for (first, last) in lost.iter().copied() {
            let lost = Lost { group, sender, first, last, cause };
            self.counters.lost += u64::from(lost.count());
            self.events.push_back(Event::Lost(lost));
        }
    }
}

impl Group {
    pub(crate) fn next(&self) -> SeqNo {
        self.next
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = (NodeId, &Stream)> {
        self.streams.iter().map(|(sender, stream)| (*sender, stream))
    }

    /// Closes a stream without missing packets whose sender has left the view, if there is one.
    fn close_idle(&mut self, max_remembered: usize) -> bool {
        let gone = |sender: &NodeId| !self.view.contains(*sender);
        let idle = self.streams.iter().find(|(sender, it)| gone(sender) && it.missing_count() == 0);
        let Some((sender, next)) = idle.map(|(sender, stream)| (*sender, stream.next())) else {
            return false;
        };
        self.streams.remove(&sender);
        self.heard_to.insert(sender, next);
        trim(&mut self.heard_to, max_remembered);
        true
    }
}

fn trim<K: Ord, V>(map: &mut BTreeMap<K, V>, count: usize) {
    while map.len() > count {
        map.pop_first();
    }
}

#[cfg(test)]
#[path = "reception_tests.rs"]
mod tests;
