//! Measures the cost of total order over real sockets. One sender sends messages of 1 KiB to the
//! other members of a group on loopback, in total order and as plain unreliable multicast of the
//! same runtime. The result is the ratio of the two rates. Run it with `cargo bench -p carom
//! --bench ordered`.
//!
//! The two kinds of traffic alternate in turns of 0.25 s, so that other load on the machine affects
//! both equally. Messages are sent as fast as possible. The rate is that of the slowest receiver,
//! so unreliable messages that receivers lose are not counted.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Event, Profile, Qos};

const MEMBERS: usize = 4;
const BYTES: usize = 1024;
const TURN: Duration = Duration::from_millis(250);

fn main() {
    let rounds = if std::env::args().any(|arg| arg == "--test") { 1 } else { 60 };
    let nodes: Vec<Node> = (0..MEMBERS)
        .map(|_| {
            let builder = Node::builder().interface("127.0.0.1").port(0).multicast_port(7433);
            builder.queue(1 << 20).start().map(Node::from).expect("a node")
        })
        .collect();
    let groups: Vec<Group> =
        nodes.iter().map(|node| node.join("bench", Profile::ordered()).expect("a group")).collect();
    while groups.iter().any(|group| group.members().len() + 1 < MEMBERS) {
        thread::sleep(Duration::from_millis(5));
    }
    println!("{MEMBERS} members, messages of {BYTES} bytes, one sender, {rounds} turns each");
    let given: Vec<AtomicU64> = groups.iter().map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let turns: Vec<[f64; 2]> = thread::scope(|scope| {
        for (group, given) in groups.iter().zip(&given) {
            scope.spawn(|| count(group, given, &is_over));
        }
        let qualities = [Qos::Unreliable, Qos::TotallyOrdered];
        let turn = || qualities.map(|qos| rate(&groups[0], qos, &given[1..]));
        let turns = (0..rounds).map(|_| turn()).collect();
        is_over.store(true, Ordering::Relaxed);
        turns
    });
    tell(&turns);
}

fn count(group: &Group, given: &AtomicU64, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(Some(Event::Message(_))) = group.recv_timeout(Duration::from_millis(20)) {
            given.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn rate(sender: &Group, qos: Qos, given: &[AtomicU64]) -> f64 {
    let counts = || given.iter().map(|it| it.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let (before, start) = (counts(), Instant::now());
    while start.elapsed() < TURN {
        drop(sender.publish_with(vec![7; BYTES], qos).expect("an open group"));
    }
    let (after, took) = (counts(), start.elapsed().as_secs_f64());
    // Messages still in flight must not count toward the next turn.
    let mut last = after.clone();
    loop {
        thread::sleep(Duration::from_millis(50));
        let now = counts();
        if now == last {
            break;
        }
        last = now;
    }
    let given = after.iter().zip(&before).map(|(after, before)| after - before);
    given.min().unwrap_or(0) as f64 / took
}

fn tell(turns: &[[f64; 2]]) {
    let mean = |which: usize| turns.iter().map(|it| it[which]).sum::<f64>() / turns.len() as f64;
    let mut ratios: Vec<f64> = turns.iter().map(|[plain, ordered]| ordered / plain).collect();
    ratios.sort_by(f64::total_cmp);
    let [low, median, high] = [1, 2, 3].map(|quarter| ratios[(ratios.len() - 1) * quarter / 4]);
    println!("unreliable:      {:>8.0} messages/s", mean(0));
    println!("totally ordered: {:>8.0} messages/s", mean(1));
    println!("quartiles of the ratio over all turns: {low:.2}, {median:.2}, {high:.2}");
    println!("ratio {:.2}; at least 0.60 is required", mean(1) / mean(0));
}
