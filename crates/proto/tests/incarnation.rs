//! Incarnations of nodes.
//!
//! Every datagram of a node carries the incarnation with which the node was started. A node that
//! restarts under the same id has another incarnation. Packets in a node's name are accepted only
//! from its address.

#![allow(clippy::unwrap_used)]

use carom_proto::lateral;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::membership::static_list::StaticMembership;
use carom_proto::node::{Node, NodeEvent};
use carom_proto::ring::Quorum;
use carom_proto::wire::{Datagram, Header, Protocol};
use carom_proto::*;

const OWN: Origin = Origin { node: NodeId(1), incarnation: Incarnation(0x5EED_0001) };

const NOW: Time = Time(1_000_000_000);

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
        Profile::Ordered(Quorum::Majority),
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
    let expected = [Protocol::Lateral, Protocol::Membership, Protocol::Ordered, Protocol::Bulk];
    assert!(expected.iter().all(|protocol| seen.contains(protocol)), "{seen:?}");
}

fn listed(origin: Origin) -> Node {
    let list = [(NodeId(1), endpoint(1)), (NodeId(2), endpoint(2))];
    let membership = Box::new(StaticMembership::new(origin, list));
    Node::new(origin, lateral::Config::default(), membership, 7)
}

fn start(node: u64, incarnation: u64) -> Node {
    listed(Origin { node: NodeId(node), incarnation: Incarnation(incarnation) })
}

fn datagrams(from: &mut Node) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut datagram = Vec::new();
    while from.poll_transmit(&mut datagram).is_some() {
        all.push(std::mem::take(&mut datagram));
    }
    all
}

fn arrive(node: &mut Node, source: Endpoint, datagrams: &[Vec<u8>]) {
    for datagram in datagrams {
        if let Ok(datagram) = Datagram::parse(datagram) {
            node.handle_datagram(NOW, source, &datagram);
        }
    }
}

fn events(node: &mut Node) -> Vec<String> {
    let all = std::iter::from_fn(|| node.poll_event());
    let told = all.filter_map(|event| match event {
        NodeEvent::Group(Event::Message(message)) => {
            Some(String::from_utf8_lossy(&message.payload).into_owned())
        }
        NodeEvent::Group(Event::View(change)) => Some(format!("{:?}", change.kind)),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_restarted_node_with_a_fixed_id_fails_and_joins_anew() {
    let now = NOW;
    let profile = Profile::TimeCritical(RateOfFire::default());
    let mut here = start(1, 1);
    let group = here.join(now, "prices", profile).expect("it is sound");
    let mut former = start(2, 21);
    former.join(now, "prices", profile).expect("it is sound");
    let mut late = Vec::new();
    for number in 0..3 {
        former.send(now, group, format!("old {number}").into(), SendOptions::default()).unwrap();
        late = datagrams(&mut former);
        arrive(&mut here, endpoint(2), &late);
    }
    assert_eq!(events(&mut here), ["Joined", "old 0", "old 1", "old 2"]);
    let mut successor = start(2, 22);
    successor.join(now, "prices", profile).expect("it is sound");
    successor.send(now, group, "new 0".into(), SendOptions::default()).unwrap();
    let fresh = datagrams(&mut successor);
    // Datagrams from another address do not count as a restart.
    arrive(&mut here, endpoint(9), &fresh);
    assert_eq!(events(&mut here), [""; 0]);
    assert_eq!(here.counters().datagrams_of_other_starts, fresh.len() as u64);
    arrive(&mut here, endpoint(2), &fresh);
    let told = events(&mut here);
    assert_eq!(told[..2], ["Failed", "Joined"], "{told:?}");
    assert_eq!(here.view(group).map(View::version), Some(3));
    let before = here.counters().datagrams_of_other_starts;
    arrive(&mut here, endpoint(2), &late);
    assert_eq!(here.counters().datagrams_of_other_starts, before + late.len() as u64);
    assert_eq!(events(&mut here), [""; 0]);
    here.check();
}

#[test]
fn acknowledgement_from_another_address_makes_nothing_safe() {
    let profile = Profile::TimeCritical(RateOfFire::default());
    let [mut here, mut there] = [start(1, 1), start(2, 2)];
    let group = here.join(NOW, "prices", profile).expect("it is sound");
    there.join(NOW, "prices", profile).expect("it is sound");
    here.send(NOW, group, "price".into(), SendOptions::default()).unwrap();
    here.confirm(NOW, group);
    let mut now = NOW;
    let mut acks = Vec::new();
    for _ in 0..50 {
        now = now + core::time::Duration::from_millis(5);
        here.handle_timeout(now);
        arrive(&mut there, endpoint(1), &datagrams(&mut here));
        for datagram in datagrams(&mut there) {
            match Header::decode(&datagram).unwrap().0.kind {
                7 => acks.push(datagram),
                _ => arrive(&mut here, endpoint(2), &[datagram]),
            }
        }
    }
    let mut is_safe = |source: Endpoint| {
        arrive(&mut here, source, &acks);
        let mut all = std::iter::from_fn(|| here.poll_event());
        all.any(|event| matches!(event, NodeEvent::Group(Event::Confirmed(_))))
    };
    assert!(!acks.is_empty());
    assert!(!is_safe(endpoint(9)), "the packet came from another address");
    assert!(is_safe(endpoint(2)));
}
