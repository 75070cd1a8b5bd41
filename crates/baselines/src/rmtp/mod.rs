//! Reliable Multicast Transport Protocol: acknowledgments up a hierarchy of designated receivers.
//!
//! Source: J. C. Lin, S. Paul, *RMTP: A Reliable Multicast Transport Protocol*, IEEE INFOCOM 1996;
//! S. Paul, K. Sabnani, J. C. Lin, S. Bhattacharyya, *Reliable Multicast Transport Protocol
//! (RMTP)*, IEEE Journal on Selected Areas in Communications 15(3), 1997.
//!
//! | paper | here |
//! |---|---|
//! | designated receivers, local regions | [`Hierarchy`](crate::domain::Hierarchy) |
//! | periodic acknowledgments with a bitmap | `acking.rs`: `Rmtp::on_ack_due` |
//! | unicast or multicast, by the number of requestors | [`RepairBy`](crate::domain::RepairBy) |
//! | retransmission by the sender or a designated receiver | `Rmtp::send_repairs` |
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
//! - A head keeps packets for a bounded time and in bounded memory, so that a member that joins
//!   late is not owed earlier packets. The paper's heads keep the whole session on disk.
//! - A member that does not acknowledge holds back the sender for a [bounded
//!   time](Config::slow_after). Otherwise, one member could stall a group forever.
//! - [`Engine::confirm`] is not answered, because a sender gets acknowledgments only from its own
//!   children.

mod acking;
mod config;
mod counters;
pub mod packet;

use std::collections::BTreeMap;

use bytes::Bytes;
use carom_proto::{
    Destination, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, Origin, PacketId,
    Profile, Rng, SendError, SendOptions, SeqNo, Slow, Time, Timers, Transmit, ViewChange, Wakeup,
};

use self::acking::Acking;
pub use self::config::{Config, ConfigError};
pub use self::counters::Counters;
use self::packet::Packet;
use crate::block::Block;
use crate::domain::{Depot, Followers, Repair};
use crate::guest::GuestPacket;
use crate::outbox::Outbox;

/// The RMTP engine of one node.
#[derive(Debug)]
pub struct Rmtp {
    id: NodeId,
    origin: Origin,
    config: Config,
    rng: Rng,
    depot: Depot,
    members: BTreeMap<GroupId, Member>,
    timers: Timers<TimerKey>,
    outbox: Outbox,
    counters: Counters,
}

/// State of this node as a member of one group.
#[derive(Debug)]
struct Member {
    /// The children that acknowledge this node's own stream.
    followers: Followers,
    /// `true` if the view has changed since the children were last determined.
    is_stale: bool,
    /// Scheduled acknowledgments, by source.
    acking: BTreeMap<NodeId, Acking>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Ack(GroupId, NodeId),
    Beacon(GroupId),
    Slow(GroupId),
}

