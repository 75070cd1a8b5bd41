//! Ordered groups on the public API, in a simulated world and over sockets.

mod failures;
mod leaving;
#[path = "../network/mod.rs"]
mod network;
mod order;
mod promises;

use std::time::Duration;

use carom::sim::{Link, Topology, World, WorldConfig};
use carom::{Builder, Event, Group, Loss, Node, Profile, RingNews};

const PATIENCE: Duration = Duration::from_secs(60);

fn world(hosts: u32, seed: u64, loss: Loss) -> World {
    let config = WorldConfig::new(Topology::lan(hosts, Link::default()), seed);
    World::new(WorldConfig { loss, ..config })
}

fn start<const N: usize>(world: &World, builder: impl Fn() -> Builder) -> [Node; N] {
    std::array::from_fn(|host| builder().start_on(&world.host(host as u32)).expect("a node"))
}

/// Joins with all nodes, and waits until they form one ring.
async fn join_all(nodes: &[Node], profile: Profile) -> Vec<Group> {
    let mut groups = Vec::new();
    for node in nodes {
        groups.push(node.join("accounts", profile).await.expect("a group"));
    }
    while groups.iter().any(|group| group.members().len() + 1 < nodes.len()) {
        nodes[0].sleep(Duration::from_millis(5)).await;
    }
    groups
}

/// Receives events up to the first one that `find` accepts.
async fn until<T>(group: &Group, find: impl Fn(&Event) -> Option<T>) -> T {
    loop {
        let event = group.recv_timeout(PATIENCE).await.expect("in time").expect("open");
        if let Some(found) = find(&event) {
            return found;
        }
    }
}

fn text(event: &Event) -> Option<String> {
    match event {
        Event::Message(message) => Some(String::from_utf8_lossy(&message.payload).into_owned()),
        _ => None,
    }
}

fn news(event: &Event) -> Option<RingNews> {
    match event {
        Event::Ring(event) => Some(event.news.clone()),
        _ => None,
    }
}

/// Returns the next `count` messages.
async fn take(group: &Group, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        texts.push(until(group, text).await);
    }
    texts
}
