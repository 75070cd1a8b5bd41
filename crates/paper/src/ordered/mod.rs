//! Throughput and latency of token rings on a shared Ethernet.

use std::time::Duration;

use bytes::Bytes;
use carom_proto::rmp::{Config, Partition, Qos, RingView, Rmp};
use carom_proto::{
    Engine as _, Event, GroupId, GroupSettings, Message, NodeId, Profile, Rng, SendOptions, Time,
};
use carom_sim::{Command, Ethernet, Happening, HostIx, Topology, World, WorldConfig};

use crate::work::Ends;

mod ping_pong;
mod transfer;

pub(crate) use self::ping_pong::{LEAST_BYTES, PingPongOutcome, PingPongRun};
pub(crate) use self::transfer::{TransferOutcome, TransferRun};

/// Members of a ring, and the network between them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) ethernet: Ethernet,
    /// Time that a host spends on each datagram that it receives.
    pub(crate) cpu_per_datagram: Duration,
    /// Configuration of the engines.
    pub(crate) config: Config,
    /// Number of members, each on its own host.
    pub(crate) members: u32,
    /// Seed of all randomness.
    pub(crate) seed: u64,
}

/// Ring in a simulated world.
struct Ring {
    world: World<Box<Rmp>>,
    members: u32,
    rng: Rng,
    /// Number of steps until the next check of whether the run is to end.
    patience: u32,
}

/// Message delivered to a member.
struct Received {
    at: Time,
    member: u32,
    message: Message,
}

/// Counters summed over all members.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Number of data packets, without retransmissions.
    pub(crate) data: u64,
    /// Number of retransmitted data packets.
    pub(crate) data_again: u64,
    /// Number of ACKs and New Lists, without retransmissions.
    pub(crate) rounds: u64,
    /// Number of NULL ACKs, which `rounds` includes.
    pub(crate) nulls: u64,
    /// Number of retransmitted ACKs and New Lists.
    pub(crate) rounds_again: u64,
    pub(crate) nacks: u64,
    /// Number of datagrams dropped at full interface queues.
    pub(crate) queue_full: u64,
    pub(crate) reformations: u64,
}

const GROUP: GroupId = GroupId(0x0723);
/// Time limit for a member to join the ring.
const JOINING: Duration = Duration::from_secs(30);
/// Number of steps between two checks of whether the run is to end.
const STEPS: u32 = 10_000;

impl Setting {
    /// Forms a ring of all members. Returns `None` if the run is ended early.
    fn ring(&self, ends: Ends<'_>) -> Option<Ring> {
        let mut rng = Rng::new(self.seed);
        let topology = Topology::ethernet(self.members, self.ethernet);
        let config = WorldConfig {
            cpu_per_datagram: self.cpu_per_datagram,
            hashes_history: false,
            checks: false,
            ..WorldConfig::new(topology, rng.next_u64())
        };
        let mut world = World::new(config);
        for host in world.topology().all_hosts() {
            let id = NodeId(rng.next_u64());
            world.spawn(host, id, Box::new(Rmp::new(id, self.config.clone(), rng.next_u64())));
        }
        let mut ring = Ring { world, members: self.members, rng, patience: STEPS };
        for member in 0..self.members {
            if ends() {
                return None;
            }
            ring.let_in(member, ends)?;
        }
        Some(ring)
    }
}

impl Ring {
    fn let_in(&mut self, member: u32, ends: Ends<'_>) -> Option<()> {
        let profile = Profile::Ordered(Partition::Majority);
        let settings = GroupSettings { profile, name_check: 0 };
        self.world.subscribe(HostIx(member), GROUP);
        self.world.command(HostIx(member), Command::Join(GROUP, settings));
        let end = self.world.now() + JOINING;
        while !(0..=member).all(|it| self.view_of(it).is_some_and(|it| it.len() > member as usize))
        {
            assert!(self.world.now() < end, "the ring did not form in time");
            self.step(ends)?;
        }
        Some(())
    }

    fn view_of(&self, member: u32) -> Option<&RingView> {
        self.world.machine(HostIx(member))?.view(GROUP)
    }

    /// Processes the next event of the world. Returns `None` if the run is ended early.
    fn step(&mut self, ends: Ends<'_>) -> Option<()> {
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = STEPS;
            if ends() {
                return None;
            }
        }
        assert!(self.world.step(), "the run is incomplete, but no event is left");
        Some(())
    }

    /// Makes a member send a message.
    fn send(&mut self, member: u32, qos: Qos, payload: Bytes) {
        let options = SendOptions { qos: Some(qos), ..SendOptions::default() };
        let sent = self.world.with(HostIx(member), |it, now| it.send(now, GROUP, payload, options));
        sent.expect("all members stay").expect("the engine's queue has room");
    }

    /// Returns the next delivered message, of those that have already been delivered.
    fn received(&mut self) -> Option<Received> {
        while let Some(Happening { at, host, event }) = self.world.poll_event() {
            if let Event::Message(message) = event {
                return Some(Received { at, member: host.0, message });
            }
        }
        None
    }

    fn counts(&self) -> Counts {
        let queue_full = self.world.counters().queue_full;
        let mut counts = Counts { queue_full, ..Counts::default() };
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
    /// Returns the difference from `before`.
    fn since(self, before: Self) -> Self {
        Self {
            data: self.data - before.data,
            data_again: self.data_again - before.data_again,
            rounds: self.rounds - before.rounds,
            nulls: self.nulls - before.nulls,
            rounds_again: self.rounds_again - before.rounds_again,
            nacks: self.nacks - before.nacks,
            queue_full: self.queue_full - before.queue_full,
            reformations: self.reformations - before.reformations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Options, Suite};

    fn setting(members: u32) -> Setting {
        Setting {
            ethernet: Ethernet::default(),
            cpu_per_datagram: Duration::ZERO,
            config: Config::default(),
            members,
            seed: 5,
        }
    }

    #[test]
    fn every_destination_gets_the_files_in_a_time_set_by_the_seed() {
        let run = TransferRun {
            setting: setting(3),
            sources: 2,
            apart: false,
            file_bytes: 300_000,
            message_bytes: 8192,
            repeats: 2,
        };
        let outcome = run.run(&|| false).expect("nobody ends it");
        assert_eq!((outcome.destinations, outcome.rates.len()), (3, 2));
        assert!((800e3..1250e3).contains(&outcome.rate()), "{outcome:?}");
        assert!(outcome.counts.data >= 4 * 300_000 / 1420 && outcome.counts.reformations == 0);
        assert_eq!(run.run(&|| false), Some(outcome));
        assert_eq!(run.run(&|| true), None, "it asks whether it is to end");
    }

    #[test]
    fn relations_of_token_rings_hold_in_the_short_runs() {
        let suite = Suite::named(&["rmp-5.1", "rmp-5.2", "rmp-5.3"]).expect("they are known");
        let options = Options { quick: true, ..Options::default() };
        let reports = suite.run(&options, &());
        assert_eq!(reports.len(), 3);
        for report in reports {
            assert!(report.holds(), "{}: {:#?}\n{}", report.name(), report.relations, report.csv());
        }
    }
}
