//! Programs on the public API in a simulated world.

mod network;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use carom::sim::{
    Disturbance, Fault, Host, Link, Membership, PerClass, Topology, Troubles, World, WorldConfig,
};
use carom::{
    Builder, Event, Group, JoinGroupError, Loss, Node, NodeId, Profile, PublishError, StartError,
    TryPublishError,
};
use network::{multicast_port, on_loopback};
use pollster::block_on;

const PATIENCE: Duration = Duration::from_secs(60);

fn config(hosts: u32, seed: u64) -> WorldConfig {
    WorldConfig::new(Topology::lan(hosts, Link::default()), seed)
}

fn start<const N: usize>(world: &World) -> [Node; N] {
    std::array::from_fn(|host| Node::builder().start_on(&world.host(host as u32)).expect("a node"))
}

async fn join(node: &Node) -> Group {
    node.join_async("prices", Profile::time_critical()).await.expect("a group")
}

/// Joins, and waits for `others` members.
async fn join_with(node: &Node, others: usize) -> Group {
    let group = join(node).await;
    while group.members().len() < others {
        node.sleep(Duration::from_millis(5)).await;
    }
    group
}

/// Two nodes tell each other numbers; the program knows nothing of simulation.
async fn exchange(node: &Node, own: u32) -> Vec<u32> {
    let group = join_with(node, 1).await;
    for number in 0..100_u32 {
        group.publish_async((own + number).to_be_bytes().to_vec()).await.expect("published");
        if number % 10 == 0 {
            node.sleep(Duration::from_millis(1)).await;
        }
    }
    let mut heard = Vec::new();
    while heard.len() < 100 {
        match group.recv().await.expect("an open group") {
            Event::Message(message) => {
                let bytes = message.payload[..].try_into().expect("four bytes");
                heard.push(u32::from_be_bytes(bytes));
            }
            Event::Lost(lost) => panic!("{lost:?}"),
            _ => {}
        }
    }
    let safe = group.confirm_async(PATIENCE).await.expect("confirmed");
    assert!(safe.incomplete.is_empty());
    heard.sort_unstable();
    heard
}

/// Both at the same time, on whatever runs this.
async fn both([a, b]: [Node; 2]) -> [Vec<u32>; 2] {
    let mut running = [Box::pin(exchange(&a, 0)), Box::pin(exchange(&b, 1000))];
    let mut heard = [None, None];
    poll_fn(|context| {
        for (program, heard) in running.iter_mut().zip(&mut heard) {
            if heard.is_none()
                && let Poll::Ready(all) = program.as_mut().poll(context)
            {
                *heard = Some(all);
            }
        }
        if heard.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    heard.map(|heard| heard.expect("both are done"))
}

#[test]
fn the_same_program_gives_the_same_result_on_sockets_and_in_a_simulated_world() {
    let lossy = |builder: Builder| builder.loss(Loss::Uniform(0.1));
    let port = multicast_port();
    let real = [(), ()].map(|()| lossy(on_loopback(port)).start().expect("a node"));
    let on_sockets = block_on(both(real));

    let mut world = World::new(config(2, 1));
    let simulated =
        [0, 1].map(|host| lossy(Node::builder()).start_on(&world.host(host)).expect("a node"));
    let in_simulation = world.block_on(PATIENCE, both(simulated));
    assert_eq!(Some(&on_sockets), in_simulation.as_ref());
    let [a, b] = on_sockets;
    assert_eq!((a, b), ((1000..1100).collect(), (0..100).collect()));
}

/// A busy world under losses and disturbances, with a restart; returns its history, its capture and
/// what each node heard.
fn busy(seed: u64, membership: Membership) -> (u64, Vec<u8>, BTreeMap<NodeId, Vec<String>>) {
    let config = WorldConfig { loss: Loss::Uniform(0.05), ..config(4, seed) };
    let mut world = World::with_membership(config, membership);
    let capture = Capture::default();
    world.trace_to(Box::new(capture.clone()));
    let heard = Rc::new(RefCell::new(BTreeMap::<NodeId, Vec<String>>::new()));
    for (number, host) in world.hosts().into_iter().enumerate() {
        let heard = Rc::clone(&heard);
        world.install(&host, move |host| {
            let heard = Rc::clone(&heard);
            async move {
                let node = Node::builder().start_on(&host).expect("a node");
                let group = join_with(&node, 2).await;
                for message in 0..30 {
                    group.publish(format!("{number}.{message}")).expect("published");
                    node.sleep(Duration::from_millis(7 + number as u64)).await;
                    while let Some(event) = group.try_recv() {
                        heard.borrow_mut().entry(node.id()).or_default().push(format!("{event:?}"));
                    }
                }
                while let Some(event) = group.recv().await {
                    heard.borrow_mut().entry(node.id()).or_default().push(format!("{event:?}"));
                }
            }
        });
    }
    let host = world.host(3);
    world.run_for(Duration::from_secs(3));
    world.apply(&Fault::Disturb(Disturbance {
        reorder: 0.1,
        duplicate: 0.1,
        corrupt: 0.05,
        spread: Duration::from_millis(2),
    }));
    world.restart(&host);
    world.run_for(Duration::from_secs(7));
    world.end_trace().expect("memory takes all");
    let history = world.history();
    drop(world);
    let heard = Rc::try_unwrap(heard).expect("the world is gone").into_inner();
    (history, capture.take(), heard)
}

#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().expect("nobody panicked"))
    }
}

