//! Runs three replicas of a store of counters, over real sockets. The store itself is in
//! `store.rs`. `tests/replicated_counters.rs` runs the same code in a simulated world.
//!
//! `cargo run --example replicated_counters`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

pub mod store;

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use carom::Node;
use pollster::block_on;
use store::Counters;

fn main() -> Result<(), Box<dyn Error>> {
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        let node = Node::builder().interface("127.0.0.1").port(0).multicast_port(7412).start()?;
        println!("replica {} at {}", node.id(), node.endpoint());
        replicas.push(Arc::new(block_on(Counters::join(node, "votes"))?));
    }
    for replica in &replicas {
        let replica = Arc::clone(replica);
        thread::spawn(move || block_on(replica.replicate()));
    }
    for (number, replica) in replicas.iter().enumerate() {
        block_on(replica.add("apples", 10 + number as i64))?;
        block_on(replica.add("pears", -(number as i64)))?;
    }
    while replicas.iter().any(|replica| (replica.value("apples"), replica.value("pears")) != SUMS) {
        thread::sleep(Duration::from_millis(1));
    }
    for replica in &replicas {
        println!("{:?}, beside {} others", replica.values(), replica.replicas().len());
    }
    Ok(())
}

const REPLICAS: usize = 3;
/// Sums of the counters once all replicas have all changes.
const SUMS: (i64, i64) = (33, -3);
