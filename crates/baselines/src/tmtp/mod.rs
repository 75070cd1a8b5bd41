//! Tree-based Multicast Transport Protocol: NAKs and repairs within domains, acknowledgments up the
//! tree of their managers.
//!
//! Source: R. Yavatkar, J. Griffioen, M. Sudan, *A Reliable Dissemination Protocol for Interactive
//! Collaborative Applications*, ACM Multimedia 1995.
//!
//! | paper | here |
//! |---|---|
//! | a control tree of domain managers | [`Hierarchy`](crate::domain::Hierarchy) |
//! | NAKs to the domain, with suppression | `Tmtp::send_naks`, `Tmtp::on_nack` |
//! | repairs by multicast in the domain, at once | `domain/repair_store.rs` |
//! | periodic acknowledgments to the manager | `Tmtp::send_ack` |
//! | a manager retransmits what is not acknowledged | `Tmtp::on_retransmit_due` |
//! | a window, held back by the slowest child of the sender | `domain/followers.rs` |
//!
//! A repaired message is delivered as [`Retransmitted`](carom_proto::How::Retransmitted), from the
//! manager that sent the repair.
//!
//! Deviations from the paper:
//! - Managers are declared, not discovered by an expanding search, and domains have groups of their
//!   own instead of a time to live: see [`crate::domain`]. A member turns to the next manager above
//!   after several NAKs without a repair, or when its manager has left the view.
//! - If a domain has no multicast of its own, a NAK goes to the manager and a repair to each
//!   receiver by unicast.
//! - Any member may send; the paper has one sender. A sender is the parent of the members that have
//!   no manager.
//! - The time between NAKs for a packet follows the measured repair times of the same manager, and
//!   doubles, because repairs may wait in queues for longer than any fixed time. There is a
//!   minimum, because a repair that another member requested, or an unsolicited one, may arrive
//!   sooner and be measured.
//! - A manager that waits for an acknowledgment retransmits the oldest missing packet and sends the
//!   end of the stream. The other missing packets are requested by NAKs. The paper retransmits the
//!   whole window.
//! - A member acknowledges while packets arrive and on request, not forever, because groups here
//!   may be idle.
//! - There is no rate control: the application sets the rate. The window remains.
//! - A manager keeps packets for a bounded time and in bounded memory, and does not wait until its
//!   children have them. A child that still lacks an evicted packet loses it.
//! - A member that does not acknowledge holds back the sender for a [bounded
//!   time](Config::slow_after). Otherwise, one member could stall a group forever.
//! - [`Engine::confirm`](carom_proto::Engine::confirm) is not answered, because a sender gets
//!   acknowledgments only from its own children.

mod config;
pub mod packet;

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{
    Destination, Event, GroupId, NodeId, Origin, PacketId, Rng, SendError, SeqNo, Slow, Time,
    Timers, ViewChange, Wakeup,
};
use zerocopy::byteorder::big_endian::U32;

pub use self::config::Config;
use self::packet::{NACK_BYTES, NUMBER_BYTES, Packet};
use crate::block::Block;
use crate::config::assert_valid;
use crate::domain::{Followers, Nak, Naks, RepairStore};
use crate::retained::Retained;
use crate::shell::{Context, Policy, Shell};
use crate::stream::Gap;

/// The policy of TMTP at one node.
#[derive(Debug)]
pub struct Tmtp {
    config: Config,
    rng: Rng,
    store: RepairStore,
    naks: Naks,
    followers: BTreeMap<GroupId, BTreeMap<NodeId, Followers>>,
    timers: Timers<TimerKey>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Ack(GroupId, NodeId),
    Retransmit(GroupId, NodeId),
}

carom_proto::counters! {
    struct Counters {
        nacks_sent,
        /// NAKs received, addressed to this node or to another manager.
        nacks_received,
        /// Missing packets whose NAK was postponed because another member's NAK was received.
        nacks_suppressed,
        nobody_to_ask,
        acks_sent,
        acks_received,
        /// Times at which acknowledgments were overdue and a packet was due for retransmission.
        timeouts,
        slow,
        held_back,
    }
}

