use std::time::Duration;

use carom::sim::World;
use carom::{
    Event, Handler, LockChange, Loss, Node, Profile, Removal, Reply, RequestOptions, RingEvent,
    RingNews,
};

use crate::{config, run, simulation, started};

async fn during<T>(other: &mut (impl Future + Unpin), future: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        _ = other => panic!("it has no answer"),
        output = future => output,
    }
}

#[test]
fn server_receives_requests_and_locks_without_taking_events() {
    let (mut world, nodes) = started::<2>(41, Loss::None);
    run(&mut world, async {
        let group = nodes[0].join("quotes", Profile::ordered()).await.expect("a group");
        let (mut requests, mut locks) = (group.requests().await, group.locks().await);
        group.discard_events();
        let handler = Handler::new(0).expect("there are six");
        let lock = group.lock(handler).await.expect("it is free");
        let news = locks.recv().await.expect("open");
        assert!(matches!(news.change, LockChange::Granted { .. }), "{news:?}");
        let answered = async {
            for number in 0..3 {
                let mut asked = Box::pin(nodes[1].request("quotes", format!("{number}"), handler));
                let request = during(&mut asked, requests.recv()).await.expect("open");
                assert!(request.is_ours, "{number}");
                group.reply(request.id, request.payload).await.expect("it is open");
                let reply = asked.await.expect("it is answered");
                assert!(matches!(reply, Reply::Handled { .. }), "{reply:?}");
            }
        };
        answered.await;
        assert!(lock.is_held());
        assert_eq!(group.try_recv(), None, "events are discarded");
        group.clone().leave().await;
        assert_eq!(requests.recv().await, None);
    });
}

#[test]
fn member_that_takes_no_requests_is_removed_from_the_ring() {
    let mut world = World::new(config(2, 42));
    let nodes: [Node; 2] = simulation::start(&world, || Node::builder().queue(8));
    run(&mut world, async {
        let slow = nodes[0].join("quotes", Profile::ordered()).await.expect("a group");
        let other = nodes[1].join("quotes", Profile::ordered()).await.expect("a group");
        slow.wait_for_members(1).await.expect("open");
        let _requests = slow.requests().await;
        other.discard_events();
        loop {
            drop(other.request("x", RequestOptions::default()).await);
            while let Some(event) = slow.try_recv() {
                let Event::Ring(RingEvent { news, .. }) = event else { continue };
                if let RingNews::Removed { why, .. } = news {
                    return assert_eq!(why, Removal::TooSlow);
                }
            }
            nodes[1].sleep(Duration::from_millis(1)).await;
        }
    });
}
