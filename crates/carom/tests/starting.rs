//! Tests starting and closing nodes.

mod network;

use std::net::UdpSocket;
use std::sync::mpsc::sync_channel;
use std::thread;

use carom::blocking::Node;
use carom::{
    ConfirmError, Driver, Event, JoinGroupError, NodeId, Profile, PublishError, StartError,
};
use network::{PATIENCE, beside_an_absent_member, join, multicast_port, on_loopback, start};

#[test]
fn an_explicit_port_in_use_is_an_error_with_a_fix() {
    let other = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let port = other.local_addr().expect("its address").port();
    let taken = on_loopback(multicast_port()).port(port);
    let error = Node::start(taken).expect_err("the port is taken");
    assert!(matches!(error, StartError::AddressInUse { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("port {port} is in use"));
    assert!(error.fix().contains("another port"), "{}", error.fix());
}

#[test]
fn an_unknown_interface_is_an_error_that_lists_the_known() {
    let error = Node::start(Node::builder().interface("nonesuch0")).expect_err("there is none");
    assert_eq!(error.to_string(), "unknown interface 'nonesuch0'");
    assert!(error.fix().contains("127.0.0.1"), "{}", error.fix());
}

#[test]
fn a_seed_that_is_no_address_is_an_error() {
    let builder = on_loopback(multicast_port()).seeds(["10.0.0.1:x"]);
    assert!(matches!(Node::start(builder), Err(StartError::Seed { .. })));
}

#[test]
fn a_taken_default_port_is_replaced_by_a_free_one() {
    let builder = || Node::builder().interface("127.0.0.1").multicast_port(multicast_port());
    let (a, b) = (start(builder()), start(builder()));
    assert_ne!(a.endpoint(), b.endpoint());
    assert_eq!(a.endpoint().ip(), b.endpoint().ip());
}

#[test]
fn closing_a_node_ends_its_groups() {
    let (node, absent) = beside_an_absent_member();
    let group = join(&node);
    assert_eq!(group.members(), [absent]);
    assert!(matches!(group.recv_timeout(PATIENCE), Ok(Some(Event::View(_)))));
    let (told, waits) = sync_channel(0);
    thread::scope(|scope| {
        let group = &group;
        let receiver = scope.spawn(move || {
            told.send(()).expect("the main thread waits");
            group.recv()
        });
        waits.recv().expect("the thread is running");
        node.close();
        assert_eq!(receiver.join().expect("it ends"), None);
    });
    assert_eq!(group.publish("too late").err(), Some(PublishError::Closed));
    assert_eq!(group.confirm(PATIENCE), Err(ConfirmError::Closed));
}

#[test]
fn node_closes_although_threads_continue_to_publish() {
    let node = start(on_loopback(multicast_port()).static_members(Vec::new()));
    let group = join(&node);
    let (told, waits) = sync_channel(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (group, told) = (&group, told.clone());
            scope.spawn(move || {
                told.send(()).expect("the main thread waits");
                while group.publish("tick").is_ok() {}
            });
        }
        (0..2).for_each(|_| waits.recv().expect("the thread is running"));
        node.close();
    });
}

#[test]
fn group_is_joined_once_and_again_only_after_leaving() {
    let node = start(on_loopback(multicast_port()).static_members(Vec::new()));
    let group = join(&node);
    let again = node.join("prices", Profile::time_critical());
    assert!(matches!(again, Err(JoinGroupError::Refused(_))), "{again:?}");
    group.leave();
    node.join("prices", Profile::time_critical()).expect("again");
}

#[test]
fn several_nodes_share_one_driving_thread_and_end_one_by_one() {
    let driver = Driver::new().expect("a driver");
    let port = multicast_port();
    let start = |id| {
        let builder = on_loopback(port).node_id(NodeId(id)).static_members(Vec::new());
        start(builder.driver(&driver))
    };
    let nodes: Vec<Node> = (1..=8).map(start).collect();
    drop(driver);
    for (node, left) in nodes.into_iter().zip((0..8).rev()) {
        assert!(node.settled(PATIENCE), "with {left} left");
        let group = join(&node);
        node.close();
        assert_eq!(group.recv(), None);
    }
}
