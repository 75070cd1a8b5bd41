//! Positive acknowledgments and timeouts, the oldest scheme of reliable multicast.
//!
//! Source: the baseline that Ricochet (section 2, "ACK timeout") and Slingshot (section 2) describe
//! first, and that RMTP and others refine. Every receiver acknowledges every packet to its sender
//! by unicast, and the sender retransmits a packet to the receivers that have not acknowledged it
//! in time. The timeout is that of V. Jacobson, *Congestion Avoidance and Control*, 1988, with
//! Karn's rule.
//!
//! | scheme | here |
//! |---|---|
//! | acknowledgments from every receiver | `AckTimeout::on_block` |
//! | members that have not acknowledged a message | `window.rs` |
//! | timeouts from round trips, doubled each time | `src/round_trips.rs` |
//! | retransmission to the members that lack a message | `AckTimeout::on_timeout` |
//!
//! A retransmitted message is delivered as [`How::Retransmitted`], from its sender.
//!
//! Choices that the scheme leaves open:
//! - A sender waits for the members of its view at the time of sending.
//! - The sender stops waiting for a member that does not acknowledge after
//!   [`Config::max_retransmissions`], and reports it with [`Event::Slow`]. While the member is in
//!   the view and silent, horizon packets notify it that it has missed messages, which it reports
//!   as lost. Otherwise, one member could stall a group forever.
//! - An acknowledgment also carries the position up to which the stream is settled, so that the
//!   loss of an earlier acknowledgment does no harm.
//! - A message is not retransmitted after its deadline. Members that have not acknowledged it are
//!   notified and report it as lost.

mod config;
mod counters;
pub mod packet;
mod slow;
mod window;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use carom_proto::{
    Destination, Engine, Event, GroupId, GroupSettings, How, JoinError, LossCause, NodeId, Origin,
    PacketId, Profile, Safe, SendError, SendOptions, SeqNo, Time, Timers, Transmit, ViewChange,
    ViewChangeKind, Wakeup,
};

pub use self::config::{Config, ConfigError};
pub use self::counters::Counters;
use self::packet::Packet;
use self::slow::Lag;
use self::window::Window;
use crate::block::Block;
use crate::guest::GuestPacket;
use crate::outbox::Outbox;
use crate::reception::{Reception, Terms};
use crate::round_trips::RoundTrips;

/// The ACK/timeout engine of one node.
#[derive(Debug)]
pub struct AckTimeout {
    id: NodeId,
    origin: Origin,
    config: Config,
    reception: Reception,
    members: BTreeMap<GroupId, Member>,
    timers: Timers<TimerKey>,
    outbox: Outbox,
    counters: Counters,
}

/// State of this node as a member of one group.
#[derive(Debug)]
struct Member {
    window: Window,
    round_trips: RoundTrips,
    /// Members that the sender does not wait for, or did not until recently.
    slow: BTreeMap<NodeId, Lag>,
    /// Losses of each other member: the number last received from it, and the number last included
    /// in [`Event::Safe`].
    losses: BTreeMap<NodeId, Losses>,
    /// Last sequence number of the pending confirmation request.
    confirm: Option<SeqNo>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    reported: u32,
    told: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Retransmit(GroupId, u32),
    Horizon(GroupId, NodeId),
}

