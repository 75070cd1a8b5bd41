#![allow(dead_code, unreachable_pub, reason = "a part of each test file, which uses a part")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom::sim::{Link, Topology, World, WorldConfig};
use carom::{Builder, Event, Group, Loss, Node, Profile, RingNews};

pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn config(hosts: u32, seed: u64) -> WorldConfig {
    WorldConfig::new(Topology::lan(hosts, Link::default()), seed)
}

pub fn world(hosts: u32, seed: u64, loss: Loss) -> World {
    World::new(WorldConfig { loss, ..config(hosts, seed) })
}

pub fn start<const N: usize>(world: &World, builder: impl Fn() -> Builder) -> [Node; N] {
    std::array::from_fn(|host| builder().start_on(&world.host(host as u32)).expect("a node"))
}

pub fn started<const N: usize>(seed: u64, loss: Loss) -> (World, [Node; N]) {
    let world = world(N as u32, seed, loss);
    let nodes = start(&world, Node::builder);
    (world, nodes)
}

#[track_caller]
pub fn run<T>(world: &mut World, program: impl Future<Output = T>) -> T {
    world.block_on(PATIENCE, program).expect("in time")
}

pub async fn join_all(nodes: &[Node], name: &str, profile: Profile) -> Vec<Group> {
    let mut groups = Vec::new();
    for node in nodes {
        groups.push(node.join(name, profile).await.expect("a group"));
    }
    until_whole(&groups).await;
    groups
}

pub async fn until_whole(groups: &[Group]) {
    for group in groups {
        group.wait_for_members(groups.len() - 1).await.expect("open");
    }
}

pub async fn until<T>(group: &Group, find: impl Fn(&Event) -> Option<T>) -> T {
    loop {
        let event = group.recv_timeout(PATIENCE).await.expect("in time").expect("open");
        if let Some(found) = find(&event) {
            return found;
        }
    }
}

pub fn text(event: &Event) -> Option<String> {
    match event {
        Event::Message(message) => Some(String::from_utf8_lossy(&message.payload).into_owned()),
        _ => None,
    }
}

pub fn news(event: &Event) -> Option<RingNews> {
    match event {
        Event::Ring(event) => Some(event.news.clone()),
        _ => None,
    }
}

#[derive(Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().expect("no thread panicked"))
    }
}

impl io::Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no thread panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
