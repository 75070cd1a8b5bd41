use std::time::Duration;

use carom::sim::{Fault, Membership, World};
use carom::{ConfirmError, JoinGroupError, Loss, Node, Profile, PublishError, StartError};
use pollster::block_on;

use crate::{PATIENCE, config, join, join_with, run, start, started};

#[test]
fn handles_that_outlive_their_host_find_the_node_closed() {
    let (mut world, [node]) = started::<1>(4, Loss::None);
    let host = world.host(0);
    let group = run(&mut world, join(&node));
    world.crash(&host);
    assert_eq!(group.try_publish("too late").err(), Some(PublishError::Closed));
    assert_eq!(world.block_on(PATIENCE, group.recv()), Some(None));
    let again = world.block_on(PATIENCE, node.join("b", Profile::time_critical()));
    assert!(matches!(again, Some(Err(JoinGroupError::Closed))));
    // Handles of the dead node do not affect its successor.
    let successor = Node::builder().start_on(&host).expect("a node");
    drop((group, node));
    assert!(world.block_on(PATIENCE, successor.status()).is_some());
    let group = run(&mut world, join(&successor));
    drop(world);
    assert_eq!(group.try_publish("too late").err(), Some(PublishError::Closed));
    block_on(async {
        assert_eq!(group.recv().await, None);
        successor.sleep(PATIENCE).await;
        assert_eq!(group.confirm(PATIENCE).await, Err(ConfirmError::Closed));
    });
}

#[test]
fn a_host_has_one_node_at_a_time() {
    let (mut world, [first]) = started::<1>(5, Loss::None);
    let host = world.host(0);
    let second = Node::builder().start_on(&host);
    assert!(matches!(second, Err(StartError::AddressInUse { port: 7400, multicast: false })));
    let first_id = first.id();
    drop(first);
    let second = Node::builder().start_on(&host).expect("there is room again");
    assert_ne!(second.id(), first_id);
    let group = run(&mut world, join(&second));
    drop(group.try_publish("alone").expect("published"));
}

#[test]
fn new_node_on_a_paused_host_ends_the_previous_one() {
    let delay = Duration::from_millis(5);
    let mut world = World::with_membership(config(2, 31), Membership::Oracle { delay });
    let [here, there] = start(&world);
    let host = world.host(1);
    let (others, group) = run(&mut world, async {
        let others = join(&there).await;
        (others, join_with(&here, 1).await)
    });
    world.apply(&Fault::Pause(host.ix()));
    drop((others, there));
    let _next = Node::builder().start_on(&host).expect("the first node's handle is gone");
    world.run_for(Duration::from_secs(1));
    assert_eq!(group.members(), [], "the first node is gone, and the next is in no group");
    world.apply(&Fault::Resume(host.ix()));
}
