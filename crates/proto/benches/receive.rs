//! The cost of receiving a data packet: account, deliver, all bins; 1 KiB, 64 nodes, no I/O, with
//! 2, 64 and 1024 groups per node. Prints nanoseconds and their ratio to the first within this
//! run: `cargo bench -p carom-proto --bench receive [-- GROUPS...]`.

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types)]

mod workload;

use std::time::{Duration, Instant};

use workload::Workload;

/// Packets that are there at once, as after a `recvmmsg`.
const BATCH: usize = 32;
const BATCHES: usize = 1000;
/// Packets before them, so that every stream and every bin has been in use.
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
}
