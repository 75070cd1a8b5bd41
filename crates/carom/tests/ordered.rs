//! Ordered groups on the public API: in a simulated world, and over sockets.

mod network;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use carom::rmp::Place;
use carom::sim::{Fault, Link, Topology, World, WorldConfig};
use carom::{
    Builder, Event, Group, JoinError, JoinGroupError, Loss, Node, NotDelivered, Partition, Profile,
    PublishError, Qos, Removal, RingNews, TryPublishError,
};
use network::{multicast_port, on_loopback};
use pollster::block_on;

const PATIENCE: Duration = Duration::from_secs(60);
const ALL_LEVELS: [Qos; 7] = [
    Qos::Unreliable,
    Qos::Unordered,
    Qos::SourceOrdered,
    Qos::TotallyOrdered,
    Qos::Resilient(1),
    Qos::MajorityResilient,
    Qos::TotallyResilient,
];

fn world(hosts: u32, seed: u64, loss: Loss) -> World {
    let config = WorldConfig::new(Topology::lan(hosts, Link::default()), seed);
    World::new(WorldConfig { loss, ..config })
}

fn start<const N: usize>(world: &World, builder: impl Fn() -> Builder) -> [Node; N] {
    std::array::from_fn(|host| builder().start_on(&world.host(host as u32)).expect("a node"))
}

/// Joins with all nodes, and waits until they are one ring.
async fn join_all(nodes: &[Node], profile: Profile) -> Vec<Group> {
    let mut groups = Vec::new();
    for node in nodes {
        groups.push(node.join_async("accounts", profile).await.expect("a group"));
    }
    while groups.iter().any(|group| group.members().len() + 1 < nodes.len()) {
        nodes[0].sleep(Duration::from_millis(5)).await;
    }
    groups
}

/// Events up to the first that `find` takes.
async fn until<T>(group: &Group, find: impl Fn(&Event) -> Option<T>) -> T {
    loop {
        let event = group.recv_timeout_async(PATIENCE).await.expect("in time").expect("open");
        if let Some(found) = find(&event) {
            return found;
        }
    }
}

fn text(event: &Event) -> Option<String> {
    match event {
        Event::Message(message) => Some(String::from_utf8_lossy(&message.payload).into_owned()),
        _ => None,
    }
}

fn news(event: &Event) -> Option<RingNews> {
    match event {
        Event::Ring(event) => Some(event.news.clone()),
        _ => None,
    }
}

/// The next `count` messages.
async fn take(group: &Group, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        texts.push(until(group, text).await);
    }
    texts
}

/// All publish in turn; returns what each was given.
async fn publish_from_all(groups: &[Group], rounds: usize) -> Vec<Vec<String>> {
    for round in 0..rounds {
        for (number, group) in groups.iter().enumerate() {
            drop(group.publish_async(format!("{number}.{round}")).await.expect("published"));
        }
    }
    let mut given = Vec::new();
    for group in groups {
        given.push(take(group, rounds * groups.len()).await);
    }
    given
}

fn assert_one_order(given: &[Vec<String>], rounds: usize) {
    let mut all = given[0].clone();
    assert!(given.iter().all(|other| *other == given[0]), "{given:?}");
    for number in 0..given.len() {
        let own = given[0].iter().filter(|text| text.starts_with(&format!("{number}.")));
        let expected: Vec<String> = (0..rounds).map(|round| format!("{number}.{round}")).collect();
        assert_eq!(own.cloned().collect::<Vec<String>>(), expected);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), rounds * given.len());
}

#[test]
fn all_members_are_given_the_same_messages_in_the_same_order_under_losses() {
    for seed in 1..=5 {
        let mut world = world(4, seed, Loss::Uniform(0.05));
        let nodes: [Node; 4] = start(&world, Node::builder);
        let program = async {
            let groups = join_all(&nodes, Profile::ordered()).await;
            publish_from_all(&groups, 100).await
        };
        let given = world.block_on(PATIENCE, program).expect("in time");
        assert_one_order(&given, 100);
    }
}

#[test]
fn all_members_are_given_the_same_order_over_sockets() {
    let port = multicast_port();
    let lossy = || on_loopback(port).loss(Loss::Uniform(0.05)).start().expect("a node");
    let nodes = [lossy(), lossy(), lossy()];
    let given = block_on(async {
        let groups = join_all(&nodes, Profile::ordered()).await;
        publish_from_all(&groups, 300).await
    });
    assert_one_order(&given, 300);
}

