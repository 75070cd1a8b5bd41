//! Scalable Reliable Multicast.
//!
//! Source: S. Floyd, V. Jacobson, C. Liu, S. McCanne, L. Zhang, *A Reliable Multicast Framework for
//! Light-weight Sessions and Application Level Framing*, IEEE/ACM Transactions on Networking 5(6),
//! 1997; the defaults, and what the paper leaves open, are those of the agent in ns-2.
//!
//! | paper | here |
//! |---|---|
//! | III-A session messages, their share of the bandwidth | `session.rs`: `Pace` |
//! | III-A distances from timestamps | `session.rs`: `Peers` |
//! | III-B loss from gaps and session messages | `Srm::on_data`, `Srm::on_session` |
//! | III-B requests, suppression, backoff, ignore-backoff | `recovery.rs`: `Srm::on_request` |
//! | III-B repairs, suppression, hold-down of three distances | `recovery.rs`: `Srm::on_repair` |
//! | V fixed timers | [`Timing::Fixed`], [`Timing::LogOfGroup`] |
//! | VII adaptive timers | `timing.rs`: `Interval` |
//!
//! Every request and every repair is multicast to the whole group. Groups share only the memory for
//! retained packets, so that a node in many groups behaves like one process per group.
//!
//! A repaired message is delivered as [`Retransmitted`](carom_proto::How::Retransmitted).
//! `missing_for` is the time from detection to recovery, and `age` less `missing_for` is the time
//! until detection.
//!
//! Deviations from the paper:
//! - A missing packet is given up and reported as lost after [`Config::give_up_after`], and packets
//!   are retained for a bounded time, because memory is bounded here. The paper leaves both to the
//!   application.
//! - A session message carries as many reports as fit the path MTU, and the next message carries
//!   the rest. The paper has hierarchies of session messages for large groups.
//! - A member's report on a third member does not open that member's stream at a receiver that has
//!   received nothing from it, because it may have left long ago. Its own session message does.
//! - A request that reveals a loss counts as heard: a member that detects its loss in this way
//!   backs off at once. In ns-2 it sends a request too.
//! - The means of the adaptive timers are updated once per timer that is set. ns-2 updates the mean
//!   of the duplicates twice.
//! - Distances have microsecond resolution. ns-2 rounds the clock to milliseconds.
//! - A message's deadline only prevents its repairs. Members that lack the message lack its
//!   deadline too, and report the loss when they give up.
//! - [`Engine::confirm`] is not answered: session messages report the known ends of streams, not
//!   the packets that a member lacks.

mod config;
mod counters;
pub mod packet;
mod recovery;
mod session;
mod timing;

use std::collections::BTreeMap;

use bytes::Bytes;
use carom_proto::{
    Destination, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, Origin, PacketId,
    Profile, Rng, SendError, SendOptions, SeqNo, Time, Timers, Transmit, ViewChange,
    ViewChangeKind, Wakeup,
};

pub use self::config::{Config, ConfigError, Distance, Timing};
pub use self::counters::Counters;
use self::packet::{Packet, REPORT_BYTES, Report, SESSION_BYTES};
use self::recovery::Recovery;
use self::session::{Pace, Peers};
use crate::block::Block;
use crate::guest::{DATA_BYTES, GuestPacket};
use crate::outbox::Outbox;
use crate::reception::{Reception, Terms};
use crate::retained::Retained;

/// The SRM engine of one node.
#[derive(Debug)]
pub struct Srm {
    id: NodeId,
    origin: Origin,
    config: Config,
    rng: Rng,
    reception: Reception,
    retained: Retained,
    members: BTreeMap<GroupId, Member>,
    timers: Timers<TimerKey>,
    outbox: Outbox,
    counters: Counters,
}

/// State of this node as a member of one group.
#[derive(Debug)]
struct Member {
    peers: Peers,
    pace: Pace,
    timing: timing::Timing,
    recovery: Recovery,
}

/// Identifies a packet within a group by its original sender and sequence number (an "ADU" in the
/// paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Adu {
    source: NodeId,
    seqno: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Session(GroupId),
    Request(GroupId, Adu),
    Repair(GroupId, Adu),
}

