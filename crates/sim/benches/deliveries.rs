//! The rate of packet deliveries to engines, per second of processor time, in the setting of
//! ricochet-9: 64 nodes, each in d groups of about 10, 100 messages per second and node, (8,5), and
//! 1 % loss.
//!
//! `cargo bench -p carom-sim --bench deliveries [-- D...]`; without arguments d = 64.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::time::Duration;

use carom_proto::lateral::{Config, Lateral};
use carom_proto::loss::Loss;
use carom_proto::{Class, GroupId, GroupSettings, NodeId, Profile, RateOfFire, Rng, SendOptions};
use carom_sim::{Command, HostIx, Jitter, Link, Roster, Topology, World, WorldConfig};

const NODES: u32 = 64;
const GROUP_SIZE: u32 = 10;
const PAYLOAD: [u8; 64] = [7; 64];
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(10);

fn main() {
    let given: Vec<u32> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    for d in if given.is_empty() { vec![64] } else { given } {
        measure(d);
    }
}

fn measure(d: u32) {
    let mut rng = Rng::new(1);
    let jitter = Jitter::Exponential(Duration::from_micros(30));
    let link = Link::of_delay(Duration::from_micros(100)).with_jitter(jitter);
    let mut world: World<Box<Lateral>> = World::new(WorldConfig {
        loss: Loss::Uniform(0.01),
        hashes_history: false,
        checks: false,
        ..WorldConfig::new(Topology::lan(NODES, link), 1)
    });
    let groups = (d * NODES).div_ceil(GROUP_SIZE);
    let joined = join(&mut world, d, groups, &mut rng);
    let mut sends: Vec<(u64, HostIx)> = (0..NODES)
        .map(|host| (world.now().0 + rng.below(10_000_000) as u64, HostIx(host)))
        .collect();
    sends.sort_unstable();
    let mut sends = std::collections::VecDeque::from(sends);
    let mut before = *world.counters();
    let (mut start, mut end) = (processor_time(), world.now() + WARM_UP);
    for phase in 0..2 {
        if phase == 1 {
            (before, start) = (*world.counters(), processor_time());
            end = end + MEASURED;
        }
        while let Some((at, host)) = sends.pop_front().filter(|(at, _)| *at <= end.0) {
            world.run_until(carom_proto::Time(at), &mut |_| {});
            let groups = &joined[host.0 as usize];
            let group = groups[rng.below(groups.len())];
            let payload = bytes::Bytes::from_static(&PAYLOAD);
            world.command(host, Command::Send(group, payload, SendOptions::default()));
            sends.push_back((at + 10_000_000, host));
        }
        sends.make_contiguous().sort_unstable();
    }
    let elapsed = processor_time() - start;
    let delivered = world.counters().delivered;
    let of = |class| delivered.datagrams(class) - before.delivered.datagrams(class);
    let (data, repairs) = (of(Class::Data), of(Class::Repair));
    let rate = (data + repairs) as f64 / elapsed.as_secs_f64();
    println!(
        "d = {d}: {rate:.0} deliveries/s ({data} data, {repairs} repairs in {:.2} s of one \
         core, {:.1} times real time)",
        elapsed.as_secs_f64(),
        MEASURED.as_secs_f64() / elapsed.as_secs_f64()
    );
}

/// Returns the processor time of the process, which is independent of other programs.
fn processor_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
    Duration::from(nix::time::clock_gettime(clock).expect("every Linux has this clock"))
}

fn join(world: &mut World<Box<Lateral>>, d: u32, groups: u32, rng: &mut Rng) -> Vec<Vec<GroupId>> {
    let mut roster = Roster::new(Duration::ZERO, 1);
    let settings = GroupSettings::new("ricochet", Profile::TimeCritical(RateOfFire::new(8, 5)));
    let mut joined: Vec<Vec<GroupId>> = Vec::new();
    let mut all: Vec<u32> = (1..=groups).collect();
    let config = Config { buffer_age: Duration::from_secs(1), ..Config::as_in_the_papers() };
    for host in world.topology().all_hosts() {
        let id = NodeId(u64::from(host.0) + 1);
        let engine = Box::new(Lateral::new(id, config.clone(), rng.next_u64()));
        world.spawn(host, id, engine);
        rng.choose_to_front(&mut all, d as usize);
        joined.push(all[..d as usize].iter().map(|group| GroupId(*group)).collect());
    }
    for host in world.topology().all_hosts() {
        for group in &joined[host.0 as usize] {
            roster.join(world, host, *group, settings).expect("valid settings");
        }
    }
    joined
}