impl std::io::Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_seed_gives_the_same_history_byte_for_byte_and_another_seed_another() {
    for membership in [Membership::Gossip, Membership::Oracle { delay: Duration::from_millis(1) }] {
        let [once, again, other] = [11, 11, 12].map(|seed| busy(seed, membership));
        assert_eq!(once.0, again.0);
        assert!(once.1 == again.1, "the captures differ");
        assert_eq!(once.2, again.2);
        assert_ne!(once.0, other.0);
        assert!(once.1 != other.1 && once.1.len() > 100_000);
        assert_eq!(once.2.len(), 5, "four nodes, and a fifth after the restart");
        assert!(once.2.keys().ne(other.2.keys()), "the ids follow from the seed too");
    }
}

#[test]
fn members_find_each_other_lose_a_crashed_one_and_meet_its_successor() {
    let mut world = World::new(config(3, 2));
    let [a, b, c] = start(&world);
    let (a_id, b_id, c_id) = (a.id(), b.id(), c.id());
    let host = world.host(2);
    world.spawn(&host, async move {
        let _group = join_with(&c, 2).await;
        std::future::pending::<()>().await;
    });
    let view = async {
        let (in_a, _in_b) = (join_with(&a, 1).await, join_with(&b, 1).await);
        while in_a.members().len() < 2 {
            a.sleep(Duration::from_millis(5)).await;
        }
        in_a
    };
    // The group of `b` is gone with the future: it has left.
    let in_a = world.block_on(PATIENCE, view).expect("all have met");
    world.run_for(Duration::from_secs(1));
    assert_eq!(in_a.members(), [c_id]);
    world.crash(&host);
    assert_eq!(world.tasks_of(&host), 0);
    world.run_for(Duration::from_secs(10));
    assert_eq!(in_a.members(), [], "its failure was found out");
    let successor = Node::builder().start_on(&host).expect("a node");
    assert!(![a_id, b_id, c_id].contains(&successor.id()));
    let met = world.block_on(PATIENCE, join_with(&successor, 1)).expect("they have met");
    assert_eq!(met.members(), [a_id]);
}

