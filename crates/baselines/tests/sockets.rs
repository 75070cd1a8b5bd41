//! The baselines over real sockets on loopback, as custom engines of `carom`'s nodes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real sockets take real time"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Event, Loss, NodeId, Origin, PathChoice, Profile, StartError};
use carom_baselines::Owed;
use carom_baselines::domain::{DomainConfig, Hierarchy};
use carom_baselines::{ack, bimodal, fec, lbrm, rmtp, srm, tmtp};
use carom_proto::Engine;

const NODES: usize = 3;
const MESSAGES: u32 = 120;
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers of deliveries and reported losses at one node, for each message of the others.
type Account = BTreeMap<(NodeId, u32), (u32, u32)>;

/// Starts nodes that lose 5 % of what they receive, publishes from each of them in one group, and
/// waits until every message is settled at every other node. Asserts that at most `most_lost` are
/// lost, and that the nodes count something under each of these names.
fn run(most_lost: u32, counters: &[&str], make: fn(Origin, u64) -> Box<dyn Engine>) {
    let nodes = start(make);
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
    let settled = nodes.iter().zip(&groups).map(|(node, group)| settle(node, &nodes, group));
    let lost: u32 = settled.sum();
    assert!(lost <= most_lost, "{lost} lost");
    for name in counters {
        assert!(counter(&nodes, name) > 0, "{name}");
    }
}

fn start(make: fn(Origin, u64) -> Box<dyn Engine>) -> Vec<Node> {
    // Another process may take one of the ports before the node does. Twice is unlikely.
    try_start(make).or_else(|_| try_start(make)).expect("the nodes")
}

fn try_start(make: fn(Origin, u64) -> Box<dyn Engine>) -> Result<Vec<Node>, StartError> {
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
        Node::start(builder.guest(make))
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
        assert_eq!(got + lost, 1, "{id:?} came {got} times and was lost {lost} times");
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
        guest.into_iter().find(|(counter, _)| *counter == name).expect("it is counted").1
    };
    nodes.iter().map(of_node).sum()
}

#[test]
fn srm_delivers_everything_on_real_sockets() {
    run(0, &["retransmitted", "requests_sent"], |id, seed| {
        let config = srm::Config { owed: Owed::First, ..srm::Config::datacenter() };
        Box::new(srm::Srm::new(id, config, seed))
    });
}

#[test]
fn bimodal_multicast_settles_everything_on_real_sockets() {
    run(9, &["retransmitted"], |id, seed| {
        let config = bimodal::Config { owed: Owed::First, ..bimodal::Config::default() };
        Box::new(bimodal::Bimodal::new(id, config, seed))
    });
}

#[test]
fn sender_based_fec_settles_everything_on_real_sockets() {
    run(9, &["recovered"], |id, seed| {
        let give_up_after = Duration::from_secs(2);
        let config = fec::Config { owed: Owed::First, give_up_after, ..fec::Config::default() };
        Box::new(fec::SenderFec::new(id, config, seed))
    });
}

#[test]
fn ack_timeouts_deliver_everything_on_real_sockets() {
    run(0, &["retransmitted"], |id, seed| {
        let config = ack::Config { owed: Owed::First, ..ack::Config::default() };
        Box::new(ack::AckTimeout::new(id, config, seed))
    });
}

fn domains() -> DomainConfig {
    let hierarchy = Hierarchy::by_id(1).expect("it is some");
    DomainConfig { owed: Owed::First, hierarchy, ..DomainConfig::default() }
}

#[test]
fn rmtp_delivers_everything_on_real_sockets() {
    run(0, &["retransmitted", "acks_sent"], |id, seed| {
        let config = rmtp::Config { domains: domains(), ..rmtp::Config::default() };
        Box::new(rmtp::Rmtp::new(id, config, seed))
    });
}

#[test]
fn lbrm_delivers_everything_on_real_sockets() {
    run(0, &["retransmitted", "nacks_sent"], |id, seed| {
        let config = lbrm::Config { domains: domains(), ..lbrm::Config::default() };
        Box::new(lbrm::Lbrm::new(id, config, seed))
    });
}

#[test]
fn tmtp_delivers_everything_on_real_sockets() {
    run(0, &["retransmitted", "acks_sent"], |id, seed| {
        let config = tmtp::Config { domains: domains(), ..tmtp::Config::default() };
        Box::new(tmtp::Tmtp::new(id, config, seed))
    });
}
