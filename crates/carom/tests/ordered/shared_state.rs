use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carom::sim::{Fault, Host, Link, Topology, World, WorldConfig};
use carom::unstable::rmp;
use carom::{Loss, Node, NodeId, Profile, Qos, SharedState, StateEvent, Time};

use crate::simulation::{PATIENCE, run, started, world};

#[derive(Default)]
struct Replica {
    state: Option<Vec<u8>>,
    gives: usize,
    told_of_no_holder: usize,
    ring: usize,
    /// Number of delivered messages, including pieces of the state.
    delivered: u64,
}

/// The replicas, by host. The founder's state initially has `state_bytes` bytes.
#[derive(Clone, Default)]
struct Replicas {
    by_host: Rc<RefCell<BTreeMap<u32, Replica>>>,
    state_bytes: usize,
    ordered: rmp::Config,
}

impl Replicas {
    fn new(state_bytes: usize) -> Self {
        Self { state_bytes, ..Self::default() }
    }

    fn large() -> Self {
        let ordered = rmp::Config { message_bytes: PIECE_BYTES, ..rmp::Config::default() };
        Self { ordered, ..Self::new(STATE_BYTES) }
    }

    fn of(&self, host: u32) -> Ref<'_, Replica> {
        Ref::map(self.by_host.borrow(), |replicas| &replicas[&host])
    }

    fn change(&self, host: u32, change: impl FnOnce(&mut Replica)) {
        change(self.by_host.borrow_mut().entry(host).or_default());
    }

    fn length(&self, host: u32) -> Option<usize> {
        self.of(host).state.as_ref().map(Vec::len)
    }

    fn is_in_transfer(&self, host: u32) -> bool {
        let replica = self.of(host);
        replica.state.is_none() && replica.delivered > 20
    }

    fn start(&self, world: &mut World, host: u32, is_founder: bool) {
        let host = world.host(host);
        self.change(host.ix().0, |replica| *replica = Replica::default());
        world.spawn(&host.clone(), take_part(host, is_founder, self.clone()));
    }

    fn assert_same(&self, hosts: &[u32]) {
        let states: Vec<Vec<u8>> =
            hosts.iter().map(|host| self.of(*host).state.clone().expect("a state")).collect();
        let common = states.iter().map(Vec::len).min().unwrap_or_default();
        assert!(common > self.state_bytes, "{common} bytes");
        assert!(states.iter().all(|state| state[..common] == states[0][..common]), "two histories");
    }
}

/// Creates a world in which the founder of a large state has run for two seconds. The links need
/// about three seconds for the state.
fn founded_slowly(hosts: u32, seed: u64) -> (World, Replicas) {
    let link = Link { bandwidth: Some(8_000_000), queue_bytes: 1 << 20, ..Link::default() };
    let mut world = World::new(WorldConfig::new(Topology::lan(hosts, link), seed));
    let replicas = Replicas::large();
    replicas.start(&mut world, 0, true);
    world.run_for(Duration::from_secs(2));
    (world, replicas)
}

fn run_until(world: &mut World, is_so: impl Fn() -> bool) {
    let limit = world.now() + PATIENCE;
    while !is_so() {
        assert!(world.now() < limit, "the condition was never met");
        world.run_for(Duration::from_millis(10));
    }
}

async fn take_part(host: Host, is_founder: bool, replicas: Replicas) {
    let at = host.ix().0;
    let id = NodeId(u64::from(at) + 1);
    let builder = Node::builder().node_id(id).ordered(replicas.ordered.clone());
    let node = builder.start_on(&host).expect("a node");
    let group = node.join("log", Profile::ordered()).await.expect("a group");
    let shared = if is_founder { SharedState::founding } else { SharedState::joining };
    let shared = shared(group);
    if is_founder {
        let state = (0..replicas.state_bytes).map(|at| at as u8).collect();
        replicas.change(at, |it| it.state = Some(state));
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
            StateEvent::Forget => replicas.change(at, |it| it.state = None),
            StateEvent::NoHolder => replicas.change(at, |it| it.told_of_no_holder += 1),
            StateEvent::Event(_) => {}
            other => panic!("{at}: {other:?}"),
        }
    }
}

async fn next_until(due: Time, node: &Node, shared: &SharedState) -> Option<StateEvent> {
    tokio::select! {
        biased;
        () = node.sleep(due.since(node.now())) => None,
        told = shared.recv() => told,
    }
}

#[test]
fn joiner_gets_the_state_and_continues_from_it() {
    for (seed, state_bytes) in [(1, 0), (2, 10_000), (3, 100)] {
        let mut world = world(4, seed, LOSS);
        let replicas = Replicas::new(state_bytes);
        for host in 0..4 {
            replicas.start(&mut world, host, host == 0);
            world.run_for(Duration::from_secs(2));
        }
        replicas.assert_same(&[0, 1, 2, 3]);
        // The member that sends the state and other members crash. Those that return receive it
        // again.
        for host in [0, 2, 1] {
            world.crash(&world.host(host));
            world.run_for(Duration::from_secs(3));
            replicas.start(&mut world, host, false);
            world.run_for(Duration::from_secs(3));
            replicas.assert_same(&[0, 1, 2, 3]);
        }
        let lengths = [0, 1, 2, 3].map(|host| replicas.length(host));
        assert!(lengths.iter().all(|length| *length > Some(state_bytes + 100)), "{lengths:?}");
    }
}