#[test]
fn every_promise_is_kept_and_said_to_be() {
    let mut world = world(3, 7, Loss::Uniform(0.02));
    let nodes: [Node; 3] = start(&world, Node::builder);
    let program = async {
        let groups = join_all(&nodes, Profile::ordered()).await;
        for qos in ALL_LEVELS {
            let published = groups[1].publish_with_async(qos.to_string(), qos).await;
            let told = published.expect("published").delivered_timeout_async(PATIENCE).await;
            assert_eq!(told, Ok(()), "{qos}");
            if qos == Qos::TotallyResilient {
                // All hold it by now; each delivers it when it has heard so itself.
                for group in [&groups[0], &groups[2]] {
                    until(group, |event| text(event).filter(|it| *it == qos.to_string())).await;
                }
            }
        }
    };
    world.block_on(PATIENCE, program).expect("in time");
}

#[test]
fn a_majority_goes_on_without_a_crashed_member_and_a_minority_says_that_it_may_not() {
    let mut world = world(3, 8, Loss::None);
    let nodes: [Node; 3] = start(&world, Node::builder);
    let groups = world.block_on(PATIENCE, join_all(&nodes, Profile::ordered())).expect("joined");
    world.crash(&world.host(2));
    let program = async {
        let view = until(&groups[0], |event| match news(event) {
            Some(RingNews::View(view)) if !view.failed.is_empty() => Some(view),
            _ => None,
        });
        let view = view.await;
        assert_eq!(view.failed[0].node, nodes[2].id());
        assert_eq!(groups[0].members(), [nodes[1].id()]);
        let published = groups[0].publish_with_async("still here", Qos::TotallyResilient).await;
        assert_eq!(published.expect("published").delivered().await, Ok(()));
    };
    world.block_on(PATIENCE, program).expect("in time");
    world.crash(&world.host(1));
    let program = async {
        let needed = until(&groups[0], |event| match news(event) {
            Some(RingNews::Minority { members, needed }) => Some((members, needed)),
            _ => None,
        });
        assert_eq!(needed.await, (2, 2));
        let held = groups[0].publish_async("to nobody").await.expect("it is kept");
        let told = held.delivered_timeout_async(Duration::from_secs(5)).await;
        assert_eq!(told, Err(NotDelivered::Timeout(Duration::from_secs(5))));
    };
    world.block_on(PATIENCE, program).expect("in time");
}

#[test]
fn who_was_cut_off_is_told_so_and_joins_again_unless_it_does_not_want_to() {
    for rejoins in [true, false] {
        let mut world = world(4, 9, Loss::None);
        let nodes: [Node; 4] = start(&world, Node::builder);
        let profile = Profile::ordered().rejoin(rejoins);
        let groups = world.block_on(PATIENCE, join_all(&nodes, profile)).expect("joined");
        world.apply(&Fault::Partition(vec![world.host(3).ix()]));
        world.run_for(Duration::from_secs(5));
        drop(groups[0].publish("without the fourth").expect("published"));
        let cut_off = groups[3].publish("into the void").expect("it is kept");
        world.run_for(Duration::from_secs(5));
        world.apply(&Fault::Heal);
        let program = async {
            let removed = |event: &Event| match news(event) {
                Some(RingNews::Removed { why, unsent, .. }) => Some((why, unsent)),
                _ => None,
            };
            let (why, unsent) = until(&groups[3], removed).await;
            assert!(unsent.is_some(), "one message is not known to have come anywhere");
            assert_eq!(cut_off.delivered().await, Err(NotDelivered::Removed { why }));
            if !rejoins {
                assert_eq!(groups[3].recv().await, None);
                let late = groups[3].publish("too late").err();
                assert_eq!(late, Some(PublishError::Closed));
                return;
            }
            while groups[3].members().len() < 3 {
                nodes[3].sleep(Duration::from_millis(5)).await;
            }
            drop(groups[3].publish_async("back again").await.expect("published"));
            for group in &groups {
                until(group, |event| text(event).filter(|it| it == "back again")).await;
            }
        };
        world.block_on(PATIENCE, program).expect("in time");
    }
}