#[test]
fn the_tasks_of_a_crashed_host_are_dropped_and_those_of_others_are_not() {
    struct Told(Rc<Cell<u32>>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let mut world = World::new(config(2, 3));
    let (crashed, other) = (world.host(0), world.host(1));
    let dropped = Rc::new(Cell::new(0));
    let begun = Rc::new(Cell::new(0));
    for host in [&crashed, &crashed, &other] {
        let (told, begun) = (Told(Rc::clone(&dropped)), Rc::clone(&begun));
        let own = host.clone();
        world.spawn(host, async move {
            begun.set(begun.get() + 1);
            own.sleep(Duration::from_secs(1)).await;
            begun.set(begun.get() + 10);
            drop(told);
        });
    }
    world.run_for(Duration::from_millis(500));
    assert_eq!((begun.get(), dropped.get()), (3, 0));
    world.crash(&crashed);
    assert_eq!((world.tasks_of(&crashed), dropped.get()), (0, 2));
    world.run_for(Duration::from_secs(1));
    assert_eq!((begun.get(), dropped.get()), (13, 3), "only the other host's task went on");
}

#[test]
fn handles_that_outlive_their_host_or_their_world_find_the_node_closed() {
    let mut world = World::new(config(1, 4));
    let host = world.host(0);
    let node = Node::builder().start_on(&host).expect("a node");
    let group = world.block_on(PATIENCE, join(&node)).expect("joined");
    world.crash(&host);
    assert_eq!(group.publish("too late").err(), Some(PublishError::Closed));
    assert_eq!(world.block_on(PATIENCE, group.recv()), Some(None));
    let again = world.block_on(PATIENCE, node.join_async("b", Profile::time_critical()));
    assert!(matches!(again, Some(Err(JoinGroupError::Closed))));
    // The dead node's handles do not touch its successor.
    let successor = Node::builder().start_on(&host).expect("a node");
    drop((group, node));
    assert!(world.block_on(PATIENCE, successor.status_async()).is_some());
    let group = world.block_on(PATIENCE, join(&successor)).expect("joined");
    drop(world);
    assert_eq!(group.publish("too late").err(), Some(PublishError::Closed));
    block_on(async {
        assert_eq!(group.recv().await, None);
        successor.sleep(PATIENCE).await;
        assert!(group.confirm_async(PATIENCE).await.expect_err("nobody is there").closed);
    });
}

#[test]
fn a_host_has_one_node_at_a_time() {
    let mut world = World::new(config(1, 5));
    let host = world.host(0);
    let first = Node::builder().start_on(&host).expect("a node");
    let second = Node::builder().start_on(&host);
    assert!(matches!(second, Err(StartError::AddressInUse { port: 7400, multicast: false })));
    let first_id = first.id();
    first.close();
    let second = Node::builder().start_on(&host).expect("there is room again");
    assert_ne!(second.id(), first_id);
    let group = world.block_on(PATIENCE, join(&second)).expect("joined");
    drop(group.publish("alone").expect("published"));
}

#[test]
fn a_call_that_would_block_for_ever_panics_and_names_its_async_form() {
    let mut world = World::new(config(1, 6));
    let node = Node::builder().start_on(&world.host(0)).expect("a node");
    let group = world.block_on(PATIENCE, join(&node)).expect("joined");
    let complaint = |call: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it blocks");
        panic.downcast_ref::<String>().expect("a message").clone()
    };
    let profile = Profile::time_critical();
    let calls: [(&str, &dyn Fn()); 6] = [
        ("join_async", &|| drop(node.join("b", profile))),
        ("settled_async", &|| assert!(node.settled(PATIENCE))),
        ("status_async", &|| drop(node.status())),
        ("recv", &|| drop(group.recv_blocking())),
        ("recv_timeout_async", &|| drop(group.recv_timeout(PATIENCE))),
        ("confirm_async", &|| drop(group.confirm(PATIENCE))),
    ];
    for (instead, call) in calls {
        let complaint = complaint(call);
        assert!(complaint.ends_with(&format!("use {instead}")), "{complaint}");
    }
    // Nobody takes the messages while the world stands still.
    (0..1024).for_each(|_| drop(group.publish("x").expect("there is room")));
    assert!(matches!(group.try_publish("x"), Err(TryPublishError::Full { .. })));
    assert!(complaint(&|| drop(group.publish("x"))).ends_with("use publish_async"));
    let published = world.block_on(PATIENCE, group.publish_async("x"));
    assert!(published.is_some_and(|published| published.is_ok()));
}

#[test]
fn a_partition_parts_the_members_and_heals() {
    let mut world = World::new(config(4, 7));
    let nodes: [Node; 4] = start(&world);
    let joined = async {
        let mut groups = Vec::new();
        for node in &nodes {
            groups.push(join(node).await);
        }
        while groups.iter().any(|group| group.members().len() < 3) {
            nodes[0].sleep(Duration::from_millis(5)).await;
        }
        groups
    };
    let groups = world.block_on(PATIENCE, joined).expect("all have met");
    let side: Vec<_> = [0, 1].map(|host| world.host(host).ix()).to_vec();
    world.apply(&Fault::Partition(side));
    groups[0].publish("to this side").expect("published");
    world.run_for(Duration::from_secs(10));
    assert_eq!(groups[0].members(), [nodes[1].id()]);
    assert_eq!(messages(&groups[1]), ["to this side"]);
    assert_eq!(messages(&groups[2]), [""; 0]);
    world.apply(&Fault::Heal);
    world.run_for(Duration::from_secs(30));
    assert_eq!(groups[0].members().len(), 3);
    groups[0].publish("to all").expect("published");
    let safe = world.block_on(PATIENCE, groups[0].confirm_async(PATIENCE));
    assert!(safe.expect("in time").expect("confirmed").incomplete.is_empty());
    for group in &groups[1..] {
        assert_eq!(messages(group), ["to all"]);
    }
}

fn messages(group: &Group) -> Vec<String> {
    let events = std::iter::from_fn(|| group.try_recv());
    let payloads = events.filter_map(|event| match event {
        Event::Message(message) => Some(String::from_utf8_lossy(&message.payload).into_owned()),
        _ => None,
    });
    payloads.collect()
}

