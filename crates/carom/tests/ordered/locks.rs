use std::cell::Cell;
use std::time::Duration;

use carom::sim::Fault;
use carom::{ConfirmError, LockError, Loss, Node, Profile, RequestError};
use carom::{ReplyError, RequestId, RequestOptions};

use crate::ring;
use crate::simulation::{run, start};

const LOSS: Loss = Loss::Uniform(0.02);

#[test]
fn one_task_at_a_time_holds_a_lock_and_each_has_its_turn() {
    let (mut world, nodes, groups) = ring::<3>(1, LOSS);
    let (inside, last_fence, turns) = (Cell::new(0), Cell::new(0), Cell::new(0));
    run(&mut world, async {
        let take_turns = async |member: usize| {
            for _ in 0..5 {
                let lock = groups[member].lock("the ledger").await.expect("the lock is released");
                assert_eq!(inside.replace(1), 0, "two tasks hold it");
                assert!(lock.is_held() && lock.fence() > last_fence.replace(lock.fence()));
                nodes[member].sleep(Duration::from_millis(3)).await;
                inside.set(0);
                turns.set(turns.get() + 1);
            }
        };
        let twice = || async { tokio::join!(take_turns(0), take_turns(1), take_turns(2)) };
        tokio::join!(twice(), twice());
    });
    assert_eq!(turns.get(), 30);
}

#[test]
fn held_lock_is_refused_without_waiting_and_names_its_holder() {
    let (mut world, nodes, groups) = ring::<2>(2, LOSS);
    run(&mut world, async {
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
    });
}

#[test]
fn the_lock_of_a_crashed_node_goes_to_the_next() {
    let (mut world, _nodes, groups) = ring::<3>(3, LOSS);
    let held = run(&mut world, groups[2].lock("a")).expect("free");
    let fence = held.fence();
    world.crash(&world.host(2));
    let next = run(&mut world, groups[0].lock("a")).expect("freed");
    assert!(next.fence() > fence);
    assert!(!held.is_held(), "the node is gone");
}

#[test]
fn cut_off_member_loses_its_lock_and_learns_it() {
    let (mut world, _nodes, groups) = ring::<3>(4, LOSS);
    let held = run(&mut world, groups[2].lock("a")).expect("free");
    world.apply(&Fault::Partition(vec![world.host(2).ix()]));
    let next = run(&mut world, groups[0].lock("a")).expect("freed");
    assert!(next.fence() > held.fence());
    world.apply(&Fault::Heal);
    run(&mut world, held.lost());
    assert!(!held.is_held());
    drop(held);
    // A late release has no effect on the other holder.
    world.run_for(Duration::from_secs(2));
    assert!(next.is_held());
    drop(next);
    run(&mut world, groups[2].lock("a")).expect("it is back in the ring");
}

#[test]
fn abandoned_lock_requests_are_withdrawn_from_the_ring() {
    let (mut world, nodes, groups) = ring::<3>(5, LOSS);
    run(&mut world, async {
        let held = groups[0].lock("a").await.expect("free");
        // More tasks give up than may wait at the same time.
        let limit = Duration::from_millis(20);
        for _ in 0..1100 {
            let late = groups[1].lock_timeout("a", limit).await.err();
            assert_eq!(late, Some(LockError::Timeout(limit)));
        }
        let late = tokio::select! {
            biased;
            _ = groups[1].lock("a") => false,
            () = nodes[1].sleep(Duration::from_millis(500)) => true,
        };
        assert!(late, "it is held, and this one may wait");
        nodes[1].sleep(Duration::from_millis(500)).await;
        let status = nodes[0].status().await;
        let ring = status.groups[0].ring.as_ref().expect("it is in the ring");
        assert_eq!(ring.view.locks.waiting(held.name()).count(), 0);
    });
}

#[test]
fn stale_handle_does_nothing_in_a_group_that_was_rejoined() {
    let mut world = crate::simulation::world(2, 6, Loss::None);
    let nodes: [Node; 2] = start(&world, || Node::builder().queue(100));
    run(&mut world, async {
        let profile = Profile::ordered().rejoin(false);
        let stale = nodes[0].join("jobs", profile).await.expect("a group");
        let other = nodes[1].join("jobs", profile).await.expect("a group");
        other.wait_for_members(1).await.expect("open");
        // This member's application receives no events, so it is removed from the ring.
        for number in 0..500 {
            drop(other.publish(format!("{number}")).await.expect("published"));
            while other.try_recv().is_some() {}
            nodes[1].sleep(Duration::from_millis(1)).await;
        }
        while stale.recv().await.is_some() {}
        let again = nodes[0].join("jobs", profile).await.expect("a group");
        again.wait_for_members(1).await.expect("open");
        assert_eq!(stale.lock("a").await.err(), Some(LockError::Closed));
        assert_eq!(stale.confirm(Duration::from_secs(5)).await, Err(ConfirmError::Closed));
        let asked = stale.request("x", RequestOptions::default()).await;
        assert_eq!(asked, Err(RequestError::Closed));
        let id = RequestId { caller: nodes[1].id(), number: 1 };
        assert_eq!(stale.reply(id, "x").await, Err(ReplyError::NotJoined));
        drop(other.lock_if_free("a").await.expect("the lock is free"));
    });
}
