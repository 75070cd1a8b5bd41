//! Cost of a view change: a node joins or leaves one group.
//!
//! The next packet pays for updating the bins. There are 64 nodes with 16 to 1024 groups each,
//! groups of ten members on average, and no I/O. Prints nanoseconds, their ratio to the first
//! result of the run, and the cost of a packet alone. Each result is the median of many short
//! measurements, so that it is valid while other programs use the processor too.
//!
//! `cargo bench -p carom-proto --bench view_changes [-- GROUPS...]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types)]

mod workload;

use std::time::Instant;

use workload::Workload;

/// Number of changes that are measured together, with a packet after each.
const BATCH: usize = 64;
const BATCHES: usize = 128;
/// After this number of batches of changes, as many batches of packets alone are received, so that
/// open bins contain packets. A node that joins its groups makes a few hundred changes in a row.
const EVERY: usize = 8;
/// Number of earlier packets, after which every stream and every bin has been in use.
const WARM_UP: usize = 60_000;
const ROUNDS: usize = 5;

fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let all = if given.is_empty() { vec![16, 64, 256, 1024] } else { given };
    println!("groups  ns/change with the next packet  ratio  ns/packet alone");
    let mut first = None;
    for groups in all {
        let (mut changing, mut receiving) = (Vec::new(), Vec::new());
        (0..ROUNDS).for_each(|_| measure(groups, &mut changing, &mut receiving));
        let (change, packet) = (median(changing), median(receiving));
        let ratio = change / *first.get_or_insert(change);
        println!("{groups:>6}  {change:>30.0}  {ratio:>5.2}  {packet:>15.0}");
    }
}

/// Measures nanoseconds per change with the packet that follows it, and per packet alone.
fn measure(groups: usize, changing: &mut Vec<f64>, receiving: &mut Vec<f64>) {
    let mut workload = Workload::new(groups, WARM_UP, BATCH);
    for batch in 0..BATCHES {
        for _ in 0..if batch.is_multiple_of(EVERY) { EVERY } else { 0 } {
            workload.refill();
            let start = Instant::now();
            assert_eq!(workload.run(), BATCH, "every packet is delivered");
            receiving.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
        }
        workload.plan_changes();
        let start = Instant::now();
        assert_eq!(workload.run_changes(), BATCH, "every packet is delivered");
        changing.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