#[test]
fn who_leaves_or_closes_sends_what_was_accepted_and_leaves_the_others_whole() {
    let mut world = world(3, 10, Loss::Uniform(0.05));
    let [a, b, c]: [Node; 3] = start(&world, Node::builder);
    let program = async {
        let profile = Profile::ordered();
        let mut groups = Vec::new();
        for node in [&a, &b, &c] {
            groups.push(node.join_async("accounts", profile).await.expect("a group"));
        }
        while groups.iter().any(|group| group.members().len() < 2) {
            a.sleep(Duration::from_millis(5)).await;
        }
        let (of_c, of_b) = (groups.pop().expect("three"), groups.pop().expect("two"));
        let of_a = groups.pop().expect("one");
        (0..200).for_each(|number| drop(of_c.publish(format!("c{number}")).expect("published")));
        of_c.leave();
        (0..200).for_each(|number| drop(of_b.publish(format!("b{number}")).expect("published")));
        b.close();
        let (mut given, mut left) = (Vec::new(), Vec::new());
        while given.len() < 400 || left.len() < 2 {
            let event = of_a.recv_timeout_async(PATIENCE).await.expect("in time").expect("open");
            given.extend(text(&event));
            if let Some(RingNews::View(view)) = news(&event) {
                // Neither is a failure: a ring of one is whole, where one of three is a minority.
                assert!(view.failed.is_empty(), "{view:?}");
                left.extend(view.left);
            }
        }
        for (sender, count) in [("b", 200), ("c", 200)] {
            assert_eq!(given.iter().filter(|text| text.starts_with(sender)).count(), count);
        }
        let alone = of_a.publish_with_async("alone", Qos::TotallyResilient).await;
        assert_eq!(alone.expect("published").delivered().await, Ok(()));
        drop(of_b);
        // The group can be joined again while it is still being left.
        let again = c.join_async("accounts", profile).await.expect("a group");
        drop(again.publish_async("again").await.expect("published"));
        until(&of_a, |event| text(event).filter(|it| it == "again")).await;
    };
    world.block_on(PATIENCE, program).expect("in time");
}

#[test]
fn an_application_that_takes_nothing_is_put_out_of_the_ring_and_told_so() {
    let mut world = world(3, 11, Loss::None);
    let nodes: [Node; 3] = start(&world, || Node::builder().queue(100));
    let groups = world.block_on(PATIENCE, join_all(&nodes, Profile::ordered())).expect("joined");
    let [slow, writer, reader] = &groups[..] else { panic!("three groups") };
    let program = async {
        for number in 0..2000 {
            drop(writer.publish_async(format!("{number}")).await.expect("published"));
            while writer.try_recv().is_some() {}
            while reader.try_recv().is_some() {}
            nodes[1].sleep(Duration::from_millis(1)).await;
        }
        while reader.members().len() > 1 {
            nodes[1].sleep(Duration::from_millis(5)).await;
        }
    };
    world.block_on(PATIENCE, program).expect("in time");
    let (mut given, mut others, mut removed) = (0, 0, None);
    while let Some(event) = slow.try_recv() {
        let is_next = text(&event).as_ref() == Some(&given.to_string());
        given += usize::from(is_next);
        others += usize::from(!is_next);
        if let Some(RingNews::Removed { why, .. }) = news(&event) {
            removed = Some(why);
        }
    }
    assert!((190..=203).contains(&(given + others)), "{given} in order, and {others} events");
    assert!(given > 150 && others < 30, "{given} in order, and {others} events");
    assert_eq!(removed, Some(Removal::TooSlow));
    let notices = nodes[0].notices();
    assert!(notices.iter().any(|it| it.text.contains("did not take")), "{notices:?}");
}

#[test]
fn what_was_sent_is_confirmed_while_more_is_sent_and_who_is_waited_for_is_named() {
    let mut world = world(3, 14, Loss::Uniform(0.02));
    let nodes: [Node; 3] = start(&world, Node::builder);
    let groups = world.block_on(PATIENCE, join_all(&nodes, Profile::ordered())).expect("joined");
    let groups: Rc<[Group]> = groups.into();
    let busy = Rc::clone(&groups);
    let host = world.host(0);
    world.spawn(&host, async move {
        loop {
            drop(busy[0].publish_async(vec![7; 500]).await.expect("published"));
            busy[0].recv_timeout_async(Duration::from_micros(300)).await.ok();
        }
    });
    let confirmed = world.block_on(PATIENCE, groups[0].confirm_async(PATIENCE));
    let safe = confirmed.expect("in time").expect("confirmed");
    assert_eq!((safe.members, safe.incomplete.len()), (2, 0));
    world.apply(&Fault::Partition(vec![world.host(0).ix()]));
    let limit = Duration::from_secs(3);
    let told = world.block_on(PATIENCE, groups[0].confirm_async(limit)).expect("in time");
    let mut waiting_for = told.expect_err("nobody can").waiting_for;
    waiting_for.sort_unstable();
    let mut others = [nodes[1].id(), nodes[2].id()];
    others.sort_unstable();
    assert_eq!(waiting_for, others);
}

