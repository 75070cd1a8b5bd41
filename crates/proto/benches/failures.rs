//! Cost of the failure of a rack, in 1000 groups of 100 to 1000 members, without I/O.
//!
//! The 16 nodes of the rack are in all groups of this node, and leave all views at once. The next
//! packet pays for updating the bins. Then this node leaves all its groups.
//!
//! Prints milliseconds, and nanoseconds per change and per stream. The ratios show how the cost
//! grows with the number of members.
//!
//! `cargo bench -p carom-proto --bench failures [-- MEMBERS...]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types)]

mod crowd;

use std::time::{Duration, Instant};

use crowd::{Crowd, RACK};

const GROUPS: u32 = 1000;
const SENDERS: u64 = 50;
const ROUNDS: usize = 3;

fn main() {
    let given: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let all = if given.is_empty() { vec![100, 300, 1000] } else { given };
    println!("members  ms/rack  ns/change  ratio  ms/leave of all  ns/stream  ratio");
    let mut first = None;
    for members in all {
        let measured = (0..ROUNDS).map(|_| measure(members));
        let (failure, leave) = measured.min().expect("there are rounds");
        let change = failure.as_nanos() as f64 / (f64::from(GROUPS) * RACK as f64);
        let stream = leave.as_nanos() as f64 / (f64::from(GROUPS) * SENDERS as f64);
        let (change_0, stream_0) = *first.get_or_insert((change, stream));
        println!(
            "{members:>7}  {:>7.1}  {change:>9.0}  {:>5.2}  {:>15.1}  {stream:>9.0}  {:>5.2}",
            failure.as_secs_f64() * 1e3,
            change / change_0,
            leave.as_secs_f64() * 1e3,
            stream / stream_0,
        );
    }
}

fn measure(members: u64) -> (Duration, Duration) {
    let mut crowd = Crowd::new(GROUPS, members, SENDERS);
    let start = Instant::now();
    crowd.fail_rack();
    let failure = start.elapsed();
    let start = Instant::now();
    crowd.leave_all();
    (failure, start.elapsed())
}
