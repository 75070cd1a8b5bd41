//! Cost of total order in a ring of four members, without I/O.
//!
//! One member sends 1 KiB messages, with windows of 64 KiB to 4 MiB. Prints nanoseconds per
//! message, summed over all four members, and the cost of unreliable messages in the same run.
//!
//! `cargo bench -p carom-proto --bench ordered [-- WINDOW_BYTES...]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types)]

mod ring;

use std::time::Instant;

use carom_proto::ring::Qos;
use ring::Ring;

const MEMBERS: usize = 4;
const MESSAGES: usize = 20_000;
const WARM_UP: usize = 10_000;
const ROUNDS: usize = 5;

fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let all = if given.is_empty() { vec![64 << 10, 256 << 10, 4 << 20] } else { given };
    println!("window, bytes  ns/message  unreliable");
    for window in all {
        let mut best = [f64::INFINITY; 2];
        for _ in 0..ROUNDS {
            let mut ring = Ring::new(MEMBERS, window, WARM_UP);
            for (best, qos) in best.iter_mut().zip([Qos::TotallyOrdered, Qos::Unreliable]) {
                let start = Instant::now();
                assert_eq!(ring.run(MESSAGES, qos), MESSAGES * MEMBERS, "all are delivered");
                *best = best.min(start.elapsed().as_nanos() as f64 / MESSAGES as f64);
            }
        }
        println!("{window:>13}  {:>10.0}  {:>10.0}", best[0], best[1]);
    }
}
