//! Tests bulk groups between real nodes on loopback.

mod network;

use std::thread;
use std::time::Duration;

use carom::blocking::{Group, Node};
use carom::unstable::rdcm;
use carom::{Builder, Bytes, ConfirmError, Event, Loss, LossCause, PathChoice, Profile};
use network::{PATIENCE, multicast_port, next_event, next_message, on_loopback, start, wait_for};

fn cluster(count: usize, build: impl Fn(usize, Builder) -> Builder) -> (Vec<Node>, Vec<Group>) {
    let port = multicast_port();
    let build = |which| build(which, on_loopback(port).bulk(patient()));
    let nodes: Vec<Node> = (0..count).map(|which| start(build(which))).collect();
    let join = |node: &Node| node.join("images", Profile::bulk()).expect("a group");
    let groups: Vec<Group> = nodes.iter().map(join).collect();
    for (node, group) in nodes.iter().zip(&groups) {
        wait_for(node, "all members in the group", |_| group.members().len() == count - 1);
    }
    (nodes, groups)
}

/// Returns settings with which no receiver is evicted, even if the machine schedules it late.
fn patient() -> rdcm::Config {
    rdcm::Config {
        gone_after: Duration::from_secs(20),
        slowest: rdcm::Slowest::Wait,
        ..rdcm::Config::default()
    }
}

fn message(index: u32) -> Bytes {
    let mut bytes = index.to_be_bytes().to_vec();
    bytes.resize(MESSAGE_BYTES, index as u8);
    bytes.into()
}

fn take(group: &Group, count: u32) {
    for index in 0..count {
        assert_eq!(next_message(group).payload, message(index), "message {index}");
    }
}

#[test]
fn every_member_gets_all_in_order_despite_losses() {
    let lossy = |which, builder: Builder| match which {
        0 => builder,
        _ => builder.loss(Loss::Uniform(0.02)),
    };
    let (_nodes, groups) = cluster(4, lossy);
    send_all(&groups);
}

fn send_all(groups: &[Group]) {
    thread::scope(|scope| {
        for group in &groups[1..] {
            scope.spawn(move || take(group, MESSAGES));
        }
        (0..MESSAGES).for_each(|it| drop(groups[0].publish(message(it)).expect("published")));
        let safe = groups[0].confirm(PATIENCE).expect("confirmed");
        assert_eq!((safe.members, &safe.incomplete[..]), (groups.len() - 1, &[][..]));
    });
}

#[test]
fn without_multicast_receivers_relay_what_two_of_them_get() {
    let port = network::free_ports::<1>()[0];
    let seed = format!("127.0.0.1:{port}");
    let (nodes, groups) = cluster(6, |which, builder| {
        let builder = builder.path(PathChoice::Unicast);
        if which == 0 { builder.port(port) } else { builder.seeds([&seed]) }
    });
    send_all(&groups);
    let bytes = u64::from(MESSAGES) * MESSAGE_BYTES as u64;
    let sent: Vec<u64> = nodes.iter().map(|node| node.status().stats.net.bytes_out).collect();
    // Five copies would be five times the bytes.
    assert!(sent[0] > bytes && sent[0] < 3 * bytes, "{} of {bytes} bytes", sent[0]);
    let relayed: u64 = sent[1..].iter().sum();
    assert!(relayed > 2 * bytes, "{relayed} of {bytes} bytes");
}

#[test]
fn where_one_member_hears_no_multicast_it_alone_is_sent_a_copy() {
    let port = network::free_ports::<1>()[0];
    let seed = format!("127.0.0.1:{port}");
    let (nodes, groups) = cluster(4, |which, builder| match which {
        0 => builder.port(port),
        3 => builder.seeds([&seed]).path(PathChoice::Unicast),
        _ => builder.seeds([&seed]),
    });
    assert!(nodes.iter().all(|node| node.settled(PATIENCE)));
    send_all(&groups);
    let stats = nodes[0].status().stats;
    let bytes = u64::from(MESSAGES) * MESSAGE_BYTES as u64;
    assert!(stats.net.bytes_out > 2 * bytes && stats.net.bytes_out < 4 * bytes, "{stats:?}");
}

#[test]
fn publisher_waits_for_an_idle_application_and_loses_nothing() {
    let (_nodes, groups) = cluster(3, |_, builder| builder.queue(16));
    thread::scope(|scope| {
        let [sender, sleeper, other] = &groups[..] else { panic!("three groups") };
        scope.spawn(|| take(other, MESSAGES));
        scope.spawn(|| {
            (0..MESSAGES).for_each(|it| drop(sender.publish(message(it)).expect("published")));
        });
        // The messages exceed all buffers, so they cannot all be published until the application
        // receives some.
        thread::sleep(Duration::from_millis(300));
        take(sleeper, MESSAGES);
    });
}

#[test]
fn second_sender_is_refused() {
    let (nodes, groups) = cluster(3, |_, builder| builder);
    groups[0].publish(message(0)).expect("published");
    take(&groups[1], 1);
    groups[1].publish(message(1)).expect("the other sender is not known yet");
    loop {
        match next_event(&groups[1]) {
            Event::Lost(lost) => {
                assert_eq!((lost.sender, lost.cause), (nodes[1].id(), LossCause::AnotherSender));
                break;
            }
            Event::Message(message) => panic!("{message:?}"),
            _ => {}
        }
    }
    let refused = groups[1].confirm(PATIENCE).expect_err("no member has it");
    assert_eq!(refused, ConfirmError::GivenUp);
    groups[0].confirm(PATIENCE).expect("the first sender continues");
}

const MESSAGE_BYTES: usize = 64 << 10;
const MESSAGES: u32 = 800;
