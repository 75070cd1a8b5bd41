//! Runs three workers that take turns with a lock. The resource checks the fence of each write.
//!
//! `cargo run --example lock`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom::{Group, Node, Profile, StartError};

/// A resource to which several workers write. It rejects a write with a smaller fence than that of
/// an earlier write.
#[derive(Default)]
struct Resource {
    largest_fence: u64,
    writes: u32,
}

impl Resource {
    fn write(&mut self, fence: u64) -> Result<(), String> {
        if fence < self.largest_fence {
            return Err(format!("fence {fence} is older than {}", self.largest_fence));
        }
        self.largest_fence = fence;
        self.writes += 1;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let resource = Arc::new(Mutex::new(Resource::default()));
    let mut nodes = Vec::new();
    let mut workers = Vec::new();
    for worker in 1..=WORKERS {
        let node = start()?;
        // With a quorum, at most one part of a partitioned network has the lock.
        let group = node.join("reports", Profile::ordered().quorum_of(WORKERS)).await?;
        workers.push(tokio::spawn(work(worker, group.clone(), Arc::clone(&resource))));
        // The members stay until all work is done, because two of three are needed for each grant.
        nodes.push((group, node));
    }
    for worker in workers {
        worker.await?.map_err(|error| error.to_string())?;
    }
    println!("{} writes", resource.lock().expect("no worker panicked").writes);
    Ok(())
}

/// Writes twice while holding the lock of the group.
async fn work(
    worker: u16,
    group: Group,
    resource: Arc<Mutex<Resource>>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    for _ in 0..2 {
        let lock = group.lock_timeout("nightly", Duration::from_secs(30)).await?;
        println!("worker {worker} writes with fence {}", lock.fence());
        resource.lock().expect("no worker panicked").write(lock.fence())?;
        // Dropping the lock releases it.
    }
    Ok(())
}

/// Starts a node that communicates only within this machine.
fn start() -> Result<Node, StartError> {
    Node::builder().interface("127.0.0.1").port(0).multicast_port(7424).start()
}

const WORKERS: u16 = 3;
