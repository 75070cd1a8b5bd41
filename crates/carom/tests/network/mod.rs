//! Provides a separate network for each test, because tests run at the same time.

#![allow(dead_code, unreachable_pub, reason = "a part of each test file, which uses a part")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Builder, Event, Message, NodeId, Profile, Status};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// Returns another port at each call, below the range of ephemeral ports.
pub fn multicast_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u64::from(std::process::id()) * 41;
    let next = u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
    u16::try_from(20_000 + (own + next) % 10_000).expect("below 65536")
}

pub fn on_loopback(multicast_port: u16) -> Builder {
    Node::builder().interface("127.0.0.1").port(0).multicast_port(multicast_port)
}

pub fn start(builder: Builder) -> Node {
    Node::start(builder).expect("a node")
}

pub fn join(node: &Node) -> Group {
    node.join("prices", Profile::time_critical()).expect("a group")
}

pub fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: &u16| std::net::UdpSocket::bind(("0.0.0.0", *port)).is_ok();
    let own = u64::from(std::process::id()) * 37;
    let mut ports = std::iter::repeat_with(|| {
        let next = u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
        u16::try_from(10_000 + (own + next) % 10_000).expect("below 65536")
    })
    .filter(is_free);
    std::array::from_fn(|_| ports.next().expect("the ports never end"))
}

pub fn members<const N: usize>() -> [(NodeId, SocketAddr); N] {
    let ports: [u16; N] = free_ports();
    let mut ids = 1..;
    ports.map(|port| (NodeId(ids.next().expect("endless")), ([127, 0, 0, 1], port).into()))
}

pub fn beside_an_absent_member() -> (Node, NodeId) {
    let [own, absent] = members();
    let builder = on_loopback(multicast_port()).node_id(own.0).port(own.1.port());
    (start(builder.static_members(vec![own, absent])), absent.0)
}

pub fn next_event(group: &Group) -> Event {
    group.recv_timeout(PATIENCE).expect("an event in time").expect("an open group")
}

/// Returns the next message. Panics if a message is lost.
pub fn next_message(group: &Group) -> Message {
    loop {
        match next_event(group) {
            Event::Message(message) => return message,
            Event::Lost(lost) => panic!("{lost:?}"),
            _ => {}
        }
    }
}

pub fn wait_for(node: &Node, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
    let start = Instant::now();
    loop {
        let status = node.status();
        if is_so(&status) {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not happen: {status:#?}");
        std::thread::yield_now();
    }
}
