//! A state that the members of an ordered group share, in a simulated world.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carom::sim::{Fault, Host, Link, Topology, World, WorldConfig};
use carom::{Loss, Node, Profile, Qos, SharedState, StateEvent};

const PATIENCE: Duration = Duration::from_secs(60);

/// State of each replica, by host; `None` while it has no state.
type Replicas = Rc<RefCell<BTreeMap<u32, Option<Vec<u8>>>>>;

fn world(hosts: u32, seed: u64) -> World {
    let config = WorldConfig::new(Topology::lan(hosts, Link::default()), seed);
    World::new(WorldConfig { loss: Loss::Uniform(0.03), ..config })
}

/// Runs a replica whose state is a large prefix, followed by all messages so far, one byte each.
async fn replicate(host: Host, is_founder: bool, state_bytes: usize, replicas: Replicas) {
    let node = Node::builder().start_on(&host).expect("a node");
    let group = node.join("log", Profile::ordered()).await.expect("a group");
    let shared = if is_founder { SharedState::founding } else { SharedState::joining };
    let (shared, place) = (shared(group), host.ix().0);
    if is_founder {
        replicas.borrow_mut().insert(place, Some(vec![0; state_bytes]));
    }
    let mut number = place as u8;
    loop {
        let told = match next_or_pause(&node, &shared).await {
            Some(told) => told,
            None => {
                number = number.wrapping_add(16);
                if shared.has_state() {
                    let published = shared.publish(&[number], Qos::MajorityResilient).await;
                    drop(published.expect("an open group"));
                }
                continue;
            }
        };
        match told {
            StateEvent::Message(message) => {
                let mut replicas = replicas.borrow_mut();
                let state = replicas.get_mut(&place).and_then(Option::as_mut);
                state.expect("there is a state").extend_from_slice(&message.payload);
            }
            StateEvent::Give => {
                let state = replicas.borrow()[&place].clone().expect("there is a state");
                shared.give(&state).await.expect("an open group");
            }
            StateEvent::Take(state) => {
                replicas.borrow_mut().insert(place, Some(state.to_vec()));
            }
            StateEvent::Forget => {
                replicas.borrow_mut().insert(place, None);
            }
            _ => {}
        }
    }
}

/// Returns the next action, or `None` after 20 ms.
async fn next_or_pause(node: &Node, shared: &SharedState) -> Option<StateEvent> {
    let (mut told, mut pause) =
        (Box::pin(shared.recv()), Box::pin(node.sleep(Duration::from_millis(20))));
    std::future::poll_fn(|context| {
        if let std::task::Poll::Ready(told) = told.as_mut().poll(context) {
            return std::task::Poll::Ready(told);
        }
        pause.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Asserts that all states are equal up to the length of the shorter one.
fn assert_same(replicas: &Replicas, least: usize) {
    let replicas = replicas.borrow();
    let states: Vec<&Vec<u8>> = replicas.values().flatten().collect();
    assert!(states.len() >= least, "{} have a state", states.len());
    for pair in states.windows(2) {
        let common = pair[0].len().min(pair[1].len());
        assert!(pair[0][..common] == pair[1][..common], "two histories");
    }
}

#[test]
fn joiner_gets_the_state_and_continues_from_it() {
    for (seed, state_bytes) in [(1, 0), (2, 10_000), (3, 100)] {
        let mut world = world(4, seed);
        let replicas = Replicas::default();
        for place in 0..4 {
            let host = world.host(place);
            let replica = replicate(host.clone(), place == 0, state_bytes, Rc::clone(&replicas));
            world.spawn(&host, replica);
            world.run_for(Duration::from_secs(2));
        }
        assert_same(&replicas, 4);
        // The giver of the state and other members crash. Those that return receive it again.
        for place in [0, 2, 1] {
            world.crash(&world.host(place));
            replicas.borrow_mut().remove(&place);
            world.run_for(Duration::from_secs(3));
            let host = world.host(place);
            let replica = replicate(host.clone(), false, state_bytes, Rc::clone(&replicas));
            world.spawn(&host, replica);
            world.run_for(Duration::from_secs(3));
            assert_same(&replicas, 4);
        }
        let replicas = replicas.borrow();
        let lengths: Vec<usize> = replicas.values().flatten().map(Vec::len).collect();
        assert!(lengths.iter().all(|length| *length > state_bytes + 100), "{lengths:?}");
    }
}

#[test]
fn cut_off_member_replaces_its_state_with_that_of_the_others() {
    let mut world = world(3, 5);
    let replicas = Replicas::default();
    for place in 0..3 {
        let host = world.host(place);
        world.spawn(&host.clone(), replicate(host, place == 0, 0, Rc::clone(&replicas)));
        world.run_for(Duration::from_secs(2));
    }
    world.apply(&Fault::Partition(vec![world.host(0).ix()]));
    world.run_for(Duration::from_secs(5));
    let behind = replicas.borrow()[&0].as_ref().map(Vec::len);
    world.apply(&Fault::Heal);
    world.run_for(Duration::from_secs(10));
    assert_same(&replicas, 3);
    assert!(replicas.borrow()[&0].as_ref().map(Vec::len) > behind.map(|it| it + 100));
    world.run_for(PATIENCE);
    assert_same(&replicas, 3);
}

#[test]
fn joiner_without_state_keeps_a_bounded_queue_and_can_rejoin() {
    let mut world = world(2, 7);
    let [giver, taker] =
        [0, 1].map(|host| Node::builder().start_on(&world.host(host)).expect("a node"));
    let program = async {
        let join = |node: Node| async move {
            let group = node.join("log", Profile::ordered()).await.expect("a group");
            (group, node)
        };
        let (group, giver) = join(giver).await;
        let founder = SharedState::founding(group);
        let (group, taker) = join(taker).await;
        let joiner = SharedState::joining(group).keeping(100_000);
        while !matches!(founder.recv().await, Some(StateEvent::Give)) {}
        // The founder does not give the state.
        let mut sent = 0;
        let not_given = loop {
            drop(founder.publish(&[0; 1000], Qos::TotallyOrdered).await.expect("an open group"));
            sent += 1;
            match next_or_pause(&taker, &joiner).await {
                Some(StateEvent::NotGiven { messages, bytes }) => break (messages, bytes),
                Some(StateEvent::Message(message)) => panic!("without a state: {message:?}"),
                _ => {}
            }
        };
        assert!((100_000..102_000).contains(&not_given.1), "{not_given:?} of {sent}");
        assert!((50..100).contains(&not_given.0) && not_given.0 <= sent, "{not_given:?} of {sent}");
        while joiner.recv().await.is_some() {}
        let (group, taker) = join(taker).await;
        let joiner = SharedState::joining(group);
        while !matches!(founder.recv().await, Some(StateEvent::Give)) {}
        founder.give(b"the state").await.expect("an open group");
        loop {
            match joiner.recv().await.expect("an open group") {
                StateEvent::Take(state) => break assert_eq!(&state[..], b"the state"),
                StateEvent::Message(message) => panic!("without a state: {message:?}"),
                _ => {}
            }
        }
        drop((giver, taker));
    };
    world.block_on(PATIENCE, program).expect("in time");
}