impl Tmtp {
    /// Creates the engine of the node `origin`, whose randomness comes from `seed`. Panics if
    /// the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Shell<Self> {
        assert_valid("TMTP", config.validate());
        let (terms, mut rng) = (config.domains.terms(), Rng::new(seed));
        let limit = config.domains.payload_limit();
        let policy = Self {
            store: RepairStore::new(&config.domains, None, rng.next_u64()),
            rng,
            naks: Naks::new(config.nack_timeouts),
            config,
            followers: BTreeMap::new(),
            timers: Timers::new(),
            counters: Counters::default(),
        };
        Shell::new(origin, terms, limit, policy)
    }

    /// Schedules the NAKs for newly missing packets after a delay that is drawn once for all of
    /// them, because a member that lacks one of several packets usually lacks all of them.
    fn request(&mut self, cx: &Context, group: GroupId, source: NodeId, gap: &Gap) {
        let spread = self.config.nack_spread.mul_f64(self.rng.fraction());
        let at = cx.now + self.config.domains.detect_after + spread;
        self.naks.add_gap(&cx.reception, (group, source), gap, at);
        if !gap.missing.is_empty() {
            self.advance(cx, group, source);
        }
    }

    fn send_naks(&mut self, cx: &mut Context) {
        let domains = &self.config.domains;
        let room = (domains.streams.max_datagram_bytes() - NACK_BYTES) / NUMBER_BYTES;
        for nak in self.naks.due(cx, &self.store, domains.climb_after) {
            let Nak { group, source, to, seqnos } = nak;
            let Some(to) = to else {
                self.counters.nobody_to_ask += seqnos.len() as u64;
                continue;
            };
            let destination = self.store.domain_of(cx, group, to);
            for seqnos in seqnos.chunks(room) {
                self.counters.nacks_sent += 1;
                cx.transmit(destination.clone(), group, Packet::Nack { source, to, seqnos });
            }
        }
    }

    /// Processes a NAK from `whom` to the manager `to`. The NAK may reveal unknown packets. If this
    /// node is `to`, it records the request. If it lacks the packets too and has the same manager,
    /// it postpones its own NAK.
    fn on_nack(
        &mut self,
        cx: &mut Context,
        (group, source): (GroupId, NodeId),
        (whom, to): (NodeId, NodeId),
        seqnos: &[U32],
    ) {
        self.counters.nacks_received += 1;
        let numbers = seqnos.iter().map(|seqno| SeqNo(seqno.get()));
        if source != cx.id
            && let Some(last) = numbers.clone().reduce(SeqNo::later)
        {
            let gap = cx.reception.on_reported(cx.now, group, source, last.next());
            self.request(cx, group, source, &gap);
        }
        let ids = numbers.map(|seqno| PacketId { sender: source, group, seqno });
        if to == cx.id {
            ids.for_each(|id| self.store.on_request(cx, id, whom));
        } else if self.store.parent(cx, group, source, 0) == Some(to) {
            let spread = self.config.nack_spread.mul_f64(self.rng.fraction());
            let postponed = ids.filter(|id| self.naks.postpone(cx.now, *id, to, spread));
            self.counters.nacks_suppressed += postponed.count() as u64;
        }
    }

    fn followers(&mut self, group: GroupId, source: NodeId) -> Option<&mut Followers> {
        self.followers.get_mut(&group)?.get_mut(&source)
    }

    fn advance(&mut self, cx: &Context, group: GroupId, source: NodeId) {
        let Some(next) = cx.next_seqno(group, source) else { return };
        let first = cx.reception.stream(group, source).map_or(next, |it| it.first());
        let Some(streams) = self.followers.get_mut(&group) else { return };
        streams.entry(source).or_insert_with(|| Followers::new(first));
        self.forget_closed_streams(cx, group);
        self.refresh_followers(cx, group, source);
        let Some(followers) = self.followers(group, source) else { return };
        followers.reach(cx.now, next);
        let key = TimerKey::Retransmit(group, source);
        if followers.is_any_behind() && !self.timers.is_set(key) {
            self.timers.set(key, cx.now + self.config.retransmit_after);
        }
    }

    /// Bounds the memory by dropping the children's state for closed streams.
    fn forget_closed_streams(&mut self, cx: &Context, group: GroupId) {
        let Some(streams) = self.followers.get_mut(&group) else { return };
        if streams.len() <= self.config.domains.streams.max_streams + 1 {
            return;
        }
        streams.retain(|source, _| {
            let is_open = *source == cx.id || cx.reception.stream(group, *source).is_some();
            if !is_open {
                self.timers.cancel(TimerKey::Retransmit(group, *source));
            }
            is_open
        });
    }

    fn refresh_followers(&mut self, cx: &Context, group: GroupId, source: NodeId) {
        let streams = self.followers.get_mut(&group);
        if let Some(followers) = streams.and_then(|it| it.get_mut(&source)) {
            followers.refresh(cx.now, || self.store.children(cx, group, source));
        }
    }

    fn on_ack(
        &mut self,
        cx: &mut Context,
        (group, source): (GroupId, NodeId),
        child: NodeId,
        settled_to: SeqNo,
    ) {
        if source == cx.id {
            let next = cx.next_seqno(group, source);
            if next.is_none_or(|next| settled_to.is_after(next)) {
                cx.malformed += 1;
                return;
            }
        } else {
            let gap = cx.reception.on_reported(cx.now, group, source, settled_to);
            self.request(cx, group, source, &gap);
        }
        self.counters.acks_received += 1;
        self.refresh_followers(cx, group, source);
        if let Some(followers) = self.followers(group, source) {
            followers.on_ack(cx.now, child, settled_to);
        }
    }

    /// Processes overdue acknowledgments. Sends the end of the stream to the children whose
    /// acknowledgment is overdue, and retransmits the oldest packet that one of them lacks, unless
    /// the child is lagging.
    fn on_retransmit_due(&mut self, cx: &mut Context, group: GroupId, source: NodeId) {
        self.refresh_followers(cx, group, source);
        let (retransmit_after, slow_after) = (self.config.retransmit_after, self.config.slow_after);
        let Some(followers) = self.followers(group, source) else { return };
        let slow = followers.give_up_on(cx.now, slow_after);
        let stuck: Vec<(NodeId, SeqNo, bool)> = followers.stuck(cx.now, retransmit_after).collect();
        let next = followers.next();
        if followers.is_any_behind() {
            let is_waited = followers.behind() > 0;
            let wait = if is_waited { retransmit_after } else { slow_after };
            self.timers.set(TimerKey::Retransmit(group, source), cx.now + wait);
        }
        self.counters.slow += slow.len() as u64;
        for (node, behind) in slow.into_iter().filter(|_| source == cx.id) {
            cx.reception.push_event(Event::Slow(Slow { group, node, behind }));
        }
        self.retransmit(cx, (group, source), &stuck, next);
    }

    fn retransmit(
        &mut self,
        cx: &mut Context,
        (group, source): (GroupId, NodeId),
        stuck: &[(NodeId, SeqNo, bool)],
        next: SeqNo,
    ) {
        let behind: BTreeSet<NodeId> = stuck.iter().map(|(node, ..)| *node).collect();
        for destination in self.store.destinations(cx, group, behind) {
            cx.transmit(destination, group, Packet::Status { source, next });
        }
        let waited = || stuck.iter().filter(|(_, _, is_slow)| !is_slow);
        let oldest = waited().map(|(_, seqno, _)| *seqno).reduce(SeqNo::earlier);
        let Some(oldest) = oldest else { return };
        self.counters.timeouts += 1;
        let lacking = waited().filter(|(_, seqno, _)| *seqno == oldest);
        let lacking: BTreeSet<NodeId> = lacking.map(|(node, ..)| *node).collect();
        let id = PacketId { sender: source, group, seqno: oldest };
        self.store.repair::<Packet<'_>>(cx, id, lacking);
    }

    /// Processes the status packet of a manager, or of the source itself, that waits for this node.
    ///
    /// A status from the source opens the stream, so that a member that lost the first messages
    /// detects the loss. So does one from a manager if the manager and the source are in the view.
    /// Acknowledgments are spread at random, so that members do not send them at the same time.
    fn on_status(
        &mut self,
        cx: &mut Context,
        (group, source): (GroupId, NodeId),
        from: NodeId,
        next: SeqNo,
    ) {
        let view = cx.reception.group(group).map(|it| &it.view);
        let is_there = view.is_some_and(|view| view.contains(source) && view.contains(from));
        let gap = if from == source || is_there {
            cx.reception.on_announced(cx.now, group, source, next)
        } else {
            cx.reception.on_reported(cx.now, group, source, next)
        };
        self.request(cx, group, source, &gap);
        let spread = self.config.ack_interval.mul_f64(self.rng.fraction());
        self.schedule_ack(cx, cx.now + spread, group, source);
    }

    fn schedule_ack(&mut self, cx: &Context, at: Time, group: GroupId, source: NodeId) {
        if cx.reception.stream(group, source).is_some() {
            self.timers.set_no_later(TimerKey::Ack(group, source), at);
        }
    }

    fn send_ack(&mut self, cx: &mut Context, group: GroupId, source: NodeId) {
        let Some(stream) = cx.reception.stream(group, source) else { return };
        let settled_to = stream.settled_to();
        let Some(manager) = self.store.parent(cx, group, source, 0) else {
            self.counters.nobody_to_ask += 1;
            return;
        };
        self.counters.acks_sent += 1;
        cx.transmit(Destination::Node(manager), group, Packet::Ack { source, settled_to });
    }
}

