//! Reliable Multicast Transport Protocol: acknowledgments up a hierarchy of designated receivers.
//!
//! Source: J. C. Lin, S. Paul, *RMTP: A Reliable Multicast Transport Protocol*, IEEE INFOCOM 1996;
//! S. Paul, K. Sabnani, J. C. Lin, S. Bhattacharyya, *Reliable Multicast Transport Protocol
//! (RMTP)*, IEEE Journal on Selected Areas in Communications 15(3), 1997.
//!
//! | paper | here |
//! |---|---|
//! | designated receivers, local regions | [`Hierarchy`](crate::domain::Hierarchy) |
//! | periodic acknowledgments with a bitmap | `Rmtp::on_ack_due` |
//! | unicast or multicast, by the number of requestors | [`RepairBy`](crate::domain::RepairBy) |
//! | retransmission by the sender or a designated receiver | `domain/repair_store.rs` |
//! | a send window, held back by the slowest receiver | `domain/followers.rs` |
//! | `SEND_ACK_TOME` packets | `Rmtp::send_beacon` |
//! | a receiver whose head fails turns to the next one above | `Rmtp::on_ack_due` |
//!
//! A repaired message is delivered as [`Retransmitted`](carom_proto::How::Retransmitted), from the
//! head that sent the repair.
//!
//! Deviations from the paper:
//! - Heads are declared, not discovered by the time to live of beacons: see [`crate::domain`]. A
//!   member turns to the next head above after [several](crate::domain::DomainConfig::climb_after)
//!   requests without a repair, or when its head has left the view.
//! - Any member may send; the paper has one sender. A sender is the parent of the members that have
//!   no head.
//! - A gap is acknowledged at once, or after a [delay](crate::domain::DomainConfig::detect_after),
//!   not only when the next acknowledgment is due. The experiments compare protocols that detect
//!   losses equally fast.
//! - The interval of acknowledgments is configured, not measured, because round trips in a data
//!   center are shorter than any useful timer.
//! - A multicast repair reaches the members of a domain, not the whole subtree below its head.
//!   Members of lower domains are repaired by their own heads, as soon as these have the packet.
//! - There is no congestion window: the RDCM paper compares without one, and the application sets
//!   the rate. The send window remains.
//! - A head keeps packets for a bounded time and in bounded memory. A member that joins late is
//!   therefore not owed earlier packets. The paper's heads keep the whole session on disk.
//! - A member that does not acknowledge holds back the sender for a [bounded
//!   time](Config::slow_after). Otherwise, one member could stall a group forever.
//! - [`Engine::confirm`](carom_proto::Engine::confirm) is not answered, because a sender gets
//!   acknowledgments only from its own children.

mod config;
pub mod packet;

use std::collections::BTreeMap;

use carom_proto::{
    Destination, Event, GroupId, NodeId, Origin, PacketId, Rng, SendError, SeqNo, Slow, Time,
    Timers, ViewChange, Wakeup,
};

pub use self::config::Config;
use self::packet::{ACK_BYTES, Packet, bitmap_without, missing_of};
use crate::block::Block;
use crate::config::assert_valid;
use crate::domain::{Followers, RepairStore};
use crate::retained::Retained;
use crate::shell::{Context, Policy, Shell};
use crate::stream::Gap;

/// The policy of RMTP at one node.
#[derive(Debug)]
pub struct Rmtp {
    config: Config,
    rng: Rng,
    store: RepairStore,
    members: BTreeMap<GroupId, Member>,
    timers: Timers<TimerKey>,
    counters: Counters,
}

#[derive(Debug)]
struct Member {
    followers: Followers,
    acks: BTreeMap<NodeId, ScheduledAck>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ScheduledAck {
    /// Settled position in the previous acknowledgment, or `None` if there was none.
    settled_to: Option<SeqNo>,
    in_vain: u32,
}

struct Report {
    settled_to: SeqNo,
    next: SeqNo,
    bitmap: Vec<u8>,
    /// Time from which the first gap that is still too recent may be reported.
    more_at: Option<Time>,
    is_complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Ack(GroupId, NodeId),
    Beacon(GroupId),
    Slow(GroupId),
}

carom_proto::counters! {
    struct Counters {
        acks_sent,
        acks_received,
        nobody_to_ask,
        beacons_sent,
        slow,
        held_back,
    }
}

impl Rmtp {
    /// Creates the engine of the node `origin`, whose randomness comes from `seed`. Panics if
    /// the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Shell<Self> {
        assert_valid("RMTP", config.validate());
        let (terms, mut rng) = (config.domains.terms(), Rng::new(seed));
        let limit = config.domains.payload_limit();
        let policy = Self {
            store: RepairStore::new(&config.domains, Some(config.repair_by), rng.next_u64()),
            config,
            rng,
            members: BTreeMap::new(),
            timers: Timers::new(),
            counters: Counters::default(),
        };
        Shell::new(origin, terms, limit, policy)
    }

