//! Tests the paths to members on real sockets.

mod network;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use carom::blocking::Node;
use carom::{Builder, MemberPath, NodeId, PathChoice, Profile};
use network::{PATIENCE, join, members, multicast_port, on_loopback, start, wait_for};

fn member(builder: Builder, which: usize, members: &[(NodeId, SocketAddr)]) -> Node {
    let (id, address) = members[which];
    let builder = builder.node_id(id).port(address.port()).static_members(members.to_vec());
    start(builder)
}

#[test]
fn members_on_loopback_hear_each_others_multicast() {
    let (port, members) = (multicast_port(), members::<3>());
    let nodes = [0, 1, 2].map(|which| member(on_loopback(port), which, &members));
    for node in &nodes {
        let status = wait_for(node, "multicast to all members", |status| {
            status.members.iter().all(|it| it.path == MemberPath::Multicast)
        });
        assert_eq!(status.members.len(), 2);
        assert!(node.settled(PATIENCE));
        assert!(status.stats.net.own_echo > 0, "own hellos are looped back and ignored");
        assert_eq!(status.stats.net.path_unknown, 0);
    }
}

#[test]
fn a_member_without_multicast_is_told_apart_from_those_with_it() {
    let (port, members) = (multicast_port(), members::<3>());
    let a = member(on_loopback(port), 0, &members);
    let b = member(on_loopback(port), 1, &members);
    let c = member(on_loopback(port).path(PathChoice::Unicast), 2, &members);
    let path_to = |node: &Node, which: usize| {
        let status = node.status();
        let found = status.members.iter().find(|it| it.node == members[which].0);
        found.expect("a member").path
    };
    assert!(a.settled(PATIENCE) && b.settled(PATIENCE) && c.settled(PATIENCE));
    assert_eq!(path_to(&a, 1), MemberPath::Multicast);
    assert_eq!(path_to(&a, 2), MemberPath::Unicast);
    assert_eq!(path_to(&c, 0), MemberPath::Unicast);
    assert_eq!(c.status().stats.net.own_echo, 0, "it sends no multicast");
}

#[test]
fn more_than_twenty_groups_are_joined_without_privileges() {
    let (port, members) = (multicast_port(), members::<2>());
    let node = member(on_loopback(port), 0, &members);
    let join = |it| node.join(&format!("group {it}"), Profile::time_critical());
    let groups: Vec<_> = (0..64).map(|it| join(it).expect("a group")).collect();
    let status = node.status();
    assert_eq!(status.groups.len(), 64);
    assert!(status.stats.net.joiner_sockets >= 3, "{:?}", status.stats);
    assert_eq!(status.stats.net.join_failures, 0);
    assert!(status.groups.iter().all(|it| it.address.is_some_and(|it| it.port() == port)));
    drop(groups);
    let status = node.status();
    assert_eq!(
        (status.groups.len(), status.stats.net.joiner_sockets),
        (0, 1),
        "the hello's is left"
    );
}

#[test]
fn datagrams_of_foreign_groups_and_nonsense_are_counted() {
    let (port, members) = (multicast_port(), members::<2>());
    let node = member(on_loopback(port), 0, &members);
    let group = join(&node);
    let address = node.status().groups[0].address.expect("multicast");
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let raw = socket2::SockRef::from(&other);
    raw.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).expect("the interface");
    let mut foreign = vec![0xCA, 0x70, 2, 1];
    foreign.resize(36, 0);
    foreign[12..16].copy_from_slice(&(group.id().0 ^ 1).to_be_bytes());
    for datagram in [&foreign[..], b"nonsense", &[]] {
        other.send_to(datagram, address).expect("sent by multicast");
        other.send_to(datagram, node.endpoint()).expect("sent by unicast");
    }
    let status = wait_for(&node, "six datagrams", |it| {
        it.stats.node.datagrams_foreign + it.stats.node.datagrams_unknown >= 6
    });
    assert_eq!(status.stats.node.datagrams_foreign, 2);
    assert_eq!(status.stats.node.datagrams_unknown, 4);
    assert_eq!(status.stats.node.datagrams_received, 0);
}