impl Policy for Tmtp {
    type Packet<'a> = Packet<'a>;

    fn join(&mut self, cx: &mut Context, group: GroupId) {
        let next = cx.next_seqno(group, cx.id).unwrap_or(SeqNo::FIRST);
        self.followers.insert(group, [(cx.id, Followers::new(next))].into());
    }

    fn leave(&mut self, cx: &mut Context, group: GroupId) {
        let Some(left) = self.followers.remove(&group) else { return };
        let joined = cx.reception.group(group).into_iter();
        let streams = joined.flat_map(|it| it.streams()).map(|(source, _)| source);
        let sources: BTreeSet<NodeId> = streams.chain(left.into_keys()).collect();
        for source in sources {
            self.timers.cancel(TimerKey::Ack(group, source));
            self.timers.cancel(TimerKey::Retransmit(group, source));
        }
        self.naks.leave(group);
        self.store.leave(group);
    }

    fn admit(&mut self, cx: &Context, group: GroupId) -> Result<(), SendError> {
        self.refresh_followers(cx, group, cx.id);
        let own = self.followers.get(&group).and_then(|streams| streams.get(&cx.id));
        let full = own.filter(|followers| followers.behind() >= self.config.window);
        let Some((by, behind)) = full.and_then(Followers::furthest_behind) else { return Ok(()) };
        self.counters.held_back += 1;
        Err(SendError::HeldBack { by, behind })
    }