    fn refresh_followers(&mut self, cx: &Context, group: GroupId) {
        if let Some(member) = self.members.get_mut(&group) {
            member.followers.refresh(cx.now, || self.store.children(cx, group, cx.id));
        }
    }

    fn watch_followers(&mut self, group: GroupId) {
        let key = TimerKey::Slow(group);
        let Some(member) = self.members.get(&group).filter(|_| !self.timers.is_set(key)) else {
            return;
        };
        if let Some(at) = member.followers.next_stuck(self.config.slow_after) {
            self.timers.set(key, at);
        }
    }

    fn on_slow_due(&mut self, cx: &mut Context, group: GroupId) {
        self.refresh_followers(cx, group);
        let Some(member) = self.members.get_mut(&group) else { return };
        for (node, behind) in member.followers.give_up_on(cx.now, self.config.slow_after) {
            self.counters.slow += 1;
            cx.reception.push_event(Event::Slow(Slow { group, node, behind }));
        }
        self.watch_followers(group);
    }

    fn send_beacon(&mut self, cx: &mut Context, group: GroupId) {
        let Some(next) = cx.next_seqno(group, cx.id) else { return };
        self.timers.set(TimerKey::Beacon(group), cx.now + self.config.beacon_interval);
        self.counters.beacons_sent += 1;
        cx.transmit(Destination::Group(group), group, Packet::Beacon { next });
    }

    fn schedule_ack(&mut self, cx: &Context, group: GroupId, source: NodeId, gap: &Gap) {
        let is_gap = !gap.missing.is_empty();
        let wait = if is_gap { self.config.domains.detect_after } else { self.config.ack_interval };
        self.set_ack(cx, cx.now + wait, group, source);
    }

    fn set_ack(&mut self, cx: &Context, at: Time, group: GroupId, source: NodeId) {
        let is_heard = cx.reception.stream(group, source).is_some();
        let Some(member) = self.members.get_mut(&group).filter(|_| is_heard) else { return };
        member.acks.entry(source).or_default();
        self.timers.set_no_later(TimerKey::Ack(group, source), at);
    }

    /// Schedules an acknowledgment. If the beacon reveals no gap, its time is random, so that
    /// members do not send at the same time.
    fn on_beacon(&mut self, cx: &mut Context, group: GroupId, source: NodeId, next: SeqNo) {
        let gap = cx.reception.on_announced(cx.now, group, source, next);
        let spread = self.config.ack_interval.mul_f64(self.rng.fraction());
        if gap.missing.is_empty() {
            self.set_ack(cx, cx.now + spread, group, source);
        } else {
            self.schedule_ack(cx, group, source, &gap);
        }
    }

    fn on_ack_due(&mut self, cx: &mut Context, group: GroupId, source: NodeId) {
        let report = self.report(cx, group, source);
        let Some(member) = self.members.get_mut(&group) else { return };
        let (Some(report), Some(ack)) = (report, member.acks.get_mut(&source)) else {
            member.acks.remove(&source);
            return;
        };
        let is_same = ack.settled_to == Some(report.settled_to) && !report.is_complete;
        ack.in_vain = if is_same { ack.in_vain + 1 } else { 0 };
        ack.settled_to = Some(report.settled_to);
        let climbs = ack.in_vain / self.config.domains.climb_after;
        if report.is_complete {
            member.acks.remove(&source);
        } else {
            let again = cx.now + self.config.ack_interval;
            let at = report.more_at.map_or(again, |at| at.min(again));
            self.timers.set(TimerKey::Ack(group, source), at);
        }
        let Some(parent) = self.store.parent(cx, group, source, climbs) else {
            self.counters.nobody_to_ask += 1;
            return;
        };
        self.counters.acks_sent += 1;
        let Report { settled_to, next, bitmap, .. } = &report;
        let ack = Packet::Ack { source, settled_to: *settled_to, next: *next, bitmap };
        cx.transmit(Destination::Node(parent), group, ack);
    }

    fn report(&self, cx: &Context, group: GroupId, source: NodeId) -> Option<Report> {
        let stream = cx.reception.stream(group, source)?;
        let detect_after = self.config.domains.detect_after;
        let mut gaps = stream.missing_since_when();
        let young = gaps.find(|(_, since)| *since + detect_after > cx.now);
        let settled_to = stream.settled_to();
        let next = young.map_or(stream.next(), |(seqno, _)| seqno);
        let room = (self.config.domains.streams.max_datagram_bytes() - ACK_BYTES) * 8;
        let count = usize::try_from(next.distance_from(settled_to)).unwrap_or(0).min(room);
        Some(Report {
            settled_to,
            next: settled_to.plus(count as u32),
            bitmap: bitmap_without(settled_to, count, stream.missing()),
            more_at: young.map(|(_, since)| since + detect_after),
            is_complete: stream.missing_count() == 0,
        })
    }