impl Srm {
    /// Creates the engine of the node `origin`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("invalid SRM configuration: {error}");
        }
        let mut rng = Rng::new(seed);
        let terms = Terms {
            owed: config.owed,
            max_missing: config.max_missing,
            max_streams: config.max_streams,
            give_up_after: config.give_up_after,
        };
        Self {
            id,
            origin,
            reception: Reception::new(id, terms),
            retained: Retained::new(config.retain_bytes, config.retain_for, rng.next_u64()),
            config,
            rng,
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

    /// Returns the distance to `peer` in `group`; `None` if this node is not in the group.
    pub fn distance(&self, group: GroupId, peer: NodeId) -> Option<core::time::Duration> {
        let member = self.members.get(&group)?;
        Some(member.peers.distance(peer, self.config.distance))
    }

    fn on_data(&mut self, now: Time, id: PacketId, bytes: &[u8], datagram_bytes: usize) {
        let Ok(block) = Block::copy(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if let Some(member) = self.members.get_mut(&id.group) {
            member.pace.count(datagram_bytes);
        }
        if let Some(gap) = self.reception.on_data(now, id, &block) {
            self.retained.insert(now, id, block);
            self.settle_request(id);
            self.set_requests(now, id.group, id.sender, &gap);
        }
    }

    fn on_session(
        &mut self,
        now: Time,
        group: GroupId,
        peer: NodeId,
        (sent_at, next): (u64, SeqNo),
        reports: &[Report],
    ) {
        let Some(member) = self.members.get_mut(&group) else { return };
        let own = reports.iter().find(|report| report.member() == self.id);
        let echo = own.and_then(Report::echo);
        let max_peers = self.config.max_streams;
        match member.peers.on_session(now, peer, sent_at, echo, max_peers) {
            Some(is_measured) => self.counters.distances_measured += u64::from(is_measured),
            None => self.counters.peers_refused += 1,
        }
        let gap = self.reception.on_announced(now, group, peer, next);
        self.set_requests(now, group, peer, &gap);
        for report in reports {
            let Some(next) = report.next() else { continue };
            let gap = self.reception.on_reported(now, group, report.member(), next);
            self.set_requests(now, group, report.member(), &gap);
        }
    }

    /// Sends a session message: the end of each known stream, and the timestamps of the other
    /// members' last session messages.
    fn send_session(&mut self, now: Time, group: GroupId) {
        let room = (self.config.max_datagram_bytes() - SESSION_BYTES) / REPORT_BYTES;
        let reports = self.reports(now, group, room);
        let size = self.group_size(group);
        let (Some(member), Some(joined)) =
            (self.members.get_mut(&group), self.reception.group(group))
        else {
            return;
        };
        let next = joined.next;
        let bytes = SESSION_BYTES + reports.len() * REPORT_BYTES;
        let wait = member.pace.next(now, size, bytes, &self.config, &mut self.rng);
        self.timers.set(TimerKey::Session(group), now + wait);
        self.counters.sessions_sent += 1;
        self.counters.session_bytes += bytes as u64;
        self.multicast(group, Packet::Session { sent_at: now.0, next, reports: &reports });
    }

    /// Returns the reports of as many members as fit. They begin after the last member of the
    /// previous session message.
    fn reports(&mut self, now: Time, group: GroupId, room: usize) -> Vec<Report> {
        let (Some(member), Some(joined)) =
            (self.members.get_mut(&group), self.reception.group(group))
        else {
            return Vec::new();
        };
        let mut known: BTreeMap<NodeId, Option<SeqNo>> =
            member.peers.ids().map(|peer| (peer, None)).collect();
        known.extend(joined.streams().map(|(source, stream)| (source, Some(stream.next()))));
        let put_off = known.len().saturating_sub(room);
        self.counters.reports_put_off += put_off as u64;
        let start = member.pace.reported_to.filter(|_| put_off > 0);
        let after = known.iter().filter(|(peer, _)| start.is_none_or(|start| **peer > start));
        let before = known.iter().filter(|(peer, _)| start.is_some_and(|start| **peer <= start));
        let chosen = after.chain(before).take(room);
        let reports: Vec<Report> = chosen
            .map(|(peer, next)| Report::new(*peer, *next, member.peers.echo(now, *peer)))
            .collect();
        member.pace.reported_to = reports.last().map(Report::member);
        reports
    }

    /// Returns the known number of members of the group, including this one.
    fn group_size(&self, group: GroupId) -> usize {
        let viewed = self.reception.group(group).map_or(0, |it| it.view.members().len());
        let heard = self.members.get(&group).map_or(0, |member| member.peers.len());
        viewed.max(heard) + 1
    }

    fn multicast(&mut self, group: GroupId, packet: Packet<'_>) {
        let view = self.reception.view_version(group);
        let destination = Destination::Group(group);
        self.outbox
            .push(packet.class(), destination, |out| packet.encode(self.origin, group, view, out));
    }
}

impl Engine for Srm {
    fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.reception.join(group, &settings)?;
        let member = Member {
            peers: Peers::default(),
            pace: Pace::new(now),
            timing: timing::Timing::new(self.config.timing),
            recovery: Recovery::default(),
        };
        self.members.insert(group, member);
        let spread = 0.9 + 0.2 * self.rng.fraction();
        let wait = self.config.session_interval.mul_f64(spread);
        self.timers.set(TimerKey::Session(group), now + wait);
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        let Some(left) = self.members.remove(&group) else { return };
        self.timers.cancel(TimerKey::Session(group));
        for key in left.recovery.timers(group) {
            self.timers.cancel(key);
        }
        self.reception.leave(group);
        self.retained.forget_group(group);
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let joined = self.reception.group_mut(group).ok_or(SendError::NotJoined)?;
        let limit = self.config.payload_limit();
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        let seqno = joined.next;
        joined.next = seqno.next();
        let block = Block::of_message(now, options.deadline, &payload);
        if let Some(member) = self.members.get_mut(&group) {
            member.pace.count(DATA_BYTES + block.bytes().len());
        }
        self.counters.data_sent += 1;
        self.multicast(group, Packet::Data { seqno, block: block.bytes() });
        self.retained.insert(now, PacketId { sender: self.id, group, seqno }, block);
        Ok(seqno)
    }

    /// Does nothing: see the deviations in the module documentation.
    fn confirm(&mut self, _now: Time, _group: GroupId) {}

    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) -> Option<NodeId> {
        let Ok((header, packet)) = Packet::decode(datagram) else {
            self.counters.malformed += 1;
            return None;
        };
        let (group, from) = (header.group, header.sender);
        if from == self.id || !self.members.contains_key(&group) {
            self.counters.foreign += 1;
            return None;
        }
        match packet {
            Packet::Data { seqno, block } => {
                self.on_data(now, PacketId { sender: from, group, seqno }, block, datagram.len());
            }
            Packet::Request { source, seqno, distance_us } => {
                self.on_request(now, PacketId { sender: source, group, seqno }, from, distance_us);
            }
            Packet::Repair { source, seqno, distance_us, block, .. } => {
                let id = PacketId { sender: source, group, seqno };
                self.on_repair(now, id, from, distance_us, block);
            }
            Packet::Session { sent_at, next, reports } => {
                self.on_session(now, group, from, (sent_at, next), reports);
            }
        }
        Some(from)
    }

    fn handle_view(&mut self, _now: Time, change: &ViewChange) {
        let is_gone = change.kind != ViewChangeKind::Joined;
        if self.reception.handle_view(change)
            && is_gone
            && let Some(member) = self.members.get_mut(&change.group)
        {
            member.peers.remove(change.node);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.reception.handle_timeout(now);
        self.retained.evict_old(now);
        while let Some(key) = self.timers.pop_due(now) {
            match key {
                TimerKey::Session(group) => self.send_session(now, group),
                TimerKey::Request(group, adu) => self.on_request_due(now, group, adu),
                TimerKey::Repair(group, adu) => self.on_repair_due(now, group, adu),
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
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "an SRM timer" });
        let lost = self.reception.next_due().map(|at| Wakeup { at, reason: "give up a packet" });
        Wakeup::earlier(own, lost)
    }

    fn payload_limit(&self, profile: Profile) -> usize {
        if profile == Profile::Guest { self.config.payload_limit() } else { 0 }
    }

    fn held_bytes(&self) -> usize {
        self.retained.bytes()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let own = self.counters.named();
        let stats = own.into_iter().chain(self.reception.named()).chain(self.retained.named());
        stats.chain(self.outbox.named()).collect()
    }

    fn check(&self) {
        self.reception.check();
        self.retained.check();
        assert!(self.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            assert!(self.timers.is_set(TimerKey::Session(*group)), "no session timer");
            for key in member.recovery.timers(*group) {
                assert!(self.timers.is_set(key), "{key:?} has no timer");
            }
            let joined = self.reception.group(*group).expect("it is in both");
            for (source, stream) in joined.streams() {
                let mut missing = stream.missing();
                let is_asked = |seqno: SeqNo| member.recovery.asks(Adu { source, seqno: seqno.0 });
                assert!(missing.all(is_asked), "a missing packet has no request timer");
            }
        }
    }
}
