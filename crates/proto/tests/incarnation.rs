//! Every datagram of a node carries the incarnation that the node was started with.

use carom_proto::lateral;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::node::Node;
use carom_proto::rmp::Partition;
use carom_proto::wire::{Header, Protocol};
use carom_proto::*;

const OWN: Origin = Origin { node: NodeId(1), incarnation: Incarnation(0x5EED_0001) };

fn endpoint(port: u16) -> Endpoint {
    Endpoint(std::net::SocketAddr::from(([127, 0, 0, 1], port)))
}

#[test]
fn every_datagram_of_a_node_carries_its_incarnation() {
    let config = Config { seeds: vec![endpoint(2)], ..Config::default() };
    let gossip = Gossip::new(OWN, endpoint(1), config, 3);
    let mut node = Node::new(OWN, lateral::Config::default(), Box::new(gossip), 3);
    let mut now = Time(1_000_000_000);
    let profiles = [
        Profile::TimeCritical(RateOfFire::default()),
        Profile::Ordered(Partition::Majority),
        Profile::Bulk,
    ];
    let mut groups = Vec::new();
    for (name, profile) in ["a", "b", "c"].into_iter().zip(profiles) {
        groups.push(node.join(now, name, profile).expect("the settings are sound"));
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..400 {
        for group in &groups {
            let _ = node.send(now, *group, "message".into(), SendOptions::default());
            node.confirm(now, *group);
        }
        let mut datagram = Vec::new();
        while node.poll_transmit(&mut datagram).is_some() {
            let (header, _) = Header::decode(&datagram).expect("it is whole");
            assert_eq!(header.origin(), OWN, "{header:?}");
            seen.insert(header.protocol);
            datagram.clear();
        }
        while node.poll_event().is_some() {}
        now = now + core::time::Duration::from_millis(10);
        node.handle_timeout(now);
    }
    let expected = [Protocol::Lateral, Protocol::Membership, Protocol::Ordered];
    assert!(expected.iter().all(|protocol| seen.contains(protocol)), "{seen:?}");
}