#[test]
fn cut_off_member_replaces_its_state_with_that_of_the_others() {
    let mut world = world(3, 5, LOSS);
    let replicas = Replicas::new(0);
    for host in 0..3 {
        replicas.start(&mut world, host, host == 0);
        world.run_for(Duration::from_secs(2));
    }
    world.apply(&Fault::Partition(vec![world.host(0).ix()]));
    world.run_for(Duration::from_secs(5));
    let behind = replicas.length(0);
    world.apply(&Fault::Heal);
    world.run_for(Duration::from_secs(10));
    replicas.assert_same(&[0, 1, 2]);
    assert!(replicas.length(0) > behind.map(|it| it + 100));
    world.run_for(PATIENCE);
    replicas.assert_same(&[0, 1, 2]);
}

#[test]
fn joiner_without_state_keeps_a_bounded_queue_and_can_rejoin() {
    let (mut world, [giver, taker]) = started::<2>(7, LOSS);
    run(&mut world, async {
        let join = |node: Node| async move {
            let group = node.join("log", Profile::ordered()).await.expect("a group");
            (group, node)
        };
        let (group, giver) = join(giver).await;
        let founder = SharedState::founding(group);
        let (group, taker) = join(taker).await;
        let joiner = SharedState::joining(group).keeping(100_000);
        while !matches!(founder.recv().await, Some(StateEvent::Give)) {}
        // The founder does not send the state.
        let mut sent = 0;
        let not_given = loop {
            drop(founder.publish(&[0; 1000], Qos::TotallyOrdered).await.expect("an open group"));
            sent += 1;
            match next_until(taker.now() + PAUSE, &taker, &joiner).await {
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
    });
}

#[test]
fn newcomers_learn_that_all_holders_died_in_a_transfer() {
    let (mut world, replicas) = founded_slowly(3, 31);
    [1, 2].into_iter().for_each(|host| replicas.start(&mut world, host, false));
    run_until(&mut world, || {
        [1, 2].into_iter().all(|host| replicas.of(host).ring == 3 && replicas.is_in_transfer(host))
    });
    assert_eq!(replicas.of(0).gives, 1);
    world.crash(&world.host(0));
    run_until(&mut world, || [1, 2].iter().all(|host| replicas.of(*host).told_of_no_holder == 1));
    world.run_for(Duration::from_secs(5));
    for host in [1, 2] {
        let replica = replicas.of(host);
        assert_eq!((replica.told_of_no_holder, replica.ring), (1, 2), "once in a view");
        assert!(replica.state.is_none(), "an incomplete state is discarded");
    }
}

#[test]
fn transfer_resumes_and_completes_when_members_come_and_die() {
    let (mut world, replicas) = founded_slowly(4, 32);
    [1, 2].into_iter().for_each(|host| replicas.start(&mut world, host, false));
    run_until(&mut world, || replicas.of(1).ring == 3 && replicas.is_in_transfer(1));
    replicas.start(&mut world, 3, false);
    run_until(&mut world, || replicas.of(1).ring == 4);
    world.crash(&world.host(2));
    run_until(&mut world, || replicas.of(1).ring == 3);
    assert!(replicas.is_in_transfer(1), "the transfer was over before the view changed");
    run_until(&mut world, || [1, 3].into_iter().all(|host| replicas.of(host).state.is_some()));
    // One transfer goes to the members at its start, and one to the member that joined during it.
    assert_eq!((replicas.of(0).gives, replicas.of(1).gives), (2, 0));
    world.run_for(Duration::from_secs(2));
    replicas.assert_same(&[0, 1, 3]);
}

#[test]
fn next_holder_gives_the_state_when_the_giver_dies() {
    let (mut world, replicas) = founded_slowly(3, 33);
    replicas.start(&mut world, 1, false);
    run_until(&mut world, || replicas.of(1).state.is_some());
    replicas.start(&mut world, 2, false);
    run_until(&mut world, || replicas.is_in_transfer(2));
    assert_eq!((replicas.of(0).gives, replicas.of(1).gives), (2, 0));
    world.crash(&world.host(0));
    run_until(&mut world, || replicas.of(2).state.is_some());
    assert_eq!((replicas.of(1).gives, replicas.of(2).told_of_no_holder), (1, 0));
    world.run_for(Duration::from_secs(2));
    replicas.assert_same(&[1, 2]);
}

const LOSS: Loss = Loss::Uniform(0.03);
const PAUSE: Duration = Duration::from_millis(20);
const STATE_BYTES: usize = 2 << 20;
const PIECE_BYTES: usize = 16 << 10;
