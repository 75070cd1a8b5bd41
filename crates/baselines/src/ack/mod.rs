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
//! | acknowledgments from every receiver | `AckTimeout::on_message` |
//! | members that have not acknowledged a message | `window.rs` |
//! | timeouts from round trips, doubled each time | `src/round_trips.rs` |
//! | retransmission to the members that lack a message | `AckTimeout::on_timeout` |
//!
//! A retransmitted message is delivered as [`How::Retransmitted`], from its sender.
//!
//! Choices that the scheme leaves open:
//! - A sender waits for the members of its view at the time of sending.
//! - The sender stops waiting for a member that has not acknowledged a message after
//!   [`Config::max_retransmissions`] retransmissions, and reports it with [`Event::Slow`], so that
//!   no member can stall a group forever. While the member lags, horizon packets state which
//!   messages are no longer retransmitted, and it reports those that it lacks as lost.
//! - An acknowledgment also carries the position up to which the stream is settled, so that the
//!   loss of an earlier acknowledgment does no harm.
//! - A message is not retransmitted after its deadline. Members that have not acknowledged it are
//!   notified and report it as lost.

mod config;
pub mod packet;
mod window;

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{
    Confirmed, Destination, Event, GroupId, How, LossCause, NodeId, Origin, PacketId, SendError,
    SeqNo, Slow, Timers, ViewChange, ViewChangeKind, Wakeup,
};

pub use self::config::Config;
use self::packet::Packet;
use self::window::Window;
use crate::block::Block;
use crate::config::assert_valid;
use crate::reception::Terms;
use crate::round_trips::RoundTrips;
use crate::shell::{Context, Policy, Shell};

/// The policy of acknowledgments and retransmission timeouts at one node.
#[derive(Debug)]
pub struct AckTimeout {
    config: Config,
    members: BTreeMap<GroupId, Member>,
    timers: Timers<TimerKey>,
    counters: Counters,
}

#[derive(Debug)]
struct Member {
    window: Window,
    round_trips: RoundTrips,
    /// Members that the sender does not wait for, and returning members that are still behind.
    slow: BTreeMap<NodeId, Lag>,
    /// Losses of each other member: the last count received, and the last in [`Event::Confirmed`].
    losses: BTreeMap<NodeId, Losses>,
    /// Last sequence number of the pending confirmation request.
    confirm: Option<SeqNo>,
}

#[derive(Clone, Copy, Debug)]
struct Lag {
    settled_to: SeqNo,
    horizon: SeqNo,
    /// `true` if the sender waits for the member again, for messages from the horizon on.
    is_waited_for: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    reported: u32,
    confirmed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Retransmit(GroupId, u32),
    Horizon(GroupId, NodeId),
}

carom_proto::counters! {
    struct Counters {
        retransmissions_sent,
        /// Notices sent instead of a retransmission, because the message's deadline had passed.
        expired_sent,
        acks_sent,
        acks_received,
        acks_duplicate,
        held_back,
        slow,
        /// Messages that are no longer retransmitted to a member because it is lagging.
        abandoned_by_sender,
        horizons_sent,
    }
}