#[test]
fn a_paused_host_stands_still_with_its_tasks_and_goes_on_where_it_was() {
    let mut world = World::new(config(2, 8));
    let host = world.host(0);
    let ticks = Rc::new(Cell::new(0));
    let counting = Rc::clone(&ticks);
    let own = host.clone();
    world.spawn(&host, async move {
        let node = Node::builder().start_on(&own).expect("a node");
        let group = join(&node).await;
        loop {
            node.sleep(Duration::from_millis(100)).await;
            group.publish("tick").expect("published");
            counting.set(counting.get() + 1);
        }
    });
    world.run_for(Duration::from_secs(10));
    let before = ticks.get();
    assert!(before > 50);
    world.apply(&Fault::Pause(host.ix()));
    world.run_for(Duration::from_secs(2));
    assert_eq!(ticks.get(), before);
    world.apply(&Fault::Resume(host.ix()));
    world.run_for(Duration::from_millis(1050));
    assert_eq!(ticks.get(), before + 11, "one at once, then one each 100 ms");
}

#[test]
fn an_oracle_tells_views_after_its_delay_and_refuses_contradictions() {
    let delay = Duration::from_millis(250);
    let mut world = World::with_membership(config(3, 9), Membership::Oracle { delay });
    let nodes: [Node; 3] = start(&world);
    let groups = world
        .block_on(Duration::ZERO, async { [join(&nodes[0]).await, join(&nodes[1]).await] })
        .expect("at once");
    world.run_for(delay - Duration::from_millis(1));
    assert_eq!(groups[0].members(), []);
    world.run_for(Duration::from_millis(1));
    assert_eq!(groups[0].members(), [nodes[1].id()]);
    assert_eq!(groups[1].members(), [nodes[0].id()]);
    assert_eq!(world.counters().sent, PerClass::default(), "nothing crossed the network");

    let other = Profile::time_critical().rate_of_fire(6, 2);
    let stranger = nodes[2].join_async("prices", other);
    let stranger = world.block_on(PATIENCE, stranger).expect("at once").expect("not known yet");
    world.run_for(delay);
    assert_eq!(world.block_on(PATIENCE, stranger.recv()), Some(None), "it was refused");
    assert_eq!(nodes[2].notices().len(), 1);

    let host = world.host(1);
    world.crash(&host);
    world.run_for(delay);
    assert_eq!(groups[0].members(), []);
}

#[test]
fn a_member_that_leaves_and_joins_again_before_it_is_told_sees_who_is_there() {
    let delay = Duration::from_millis(100);
    let mut world = World::with_membership(config(2, 10), Membership::Oracle { delay });
    let nodes: [Node; 2] = start(&world);
    let settled = async {
        let first = [join(&nodes[0]).await, join(&nodes[1]).await];
        nodes[0].sleep(Duration::from_millis(50)).await;
        drop(first);
        let again = join(&nodes[0]).await;
        nodes[0].sleep(Duration::from_secs(1)).await;
        assert_eq!(again.members(), [], "the other has left for good");
        let other = join(&nodes[1]).await;
        nodes[0].sleep(delay).await;
        (again.members(), other.members())
    };
    let (of_first, of_second) = world.block_on(PATIENCE, settled).expect("in time");
    assert_eq!((of_first, of_second), (vec![nodes[1].id()], vec![nodes[0].id()]));
}

#[test]
fn a_task_starts_tasks_and_a_join_that_it_gives_up_is_undone() {
    let mut world = World::new(config(1, 11));
    let host = world.host(0);
    let (told, hears) = async_channel::bounded(1);
    let own: Host = host.clone();
    world.spawn(&host, async move {
        let inner = own.clone();
        own.spawn(async move {
            inner.sleep(Duration::from_secs(1)).await;
            told.send(inner.now()).await.expect("somebody waits");
        });
    });
    let before = world.now();
    let heard = world.block_on(PATIENCE, hears.recv()).expect("in time").expect("told");
    assert_eq!(heard, before + Duration::from_secs(1));

    let node = Node::builder().start_on(&host).expect("a node");
    let given_up = world.block_on(Duration::ZERO, node.join_async("a", Profile::time_critical()));
    assert!(given_up.is_none(), "gossip looks for others first");
    world.run_for(Duration::from_secs(5));
    let status = world.block_on(PATIENCE, node.status_async()).expect("at once");
    assert_eq!(status.groups, []);
}