    /// Processes a child's acknowledgment. The packets that the child lacks count as requested.
    fn on_ack(
        &mut self,
        cx: &mut Context,
        (group, source): (GroupId, NodeId),
        child: NodeId,
        (settled_to, next): (SeqNo, SeqNo),
        bitmap: &[u8],
    ) {
        if source == cx.id {
            self.refresh_followers(cx, group);
            let Some(member) = self.members.get_mut(&group) else { return };
            if settled_to.is_after(member.followers.next()) {
                cx.malformed += 1;
                return;
            }
            member.followers.on_ack(cx.now, child, settled_to);
            self.watch_followers(group);
        } else {
            let gap = cx.reception.on_reported(cx.now, group, source, next);
            if !gap.missing.is_empty() {
                self.schedule_ack(cx, group, source, &gap);
            }
        }
        self.counters.acks_received += 1;
        for seqno in missing_of(settled_to, next, bitmap) {
            self.store.on_request(cx, PacketId { sender: source, group, seqno }, child);
        }
    }
}

impl Policy for Rmtp {
    type Packet<'a> = Packet<'a>;

    fn join(&mut self, cx: &mut Context, group: GroupId) {
        let next = cx.next_seqno(group, cx.id).unwrap_or(SeqNo::FIRST);
        let member = Member { followers: Followers::new(next), acks: BTreeMap::new() };
        self.members.insert(group, member);
    }

    fn leave(&mut self, _: &mut Context, group: GroupId) {
        let Some(left) = self.members.remove(&group) else { return };
        self.timers.cancel(TimerKey::Beacon(group));
        self.timers.cancel(TimerKey::Slow(group));
        for source in left.acks.into_keys() {
            self.timers.cancel(TimerKey::Ack(group, source));
        }
        self.store.leave(group);
    }

    fn admit(&mut self, cx: &Context, group: GroupId) -> Result<(), SendError> {
        self.refresh_followers(cx, group);
        let followers = self.members.get(&group).map(|member| &member.followers);
        let full = followers.filter(|followers| followers.behind() >= self.config.window);
        let Some((by, behind)) = full.and_then(Followers::furthest_behind) else { return Ok(()) };
        self.counters.held_back += 1;
        Err(SendError::HeldBack { by, behind })
    }

    fn on_sent(&mut self, cx: &mut Context, id: PacketId, block: Block) {
        if let Some(member) = self.members.get_mut(&id.group) {
            member.followers.reach(cx.now, id.seqno.next());
        }
        self.store.keep(cx.now, id, block);
        let beacon = TimerKey::Beacon(id.group);
        self.timers.set_no_later(beacon, cx.now + self.config.beacon_interval);
        self.watch_followers(id.group);
    }

    fn on_block(&mut self, cx: &mut Context, id: PacketId, block: Block, from: Option<NodeId>) {
        if let Some(gap) = self.store.arrive(cx, id, block, from) {
            self.schedule_ack(cx, id.group, id.sender, &gap);
        }
    }

    fn on_packet(&mut self, cx: &mut Context, group: GroupId, from: NodeId, packet: Packet<'_>) {
        match packet {
            Packet::Ack { source, settled_to, next, bitmap } => {
                self.on_ack(cx, (group, source), from, (settled_to, next), bitmap);
            }
            Packet::Beacon { next } => self.on_beacon(cx, group, from, next),
        }
    }

    fn on_view(&mut self, _: &mut Context, change: &ViewChange, is_new: bool) {
        if is_new && let Some(member) = self.members.get_mut(&change.group) {
            member.followers.on_view();
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context) {
        self.store.evict_old(cx.now);
        while let Some(key) = self.timers.pop_due(cx.now) {
            match key {
                TimerKey::Ack(group, source) => self.on_ack_due(cx, group, source),
                TimerKey::Beacon(group) => self.send_beacon(cx, group),
                TimerKey::Slow(group) => self.on_slow_due(cx, group),
            }
        }
        self.store.send_repairs::<Packet<'_>>(cx);
    }

    fn wakeup(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "an RMTP timer" });
        Wakeup::earlier(own, self.store.wakeup())
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
        assert!(cx.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            member.followers.check();
            let is_watched = self.timers.is_set(TimerKey::Slow(*group));
            let is_full = member.followers.behind() > 0;
            assert!(!is_full || is_watched, "a held-back sender has no timer");
            for source in member.acks.keys() {
                let is_set = self.timers.is_set(TimerKey::Ack(*group, *source));
                assert!(is_set, "{source} has no acknowledgment timer");
            }
            let joined = cx.reception.group(*group).expect("it is in both");
            for (source, stream) in joined.streams() {
                let is_requested = stream.missing_count() == 0 || member.acks.contains_key(&source);
                assert!(is_requested, "a missing packet is not requested");
            }
        }
    }
}
