//! Tests programs on the public API in a simulated world.

mod asking;
mod engines;
mod faults;
mod given_up;
mod histories;
mod members;
#[path = "../network/mod.rs"]
mod network;
mod nodes;
mod own_streams;
mod settings;
#[path = "../simulation/mod.rs"]
mod simulation;
mod tasks;

use carom::sim::World;
use carom::{Group, Node, Profile};
use proptest::test_runner::Config as ProptestConfig;
use simulation::{PATIENCE, config, run, started, text};

fn start<const N: usize>(world: &World) -> [Node; N] {
    simulation::start(world, Node::builder)
}

async fn join(node: &Node) -> Group {
    node.join("prices", Profile::time_critical()).await.expect("a group")
}

async fn join_with(node: &Node, others: usize) -> Group {
    let group = join(node).await;
    group.wait_for_members(others).await.expect("open");
    group
}

/// Sets the number of cases, unless the environment sets it. Each case is a separate world.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(usual) }
}

fn messages(group: &Group) -> Vec<String> {
    std::iter::from_fn(|| group.try_recv()).filter_map(|event| text(&event)).collect()
}
