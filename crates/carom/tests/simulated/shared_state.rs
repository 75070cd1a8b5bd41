//! A shared state whose members join and crash during a transfer.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use carom::sim::{Host, Link, Topology, World, WorldConfig};
use carom::unstable::rmp;
use carom::{Node, NodeId, Profile, Qos, SharedState, StateEvent, Time};

use crate::PATIENCE;

/// State of a member's application.
#[derive(Default)]
struct Replica {
    state: Option<Vec<u8>>,
    /// Number of requests to give the state.
    gives: usize,
    /// Number of reports that no member has the state.
    told_of_no_holder: usize,
    /// Number of members of its ring.
    ring: usize,
    /// Number of delivered messages, including pieces of the state.
    delivered: u64,
}

/// Members by host.
#[derive(Clone, Default)]
struct Replicas(Rc<RefCell<BTreeMap<u32, Replica>>>);

impl Replicas {
    fn of(&self, host: u32) -> Ref<'_, Replica> {
        Ref::map(self.0.borrow(), |replicas| &replicas[&host])
    }

    fn change(&self, host: u32, change: impl FnOnce(&mut Replica)) {
        change(self.0.borrow_mut().entry(host).or_default());
    }

    /// Returns `true` if pieces have arrived, but not the whole state.
    fn is_in_transfer(&self, host: u32) -> bool {
        let replica = self.of(host);
        replica.state.is_none() && replica.delivered > 20
    }

    fn start(&self, world: &mut World, host: u32, is_founder: bool) {
        let host = world.host(host);
        self.change(host.ix().0, |replica| *replica = Replica::default());
        world.spawn(&host.clone(), take_part(host, is_founder, self.clone()));
    }
}

/// Creates a world whose links need about three seconds for the state.
fn slow_world(hosts: u32, seed: u64) -> World {
    let link = Link { bandwidth: Some(8_000_000), queue_bytes: 1 << 20, ..Link::default() };
    World::new(WorldConfig::new(Topology::lan(hosts, link), seed))
}

fn run_until(world: &mut World, is_so: impl Fn() -> bool) {
    let limit = world.now() + PATIENCE;
    while !is_so() {
        assert!(world.now() < limit, "it never came to that");
        world.run_for(STEP);
    }
}

/// Runs a member that executes all required actions, and publishes a byte periodically.
async fn take_part(host: Host, is_founder: bool, replicas: Replicas) {
    let at = host.ix().0;
    let ordered = rmp::Config { message_bytes: PIECE_BYTES, ..rmp::Config::default() };
    let builder = Node::builder().node_id(NodeId(u64::from(at) + 1)).ordered(ordered);
    let node = builder.start_on(&host).expect("a node");
    let group = node.join("log", Profile::ordered()).await.expect("a group");
    let shared = if is_founder { SharedState::founding } else { SharedState::joining };
    let shared = shared(group);
    if is_founder {
        replicas.change(at, |it| it.state = Some((0..STATE_BYTES).map(|at| at as u8).collect()));
    }
    let mut due = node.now();
    loop {
        let Some(told) = next_until(due, &node, &shared).await else {
            due = node.now() + Duration::from_millis(50);
            let status = node.status().await;
            let ring = status.groups.first().and_then(|group| group.ring.as_ref());
            replicas.change(at, |it| {
                it.ring = ring.map_or(0, |ring| ring.view.len());
                it.delivered = status.stats.ordered.delivered;
            });
            drop(shared.publish(&[at as u8], Qos::TotallyOrdered).await.expect("an open group"));
            continue;
        };
        match told {
            StateEvent::Message(message) => replicas.change(at, |it| {
                let state = it.state.as_mut().expect("there is a state");
                state.extend_from_slice(&message.payload);
            }),
            StateEvent::Give => {
                replicas.change(at, |it| it.gives += 1);
                let state = replicas.of(at).state.clone().expect("there is a state");
                shared.give(&state).await.expect("an open group");
            }
            StateEvent::Take(state) => replicas.change(at, |it| it.state = Some(state.to_vec())),
            StateEvent::NoHolder => replicas.change(at, |it| it.told_of_no_holder += 1),
            StateEvent::Event(_) => {}
            other => panic!("{at}: {other:?}"),
        }
    }
}