    fn on_sent(&mut self, cx: &mut Context, id: PacketId, block: Block) {
        self.store.keep(cx.now, id, block);
        self.advance(cx, id.group, cx.id);
    }

    fn on_block(&mut self, cx: &mut Context, id: PacketId, block: Block, from: Option<NodeId>) {
        if let Some(gap) = self.store.arrive(cx, id, block, from) {
            self.naks.settle(cx.now, id, from);
            self.request(cx, id.group, id.sender, &gap);
            self.schedule_ack(cx, cx.now + self.config.ack_interval, id.group, id.sender);
            self.advance(cx, id.group, id.sender);
        }
    }

    fn on_packet(&mut self, cx: &mut Context, group: GroupId, from: NodeId, packet: Packet<'_>) {
        match packet {
            Packet::Nack { source, to, seqnos } => {
                self.on_nack(cx, (group, source), (from, to), seqnos);
            }
            Packet::Ack { source, settled_to } => {
                self.on_ack(cx, (group, source), from, settled_to);
            }
            Packet::Status { source, next } => self.on_status(cx, (group, source), from, next),
        }
    }

    fn on_view(&mut self, cx: &mut Context, change: &ViewChange, is_new: bool) {
        self.naks.handle_view(cx.now, change);
        if is_new && let Some(streams) = self.followers.get_mut(&change.group) {
            streams.values_mut().for_each(Followers::on_view);
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context) {
        self.store.evict_old(cx.now);
        while let Some(key) = self.timers.pop_due(cx.now) {
            match key {
                TimerKey::Ack(group, source) => self.send_ack(cx, group, source),
                TimerKey::Retransmit(group, source) => self.on_retransmit_due(cx, group, source),
            }
        }
        self.send_naks(cx);
        self.store.send_repairs::<Packet<'_>>(cx);
    }

    fn wakeup(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "a TMTP timer" });
        let nak = self.naks.next_due().map(|at| Wakeup { at, reason: "request a packet" });
        Wakeup::earlier(Wakeup::earlier(own, nak), self.store.wakeup())
    }

    fn retained(&self) -> Option<&Retained> {
        Some(self.store.retained())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().collect()
    }

    fn repair_counters(&self) -> Vec<(&'static str, u64)> {
        self.store.counters()
    }

    fn check(&self, cx: &Context) {
        self.store.check();
        self.naks.check();
        assert!(cx.reception.groups().eq(self.followers.keys().copied()), "groups differ");
        for (group, streams) in &self.followers {
            for (source, followers) in streams {
                followers.check();
                let is_watched = self.timers.is_set(TimerKey::Retransmit(*group, *source));
                let is_any_behind = followers.is_any_behind();
                assert!(!is_any_behind || is_watched, "no timer for a child that is behind");
            }
        }
        self.naks.check_requested(&cx.reception);
    }
}
