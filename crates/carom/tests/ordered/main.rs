//! Tests ordered groups on the public API, in a simulated world and over sockets.

mod failures;
mod leaving;
mod locks;
mod looks;
#[path = "../network/mod.rs"]
mod network;
mod order;
mod promises;
mod requests;
mod shared_state;
#[path = "../simulation/mod.rs"]
mod simulation;

use carom::sim::World;
use carom::{Group, Loss, Node, Profile};
use simulation::{run, started, text, until};

fn ring<const N: usize>(seed: u64, loss: Loss) -> (World, [Node; N], Vec<Group>) {
    let (mut world, nodes) = started(seed, loss);
    let groups = run(&mut world, join_all(&nodes, Profile::ordered()));
    (world, nodes, groups)
}

async fn join_all(nodes: &[Node], profile: Profile) -> Vec<Group> {
    simulation::join_all(nodes, "accounts", profile).await
}

async fn take(group: &Group, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        texts.push(until(group, text).await);
    }
    texts
}
