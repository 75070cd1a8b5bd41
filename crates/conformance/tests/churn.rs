//! Tests lateral engines while members join, leave and crash under traffic.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom_conformance::Record as _;
use carom_conformance::lateral::{History, OwedFrom, checkers};
use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::{Config, Lateral};
use carom_proto::loss::Loss;
use carom_proto::{
    Class, Destination, Endpoint, GroupId, GroupSettings, JoinError, NodeId, PacketId, Profile,
    RateOfFire, Rng, SendOptions, Time, Transmit, Wakeup,
};
use carom_sim::{
    Command, GroupMember, Happening, HostIx, Jitter, Link, Machine, Member, Notice, Roster,
    Topology, World, WorldConfig,
};

type Asked = Arc<Mutex<Vec<(NodeId, PacketId)>>>;

struct Watched {
    member: Member,
    asked: Asked,
}

impl Machine for Watched {
    type Command = Command;
    type Event = Notice;

    fn handle_command(&mut self, now: Time, command: Command) {
        self.member.handle_command(now, command);
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        self.member.handle_datagram(now, source, datagram);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.member.handle_timeout(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let start = out.len();
        let transmit = self.member.poll_transmit(out)?;
        if let (Destination::Node(whom), Ok((_, Packet::Nak { ids, .. }))) =
            (&transmit.destination, Packet::decode(&out[start..]))
        {
            let mut asked = self.asked.lock().expect("not poisoned");
            asked.extend(ids.iter().map(|id| (*whom, PacketId::from(*id))));
        }
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<Notice> {
        self.member.poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        self.member.poll_timeout()
    }

    fn check(&self) {
        self.member.check();
    }
}

impl GroupMember for Watched {
    fn join_group(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.member.join_group(now, group, settings)
    }
}

struct Place {
    world: World<Watched>,
    roster: Roster,
    history: History,
    asked: Asked,
    joined: BTreeMap<(NodeId, GroupId), Time>,
    sent: BTreeMap<(NodeId, GroupId, u32), Time>,
    lives: u64,
    rng: Rng,
}

const HOSTS: u32 = 10;
const GROUPS: [GroupId; 3] = [GroupId(1), GroupId(2), GroupId(3)];

impl Place {
    fn new(loss: Loss, seed: u64) -> Self {
        let jitter = Jitter::Exponential(Duration::from_micros(30));
        let link = Link::of_delay(Duration::from_micros(100)).with_jitter(jitter);
        let config = WorldConfig::new(Topology::lan(HOSTS, link), seed);
        let mut place = Self {
            world: World::new(WorldConfig { loss, ..config }),
            roster: Roster::new(Duration::from_millis(50), seed),
            history: History::new(OwedFrom::View),
            asked: Asked::default(),
            joined: BTreeMap::new(),
            sent: BTreeMap::new(),
            lives: 0,
            rng: Rng::new(seed ^ 0xc4),
        };
        // All messages, from the start on, must be delivered to every receiver that is owed them.
        place.history.healed(place.world.now(), true);
        for host in (0..HOSTS).map(HostIx) {
            place.start(host);
            GROUPS.into_iter().for_each(|group| place.join(host, group));
        }
        place
    }

    fn start(&mut self, host: HostIx) {
        self.lives += 1;
        let id = NodeId(100 * self.lives + u64::from(host.0));
        let engine = Lateral::new(id, Config::default(), self.rng.next_u64());
        let member: Member = Member::new(Box::new(engine), None);
        self.history.started(id);
        self.world.spawn(host, id, Watched { member, asked: Arc::clone(&self.asked) });
    }

    fn join(&mut self, host: HostIx, group: GroupId) {
        let Some(id) = self.world.node_id(host) else { return };
        if self.roster.members(group).any(|member| member == host) {
            return;
        }
        let now = self.world.now();
        self.history.joined(now, id, group);
        self.joined.entry((id, group)).or_insert(now);
        let settings = GroupSettings::new("g", Profile::TimeCritical(RateOfFire::new(8, 5)));
        self.roster.join(&mut self.world, host, group, settings).expect("the same settings");
    }

    fn leave(&mut self, host: HostIx, group: GroupId) {
        let Some(id) = self.world.node_id(host) else { return };
        if self.roster.members(group).any(|member| member == host) {
            self.roster.leave(&mut self.world, host, group);
            self.take_events();
            self.history.left(self.world.now(), id, group);
        }
    }

    fn crash(&mut self, host: HostIx) {
        if let Some(id) = self.world.node_id(host) {
            self.roster.crash(&mut self.world, host);
            self.history.died(self.world.now(), id);
        }
    }

    fn send(&mut self, host: HostIx, group: GroupId) {
        let Some(sender) = self.world.node_id(host) else { return };
        let payload = format!("{} of {sender}", self.sent.len()).into_bytes();
        let bytes = payload.clone().into();
        let send = |watched: &mut Watched, now| {
            watched.member.send(now, group, bytes, SendOptions::default())
        };
        let Some(Ok(seqno)) = self.world.with(host, send) else { return };
        let (id, now) = (PacketId { sender, group, seqno }, self.world.now());
        self.sent.insert(key(&id), now);
        self.history.sent(now, id, payload, false);
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.world.now() + span;
        while self.world.next_at().is_some_and(|at| at <= end) {
            self.world.step();
            self.take_events();
        }
        self.world.run_until(end, &mut |_| {});
    }

    /// Records events after each step, because an event that precedes a leave still counts.
    fn take_events(&mut self) {
        while let Some(Happening { at, host, event }) = self.world.poll_event() {
            let id = self.world.node_id(host).expect("events are taken while their node runs");
            let Notice::Event(event) = event else { panic!("the roster refuses no join") };
            self.history.event(at, id, event);
        }
    }

    fn somebody_comes_or_goes(&mut self) {
        let host = HostIx(self.rng.below(HOSTS as usize) as u32);
        let group = GROUPS[self.rng.below(GROUPS.len())];
        match self.rng.below(4) {
            0 => self.leave(host, group),
            1 => self.crash(host),
            _ if self.world.node_id(host).is_none() => {
                self.start(host);
                GROUPS.into_iter().for_each(|group| self.join(host, group));
            }
            _ => self.join(host, group),
        }
        self.take_events();
    }
}

#[test]
fn under_churn_nothing_is_lost_or_requested_from_new_joiners() {
    let (mut naks, mut changes) = (0, 0);
    for seed in 0..6 {
        let mut place = Place::new(Loss::Uniform([0.01, 0.05, 0.2][seed as usize % 3]), seed);
        for turn in 0..3000 {
            let host = HostIx(place.rng.below(HOSTS as usize) as u32);
            let group = GROUPS[place.rng.below(GROUPS.len())];
            place.send(host, group);
            place.run_for(Duration::from_millis(2));
            if turn % 60 == 0 {
                place.somebody_comes_or_goes();
                changes += 1;
            }
        }
        place.run_for(Duration::from_secs(8));
        assert_eq!(checkers::all(&place.history), [], "seed {seed}");
        let repairs = place.world.counters().delivered.datagrams(Class::Repair);
        assert!(repairs > 2000, "seed {seed}: {repairs} repairs");
        let asked = place.asked.lock().expect("not poisoned");
        for (whom, id) in asked.iter() {
            let joined = place.joined.get(&(*whom, id.group)).expect("requests go only to members");
            assert!(
                *joined <= place.sent[&key(id)],
                "seed {seed}: {whom} joined after {id} was sent"
            );
        }
        naks += asked.len();
    }
    assert!(naks > 300 && changes == 300, "{naks} requests, {changes} changes");
}

fn key(id: &PacketId) -> (NodeId, GroupId, u32) {
    (id.sender, id.group, id.seqno.0)
}