impl AckTimeout {
    /// Creates the engine of the node `origin`. The protocol is not randomized, so `_seed` has no
    /// effect.
    ///
    /// # Panics
    /// Panics if the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, _seed: u64) -> Shell<Self> {
        assert_valid("ACK/timeout", config.validate());
        let terms = Terms { streams: config.streams, give_up_after: config.give_up_after };
        let (members, timers) = (BTreeMap::new(), Timers::new());
        let limit = config.payload_limit();
        let policy = Self { config, members, timers, counters: Counters::default() };
        Shell::new(origin, terms, limit, policy)
    }

    /// Delivers a message. Acknowledges duplicates too: the last acknowledgment may have been lost.
    fn on_message(&mut self, cx: &mut Context, id: PacketId, block: &Block, how: How) {
        cx.reception.on_sent(cx.now, id, block, how);
        self.acknowledge(cx, id.group, id.sender, id.seqno);
    }

    fn acknowledge(&mut self, cx: &mut Context, group: GroupId, sender: NodeId, seqno: SeqNo) {
        let Some(stream) = cx.reception.stream(group, sender) else { return };
        let (settled_to, lost) = (stream.settled_to(), stream.lost());
        self.counters.acks_sent += 1;
        let ack = Packet::Ack { seqno, settled_to, lost };
        cx.transmit(Destination::Node(sender), group, ack);
    }

    fn on_ack(
        &mut self,
        cx: &mut Context,
        (group, node): (GroupId, NodeId),
        (seqno, settled_to): (SeqNo, SeqNo),
        lost: u32,
    ) {
        let Some(member) = self.members.get_mut(&group) else { return };
        if settled_to.is_after(member.window.next) {
            cx.malformed += 1;
            return;
        }
        self.counters.acks_received += 1;
        let (is_news, sent_at) = member.window.acknowledge(node, seqno, settled_to);
        self.counters.acks_duplicate += u64::from(!is_news);
        if let Some(sent_at) = sent_at {
            member.round_trips.measure(cx.now.since(sent_at));
        }
        let in_view = cx.reception.group(group).is_some_and(|it| it.view.contains(node));
        if in_view {
            member.losses.entry(node).or_default().reported = lost;
        }
        if let Some(lag) = member.slow.get_mut(&node) {
            lag.settled_to = settled_to;
            self.on_slow_ack(cx, group, node);
        }
        self.confirm_if_safe(cx, group);
    }

    fn on_timeout(&mut self, cx: &mut Context, group: GroupId, seqno: SeqNo) {
        let max_retransmissions = self.config.max_retransmissions;
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(sent) = member.window.get_mut(seqno).filter(|it| !it.waiting.is_empty()) else {
            return;
        };
        let waiting = sent.waiting.clone();
        if sent.retransmissions >= max_retransmissions {
            waiting.into_iter().for_each(|node| self.stop_waiting(cx, group, node));
            return;
        }
        sent.retransmissions += 1;
        let (times, block) = (sent.retransmissions, sent.block.clone());
        member.round_trips.back_off(times);
        let timeout = member.round_trips.timeout_after(times, &self.config.timeouts);
        self.timers.set(TimerKey::Retransmit(group, seqno.0), cx.now + timeout);
        for node in waiting {
            let packet = if block.is_expired(cx.now) {
                self.counters.expired_sent += 1;
                Packet::Expired { seqno }
            } else {
                self.counters.retransmissions_sent += 1;
                Packet::Retransmission { seqno, block: block.bytes() }
            };
            cx.transmit(Destination::Node(node), group, packet);
        }
    }

    /// Confirms the pending request once no acknowledgment of a message that it covers is awaited.
    fn confirm_if_safe(&mut self, cx: &mut Context, group: GroupId) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(joined) = cx.reception.group(group) else { return };
        let Some(up_to) = member.confirm else { return };
        if up_to.is_after(member.window.first().minus(1)) {
            return;
        }
        member.confirm = None;
        let mut incomplete = BTreeMap::new();
        for (node, losses) in &mut member.losses {
            let count = losses.reported.wrapping_sub(losses.confirmed);
            losses.confirmed = losses.reported;
            if count > 0 {
                incomplete.insert(*node, count);
            }
        }
        for (node, lag) in &member.slow {
            let behind = up_to.next().distance_from(lag.settled_to);
            if behind > 0 {
                let count: &mut u32 = incomplete.entry(*node).or_default();
                // The reported number is untrusted.
                *count = count.saturating_add(behind as u32);
            }
        }
        let (members, incomplete) = (joined.view.members().len(), incomplete.into_iter().collect());
        cx.reception.push_event(Event::Confirmed(Confirmed { group, up_to, members, incomplete }));
    }

    /// Processes an acknowledgment from a lagging member.
    ///
    /// Once the member has settled everything before the horizon, the sender waits for it again.
    /// The member is no longer lagging once it has also settled all later messages up to that time.
    fn on_slow_ack(&mut self, cx: &mut Context, group: GroupId, node: NodeId) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let next = member.window.next;
        let Some(lag) = member.slow.get_mut(&node) else { return };
        if lag.horizon.is_after(lag.settled_to) {
            return;
        }
        if lag.is_waited_for || lag.horizon == next {
            member.slow.remove(&node);
            self.timers.cancel(TimerKey::Horizon(group, node));
            return;
        }
        (lag.horizon, lag.is_waited_for) = (next, true);
        self.send_horizon(cx, group, node);
    }

    fn stop_waiting(&mut self, cx: &mut Context, group: GroupId, node: NodeId) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let behind = member.window.forget(node);
        let horizon = member.window.next;
        let settled_to = horizon.minus(behind);
        let lag = Lag { settled_to, horizon, is_waited_for: false };
        if member.slow.insert(node, lag).is_none() {
            self.counters.slow += 1;
            self.counters.abandoned_by_sender += u64::from(behind);
            cx.reception.push_event(Event::Slow(Slow { group, node, behind }));
        }
        self.send_horizon(cx, group, node);
        self.confirm_if_safe(cx, group);
    }

    fn send_horizon(&mut self, cx: &mut Context, group: GroupId, node: NodeId) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(lag) = member.slow.get_mut(&node) else { return };
        if !lag.is_waited_for {
            lag.horizon = member.window.next;
        }
        let next = lag.horizon;
        self.timers.set(TimerKey::Horizon(group, node), cx.now + self.config.timeouts.most);
        self.counters.horizons_sent += 1;
        cx.transmit(Destination::Node(node), group, Packet::Horizon { next });
    }

    /// Processes the sender's horizon. Packets before `next` that are still missing are lost.
    fn on_horizon(&mut self, cx: &mut Context, group: GroupId, sender: NodeId, next: SeqNo) {
        cx.reception.on_announced(cx.now, group, sender, next);
        let Some(stream) = cx.reception.stream(group, sender) else { return };
        let lost: Vec<SeqNo> = stream.missing().filter(|seqno| next.is_after(*seqno)).collect();
        for seqno in lost {
            let id = PacketId { sender, group, seqno };
            cx.reception.give_up_one(id, LossCause::AttemptsSpent);
        }
        self.acknowledge(cx, group, sender, next.minus(1));
    }
}

