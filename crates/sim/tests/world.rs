//! Tests protocol engines in the simulated world.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom_proto::lateral::{Config, Lateral};
use carom_proto::loss::Loss;
use carom_proto::{
    Engine, Event, GroupId, GroupSettings, NodeId, Profile, RateOfFire, SendOptions,
};
use carom_sim::{Command, Fault, HostIx, Jitter, Link, Roster, Topology, World, WorldConfig};

const GROUP: GroupId = GroupId(9);
const HOSTS: u32 = 8;

fn settings() -> GroupSettings {
    GroupSettings::new("prices", Profile::TimeCritical(RateOfFire::new(8, 5)))
}

fn world(config: WorldConfig) -> World<Box<dyn Engine>> {
    let seed = config.seed;
    let mut world: World<Box<dyn Engine>> = World::new(config);
    let mut roster = Roster::new(Duration::ZERO, seed);
    for host in world.topology().all_hosts() {
        let id = NodeId(u64::from(host.0) + 1);
        let engine = Lateral::new(id, Config::default(), seed ^ id.0);
        world.spawn(host, id, Box::new(engine));
        roster.join(&mut world, host, GROUP, settings()).expect("valid settings");
    }
    world
}

fn lan(seed: u64) -> WorldConfig {
    let jitter = Jitter::Exponential(Duration::from_micros(30));
    let link = Link::of_delay(Duration::from_micros(100)).with_jitter(jitter);
    WorldConfig::new(Topology::lan(HOSTS, link), seed)
}

fn talk(world: &mut World<Box<dyn Engine>>, rounds: u32) -> u64 {
    let mut delivered = 0;
    let mut count = |happening: carom_sim::Happening<Event>| {
        delivered += u64::from(matches!(happening.event, Event::Message(_)));
    };
    for _ in 0..rounds {
        for host in world.topology().all_hosts() {
            let payload = vec![host.0 as u8; 100].into();
            world.command(host, Command::Send(GROUP, payload, SendOptions::default()));
        }
        world.run_for(Duration::from_millis(2), &mut count);
    }
    world.run_for(Duration::from_secs(5), &mut count);
    delivered
}

#[test]
fn lateral_engines_repair_the_losses_of_the_world() {
    let mut world = world(WorldConfig { loss: Loss::Uniform(0.05), ..lan(1) });
    assert_eq!(talk(&mut world, 200), u64::from(HOSTS * (HOSTS - 1)) * 200);
    assert!(world.counters().lost_at_host > 500);
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_one_another() {
    let run = |seed| {
        let mut world = world(WorldConfig { loss: Loss::Uniform(0.05), ..lan(seed) });
        talk(&mut world, 20);
        (world.history(), *world.counters())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

#[test]
fn a_paused_host_gets_what_fits_its_buffer_when_it_goes_on() {
    let mut world = world(WorldConfig { receive_buffer: 10, ..lan(2) });
    let paused = HostIx(3);
    world.apply(&Fault::Pause(paused));
    for number in 0..50_u8 {
        let payload = vec![number; 10].into();
        world.command(HostIx(0), Command::Send(GROUP, payload, SendOptions::default()));
    }
    let mut early = 0;
    world.run_for(Duration::from_millis(1), &mut |happening| {
        early += u32::from(happening.host == paused);
    });
    assert_eq!(early, 0);
    // Repairs of the messages compete for space in the buffer.
    assert!(world.counters().buffer_full >= 40, "{}", world.counters().buffer_full);
    world.apply(&Fault::Resume(paused));
    let mut messages = 0;
    world.run_for(Duration::from_secs(3), &mut |happening| {
        messages +=
            u32::from(happening.host == paused && matches!(happening.event, Event::Message(_)));
    });
    assert_eq!(messages, 50, "the rest is repaired");
}

#[test]
fn a_slow_host_handles_datagrams_one_after_the_other() {
    let mut world = world(WorldConfig { cpu_per_datagram: Duration::from_millis(1), ..lan(3) });
    world.run_for(Duration::from_millis(100), &mut |_| {});
    let start = world.now();
    for number in 0..10_u8 {
        let payload = vec![number; 10].into();
        world.command(HostIx(0), Command::Send(GROUP, payload, SendOptions::default()));
    }
    let mut last = start;
    world.run_for(Duration::from_secs(1), &mut |happening| {
        if happening.host == HostIx(1) && matches!(happening.event, Event::Message(_)) {
            last = happening.at;
        }
    });
    assert!(last.since(start) >= Duration::from_millis(10), "{:?}", last.since(start));
}

#[test]
fn a_partition_keeps_both_sides_apart_until_it_heals() {
    let mut world = world(lan(4));
    world.apply(&Fault::Partition(vec![HostIx(0), HostIx(1)]));
    let send = |world: &mut World<Box<dyn Engine>>, from| {
        let command = Command::Send(GROUP, "hello".into(), SendOptions::default());
        world.command(HostIx(from), command);
        let mut reached = Vec::new();
        world.run_for(Duration::from_millis(1), &mut |happening| {
            reached
                .extend(matches!(happening.event, Event::Message(_)).then_some(happening.host.0));
        });
        reached.sort_unstable();
        reached
    };
    assert_eq!(send(&mut world, 0), [1]);
    assert_eq!(send(&mut world, 4), [2, 3, 5, 6, 7]);
    world.apply(&Fault::Heal);
    assert_eq!(send(&mut world, 1), [0, 2, 3, 4, 5, 6, 7]);
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_holds_every_packet_as_it_is_sent_and_as_it_arrives() {
    let mut world = world(lan(5));
    let file = Shared::default();
    world.trace_to(Box::new(file.clone()));
    let before = *world.counters();
    talk(&mut world, 3);
    world.end_trace().expect("writing to memory succeeds");
    let (sent, delivered) = (world.counters().sent, world.counters().delivered);
    let packets = sent.all_datagrams() + delivered.all_datagrams()
        - before.sent.all_datagrams()
        - before.delivered.all_datagrams();
    let bytes = file.0.lock().expect("not poisoned").clone();
    let (mut at, mut captured) = (0, 0);
    while at < bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        captured += u64::from(word(at) == 6);
        at += word(at + 4) as usize;
    }
    assert_eq!(captured, packets);
}