#[test]
fn troubles_of_every_kind_come_and_all_of_them_end() {
    let mut world = World::new(config(5, 13));
    let starts = Rc::new(Cell::new(0));
    for host in world.hosts() {
        let starts = Rc::clone(&starts);
        world.install(&host, move |host| {
            starts.set(starts.get() + 1);
            async move {
                let node = Node::builder().start_on(&host).expect("a node");
                let group = join(&node).await;
                loop {
                    group.publish_async("tick").await.expect("published");
                    node.sleep(Duration::from_millis(10)).await;
                    while group.try_recv().is_some() {}
                }
            }
        });
    }
    world.run_troubled(Duration::from_secs(60), &Troubles::default());
    let during = *world.counters();
    let evils = [
        during.lost_at_host,
        during.cut_off,
        during.nobody_there,
        during.duplicated,
        during.corrupted,
        during.reordered,
    ];
    assert!(evils.iter().all(|evil| *evil > 0) && starts.get() > 5, "{during:#?}");
    // What was under way may still suffer from a host that was not there.
    world.run_for(Duration::from_secs(1));
    let before = *world.counters();
    world.run_for(Duration::from_secs(20));
    let after = *world.counters();
    assert_eq!((after.lost_at_host, after.cut_off), (before.lost_at_host, before.cut_off));
    assert_eq!((after.corrupted, after.buffer_full), (before.corrupted, before.buffer_full));
    assert!(world.hosts().iter().all(|host| world.tasks_of(host) == 1));
}

#[test]
fn a_node_that_takes_a_paused_hosts_place_ends_the_one_before_it() {
    let delay = Duration::from_millis(5);
    let mut world = World::with_membership(config(2, 31), Membership::Oracle { delay });
    let [here, there] = start(&world);
    let host = world.host(1);
    let meet = async {
        let others = join(&there).await;
        (others, join_with(&here, 1).await)
    };
    let (others, group) = world.block_on(PATIENCE, meet).expect("they meet");
    world.apply(&Fault::Pause(host.ix()));
    drop((others, there));
    let _next = Node::builder().start_on(&host).expect("the first one's handle is gone");
    world.run_for(Duration::from_secs(1));
    assert_eq!(group.members(), [], "the first one is gone, and the next is in no group");
    world.apply(&Fault::Resume(host.ix()));
}

#[test]
fn a_waker_that_is_replaced_may_own_a_sleep() {
    let world = World::new(config(1, 32));
    let host = world.host(0);
    let mut inner = Box::pin(host.sleep(PATIENCE));
    assert!(inner.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let owner = Waker::from(Arc::new(Owner(Mutex::new(Some(inner)))));
    let mut outer = Box::pin(host.sleep(PATIENCE));
    assert!(outer.as_mut().poll(&mut Context::from_waker(&owner)).is_pending());
    drop(owner);
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let polled = outer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        done.send(polled.is_pending())
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(true), "it locks itself out");
}

/// A waker that is the last to hold a task.
struct Owner(
    #[expect(dead_code, reason = "owned")] Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn static_members_are_reached_at_their_hosts_addresses() {
    let mut world = World::new(config(2, 14));
    let hosts = world.hosts();
    let id = |host: &Host| NodeId(u64::from(host.ix().0) + 7);
    let members: Vec<_> = hosts.iter().map(|host| (id(host), host.endpoint())).collect();
    let nodes = [0, 1].map(|number| {
        let builder = Node::builder().node_id(members[number].0).static_members(members.clone());
        builder.start_on(&hosts[number]).expect("a node")
    });
    let told = async {
        let groups = [join(&nodes[0]).await, join(&nodes[1]).await];
        groups[0].publish("here").expect("published");
        groups[0].confirm_async(PATIENCE).await.expect("confirmed");
        messages(&groups[1])
    };
    assert_eq!(world.block_on(PATIENCE, told), Some(vec!["here".to_owned()]));
}

#[test]
#[should_panic(expected = "no time passes")]
fn a_task_that_never_waits_is_found_out() {
    let mut world = World::new(config(1, 15));
    let host = world.host(0);
    world.spawn(&host, async {
        poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })
        .await;
    });
    world.run_for(PATIENCE);
}

#[test]
fn seeds_are_addresses_in_the_world_and_must_answer() {
    let mut world = World::new(config(2, 12));
    let [a, _b] = [0, 1].map(|host| world.host(host));
    let named = Node::builder().seeds(["localhost:7400"]).start_on(&a);
    assert!(matches!(named, Err(StartError::Seed { .. })));
    let node = Node::builder().seeds(["10.0.0.2"]).start_on(&a).expect("a node");
    let alone = world.block_on(PATIENCE, node.join_async("a", Profile::time_critical()));
    assert!(matches!(alone, Some(Err(JoinGroupError::NoSeedAnswered { .. }))), "{alone:?}");
}