/// Returns the next action, or `None` at the time `due`.
async fn next_until(due: Time, node: &Node, shared: &SharedState) -> Option<StateEvent> {
    let mut told = Box::pin(shared.recv());
    let mut pause = Box::pin(node.sleep(due.since(node.now())));
    std::future::poll_fn(|context| match pause.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => told.as_mut().poll(context),
    })
    .await
}

/// Asserts that all members have the state and later messages, equal up to the length of the
/// shortest.
fn assert_same_state(replicas: &Replicas, hosts: &[u32]) {
    let states: Vec<Vec<u8>> =
        hosts.iter().map(|host| replicas.of(*host).state.clone().expect("a state")).collect();
    let common = states.iter().map(Vec::len).min().unwrap_or_default();
    assert!(common > STATE_BYTES, "{common} bytes");
    assert!(states.iter().all(|state| state[..common] == states[0][..common]), "two histories");
}

#[test]
fn newcomers_learn_that_all_holders_died_in_a_transfer() {
    let mut world = slow_world(3, 31);
    let replicas = Replicas::default();
    replicas.start(&mut world, 0, true);
    world.run_for(Duration::from_secs(2));
    [1, 2].into_iter().for_each(|host| replicas.start(&mut world, host, false));
    run_until(&mut world, || {
        [1, 2].into_iter().all(|host| replicas.of(host).ring == 3 && replicas.is_in_transfer(host))
    });
    assert_eq!(replicas.of(0).gives, 1);
    let holder = world.host(0);
    world.crash(&holder);
    run_until(&mut world, || [1, 2].iter().all(|host| replicas.of(*host).told_of_no_holder == 1));
    world.run_for(Duration::from_secs(5));
    for host in [1, 2] {
        let replica = replicas.of(host);
        assert_eq!((replica.told_of_no_holder, replica.ring), (1, 2), "once in a view");
        assert!(replica.state.is_none(), "a part of the state is none");
    }
}

#[test]
fn transfer_resumes_and_completes_when_members_come_and_die() {
    let mut world = slow_world(4, 32);
    let replicas = Replicas::default();
    replicas.start(&mut world, 0, true);
    world.run_for(Duration::from_secs(2));
    [1, 2].into_iter().for_each(|host| replicas.start(&mut world, host, false));
    run_until(&mut world, || replicas.of(1).ring == 3 && replicas.is_in_transfer(1));
    replicas.start(&mut world, 3, false);
    run_until(&mut world, || replicas.of(1).ring == 4);
    let dies = world.host(2);
    world.crash(&dies);
    run_until(&mut world, || replicas.of(1).ring == 3);
    assert!(replicas.is_in_transfer(1), "the transfer was over before the view changed");
    run_until(&mut world, || [1, 3].into_iter().all(|host| replicas.of(host).state.is_some()));
    // One transfer to the members at its start, and one to the member that joined during it.
    assert_eq!((replicas.of(0).gives, replicas.of(1).gives), (2, 0));
    world.run_for(Duration::from_secs(2));
    assert_same_state(&replicas, &[0, 1, 3]);
}

#[test]
fn next_holder_gives_the_state_when_the_giver_dies() {
    let mut world = slow_world(3, 33);
    let replicas = Replicas::default();
    replicas.start(&mut world, 0, true);
    world.run_for(Duration::from_secs(2));
    replicas.start(&mut world, 1, false);
    run_until(&mut world, || replicas.of(1).state.is_some());
    replicas.start(&mut world, 2, false);
    run_until(&mut world, || replicas.is_in_transfer(2));
    assert_eq!((replicas.of(0).gives, replicas.of(1).gives), (2, 0));
    let giver = world.host(0);
    world.crash(&giver);
    run_until(&mut world, || replicas.of(2).state.is_some());
    assert_eq!((replicas.of(1).gives, replicas.of(2).told_of_no_holder), (1, 0));
    world.run_for(Duration::from_secs(2));
    assert_same_state(&replicas, &[1, 2]);
}

const STEP: Duration = Duration::from_millis(10);
const STATE_BYTES: usize = 2 << 20;
/// Maximum size of a message, for a state in many pieces.
const PIECE_BYTES: usize = 16 << 10;
