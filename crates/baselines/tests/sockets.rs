//! Tests the baselines over real sockets on loopback, as custom engines of `carom`'s nodes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real sockets take real time"
)]

mod engines;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Event, Loss, NodeId, PathChoice, Profile, StartError};
use engines::{Protocol, domains, make};

const NODES: usize = 3;
const MESSAGES: u32 = 120;
const PATIENCE: Duration = Duration::from_secs(60);

type Account = BTreeMap<(NodeId, u32), (u32, u32)>;

/// Starts nodes that lose 5 % of the datagrams that they receive. Returns the number of losses, and
/// the nodes for their counters.
fn run(protocol: Protocol) -> (u32, Vec<Node>) {
    let nodes = start(protocol);
    let join = |node: &Node| node.join("prices", Profile::guest()).expect("a guest's group");
    let groups: Vec<Group> = nodes.iter().map(join).collect();
    for group in &groups {
        group.wait_for_members(NODES - 1).expect("the nodes find each other");
    }
    for number in 1..=MESSAGES {
        for (node, group) in nodes.iter().zip(&groups) {
            group.publish(payload(node.id(), number)).expect("it is published");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let lost = nodes.iter().zip(&groups).map(|(node, group)| settle(node, &nodes, group)).sum();
    (lost, nodes)
}

fn start(protocol: Protocol) -> Vec<Node> {
    // Another process may take one of the ports before the node does, but twice is unlikely.
    try_start(protocol).or_else(|_| try_start(protocol)).expect("the nodes")
}

fn try_start(protocol: Protocol) -> Result<Vec<Node>, StartError> {
    let sockets: Vec<_> = (0..NODES)
        .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    let members: Vec<_> = sockets
        .iter()
        .zip(1..)
        .map(|(socket, id)| (NodeId(id), socket.local_addr().expect("it is bound")))
        .collect();
    drop(sockets);
    let node = |(id, address): &(NodeId, std::net::SocketAddr)| {
        let builder = Node::builder().interface("127.0.0.1").port(address.port());
        let builder = builder.static_members(members.clone()).node_id(*id).seed(id.0);
        let builder = builder.path(PathChoice::Unicast).loss(Loss::Uniform(0.05));
        Node::start(builder.guest(move |origin, seed| make(protocol, domains(1), origin, seed)))
    };
    members.iter().map(node).collect()
}

fn payload(sender: NodeId, number: u32) -> String {
    format!("message {number} of {sender}")
}

/// Receives events until all messages of the others are settled. Returns the number of losses.
fn settle(node: &Node, nodes: &[Node], group: &Group) -> u32 {
    let expected = (nodes.len() - 1) * MESSAGES as usize;
    let mut account = Account::new();
    let deadline = Instant::now() + PATIENCE;
    while account.len() < expected {
        let left = deadline.saturating_duration_since(Instant::now());
        take(node, group, left, &mut account);
    }
    // No message may arrive twice, even later.
    let quiet = Instant::now() + Duration::from_millis(300);
    while let Some(left) = quiet.checked_duration_since(Instant::now()) {
        if let Ok(Some(event)) = group.recv_timeout(left) {
            add(&event, &mut account);
        }
    }
    for (id, (got, lost)) in &account {
        assert_eq!(got + lost, 1, "{id:?} was received {got} times and lost {lost} times");
    }
    assert_eq!(account.len(), expected);
    account.values().map(|(_, lost)| lost).sum()
}

fn take(node: &Node, group: &Group, left: Duration, account: &mut Account) {
    match group.recv_timeout(left) {
        Ok(Some(event)) => add(&event, account),
        other => panic!("{other:?} at {} with {}: {:?}", node.id(), account.len(), node.status()),
    }
}

fn add(event: &Event, account: &mut Account) {
    match event {
        Event::Message(message) => {
            let expected = payload(message.sender, message.seqno.0);
            assert_eq!(message.payload, expected.as_bytes(), "it was never sent");
            account.entry((message.sender, message.seqno.0)).or_default().0 += 1;
        }
        Event::Lost(lost) => {
            for number in lost.first.0..=lost.last.0 {
                account.entry((lost.sender, number)).or_default().1 += 1;
            }
        }
        _ => {}
    }
}

fn counter(nodes: &[Node], name: &str) -> u64 {
    let of_node = |node: &Node| {
        let guest = node.status().stats.guest;
        guest.into_iter().find(|(counter, _)| *counter == name).expect("the counter exists").1
    };
    nodes.iter().map(of_node).sum()
}

#[test]
fn every_protocol_settles_everything_on_real_sockets() {
    // Each case has the maximum number of losses, and counters that must not be zero.
    let cases = [
        (Protocol::Srm, 0, ["retransmitted", "requests_sent"]),
        (Protocol::Bimodal, 9, ["retransmitted"; 2]),
        (Protocol::Fec, 9, ["recovered"; 2]),
        (Protocol::Ack, 0, ["retransmitted"; 2]),
        (Protocol::Rmtp, 0, ["retransmitted", "acks_sent"]),
        (Protocol::Lbrm, 0, ["retransmitted", "nacks_sent"]),
        (Protocol::Tmtp, 0, ["retransmitted", "acks_sent"]),
    ];
    for (protocol, most_lost, counters) in cases {
        let (lost, nodes) = run(protocol);
        assert!(lost <= most_lost, "{protocol:?}: {lost} lost");
        for name in counters {
            assert!(counter(&nodes, name) > 0, "{protocol:?}: {name}");
        }
    }
}