impl Policy for AckTimeout {
    type Packet<'a> = Packet<'a>;

    fn join(&mut self, cx: &mut Context, group: GroupId) {
        let member = Member {
            window: Window::new(cx.next_seqno(group, cx.id).unwrap_or(SeqNo::FIRST)),
            round_trips: RoundTrips::default(),
            slow: BTreeMap::new(),
            losses: BTreeMap::new(),
            confirm: None,
        };
        self.members.insert(group, member);
    }

    fn leave(&mut self, _: &mut Context, group: GroupId) {
        let Some(left) = self.members.remove(&group) else { return };
        for seqno in left.window.waiting() {
            self.timers.cancel(TimerKey::Retransmit(group, seqno.0));
        }
        for node in left.slow.into_keys() {
            self.timers.cancel(TimerKey::Horizon(group, node));
        }
    }

    fn admit(&mut self, _: &Context, group: GroupId) -> Result<(), SendError> {
        let window = self.members.get(&group).map(|member| &member.window);
        let full = window.filter(|window| window.len() >= self.config.window);
        let Some((by, behind)) = full.and_then(Window::furthest_behind) else { return Ok(()) };
        self.counters.held_back += 1;
        Err(SendError::HeldBack { by, behind })
    }

    fn on_sent(&mut self, cx: &mut Context, id: PacketId, block: Block) {
        let Some(member) = self.members.get_mut(&id.group) else { return };
        let Some(joined) = cx.reception.group(id.group) else { return };
        let others = joined.view.members().iter().copied();
        let waiting: BTreeSet<NodeId> =
            others.filter(|node| member.slow.get(node).is_none_or(|it| it.is_waited_for)).collect();
        if !waiting.is_empty() {
            let timeout = member.round_trips.timeout(&self.config.timeouts);
            self.timers.set(TimerKey::Retransmit(id.group, id.seqno.0), cx.now + timeout);
        }
        member.window.push(cx.now, block, waiting);
    }

