//! Cost of receiving a data packet of 1 KiB, which is accounted for, delivered, and put into all
//! bins.
//!
//! There are 64 nodes with 2, 64 and 1024 groups each, and no I/O. Prints nanoseconds, and their
//! ratio to the first result of the run. Then prints the cost of recording that the sender is
//! alive, of a repair that solves 256 pending repairs, and of a repair of random packets. `--bench
//! instructions` limits the instructions of the repairs.
//!
//! `cargo bench -p carom-proto --bench receive [-- GROUPS...]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types)]

mod shortage;
mod workload;

use std::time::{Duration, Instant};

use carom_proto::membership::Membership as _;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::wire::Datagram;
use carom_proto::{Destination, Endpoint, NodeId, Time};
use shortage::Shortage;
use workload::Workload;

/// Number of packets that are received at once, as after a `recvmmsg`.
const BATCH: usize = 32;
const BATCHES: usize = 1000;
/// Number of earlier packets, after which every stream and every bin has been in use.
const WARM_UP: usize = 60_000;
const ROUNDS: usize = 7;

fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let all = if given.is_empty() { vec![2, 64, 1024] } else { given };
    println!("groups  ns/packet  ratio  XORs/packet");
    let mut first = None;
    for groups in all {
        let mut best = f64::INFINITY;
        let mut xors = 0.0;
        for _ in 0..ROUNDS {
            let mut workload = Workload::new(groups, WARM_UP, BATCH);
            let mut spent = Duration::ZERO;
            for _ in 0..BATCHES {
                workload.refill();
                let start = Instant::now();
                let delivered = workload.run();
                spent += start.elapsed();
                assert_eq!(delivered, BATCH, "every packet is delivered");
            }
            best = best.min(spent.as_nanos() as f64 / (BATCH * BATCHES) as f64);
            xors = workload.counters().xors_per_packet();
        }
        let ratio = best / *first.get_or_insert(best);
        println!("{groups:>6}  {best:>9.0}  {ratio:>5.2}  {xors:>11.2}");
    }
    println!("recording a live sender in gossip with 63 members: {:.1} ns", sign_of_life());
    for r in [8, 32] {
        println!("a repair of {r} packets that solves 256 others: {:.1} us", avalanche(r));
        println!("a repair of {r} random packets with 256 pending: {:.1} us", random_repair(r));
    }
}

fn random_repair(r: u8) -> f64 {
    const REPAIRS: usize = 1000;
    let mut shortage = Shortage::at_random(r, REPAIRS);
    let start = Instant::now();
    shortage.run();
    start.elapsed().as_nanos() as f64 / 1e3 / REPAIRS as f64
}

fn avalanche(r: u8) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..50 * ROUNDS {
        let mut shortage = Shortage::with_avalanche(r);
        let start = Instant::now();
        let delivered = shortage.run();
        best = best.min(start.elapsed());
        assert!(delivered > 0, "it solves others");
    }
    best.as_nanos() as f64 / 1e3
}

/// Returns the time for a call to [`Membership::heard`], which every packet needs, in nanoseconds.
fn sign_of_life() -> f64 {
    const NODES: usize = 64;
    let endpoint = |node: usize| Endpoint(([10, 0, 0, node as u8 + 1], 7400).into());
    let id = |node: usize| NodeId((node as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let config = Config { seeds: vec![endpoint(0)], lan_hello: false, ..Config::default() };
    let make = |node: usize| Gossip::new(id(node), endpoint(node), config.clone(), node as u64);
    let mut nodes: Vec<Gossip> = (0..NODES).map(make).collect();
    let mut out = Vec::new();
    for tick in 0..1000_u64 {
        let now = Time(1_000_000_000 + tick * 1_000_000);
        for from in 0..NODES {
            nodes[from].handle_timeout(now);
            while let Some(transmit) = nodes[from].poll_transmit(&mut out) {
                let to = (0..NODES)
                    .find(|to| transmit.destination == Destination::Endpoint(endpoint(*to)));
                if let Some(to) = to {
                    let datagram = Datagram::parse(&out).expect("a datagram");
                    nodes[to].handle_datagram(now, endpoint(from), &datagram);
                }
                out.clear();
            }
        }
    }
    assert_eq!(nodes[0].nodes().len(), NODES - 1, "all know each other");
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS as u64 {
        let start = Instant::now();
        for call in 0..1_000_000_usize {
            let node = 1 + call * 31 % (NODES - 1);
            nodes[0].heard(Time(3_000_000_000 + round), endpoint(node), id(node));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / 1e6);
    }
    best
}
