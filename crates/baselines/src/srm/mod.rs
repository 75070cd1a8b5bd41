//! Scalable Reliable Multicast.
//!
//! Source: S. Floyd, V. Jacobson, C. Liu, S. McCanne, L. Zhang, *A Reliable Multicast Framework for
//! Light-weight Sessions and Application Level Framing*, IEEE/ACM Transactions on Networking 5(6),
//! 1997; the defaults, and the choices that the paper leaves open, are those of the agent in ns-2.
//!
//! | paper | here |
//! |---|---|
//! | III-A session messages, their share of the bandwidth | `session.rs`: `Pace` |
//! | III-A distances from timestamps | `session.rs`: `Peers` |
//! | III-B loss from gaps and session messages | `Srm::on_block`, `Srm::on_session` |
//! | III-B requests, suppression, backoff, ignore-backoff | `recovery.rs`: `on_request` |
//! | III-B repairs, suppression, hold-down of three distances | `recovery.rs`: `on_repair` |
//! | V fixed timers | [`Timing::Fixed`], [`Timing::LogOfGroup`] |
//! | VII adaptive timers | `timing.rs`: `Interval` |
//!
//! Every request and every repair is multicast to the whole group. Groups share only the memory for
//! retained packets, so that a node in many groups behaves like one process per group.
//!
//! A repaired message is delivered as [`Retransmitted`](carom_proto::How::Retransmitted). Its
//! `missing_for` is the time from the detection of the loss to the delivery, and the rest of its
//! `age` is the time that the detection took.
//!
//! Deviations from the paper:
//! - A missing packet is given up and reported as lost after [`Config::give_up_after`], and packets
//!   are retained for a bounded time, because memory is bounded here. The paper leaves both to the
//!   application.
//! - A session message carries as many reports as fit the path MTU, and the next message carries
//!   the rest. The paper has hierarchies of session messages for large groups.
//! - A report on a third member does not open the third member's stream at a receiver, because the
//!   third member may have left long ago. The third member's own session message does.
//! - A request that reveals a loss counts as heard: a member that detects its loss in this way
//!   backs off at once. In ns-2 it sends a request too.
//! - The means of the adaptive timers are updated once per timer that is set. ns-2 updates the mean
//!   of the duplicates twice.
//! - Distances have microsecond resolution. ns-2 rounds the clock to milliseconds.
//! - A message's deadline only prevents its repairs. Members that lack the message lack its
//!   deadline too, and report the loss when they give up.
//! - [`Engine::confirm`](carom_proto::Engine::confirm) is not answered: session messages report
//!   the known ends of streams, not the packets that a member lacks.

mod config;
mod context;
pub mod packet;
mod recovery;
mod session;
mod timing;

use std::collections::BTreeMap;

use carom_proto::{
    Destination, GroupId, NodeId, Origin, PacketId, Rng, SeqNo, Timers, ViewChange, ViewChangeKind,
    Wakeup,
};

pub use self::config::{Config, Distance, Timing};
use self::context::{Adu, Counters, GroupContext, Shared, TimerKey};
use self::packet::{Packet, REPORT_BYTES, Report, SESSION_BYTES};
use self::recovery::Recovery;
use self::session::{Pace, Peers};
use crate::block::Block;
use crate::config::assert_valid;
use crate::guest::DATA_BYTES;
use crate::reception::Terms;
use crate::retained::Retained;
use crate::shell::{Context, Policy, Shell};

/// The policy of SRM at one node.
#[derive(Debug)]
pub struct Srm {
    shared: Shared,
    members: BTreeMap<GroupId, Member>,
}

#[derive(Debug)]
struct Member {
    peers: Peers,
    pace: Pace,
    recovery: Recovery,
}

