//! Locks of ordered groups on the public API, in a simulated world.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use carom::sim::{Fault, Link, Topology, World, WorldConfig};
use carom::{ConfirmError, Group, LockError, Loss, Node, Profile, RequestError};
use carom::{ReplyError, RequestId, RequestOptions};

const PATIENCE: Duration = Duration::from_secs(120);

fn world(hosts: u32, seed: u64) -> (World, Vec<Node>) {
    let config = WorldConfig::new(Topology::lan(hosts, Link::default()), seed);
    let world = World::new(WorldConfig { loss: Loss::Uniform(0.02), ..config });
    let start = |host| Node::builder().start_on(host).expect("a node");
    let nodes = world.hosts().iter().map(start).collect();
    (world, nodes)
}

async fn join_all(nodes: &[Node]) -> Vec<Group> {
    let mut groups = Vec::new();
    for node in nodes {
        groups.push(node.join("jobs", Profile::ordered()).await.expect("a group"));
    }
    while groups.iter().any(|group| group.members().len() + 1 < nodes.len()) {
        nodes[0].sleep(Duration::from_millis(5)).await;
    }
    groups
}

/// Runs all tasks concurrently.
async fn all(mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    std::future::poll_fn(|context| {
        tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn one_task_at_a_time_holds_a_lock_and_each_has_its_turn() {
    let (mut world, nodes) = world(3, 1);
    let (inside, last_fence) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let turns = Rc::new(Cell::new(0));
    let program = async {
        let groups = join_all(&nodes).await;
        let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
        for (node, group) in nodes.iter().zip(&groups).chain(nodes.iter().zip(&groups)) {
            let (inside, last_fence) = (Rc::clone(&inside), Rc::clone(&last_fence));
            let turns = Rc::clone(&turns);
            tasks.push(Box::pin(async move {
                for _ in 0..5 {
                    let lock = group.lock("the ledger").await.expect("it is given back");
                    assert_eq!(inside.replace(1), 0, "two hold it");
                    assert!(lock.is_held() && lock.fence() > last_fence.replace(lock.fence()));
                    node.sleep(Duration::from_millis(3)).await;
                    inside.set(0);
                    turns.set(turns.get() + 1);
                }
            }));
        }
        all(tasks).await;
    };
    world.block_on(PATIENCE, program).expect("in time");
    assert_eq!(turns.get(), 30);
}

#[test]
fn held_lock_is_refused_without_waiting_and_names_its_holder() {
    let (mut world, nodes) = world(2, 2);
    let program = async {
        let groups = join_all(&nodes).await;
        let held = groups[0].lock("a").await.expect("free");
        let refused = groups[1].lock_if_free("a").await.err();
        assert_eq!(refused, Some(LockError::Refused { holder: Some(nodes[0].id()) }));
        assert_eq!(groups[0].lock_if_free("a").await.err(), Some(LockError::HeldHere));
        let limit = Duration::from_millis(200);
        let late = groups[1].lock_timeout("a", limit).await.err();
        assert_eq!(late, Some(LockError::Timeout(limit)));
        drop(groups[1].lock_if_free("b").await.expect("another lock is free"));
        drop(held);
        // A task that gave up waiting is skipped, and does not keep a lock that it no longer takes.
        let lock = groups[0].lock_timeout("a", Duration::from_secs(5)).await;
        drop(lock.expect("it was passed on"));
        drop(groups[1].lock_timeout("a", Duration::from_secs(5)).await.expect("free"));
        let unordered = nodes[0].join("b", Profile::time_critical()).await.expect("a group");
        assert_eq!(unordered.lock("a").await.err(), Some(LockError::NoLocks));
    };
    world.block_on(PATIENCE, program).expect("in time");
}

#[test]
fn the_lock_of_a_crashed_node_goes_to_the_next() {
    let (mut world, nodes) = world(3, 3);
    let groups = world.block_on(PATIENCE, join_all(&nodes)).expect("joined");
    let held = world.block_on(PATIENCE, groups[2].lock("a")).expect("in time").expect("free");
    let fence = held.fence();
    world.crash(&world.host(2));
    let next = world.block_on(PATIENCE, groups[0].lock("a")).expect("in time").expect("freed");
    assert!(next.fence() > fence);
    assert!(!held.is_held(), "the node is gone");
}

#[test]
fn cut_off_member_loses_its_lock_and_learns_it() {
    let (mut world, nodes) = world(3, 4);
    let groups = world.block_on(PATIENCE, join_all(&nodes)).expect("joined");
    let held = world.block_on(PATIENCE, groups[2].lock("a")).expect("in time").expect("free");
    world.apply(&Fault::Partition(vec![world.host(2).ix()]));
    let next = world.block_on(PATIENCE, groups[0].lock("a")).expect("in time").expect("freed");
    assert!(next.fence() > held.fence());
    world.apply(&Fault::Heal);
    world.block_on(PATIENCE, held.lost()).expect("it is told");
    assert!(!held.is_held());
    drop(held);
    // A late release has no effect on the other holder.
    world.run_for(Duration::from_secs(2));
    assert!(next.is_held());
    drop(next);
    let again = world.block_on(PATIENCE, groups[2].lock("a")).expect("in time");
    again.expect("it is back in the ring");
}

#[test]
fn abandoned_lock_requests_are_withdrawn_from_the_ring() {
    let (mut world, nodes) = world(3, 5);
    let program = async {
        let groups = join_all(&nodes).await;
        let held = groups[0].lock("a").await.expect("free");
        // More tasks give up than may wait at the same time.
        let limit = Duration::from_millis(20);
        for _ in 0..1100 {
            let late = groups[1].lock_timeout("a", limit).await.err();
            assert_eq!(late, Some(LockError::Timeout(limit)));
        }
        let waiting = Box::pin(groups[1].lock("a"));
        let late = Box::pin(nodes[1].sleep(Duration::from_millis(500)));
        assert!(first(waiting, late).await.is_none(), "it is held, and this one may wait");
        nodes[1].sleep(Duration::from_millis(500)).await;
        let status = nodes[0].status().await;
        let ring = status.groups[0].ring.as_ref().expect("it is in the ring");
        assert_eq!(ring.view.locks.waiting(held.name()).count(), 0);
    };
    world.block_on(PATIENCE, program).expect("in time");
}

/// Returns the output of the lock, or `None` if the other future completes first.
async fn first<T>(
    mut lock: Pin<Box<impl Future<Output = T>>>,
    mut other: Pin<Box<impl Future<Output = ()>>>,
) -> Option<T> {
    std::future::poll_fn(|context| match lock.as_mut().poll(context) {
        Poll::Ready(lock) => Poll::Ready(Some(lock)),
        Poll::Pending => other.as_mut().poll(context).map(|()| None),
    })
    .await
}

#[test]
fn stale_handle_does_nothing_in_a_group_that_was_rejoined() {
    let config = WorldConfig::new(Topology::lan(2, Link::default()), 6);
    let mut world = World::new(config);
    let start = |host| Node::builder().queue(100).start_on(host).expect("a node");
    let nodes: Vec<Node> = world.hosts().iter().map(start).collect();
    let program = async {
        let profile = Profile::ordered().rejoin(false);
        let stale = nodes[0].join("jobs", profile).await.expect("a group");
        let other = nodes[1].join("jobs", profile).await.expect("a group");
        while other.members().is_empty() {
            nodes[1].sleep(Duration::from_millis(5)).await;
        }
        // Its application takes no events, and is removed from the ring.
        for number in 0..500 {
            drop(other.publish(format!("{number}")).await.expect("published"));
            while other.try_recv().is_some() {}
            nodes[1].sleep(Duration::from_millis(1)).await;
        }
        while stale.recv().await.is_some() {}
        let again = nodes[0].join("jobs", profile).await.expect("a group");
        while again.members().is_empty() {
            nodes[0].sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(stale.lock("a").await.err(), Some(LockError::Closed));
        assert_eq!(stale.confirm(Duration::from_secs(5)).await, Err(ConfirmError::Closed));
        let asked = stale.request("x", RequestOptions::default()).await;
        assert_eq!(asked, Err(RequestError::Closed));
        let id = RequestId { caller: nodes[1].id(), number: 1 };
        assert_eq!(stale.reply(id, "x").await, Err(ReplyError::NotJoined));
        drop(other.lock_if_free("a").await.expect("the lock is free"));
    };
    world.block_on(PATIENCE, program).expect("in time");
}
