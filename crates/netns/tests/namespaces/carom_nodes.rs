//! Many hosts in one process: the threads of a node stay on the host on which it was started.

use std::collections::BTreeSet;
use std::time::Duration;

use carom::blocking::{Group, Node};
use carom::{Event, Profile};
use carom_netns::Host;

use crate::lab;

fn start(host: &Host) -> Node {
    let started = host.enter(|| Node::start(Node::builder().interface("eth0")));
    started.expect("the lab exists").expect("the host has a network")
}

/// Receives until there is a message of each other member.
fn heard(group: &Group, others: usize) -> BTreeSet<Vec<u8>> {
    let mut heard = BTreeSet::new();
    while heard.len() < others {
        match group.recv_timeout(PATIENCE) {
            Ok(Some(Event::Message(message))) => _ = heard.insert(message.payload.to_vec()),
            Ok(Some(_)) => {}
            other => panic!("{other:?} after {} of {others} hosts", heard.len()),
        }
    }
    heard
}

#[test]
fn sixty_four_hosts_in_one_process_exchange_messages() {
    let Some(lab) = lab(2, 32) else { return };
    let hosts = lab.hosts();
    let nodes: Vec<Node> = hosts.iter().map(start).collect();
    let join = |node: &Node| node.join("all", Profile::time_critical()).expect("it may join");
    let groups: Vec<Group> = nodes.iter().map(join).collect();
    for group in &groups {
        group.wait_for_members(hosts.len() - 1).expect("the group is open");
    }
    for (host, group) in hosts.iter().zip(&groups) {
        drop(group.publish(host.name()).expect("the group is open"));
    }
    for (host, group) in hosts.iter().zip(&groups) {
        let others = hosts.iter().filter(|other| other.number() != host.number());
        let names: BTreeSet<Vec<u8>> = others.map(|other| other.name().into_bytes()).collect();
        assert_eq!(heard(group, names.len()), names);
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
