//! Tests a program in the simulator: datagrams are lost, and each run can be repeated from its
//! seed.
//!
//! `cargo run --example simulator_test`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use carom::sim::{Link, Topology, World, WorldConfig};
use carom::{Event, Loss, Node, Profile};

/// Runs the program under test, which counts messages and reported losses.
async fn count(node: Node, received: Rc<Cell<u32>>, lost: Rc<Cell<u32>>) {
    let group = node.join("ticks", Profile::time_critical()).await.expect("joined");
    while let Some(event) = group.recv().await {
        match event {
            Event::Message(_) => received.set(received.get() + 1),
            Event::Lost(gap) => lost.set(lost.get() + gap.count()),
            _ => {}
        }
    }
}

async fn publish(node: Node) {
    let group = node.join("ticks", Profile::time_critical()).await.expect("joined");
    group.wait_for_members(1).await.expect("open");
    for tick in 0..TICKS {
        group.publish(tick.to_be_bytes().to_vec()).await.expect("published");
        node.sleep(Duration::from_millis(1)).await;
    }
    node.sleep(Duration::from_secs(60)).await;
}

/// Runs the program for 30 s of virtual time.
fn run(seed: u64) -> (u32, u32) {
    let topology = Topology::lan(2, Link::of_delay(Duration::from_micros(100)));
    let config = WorldConfig { loss: Loss::Uniform(0.1), ..WorldConfig::new(topology, seed) };
    let mut world = World::new(config);
    let (received, lost) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (first, second) = (world.host(0), world.host(1));
    let sender = Node::builder().start_on(&first).expect("the host is free");
    let receiver = Node::builder().start_on(&second).expect("the host is free");
    world.spawn(&first, publish(sender));
    world.spawn(&second, count(receiver, Rc::clone(&received), Rc::clone(&lost)));
    world.run_for(Duration::from_secs(30));
    (received.get(), lost.get())
}

fn main() {
    for seed in 0..20 {
        let (received, lost) = run(seed);
        assert_eq!(received + lost, TICKS, "seed {seed}: a message was lost silently");
        assert_eq!(run(seed), (received, lost), "seed {seed}: the run cannot be repeated");
    }
    println!("20 runs: each of {TICKS} messages was delivered or reported as lost");
}

const TICKS: u32 = 1000;
