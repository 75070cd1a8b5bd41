//! Tests tasks of an async program on real nodes: waiting, sleeping and giving up.

mod network;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use carom::{Deadline, Driver, Event, JoinGroupError, Profile, Timeout};
use network::{
    PATIENCE, beside_an_absent_member, join, multicast_port, on_loopback, start, wait_for,
};
use pollster::block_on;

fn is_pending(future: impl Future) -> bool {
    matches!(pin!(future).poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
}

#[test]
fn every_call_that_waits_has_a_form_for_tasks() {
    let port = multicast_port();
    let [a, b] = [(), ()].map(|()| on_loopback(port).start().expect("a node"));
    block_on(async {
        let in_a = a.join("prices", Profile::time_critical()).await.expect("a group");
        let in_b = b.join("prices", Profile::time_critical()).await.expect("a group");
        in_a.wait_for_members(1).await.expect("open");
        in_b.wait_for_members(1).await.expect("open");
        assert!(a.settled(PATIENCE).await && b.settled(PATIENCE).await);
        let deadline = Deadline(Duration::from_secs(60));
        in_a.publish_with("EURUSD", deadline).await.expect("published");
        let safe = in_a.confirm(PATIENCE).await.expect("confirmed");
        assert_eq!((safe.members, safe.incomplete), (1, vec![]));
        let message = loop {
            match in_b.recv_timeout(PATIENCE).await.expect("in time").expect("open") {
                Event::Message(message) => break message,
                _ => continue,
            }
        };
        assert_eq!(&message.payload[..], b"EURUSD");
        assert_eq!(a.status().await.groups[0].members, [b.id()]);
        let again = a.join("prices", Profile::time_critical()).await;
        assert!(matches!(again, Err(JoinGroupError::Refused(_))));
    });
}

#[test]
fn what_takes_too_long_ends_in_time() {
    let (node, _absent) = beside_an_absent_member();
    let node = node.as_async();
    let group = block_on(node.join("prices", Profile::time_critical())).expect("a group");
    let wait = Duration::from_millis(20);
    let start = Instant::now();
    block_on(async {
        // The view of the static membership is an event.
        assert!(matches!(group.recv().await, Some(Event::View(_))));
        assert_eq!(group.recv_timeout(wait).await, Err(Timeout(wait)));
        assert!(!node.settled(wait).await, "the absent member's path is not known yet");
    });
    assert!(start.elapsed() >= 2 * wait);
}

#[test]
fn a_join_that_a_task_gives_up_leaves_the_group_again() {
    let node = start(on_loopback(multicast_port()));
    assert!(is_pending(node.as_async().join("prices", Profile::time_critical())));
    wait_for(&node, "the group is left again", |status| status.groups.is_empty());
    let group = join(&node);
    assert_eq!(node.status().groups.len(), 1, "{group:?}");
}

#[test]
fn tasks_sleep_by_the_clock_that_nodes_on_one_driver_share() {
    let driver = Driver::new().expect("a driver");
    let port = multicast_port();
    let [a, b] = [(), ()].map(|()| on_loopback(port).driver(&driver).start().expect("a node"));
    let (start, span) = (a.now(), Duration::from_millis(20));
    block_on(async {
        let (first, second) = (a.sleep(span), b.sleep(2 * span));
        first.await;
        assert!(b.now().since(start) >= span);
        second.await;
        assert!(a.now().since(start) >= 2 * span);
    });
}