impl Srm {
    /// Creates the engine of the node `origin`, whose randomness comes from `seed`. Panics if
    /// the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Shell<Self> {
        assert_valid("SRM", config.validate());
        let terms = Terms { streams: config.streams, give_up_after: config.give_up_after };
        let (limit, mut rng) = (config.payload_limit(), Rng::new(seed));
        let shared = Shared {
            retained: Retained::new(config.retain_bytes, config.retain_for, rng.next_u64()),
            config,
            rng,
            timers: Timers::new(),
            counters: Counters::default(),
        };
        Shell::new(origin, terms, limit, Self { shared, members: BTreeMap::new() })
    }

    fn group<'a>(
        &'a mut self,
        cx: &'a mut Context,
        group: GroupId,
    ) -> Option<(&'a mut Recovery, GroupContext<'a>)> {
        let Member { peers, recovery, .. } = self.members.get_mut(&group)?;
        Some((recovery, GroupContext { group, node: cx, shared: &mut self.shared, peers }))
    }

    fn on_session(
        &mut self,
        cx: &mut Context,
        (group, peer): (GroupId, NodeId),
        (sent_at, next): (u64, SeqNo),
        reports: &[Report],
    ) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let own = reports.iter().find(|report| report.member() == cx.id);
        let echo = own.and_then(Report::echo);
        let Shared { config, counters, .. } = &mut self.shared;
        match member.peers.on_session(cx.now, peer, sent_at, echo, config.streams.max_streams) {
            Some(is_measured) => counters.distances_measured += u64::from(is_measured),
            None => counters.peers_refused += 1,
        }
        let Some((recovery, mut cx)) = self.group(cx, group) else { return };
        let now = cx.node.now;
        let gap = cx.node.reception.on_announced(now, group, peer, next);
        recovery.set_requests(&mut cx, peer, &gap);
        for report in reports {
            let Some(next) = report.next() else { continue };
            let gap = cx.node.reception.on_reported(now, group, report.member(), next);
            recovery.set_requests(&mut cx, report.member(), &gap);
        }
    }

    fn send_session(&mut self, cx: &mut Context, group: GroupId) {
        let room = (self.shared.config.streams.max_datagram_bytes() - SESSION_BYTES) / REPORT_BYTES;
        let reports = self.reports(cx, group, room);
        let Some((_, scope)) = self.group(cx, group) else { return };
        let size = scope.size();
        let Some(member) = self.members.get_mut(&group) else { return };
        let Some(next) = cx.next_seqno(group, cx.id) else { return };
        let bytes = SESSION_BYTES + reports.len() * REPORT_BYTES;
        let Shared { config, rng, timers, counters, .. } = &mut self.shared;
        let wait = member.pace.next(cx.now, size, bytes, config, rng);
        timers.set(TimerKey::Session(group), cx.now + wait);
        counters.sessions_sent += 1;
        counters.session_bytes += bytes as u64;
        let session = Packet::Session { sent_at: cx.now.0, next, reports: &reports };
        cx.transmit(Destination::Group(group), group, session);
    }

    /// Returns at most `room` reports. If not all fit, they start after the last member of the
    /// previous session message.
    fn reports(&mut self, cx: &Context, group: GroupId, room: usize) -> Vec<Report> {
        let Some(member) = self.members.get_mut(&group) else { return Vec::new() };
        let Some(joined) = cx.reception.group(group) else { return Vec::new() };
        let mut known: BTreeMap<NodeId, Option<SeqNo>> =
            member.peers.ids().map(|peer| (peer, None)).collect();
        known.extend(joined.streams().map(|(source, stream)| (source, Some(stream.next()))));
        let put_off = known.len().saturating_sub(room);
        self.shared.counters.reports_put_off += put_off as u64;
        let start = member.pace.reported_to.filter(|_| put_off > 0);
        let after = known.iter().filter(|(peer, _)| start.is_none_or(|start| **peer > start));
        let before = known.iter().filter(|(peer, _)| start.is_some_and(|start| **peer <= start));
        let chosen = after.chain(before).take(room);
        let reports: Vec<Report> = chosen
            .map(|(peer, next)| Report::new(*peer, *next, member.peers.echo(cx.now, *peer)))
            .collect();
        member.pace.reported_to = reports.last().map(Report::member);
        reports
    }
}

impl Policy for Srm {
    type Packet<'a> = Packet<'a>;

    fn join(&mut self, cx: &mut Context, group: GroupId) {
        let Shared { config, rng, timers, .. } = &mut self.shared;
        let recovery = Recovery::new(config.timing);
        let member = Member { peers: Peers::default(), pace: Pace::new(cx.now), recovery };
        self.members.insert(group, member);
        let spread = 0.9 + 0.2 * rng.fraction();
        timers.set(TimerKey::Session(group), cx.now + config.session_interval.mul_f64(spread));
    }

    fn leave(&mut self, _: &mut Context, group: GroupId) {
        let Some(left) = self.members.remove(&group) else { return };
        self.shared.timers.cancel(TimerKey::Session(group));
        for key in left.recovery.timers(group) {
            self.shared.timers.cancel(key);
        }
        self.shared.retained.forget_group(group);
    }

    fn on_sent(&mut self, cx: &mut Context, id: PacketId, block: Block) {
        if let Some(member) = self.members.get_mut(&id.group) {
            member.pace.count(DATA_BYTES + block.bytes().len());
        }
        self.shared.retained.insert(cx.now, id, block);
    }

