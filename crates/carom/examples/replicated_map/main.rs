//! Runs three replicas of a map, over real sockets. The map itself is in `store.rs`, and its
//! messages are in `codec.rs`. `tests/replicated_map.rs` runs the same code in a simulated world,
//! under faults.
//!
//! `cargo run --example replicated_map`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

mod codec;
pub mod store;

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use carom::{JoinGroupError, Node};
use pollster::block_on;
use store::Store;

fn main() -> Result<(), Box<dyn Error>> {
    let first = start(|node| block_on(Store::found(node, "accounts")))?;
    wait_until_ready(&first);
    block_on(first.put("alice", "100"))?;

    // These replicas join later and receive the existing map.
    let mut replicas = vec![first];
    for _ in 1..REPLICAS {
        replicas.push(start(|node| block_on(Store::join(node, "accounts")))?);
    }
    for replica in &replicas {
        wait_until_ready(replica);
        println!("{} reads {:?}", replica.node().id(), block_on(replica.get("alice"))?);
    }

    // All replicas try to take the money, and exactly one succeeds.
    let taken = |replica: &Arc<Store>| block_on(replica.replace("alice", Some("100"), "0"));
    for replica in &replicas {
        println!("{} takes it: {}", replica.node().id(), taken(replica)?);
    }
    Ok(())
}

/// Starts a node and runs its replica.
fn start(
    join: impl FnOnce(Node) -> Result<Store, JoinGroupError>,
) -> Result<Arc<Store>, Box<dyn Error>> {
    let node = Node::builder().interface("127.0.0.1").port(0).multicast_port(7413).start()?;
    let replica = Arc::new(join(node)?);
    let replicating = Arc::clone(&replica);
    thread::spawn(move || block_on(replicating.replicate()));
    Ok(replica)
}

fn wait_until_ready(replica: &Store) {
    while !replica.is_ready() {
        thread::sleep(Duration::from_millis(1));
    }
}

const REPLICAS: usize = 3;
