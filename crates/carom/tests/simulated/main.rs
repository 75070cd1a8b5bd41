//! Programs on the public API in a simulated world.

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
mod shared_state;
mod tasks;

use std::time::Duration;

use carom::sim::{Link, Topology, World, WorldConfig};
use carom::{Event, Group, Node, Profile};
use proptest::test_runner::Config as ProptestConfig;

const PATIENCE: Duration = Duration::from_secs(60);

fn config(hosts: u32, seed: u64) -> WorldConfig {
    WorldConfig::new(Topology::lan(hosts, Link::default()), seed)
}

fn start<const N: usize>(world: &World) -> [Node; N] {
    std::array::from_fn(|host| Node::builder().start_on(&world.host(host as u32)).expect("a node"))
}

async fn join(node: &Node) -> Group {
    node.join("prices", Profile::time_critical()).await.expect("a group")
}

/// Joins, and waits for `others` members.
async fn join_with(node: &Node, others: usize) -> Group {
    let group = join(node).await;
    while group.members().len() < others {
        node.sleep(Duration::from_millis(5)).await;
    }
    group
}

/// Sets the number of cases, unless the environment does. Each case is a separate world.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(usual) }
}

fn messages(group: &Group) -> Vec<String> {
    let events = std::iter::from_fn(|| group.try_recv());
    let payloads = events.filter_map(|event| match event {
        Event::Message(message) => Some(String::from_utf8_lossy(&message.payload).into_owned()),
        _ => None,
    });
    payloads.collect()
}