    fn on_block(&mut self, cx: &mut Context, id: PacketId, block: Block, _: Option<NodeId>) {
        if let Some(member) = self.members.get_mut(&id.group) {
            member.pace.count(DATA_BYTES + block.bytes().len());
        }
        let Some((recovery, mut cx)) = self.group(cx, id.group) else { return };
        if let Some(gap) = cx.node.reception.on_data(cx.node.now, id, &block) {
            cx.shared.retained.insert(cx.node.now, id, block);
            recovery.settle_request(&mut cx, Adu::of(id));
            recovery.set_requests(&mut cx, id.sender, &gap);
        }
    }

    fn on_packet(&mut self, cx: &mut Context, group: GroupId, from: NodeId, packet: Packet<'_>) {
        if let Packet::Session { sent_at, next, reports } = packet {
            self.on_session(cx, (group, from), (sent_at, next), reports);
            return;
        }
        let Some((recovery, mut cx)) = self.group(cx, group) else { return };
        match packet {
            Packet::Request { source, seqno, distance_us } => {
                let id = PacketId { sender: source, group, seqno };
                recovery.on_request(&mut cx, id, from, distance_us);
            }
            Packet::Repair { source, seqno, distance_us, block, .. } => {
                let id = PacketId { sender: source, group, seqno };
                recovery.on_repair(&mut cx, id, from, distance_us, block);
            }
            Packet::Session { .. } => {}
        }
    }

    fn on_view(&mut self, _: &mut Context, change: &ViewChange, is_new: bool) {
        if is_new
            && change.kind != ViewChangeKind::Joined
            && let Some(member) = self.members.get_mut(&change.group)
        {
            member.peers.remove(change.node);
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context) {
        self.shared.retained.evict_old(cx.now);
        while let Some(key) = self.shared.timers.pop_due(cx.now) {
            match key {
                TimerKey::Session(group) => self.send_session(cx, group),
                TimerKey::Request(group, adu) => {
                    let Some((recovery, mut cx)) = self.group(cx, group) else { continue };
                    recovery.on_request_due(&mut cx, adu);
                }
                TimerKey::Repair(group, adu) => {
                    let Some((recovery, mut cx)) = self.group(cx, group) else { continue };
                    recovery.on_repair_due(&mut cx, adu);
                }
            }
        }
    }

    fn wakeup(&self) -> Option<Wakeup> {
        self.shared.timers.next_due().map(|at| Wakeup { at, reason: "an SRM timer" })
    }

    fn retained(&self) -> Option<&Retained> {
        Some(&self.shared.retained)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.counters.by_name().collect()
    }

    fn check(&self, cx: &Context) {
        assert!(cx.reception.groups().eq(self.members.keys().copied()), "groups differ");
        let timers = &self.shared.timers;
        for (group, member) in &self.members {
            assert!(timers.is_set(TimerKey::Session(*group)), "no session timer");
            for key in member.recovery.timers(*group) {
                assert!(timers.is_set(key), "{key:?} has no timer");
            }
            let joined = cx.reception.group(*group).expect("it is in both");
            for (source, stream) in joined.streams() {
                let is_requested =
                    |seqno: SeqNo| member.recovery.requests(Adu { source, seqno: seqno.0 });
                let are_requested = stream.missing().all(is_requested);
                assert!(are_requested, "a missing packet has no request timer");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamConfig;
    use crate::guest::GuestPacket as _;
    use carom_proto::{Engine, GroupSettings, Profile, Time, wire};

    #[test]
    fn what_is_too_far_behind_is_not_asked_for_any_more() {
        let (group, source, now) = (GroupId(1), NodeId(2), Time(1));
        let streams = StreamConfig { max_missing: 4, ..StreamConfig::default() };
        let mut srm = Srm::new(NodeId(1), Config { streams, ..Config::wide_area() }, 1);
        let settings = GroupSettings { profile: Profile::Guest, name_check: 0 };
        srm.join(now, group, settings).expect("the engine accepts a guest group");
        for jump in 0..100 {
            let mut datagram = Vec::new();
            let packet = Packet::Session { sent_at: 1, next: SeqNo(jump * 6), reports: &[] };
            packet.encode(source, group, 1, &mut datagram);
            srm.handle_datagram(now, &wire::Datagram::parse(&datagram).expect("a datagram"));
            srm.check();
            let requests = srm.policy().members[&group].recovery.timers(group).count();
            assert!(requests <= 4, "after {jump} jumps");
        }
        let timers = srm.policy().shared.timers.len();
        assert_eq!(timers, 1 + 4, "a session message and the missing packets");
    }
}