    fn confirm(&mut self, cx: &mut Context, group: GroupId) {
        if let Some(member) = self.members.get_mut(&group) {
            member.confirm = Some(member.window.next.minus(1));
            self.confirm_if_safe(cx, group);
        }
    }

    fn on_block(&mut self, cx: &mut Context, id: PacketId, block: Block, _: Option<NodeId>) {
        self.on_message(cx, id, &block, How::Direct);
    }

    fn on_packet(&mut self, cx: &mut Context, group: GroupId, from: NodeId, packet: Packet<'_>) {
        let id = |seqno| PacketId { sender: from, group, seqno };
        match packet {
            Packet::Retransmission { seqno, block } => {
                if let Some(block) = cx.block(block) {
                    self.on_message(cx, id(seqno), &block, How::Retransmitted(from));
                }
            }
            Packet::Ack { seqno, settled_to, lost } => {
                self.on_ack(cx, (group, from), (seqno, settled_to), lost);
            }
            Packet::Horizon { next } => self.on_horizon(cx, group, from, next),
            Packet::Expired { seqno } => {
                cx.reception.on_announced(cx.now, group, from, seqno.next());
                cx.reception.give_up_one(id(seqno), LossCause::DeadlinePassed);
                self.acknowledge(cx, group, from, seqno);
            }
        }
    }

    fn on_view(&mut self, cx: &mut Context, change: &ViewChange, is_new: bool) {
        let (group, node) = (change.group, change.node);
        if !is_new || change.kind == ViewChangeKind::Joined {
            return;
        }
        if let Some(member) = self.members.get_mut(&group) {
            member.window.forget(node);
            member.losses.remove(&node);
            if member.slow.remove(&node).is_some() {
                self.timers.cancel(TimerKey::Horizon(group, node));
            }
            self.confirm_if_safe(cx, group);
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context) {
        while let Some(key) = self.timers.pop_due(cx.now) {
            match key {
                TimerKey::Retransmit(group, seqno) => self.on_timeout(cx, group, SeqNo(seqno)),
                TimerKey::Horizon(group, node) => self.send_horizon(cx, group, node),
            }
        }
    }

    fn wakeup(&self) -> Option<Wakeup> {
        self.timers.next_due().map(|at| Wakeup { at, reason: "send again" })
    }

    fn held_bytes(&self) -> usize {
        self.members.values().map(|member| member.window.bytes).sum()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().collect()
    }

    fn check(&self, cx: &Context) {
        assert!(cx.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            let joined = cx.reception.group(*group).expect("it is in both");
            assert_eq!(joined.next(), member.window.next, "the window lacks a message");
            assert!(member.window.len() <= self.config.window, "the window exceeds its limit");
            for seqno in member.window.waiting() {
                let is_set = self.timers.is_set(TimerKey::Retransmit(*group, seqno.0));
                assert!(is_set, "{seqno} is unacknowledged without a timer");
            }
            for node in member.slow.keys() {
                assert!(joined.view.contains(*node), "{node} is lagging, but not in the view");
                let is_set = self.timers.is_set(TimerKey::Horizon(*group, *node));
                assert!(is_set, "{node} is lagging without a timer");
            }
            assert!(
                member.losses.keys().all(|node| joined.view.contains(*node)),
                "losses of a node that is not in the view"
            );
        }
    }
}