impl AckTimeout {
    /// Creates the engine of the node `origin`. The engine is not randomized, so `_seed` has no
    /// effect.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, _seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("invalid ACK/timeout configuration: {error}");
        }
        let terms = Terms {
            owed: config.owed,
            max_missing: config.max_missing,
            max_streams: config.max_streams,
            give_up_after: config.give_up_after,
        };
        Self {
            id,
            origin,
            config,
            reception: Reception::new(id, terms),
            members: BTreeMap::new(),
            timers: Timers::new(),
            outbox: Outbox::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the current counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Processes a message, multicast or retransmitted. Duplicates are acknowledged too, because
    /// the acknowledgment may have been lost.
    fn on_block(&mut self, now: Time, id: PacketId, bytes: &[u8], is_again: bool) {
        let Ok(block) = Block::copy(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let PacketId { sender, group, seqno } = id;
        let how = if is_again { How::Retransmitted(sender) } else { How::Direct };
        self.reception.on_sent(now, id, &block, how);
        self.acknowledge(group, sender, seqno);
    }

    fn acknowledge(&mut self, group: GroupId, sender: NodeId, seqno: SeqNo) {
        let Some(stream) = self.reception.stream(group, sender) else { return };
        let (settled_to, lost) = (stream.settled_to(), stream.lost());
        self.counters.acks_sent += 1;
        let ack = Packet::Ack { seqno, settled_to, lost };
        self.transmit(Destination::Node(sender), group, ack);
    }

    fn on_ack(
        &mut self,
        now: Time,
        group: GroupId,
        node: NodeId,
        (seqno, settled_to): (SeqNo, SeqNo),
        lost: u32,
    ) {
        let Some(member) = self.members.get_mut(&group) else { return };
        if settled_to.is_after(member.window.next()) {
            self.counters.malformed += 1;
            return;
        }
        self.counters.acks_received += 1;
        let (is_news, sent_at) = member.window.acknowledge(node, seqno, settled_to);
        self.counters.acks_duplicate += u64::from(!is_news);
        if let Some(sent_at) = sent_at {
            member.round_trips.measure(now.since(sent_at));
        }
        let in_view = self.reception.group(group).is_some_and(|it| it.view.contains(node));
        if in_view {
            member.losses.entry(node).or_default().reported = lost;
        }
        if let Some(lag) = member.slow.get_mut(&node) {
            lag.settled_to = settled_to;
            self.on_slow_ack(now, group, node);
        }
        self.look_whether_safe(group);
    }

    /// Retransmits a message to the members that have not acknowledged it in time.
    fn on_timeout(&mut self, now: Time, group: GroupId, seqno: SeqNo) {
        let max_retransmissions = self.config.max_retransmissions;
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(sent) = member.window.get_mut(seqno).filter(|it| !it.waiting.is_empty()) else {
            return;
        };
        let waiting = sent.waiting.clone();
        if sent.retransmissions >= max_retransmissions {
            waiting.into_iter().for_each(|node| self.make_slow(now, group, node));
            return;
        }
        sent.retransmissions += 1;
        let (times, block) = (sent.retransmissions, sent.block.clone());
        member.round_trips.back_off(times);
        let timeout = member.round_trips.timeout_after(times, &self.config.timeouts);
        self.timers.set(TimerKey::Retransmit(group, seqno.0), now + timeout);
        for node in waiting {
            let packet = if block.is_expired(now) {
                self.counters.expired_sent += 1;
                Packet::Expired { seqno }
            } else {
                self.counters.retransmissions_sent += 1;
                Packet::Retransmission { seqno, block: block.bytes() }
            };
            self.transmit(Destination::Node(node), group, packet);
        }
    }

    /// Answers a confirmation request once the sender no longer waits for any member.
    fn look_whether_safe(&mut self, group: GroupId) {
        let (Some(member), Some(joined)) =
            (self.members.get_mut(&group), self.reception.group(group))
        else {
            return;
        };
        let Some(up_to) = member.confirm else { return };
        if up_to.is_after(member.window.first().minus(1)) {
            return;
        }
        member.confirm = None;
        let mut incomplete = BTreeMap::new();
        for (node, losses) in &mut member.losses {
            let count = losses.reported.wrapping_sub(losses.told);
            losses.told = losses.reported;
            if count > 0 {
                incomplete.insert(*node, count);
            }
        }
        for (node, lag) in &member.slow {
            let behind = up_to.next().distance_from(lag.settled_to);
            if behind > 0 {
                let count: &mut u32 = incomplete.entry(*node).or_default();
                // The reported number is untrusted and may be anything.
                *count = count.saturating_add(behind as u32);
            }
        }
        let (members, incomplete) = (joined.view.members().len(), incomplete.into_iter().collect());
        self.reception.push_event(Event::Safe(Safe { group, up_to, members, incomplete }));
    }

    fn transmit(&mut self, destination: Destination, group: GroupId, packet: Packet<'_>) {
        let view = self.reception.view_version(group);
        self.outbox
            .push(packet.class(), destination, |out| packet.encode(self.origin, group, view, out));
    }
}

impl Engine for AckTimeout {
    fn join(
        &mut self,
        _now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.reception.join(group, &settings)?;
        let next = self.reception.group(group).map_or(SeqNo::FIRST, |joined| joined.next);
        let member = Member {
            window: Window::new(next),
            round_trips: RoundTrips::default(),
            slow: BTreeMap::new(),
            losses: BTreeMap::new(),
            confirm: None,
        };
        self.members.insert(group, member);
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        let Some(left) = self.members.remove(&group) else { return };
        for seqno in left.window.waiting() {
            self.timers.cancel(TimerKey::Retransmit(group, seqno.0));
        }
        for node in left.slow.into_keys() {
            self.timers.cancel(TimerKey::Horizon(group, node));
        }
        self.reception.leave(group);
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let limit = self.config.payload_limit();
        let (Some(member), Some(joined)) =
            (self.members.get_mut(&group), self.reception.group_mut(group))
        else {
            return Err(SendError::NotJoined);
        };
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        if member.window.len() >= self.config.window
            && let Some((by, behind)) = member.window.furthest_behind()
        {
            self.counters.held_back += 1;
            return Err(SendError::HeldBack { by, behind });
        }
        let seqno = joined.next;
        joined.next = seqno.next();
        let block = Block::of_message(now, options.deadline, &payload);
        let others = joined.view.members().iter().copied();
        let waiting: BTreeSet<NodeId> =
            others.filter(|node| member.slow.get(node).is_none_or(|it| it.is_waited_for)).collect();
        if !waiting.is_empty() {
            let timeout = member.round_trips.timeout(&self.config.timeouts);
            self.timers.set(TimerKey::Retransmit(group, seqno.0), now + timeout);
        }
        member.window.push(now, block.clone(), waiting);
        self.counters.data_sent += 1;
        let packet = Packet::Data { seqno, block: block.bytes() };
        self.transmit(Destination::Group(group), group, packet);
        Ok(seqno)
    }

    fn confirm(&mut self, _now: Time, group: GroupId) {
        if let Some(member) = self.members.get_mut(&group) {
            member.confirm = Some(member.window.next().minus(1));
            self.look_whether_safe(group);
        }
    }

    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) -> Option<NodeId> {
        let Ok((header, packet)) = Packet::decode(datagram) else {
            self.counters.malformed += 1;
            return None;
        };
        let (group, sender) = (header.group, header.sender);
        if sender == self.id || !self.members.contains_key(&group) {
            self.counters.foreign += 1;
            return None;
        }
        match packet {
            Packet::Data { seqno, block } => {
                self.on_block(now, PacketId { sender, group, seqno }, block, false);
            }
            Packet::Retransmission { seqno, block } => {
                self.on_block(now, PacketId { sender, group, seqno }, block, true);
            }
            Packet::Ack { seqno, settled_to, lost } => {
                self.on_ack(now, group, sender, (seqno, settled_to), lost);
            }
            Packet::Horizon { next } => self.on_horizon(now, group, sender, next),
            Packet::Expired { seqno } => {
                self.reception.on_announced(now, group, sender, seqno.next());
                let id = PacketId { sender, group, seqno };
                self.reception.give_up_one(id, LossCause::DeadlinePassed);
                self.acknowledge(group, sender, seqno);
            }
        }
        Some(sender)
    }

    fn handle_view(&mut self, _now: Time, change: &ViewChange) {
        let is_gone = change.kind != ViewChangeKind::Joined;
        if !self.reception.handle_view(change) || !is_gone {
            return;
        }
        if let Some(member) = self.members.get_mut(&change.group) {
            member.window.forget(change.node);
            member.losses.remove(&change.node);
            if member.slow.remove(&change.node).is_some() {
                self.timers.cancel(TimerKey::Horizon(change.group, change.node));
            }
            self.look_whether_safe(change.group);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.reception.handle_timeout(now);
        while let Some(key) = self.timers.pop_due(now) {
            match key {
                TimerKey::Retransmit(group, seqno) => self.on_timeout(now, group, SeqNo(seqno)),
                TimerKey::Horizon(group, node) => self.send_horizon(now, group, node),
            }
        }
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.poll(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.reception.poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "send again" });
        let lost = self.reception.next_due().map(|at| Wakeup { at, reason: "give up a packet" });
        Wakeup::earlier(own, lost)
    }

    fn payload_limit(&self, profile: Profile) -> usize {
        if profile == Profile::Guest { self.config.payload_limit() } else { 0 }
    }

    fn held_bytes(&self) -> usize {
        self.members.values().map(|member| member.window.bytes()).sum()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let own = self.counters.named();
        own.into_iter().chain(self.reception.named()).chain(self.outbox.named()).collect()
    }

    fn check(&self) {
        self.reception.check();
        assert!(self.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            let joined = self.reception.group(*group).expect("it is in both");
            assert_eq!(joined.next, member.window.next(), "the window lacks a message");
            assert!(member.window.len() <= self.config.window, "the window exceeds its limit");
            for seqno in member.window.waiting() {
                let is_set = self.timers.is_set(TimerKey::Retransmit(*group, seqno.0));
                assert!(is_set, "{seqno} is unacknowledged without a timer");
            }
            for node in member.slow.keys() {
                assert!(joined.view.contains(*node), "{node} is lagging, but not in the view");
                assert!(
                    self.timers.is_set(TimerKey::Horizon(*group, *node)),
                    "{node} is lagging without a timer"
                );
            }
            assert!(
                member.losses.keys().all(|node| joined.view.contains(*node)),
                "losses of a node that is not in the view"
            );
        }
    }
}
