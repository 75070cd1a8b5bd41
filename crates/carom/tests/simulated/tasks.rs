use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use carom::sim::{Host, World};
use carom::{Loss, Node, Profile, blocking};

use crate::{PATIENCE, config, join, run, started};

#[test]
fn crash_of_a_host_drops_its_own_tasks_only() {
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
    assert_eq!((begun.get(), dropped.get()), (13, 3), "only the other host's task continued");
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
            told.send(inner.now()).await.expect("the test waits");
        });
    });
    let before = world.now();
    let heard = run(&mut world, hears.recv()).expect("a report");
    assert_eq!(heard, before + Duration::from_secs(1));

    let node = Node::builder().start_on(&host).expect("a node");
    let given_up = world.block_on(Duration::ZERO, node.join("a", Profile::time_critical()));
    assert!(given_up.is_none(), "gossip searches for other nodes first");
    world.run_for(Duration::from_secs(5));
    let status = run(&mut world, node.status());
    assert_eq!(status.groups, []);
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
fn call_that_would_block_forever_panics_with_its_async_form() {
    let (mut world, [node]) = started::<1>(6, Loss::None);
    let group = run(&mut world, join(&node));
    let complaint = |call: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it blocks");
        (*panic.downcast_ref::<&str>().expect("a message")).to_owned()
    };
    let profile = Profile::time_critical();
    let (node, group) = (blocking::Node::from(node), blocking::Group::from(group));
    let calls: [&dyn Fn(); 5] = [
        &|| drop(node.join("b", profile)),
        &|| drop(node.status()),
        &|| drop(group.recv()),
        &|| drop(group.recv_timeout(PATIENCE)),
        &|| drop(group.confirm(PATIENCE)),
    ];
    assert!(node.settled(PATIENCE), "it is settled, and need not block");
    for call in calls {
        let complaint = complaint(call);
        assert!(complaint.ends_with("use the async call"), "{complaint}");
    }
    // No messages leave the queue, because the world does not run.
    (0..1024).for_each(|_| drop(group.publish("x").expect("there is room")));
    assert!(group.try_publish("x").is_err_and(|error| error.is_full()));
    assert!(complaint(&|| drop(group.publish("x"))).ends_with("use the async call"));
    let published = world.block_on(PATIENCE, group.as_async().publish("x"));
    assert!(published.is_some_and(|published| published.is_ok()));
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
    assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(true), "the waker deadlocks");
}

/// A waker that holds the last reference to a task.
struct Owner(
    #[expect(dead_code, reason = "owned")] Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}