#[test]
fn what_a_group_cannot_promise_is_refused_at_once() {
    let mut world = world(2, 12, Loss::None);
    let [a, b]: [Node; 2] = start(&world, Node::builder);
    let program = async {
        let unordered = a.join_async("prices", Profile::time_critical()).await.expect("a group");
        let asked = Qos::TotallyOrdered;
        let refused = unordered.publish_with_async("x", asked).await.err();
        assert_eq!(refused, Some(PublishError::Qos { asked }));
        let refused = unordered.try_publish_with("x", asked).err();
        assert_eq!(refused, Some(TryPublishError::Qos { asked }));

        let any = Profile::ordered().partition(Partition::AtLeast(1));
        let group = a.join_async("accounts", any).await.expect("a group");
        let asked = Qos::MajorityResilient;
        let refused = group.publish_with_async("x", asked).await.err();
        assert_eq!(refused, Some(PublishError::Qos { asked }));
        let limit = group.payload_limit();
        assert_eq!(limit, 16 << 20);
        let refused = group.publish_async(vec![0; limit + 1]).await.err();
        assert_eq!(refused, Some(PublishError::TooLarge { bytes: limit + 1, limit }));
        let refused = group.publish_with_async(vec![0; 2000], Qos::Unreliable).await.err();
        assert!(matches!(refused, Some(PublishError::TooLarge { bytes: 2000, limit: ..1500 })));
        let told = group.publish_async("this one fits").await.expect("it does").delivered().await;
        assert_eq!(told, Ok(()), "nothing that was refused is in the way");

        for profile in [Profile::ordered(), Profile::time_critical()] {
            let refused = b.join_async("accounts", profile).await.map(drop);
            let error = refused.expect_err("the group is otherwise");
            let is_contradiction =
                matches!(error, JoinGroupError::Refused(JoinError::Contradiction { .. }));
            assert!(is_contradiction, "{error}");
        }
    };
    world.block_on(PATIENCE, program).expect("in time");
}

#[test]
fn a_group_that_is_being_left_can_be_joined_with_other_settings() {
    let mut world = world(2, 13, Loss::None);
    let [a, b]: [Node; 2] = start(&world, Node::builder);
    let program = async {
        let first = a.join_async("accounts", Profile::ordered()).await.expect("a group");
        drop(first);
        let of_a = a.join_async("accounts", Profile::time_critical()).await.expect("another group");
        // Until it has heard of that the other node would refuse to have it so.
        b.sleep(Duration::from_secs(1)).await;
        let groups = [
            of_a,
            b.join_async("accounts", Profile::time_critical()).await.expect("another group"),
        ];
        while groups[0].members().is_empty() {
            a.sleep(Duration::from_millis(5)).await;
        }
        drop(groups[0].publish_async("x").await.expect("published"));
        assert_eq!(take(&groups[1], 1).await, ["x"]);
        // The time at which the first would have been left for good changes nothing.
        a.sleep(Duration::from_secs(5)).await;
        drop(groups[0].publish_async("y").await.expect("published"));
        assert_eq!(take(&groups[1], 1).await, ["y"]);
    };
    world.block_on(PATIENCE, program).expect("in time");
}

