//! Tests that nodes find each other by gossip over real sockets.

mod network;

use std::net::UdpSocket;

use carom::blocking::Group;
use carom::{Driver, Event, MemberPath};
use carom::{JoinError, JoinGroupError, PathChoice, Profile, ViewChangeKind};
use network::{PATIENCE, join, multicast_port, next_event, on_loopback, start, wait_for};

fn next_change(group: &Group) -> (carom::NodeId, ViewChangeKind) {
    loop {
        match next_event(group) {
            Event::View(change) => return (change.node, change.kind),
            _ => continue,
        }
    }
}

#[test]
fn nodes_of_a_local_network_find_each_other_by_multicast() {
    let port = multicast_port();
    let nodes = [(); 3].map(|()| start(on_loopback(port)));
    for node in &nodes {
        let status = wait_for(node, "two members", |status| status.members.len() == 2);
        assert!(status.members.iter().all(|it| it.endpoint.ip() == node.endpoint().ip()));
    }
}

#[test]
fn networks_with_other_multicast_ports_stay_apart() {
    let a = start(on_loopback(multicast_port()));
    let seed = a.endpoint().to_string();
    let b = start(on_loopback(multicast_port()).seeds([&seed]));
    assert!(a.settled(PATIENCE) && b.settled(PATIENCE));
    let error = b.join("prices", Profile::time_critical()).expect_err("its network is empty");
    assert_eq!(error, JoinGroupError::NoSeedAnswered { seeds: vec![seed] });
    assert!(a.status().members.is_empty() && b.status().members.is_empty());
}

#[test]
fn nodes_without_multicast_find_each_other_through_a_seed() {
    let port = multicast_port();
    let alone = || on_loopback(port).path(PathChoice::Unicast);
    let a = start(alone());
    let seed = a.endpoint().to_string();
    let b = start(alone().seeds([&seed]));
    let c = start(alone().seeds([&seed]));
    for node in [&a, &b, &c] {
        let status = wait_for(node, "two members", |status| status.members.len() == 2);
        assert!(status.members.iter().all(|it| it.path == MemberPath::Unicast));
    }
}

#[test]
fn members_see_each_other_join_and_leave() {
    let port = multicast_port();
    let [a, b] = [(); 2].map(|()| start(on_loopback(port)));
    let (in_a, in_b) = (join(&a), join(&b));
    assert_eq!(next_change(&in_a), (b.id(), ViewChangeKind::Joined));
    assert_eq!(next_change(&in_b), (a.id(), ViewChangeKind::Joined));
    assert_eq!(in_a.members(), [b.id()]);
    in_b.leave();
    assert_eq!(next_change(&in_a), (b.id(), ViewChangeKind::Left));
    let _in_b = join(&b);
    assert_eq!(next_change(&in_a), (b.id(), ViewChangeKind::Joined));
    let id = b.id();
    b.close();
    assert_eq!(next_change(&in_a), (id, ViewChangeKind::Left));
    wait_for(&a, "nobody left", |status| status.members.is_empty());
}

#[test]
fn seeds_of_which_none_answers_are_an_error_at_join() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket that never answers");
    let seed = silent.local_addr().expect("its address").to_string();
    let node = start(on_loopback(multicast_port()).seeds([&seed]));
    let error = node.join("prices", Profile::time_critical()).expect_err("no node answers");
    assert_eq!(error, JoinGroupError::NoSeedAnswered { seeds: vec![seed.clone()] });
    assert_eq!(error.to_string(), format!("no seed answered: {seed}"));
    assert!(node.status().groups.is_empty());
}

#[test]
fn settings_that_contradict_the_group_are_an_error_at_join() {
    let port = multicast_port();
    let a = start(on_loopback(port));
    let _in_a = join(&a);
    let b = start(on_loopback(port));
    let error = b
        .join("prices", Profile::time_critical().rate_of_fire(4, 2))
        .expect_err("the group has other settings");
    let JoinGroupError::Refused(JoinError::Contradiction { by, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(by, a.id());
    assert!(b.status().groups.is_empty());
    assert_eq!(error.fix(), "join with time-critical (8,5)");
}

#[test]
fn many_nodes_on_one_driver_find_each_other() {
    let driver = Driver::new().expect("a driver");
    let port = multicast_port();
    let nodes = [(); 12].map(|()| start(on_loopback(port).driver(&driver)));
    for node in &nodes {
        wait_for(node, "eleven members on known paths", |status| {
            let is_reached = |it: &carom::MemberStatus| it.path == MemberPath::Multicast;
            status.members.len() == 11 && status.members.iter().all(is_reached)
        });
    }
}