impl Rmtp {
    /// Creates the engine of the node `origin`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// If the configuration is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        let id = origin.node;
        if let Err(error) = config.validate() {
            panic!("invalid RMTP configuration: {error}");
        }
        let mut rng = Rng::new(seed);
        Self {
            id,
            origin,
            depot: Depot::new(id, &config.domains, Some(config.repair_by), rng.next_u64()),
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

    /// Processes a packet that its sender multicast, or that `from` repaired.
    fn on_block(&mut self, now: Time, id: PacketId, bytes: &[u8], from: Option<NodeId>) {
        match self.depot.arrive(now, id, bytes, from) {
            Ok(Some(gap)) => self.owe_ack(now, id.group, id.sender, &gap),
            Ok(None) => {}
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Updates the children of this node's own stream after a view change.
    fn look_who_follows(&mut self, now: Time, group: GroupId) {
        let Some(member) = self.members.get_mut(&group).filter(|member| member.is_stale) else {
            return;
        };
        member.is_stale = false;
        let children = self.depot.children(group, self.id);
        member.followers.follow(now, &children);
    }

    /// Sets the timer after which the sender stops waiting for children that do not advance.
    fn watch_followers(&mut self, group: GroupId) {
        let key = TimerKey::Slow(group);
        let Some(member) = self.members.get(&group).filter(|_| !self.timers.is_set(key)) else {
            return;
        };
        if let Some(at) = member.followers.next_stuck(self.config.slow_after) {
            self.timers.set(key, at);
        }
    }

    fn on_slow_due(&mut self, now: Time, group: GroupId) {
        self.look_who_follows(now, group);
        let Some(member) = self.members.get_mut(&group) else { return };
        for (node, behind) in member.followers.give_up_on(now, self.config.slow_after) {
            self.counters.slow += 1;
            self.depot.reception.push_event(Event::Slow(Slow { group, node, behind }));
        }
        self.watch_followers(group);
    }

    /// Announces the end of this node's stream to the group, and requests acknowledgments.
    fn send_beacon(&mut self, now: Time, group: GroupId) {
        let Some(next) = self.depot.next_number(group, self.id) else { return };
        self.timers.set(TimerKey::Beacon(group), now + self.config.beacon_interval);
        self.counters.beacons_sent += 1;
        self.transmit(Destination::Group(group), group, Packet::Beacon { next });
    }

    fn send_repairs(&mut self, now: Time) {
        while let Some(Repair { id, block, destinations }) = self.depot.next_repair(now) {
            let PacketId { sender: source, group, seqno } = id;
            let packet = Packet::Repair { source, seqno, block: block.bytes() };
            for destination in destinations {
                self.transmit(destination, group, packet);
            }
        }
    }

    fn transmit(&mut self, destination: Destination, group: GroupId, packet: Packet<'_>) {
        let view = self.depot.reception.view_version(group);
        self.outbox
            .push(packet.class(), destination, |out| packet.encode(self.origin, group, view, out));
    }
}

impl Engine for Rmtp {
    fn join(&mut self, _: Time, group: GroupId, settings: GroupSettings) -> Result<(), JoinError> {
        self.depot.join(group, &settings)?;
        let next = self.depot.next_number(group, self.id).unwrap_or(SeqNo::FIRST);
        let (followers, acking) = (Followers::new(next), BTreeMap::new());
        self.members.insert(group, Member { followers, is_stale: true, acking });
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        let Some(left) = self.members.remove(&group) else { return };
        self.timers.cancel(TimerKey::Beacon(group));
        self.timers.cancel(TimerKey::Slow(group));
        for source in left.acking.into_keys() {
            self.timers.cancel(TimerKey::Ack(group, source));
        }
        self.depot.leave(group);
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        self.look_who_follows(now, group);
        let (Some(member), Some(joined)) =
            (self.members.get_mut(&group), self.depot.reception.group_mut(group))
        else {
            return Err(SendError::NotJoined);
        };
        let limit = self.config.domains.payload_limit();
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        if member.followers.behind() >= self.config.window
            && let Some((by, behind)) = member.followers.furthest_behind()
        {
            self.counters.held_back += 1;
            return Err(SendError::HeldBack { by, behind });
        }
        let seqno = joined.next;
        joined.next = seqno.next();
        member.followers.reach(now, seqno.next());
        let block = Block::of_message(now, options.deadline, &payload);
        self.counters.data_sent += 1;
        let packet = Packet::Data { seqno, block: block.bytes() };
        self.transmit(Destination::Group(group), group, packet);
        self.depot.keep(now, PacketId { sender: self.id, group, seqno }, block);
        let beacon = TimerKey::Beacon(group);
        self.timers.set_no_later(beacon, now + self.config.beacon_interval);
        self.watch_followers(group);
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
                self.on_block(now, PacketId { sender: from, group, seqno }, block, None);
            }
            Packet::Ack { source, settled_to, next, bitmap } => {
                self.on_ack(now, (group, source), from, (settled_to, next), bitmap);
            }
            Packet::Repair { source, seqno, block } => {
                self.on_block(now, PacketId { sender: source, group, seqno }, block, Some(from));
            }
            Packet::Beacon { next } => self.on_beacon(now, group, from, next),
        }
        Some(from)
    }

    fn handle_view(&mut self, _now: Time, change: &ViewChange) {
        if self.depot.reception.handle_view(change)
            && let Some(member) = self.members.get_mut(&change.group)
        {
            member.is_stale = true;
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.depot.handle_timeout(now);
        while let Some(key) = self.timers.pop_due(now) {
            match key {
                TimerKey::Ack(group, source) => self.on_ack_due(now, group, source),
                TimerKey::Beacon(group) => self.send_beacon(now, group),
                TimerKey::Slow(group) => self.on_slow_due(now, group),
            }
        }
        self.send_repairs(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.poll(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.depot.reception.poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "an RMTP timer" });
        Wakeup::earlier(own, self.depot.wakeup())
    }

    fn payload_limit(&self, profile: Profile) -> usize {
        if profile == Profile::Guest { self.config.domains.payload_limit() } else { 0 }
    }

    fn held_bytes(&self) -> usize {
        self.depot.held_bytes()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let own = self.counters.named();
        own.into_iter().chain(self.depot.named()).chain(self.outbox.named()).collect()
    }

    fn check(&self) {
        self.depot.check();
        assert!(self.depot.reception.groups().eq(self.members.keys().copied()), "groups differ");
        for (group, member) in &self.members {
            member.followers.check();
            let is_watched = self.timers.is_set(TimerKey::Slow(*group));
            assert!(
                member.followers.behind() == 0 || is_watched,
                "a held-back sender has no timer"
            );
            for source in member.acking.keys() {
                let is_set = self.timers.is_set(TimerKey::Ack(*group, *source));
                assert!(is_set, "{source} has no acknowledgment timer");
            }
            let joined = self.depot.reception.group(*group).expect("it is in both");
            for (source, stream) in joined.streams() {
                let is_asked = member.acking.contains_key(&source);
                assert!(
                    stream.missing_count() == 0 || is_asked,
                    "a missing packet is not requested"
                );
            }
        }
    }
}