#[test]
fn messages_say_their_places_and_it_is_told_what_all_members_have() {
    let mut world = world(3, 15, Loss::Uniform(0.03));
    let nodes: [Node; 3] = start(&world, Node::builder);
    let program = async {
        let groups = join_all(&nodes, Profile::ordered()).await;
        for number in 0..100 {
            let qos = if number % 4 == 0 { Qos::SourceOrdered } else { Qos::TotallyOrdered };
            let group = &groups[number % 3];
            drop(group.publish_with_async(number.to_string(), qos).await.expect("published"));
        }
        let mut told = Vec::new();
        for group in &groups {
            told.push(places_until_stable(group, 100).await);
        }
        assert_eq!(told[0].len(), 75, "what is not totally ordered has no place");
        let mut places: Vec<Place> = told[0].values().copied().collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 75, "each has its own");
        assert!(told.iter().all(|it| *it == told[0]), "the same at all members");
    };
    world.block_on(PATIENCE, program).expect("in time");
}

/// The places of so many messages, which increase; waits until all members have all of them.
async fn places_until_stable(group: &Group, count: usize) -> BTreeMap<String, Place> {
    let (mut places, mut given, mut last) = (BTreeMap::new(), 0, None);
    loop {
        let event = group.recv_timeout_async(PATIENCE).await.expect("in time").expect("open");
        match event {
            Event::Message(message) => {
                given += 1;
                let Some(place) = message.place else { continue };
                assert!(Some(place) > last.replace(place), "{place:?}");
                places.insert(String::from_utf8_lossy(&message.payload).into_owned(), place);
            }
            Event::Ring(event) => match event.news {
                RingNews::View(view) => assert!(Some(view.place) > last.replace(view.place)),
                RingNews::Stable { up_to, members } => {
                    assert!(Some(up_to) <= last, "nobody is told of what it was not given");
                    if given == count && Some(up_to) == last {
                        assert_eq!(members, 3);
                        return places;
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
}

#[test]
fn what_is_with_all_members_is_told_when_it_is_and_not_before() {
    let mut world = world(3, 16, Loss::None);
    let nodes: [Node; 3] = start(&world, Node::builder);
    let groups = world.block_on(PATIENCE, join_all(&nodes, Profile::ordered())).expect("joined");
    world.run_for(Duration::from_secs(1));
    while groups[0].try_recv().is_some() {}
    // One does not hear what the others say.
    world.apply(&Fault::Partition(vec![world.host(2).ix()]));
    drop(groups[0].publish("for two of three").expect("published"));
    let program = async {
        let (mut place, mut has_failed) = (None, false);
        loop {
            let event = groups[0].recv_timeout_async(PATIENCE).await;
            match event.expect("in time").expect("open") {
                Event::Message(message) => place = message.place,
                Event::Ring(event) => match event.news {
                    RingNews::View(view) => has_failed |= !view.failed.is_empty(),
                    RingNews::Stable { up_to, members }
                        if place.is_some_and(|place| place <= up_to) =>
                    {
                        assert!(has_failed, "the third has it not");
                        return members;
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    };
    assert_eq!(world.block_on(PATIENCE, program).expect("in time"), 2);
}

/// A task that its own waker runs: on the thread of the driver on which it sleeps.
struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut task = self.0.lock().expect("it does not panic");
        let future = task.as_mut().expect("it has not ended");
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            *task = None;
        }
    }
}

#[test]
fn a_node_that_is_closed_on_the_thread_of_its_own_driver_leaves_its_rings_in_order() {
    let port = multicast_port();
    let [stays, goes] = [(), ()].map(|()| on_loopback(port).start().expect("a node"));
    let profile = Profile::ordered();
    let of_stays = stays.join("accounts", profile).expect("a group");
    let of_goes = goes.join("accounts", profile).expect("a group");
    while of_stays.members().is_empty() {
        std::thread::yield_now();
    }
    let slept = goes.sleep(Duration::from_millis(10));
    Arc::new(Task(Mutex::new(Some(Box::pin(async move {
        slept.await;
        // More than leaves at once.
        for _ in 0..1000 {
            drop(of_goes.try_publish(vec![0; 1000]).expect("there is room"));
        }
        drop((of_goes, goes));
    })))))
    .wake();
    let mut given = 0;
    let view = loop {
        let event = of_stays.recv_timeout(PATIENCE).expect("in time").expect("open");
        given += usize::from(text(&event).is_some());
        match news(&event) {
            Some(RingNews::View(view)) if view.view.len() == 1 && view.joined.is_empty() => {
                break view;
            }
            Some(RingNews::Minority { .. }) => panic!("the other is gone, and had {given} sent"),
            _ => {}
        }
    };
    assert_eq!((given, view.left.len(), view.failed.len()), (1000, 1, 0));
}
