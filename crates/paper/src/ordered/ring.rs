use std::time::Duration;

use bytes::Bytes;
use carom_proto::loss::Loss;
use carom_proto::ring::{Qos, Quorum, RingView};
use carom_proto::rmp::{Config, Rmp};
use carom_proto::{
    Engine as _, Event, GroupId, GroupSettings, Message, NodeId, Profile, Rng, SendOptions, Time,
};
use carom_sim::{Command, Ethernet, Happening, HostIx, Topology, World, WorldConfig};

use crate::work::Env;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) ethernet: Ethernet,
    /// Loss of each host on receipt, of all datagrams alike.
    pub(crate) loss: Loss,
    pub(crate) cpu_per_datagram: Duration,
    pub(crate) config: Config,
    pub(crate) members: u32,
    pub(crate) seed: u64,
}

pub(super) struct Ring {
    pub(super) world: World<Box<Rmp>>,
    pub(super) members: u32,
    pub(super) rng: Rng,
    /// Number of steps until the next check of whether the run is to end.
    patience: u32,
}

pub(super) struct Received {
    pub(super) at: Time,
    pub(super) member: u32,
    pub(super) message: Message,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) data: u64,
    pub(crate) data_again: u64,
    /// Number of ACKs and New Lists, without retransmissions.
    pub(crate) rounds: u64,
    /// Number of NULL ACKs, which `rounds` includes.
    pub(crate) nulls: u64,
    pub(crate) rounds_again: u64,
    pub(crate) nacks: u64,
    pub(crate) queue_full: u64,
    /// Number of datagrams lost on receipt.
    pub(crate) lost: u64,
    pub(crate) reformations: u64,
}

const GROUP: GroupId = GroupId(0x0723);
const JOINING: Duration = Duration::from_secs(30);
const STEPS: u32 = 10_000;

impl Setting {
    pub(super) fn ring(&self, env: Env<'_>) -> Option<Ring> {
        let mut rng = Rng::new(self.seed);
        let topology = Topology::ethernet(self.members, self.ethernet);
        let config = WorldConfig {
            cpu_per_datagram: self.cpu_per_datagram,
            loss: self.loss,
            hashes_history: false,
            checks: false,
            media: env.media(),
            ..WorldConfig::new(topology, rng.next_u64())
        };
        let mut world = World::new(config);
        for host in world.topology().all_hosts() {
            let id = NodeId(rng.next_u64());
            world.spawn(host, id, Box::new(Rmp::new(id, self.config.clone(), rng.next_u64())));
        }
        let mut ring = Ring { world, members: self.members, rng, patience: STEPS };
        for member in 0..self.members {
            if env.ends() {
                return None;
            }
            ring.let_in(member, env)?;
        }
        Some(ring)
    }
}

impl Ring {
    fn let_in(&mut self, member: u32, env: Env<'_>) -> Option<()> {
        let profile = Profile::Ordered(Quorum::Majority);
        let settings = GroupSettings { profile, name_check: 0 };
        self.world.subscribe(HostIx(member), GROUP);
        self.world.command(HostIx(member), Command::Join(GROUP, settings));
        let end = self.world.now() + JOINING;
        while !(0..=member).all(|it| self.view_of(it).is_some_and(|it| it.len() > member as usize))
        {
            let is_in_time = self.step(env)? && self.world.now() < end;
            assert!(is_in_time, "the ring did not form in time");
        }
        Some(())
    }

    fn view_of(&self, member: u32) -> Option<&RingView> {
        self.world.machine(HostIx(member))?.view(GROUP)
    }

    /// Handles the next event. Returns `false` if no event is scheduled, and `None` if the run is
    /// ended early.
    pub(super) fn step(&mut self, env: Env<'_>) -> Option<bool> {
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = STEPS;
            if env.ends() {
                return None;
            }
        }
        Some(self.world.step())
    }

    pub(super) fn send(&mut self, member: u32, qos: Qos, payload: Bytes) {
        let options = SendOptions { qos: Some(qos), ..SendOptions::default() };
        let sent = self.world.with(HostIx(member), |it, now| it.send(now, GROUP, payload, options));
        sent.expect("all members stay").expect("the engine's queue has room");
    }

    pub(super) fn received(&mut self) -> Option<Received> {
        while let Some(Happening { at, host, event }) = self.world.poll_event() {
            if let Event::Message(message) = event {
                return Some(Received { at, member: host.0, message });
            }
        }
        None
    }

    pub(super) fn counts(&self) -> Counts {
        let carom_sim::Counters { queue_full, lost_at_host: lost, .. } = *self.world.counters();
        let mut counts = Counts { queue_full, lost, ..Counts::default() };
        for member in 0..self.members {
            let Some(engine) = self.world.machine(HostIx(member)) else { continue };
            let of_one = engine.counters();
            counts.data += of_one.data_sent;
            counts.data_again += of_one.data_resent + of_one.nacks_answered;
            counts.rounds += of_one.rounds_sent;
            counts.nulls += of_one.nulls_sent;
            counts.rounds_again += of_one.rounds_resent;
            counts.nacks += of_one.nacks_sent;
            counts.reformations += of_one.reformations_begun;
        }
        counts
    }
}

impl Counts {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            data: self.data - before.data,
            data_again: self.data_again - before.data_again,
            rounds: self.rounds - before.rounds,
            nulls: self.nulls - before.nulls,
            rounds_again: self.rounds_again - before.rounds_again,
            nacks: self.nacks - before.nacks,
            queue_full: self.queue_full - before.queue_full,
            lost: self.lost - before.lost,
            reformations: self.reformations - before.reformations,
        }
    }
}
