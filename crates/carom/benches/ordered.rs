//! What order costs over real sockets: messages of 1 KiB from one sender to the other members of a
//! group on loopback, totally ordered, beside the same runtime's plain unreliable multicast in the
//! same run. `cargo bench -p carom --bench ordered`; the ratio is what counts.
//!
//! Unreliable messages are sent as fast as they leave, and what receivers lose is not counted: the
//! figure is what the slowest receiver got.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carom::{Event, Group, Node, Profile, Qos};

const MEMBERS: usize = 4;
const BYTES: usize = 1024;
const ROUNDS: usize = 11;

fn main() {
    let span = match std::env::args().any(|arg| arg == "--test") {
        true => Duration::from_millis(100),
        false => Duration::from_secs(2),
    };
    let nodes: Vec<Node> = (0..MEMBERS)
        .map(|_| {
            let builder = Node::builder().interface("127.0.0.1").port(0).multicast_port(7433);
            builder.queue(1 << 20).start().expect("a node")
        })
        .collect();
    let groups: Vec<Group> =
        nodes.iter().map(|node| node.join("bench", Profile::ordered()).expect("a group")).collect();
    while groups.iter().any(|group| group.members().len() + 1 < MEMBERS) {
        thread::sleep(Duration::from_millis(5));
    }
    println!("{MEMBERS} members, messages of {BYTES} bytes, one sender, {span:?} each");
    println!("{:>18} {:>18} {:>8}", "unreliable/s", "totally ordered/s", "ratio");
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let [plain, ordered] =
            [Qos::Unreliable, Qos::TotallyOrdered].map(|qos| rate(&groups, qos, span));
        let ratio = ordered / plain;
        println!("{plain:>18.0} {ordered:>18.0} {ratio:>8.2}");
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}; at least 0.60 is asked", ratios[ROUNDS / 2]);
}

/// Messages per second that the slowest of the other members was given.
fn rate(groups: &[Group], qos: Qos, span: Duration) -> f64 {
    let is_over = AtomicBool::new(false);
    let given: Vec<AtomicU64> = groups.iter().map(|_| AtomicU64::new(0)).collect();
    let start = Instant::now();
    let mut least = 0.0;
    thread::scope(|scope| {
        for (group, given) in groups.iter().zip(&given) {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(Some(event)) = group.recv_timeout(Duration::from_millis(20))
                        && matches!(event, Event::Message(_))
                    {
                        given.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        while start.elapsed() < span {
            drop(groups[0].publish_with(vec![7; BYTES], qos).expect("an open group"));
        }
        let took = start.elapsed().as_secs_f64();
        let others = given[1..].iter().map(|it| it.load(Ordering::Relaxed));
        least = others.min().unwrap_or(0) as f64 / took;
        // What is still under way must not count for the next round.
        thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
    });
    least
}
