use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use carom::{Loss, Profile, Qos, RingNews};
use pollster::block_on;

use crate::network::{multicast_port, on_loopback};
use crate::simulation::{PATIENCE, news, run, started, text, until, until_whole};
use crate::take;

#[test]
fn leaving_node_sends_accepted_messages_and_breaks_no_ring() {
    let (mut world, [a, b, c]) = started::<3>(10, Loss::Uniform(0.05));
    run(&mut world, async {
        let profile = Profile::ordered();
        let mut groups = Vec::new();
        for node in [&a, &b, &c] {
            groups.push(node.join("accounts", profile).await.expect("a group"));
        }
        until_whole(&groups).await;
        let (of_c, of_b) = (groups.pop().expect("three"), groups.pop().expect("two"));
        let of_a = groups.pop().expect("one");
        (0..200)
            .for_each(|number| drop(of_c.try_publish(format!("c{number}")).expect("published")));
        of_c.leave().await;
        (0..200)
            .for_each(|number| drop(of_b.try_publish(format!("b{number}")).expect("published")));
        drop(b);
        let (mut given, mut left) = (Vec::new(), Vec::new());
        while given.len() < 400 || left.len() < 2 {
            let event = of_a.recv_timeout(PATIENCE).await.expect("in time").expect("open");
            given.extend(text(&event));
            if let Some(RingNews::View(view)) = news(&event) {
                // Neither view is a failure: a ring of one is whole, whereas one of three is a
                // minority.
                assert!(view.failed.is_empty(), "{view:?}");
                left.extend(view.left);
            }
        }
        for (sender, count) in [("b", 200), ("c", 200)] {
            assert_eq!(given.iter().filter(|text| text.starts_with(sender)).count(), count);
        }
        let alone = of_a.publish_with("alone", Qos::TotallyResilient).await;
        assert_eq!(alone.expect("published").delivered().await, Ok(()));
        drop(of_b);
        // The group can be joined again while it is still being left.
        let again = c.join("accounts", profile).await.expect("a group");
        drop(again.publish("again").await.expect("published"));
        until(&of_a, |event| text(event).filter(|it| it == "again")).await;
    });
}

#[test]
fn a_group_that_is_being_left_can_be_joined_with_other_settings() {
    let (mut world, [a, b]) = started::<2>(13, Loss::None);
    run(&mut world, async {
        let first = a.join("accounts", Profile::ordered()).await.expect("a group");
        drop(first);
        let of_a = a.join("accounts", Profile::time_critical()).await.expect("another group");
        // The other node would refuse the new settings until it knows of the departure.
        b.sleep(Duration::from_secs(1)).await;
        let groups =
            [of_a, b.join("accounts", Profile::time_critical()).await.expect("another group")];
        groups[0].wait_for_members(1).await.expect("open");
        drop(groups[0].publish("x").await.expect("published"));
        assert_eq!(take(&groups[1], 1).await, ["x"]);
        // The end of the first membership has no effect on the second one.
        a.sleep(Duration::from_secs(5)).await;
        drop(groups[0].publish("y").await.expect("published"));
        assert_eq!(take(&groups[1], 1).await, ["y"]);
    });
}

/// A task that its own waker polls, on the thread of the driver whose clock it sleeps by.
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
fn node_closed_on_its_driver_thread_leaves_rings_in_order() {
    let port = multicast_port();
    let [stays, goes] = [(), ()].map(|()| on_loopback(port).start().expect("a node"));
    let profile = Profile::ordered();
    let of_stays = block_on(stays.join("accounts", profile)).expect("a group");
    let of_goes = block_on(goes.join("accounts", profile)).expect("a group");
    block_on(of_stays.wait_for_members(1)).expect("open");
    let slept = goes.sleep(Duration::from_millis(10));
    Arc::new(Task(Mutex::new(Some(Box::pin(async move {
        slept.await;
        // This is more than can be sent at once.
        for _ in 0..1000 {
            drop(of_goes.try_publish(vec![0; 1000]).expect("there is room"));
        }
        drop((of_goes, goes));
    })))))
    .wake();
    let mut given = 0;
    let view = loop {
        let event = block_on(of_stays.recv_timeout(PATIENCE)).expect("in time").expect("open");
        given += usize::from(text(&event).is_some());
        match news(&event) {
            Some(RingNews::View(view)) if view.view.len() == 1 && view.joined.is_empty() => {
                break view;
            }
            Some(RingNews::Minority { .. }) => {
                panic!("the other member is gone after {given} messages")
            }
            _ => {}
        }
    };
    assert_eq!((given, view.left.len(), view.failed.len()), (1000, 1, 0));
}
