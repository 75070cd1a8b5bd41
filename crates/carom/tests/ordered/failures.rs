use std::time::Duration;

use carom::sim::Fault;
use carom::{DeliveryError, Event, Loss, Node, Profile, PublishError, Qos, Removal, RingNews};

use crate::simulation::{news, run, start, started, text, until, world};
use crate::{join_all, ring};

#[test]
fn majority_continues_and_minority_reports_that_it_may_not() {
    let (mut world, nodes, groups) = ring::<3>(8, Loss::None);
    world.crash(&world.host(2));
    run(&mut world, async {
        let view = until(&groups[0], |event| match news(event) {
            Some(RingNews::View(view)) if !view.failed.is_empty() => Some(view),
            _ => None,
        });
        let view = view.await;
        assert_eq!(view.failed[0].node, nodes[2].id());
        assert_eq!(groups[0].members(), [nodes[1].id()]);
        let published = groups[0].publish_with("still here", Qos::TotallyResilient).await;
        assert_eq!(published.expect("published").delivered().await, Ok(()));
    });
    world.crash(&world.host(1));
    run(&mut world, async {
        let needed = until(&groups[0], |event| match news(event) {
            Some(RingNews::Minority { members, needed, .. }) => Some((members, needed)),
            _ => None,
        });
        assert_eq!(needed.await, (2, 2));
        let held = groups[0].publish("to no member").await.expect("it is kept");
        let told = held.delivered_timeout(Duration::from_secs(5)).await;
        assert_eq!(told, Err(DeliveryError::Timeout(Duration::from_secs(5))));
    });
}

#[test]
fn removed_member_is_notified_and_rejoins_unless_it_opts_out() {
    for rejoins in [true, false] {
        let (mut world, nodes) = started::<4>(9, Loss::None);
        let profile = Profile::ordered().rejoin(rejoins);
        let groups = run(&mut world, join_all(&nodes, profile));
        world.apply(&Fault::Partition(vec![world.host(3).ix()]));
        world.run_for(Duration::from_secs(5));
        drop(groups[0].try_publish("without the fourth").expect("published"));
        let cut_off = groups[3].try_publish("into the void").expect("it is kept");
        world.run_for(Duration::from_secs(5));
        world.apply(&Fault::Heal);
        run(&mut world, async {
            let removed = |event: &Event| match news(event) {
                Some(RingNews::Removed { why, unsent, .. }) => Some((why, unsent)),
                _ => None,
            };
            let (why, unsent) = until(&groups[3], removed).await;
            assert!(unsent.is_some(), "the outcome of one message is unknown");
            assert_eq!(cut_off.delivered().await, Err(DeliveryError::Removed { why }));
            if !rejoins {
                assert_eq!(groups[3].recv().await, None);
                let late = groups[3].try_publish("too late").err();
                assert_eq!(late, Some(PublishError::Closed));
                return;
            }
            groups[3].wait_for_members(3).await.expect("open");
            drop(groups[3].publish("back again").await.expect("published"));
            for group in &groups {
                until(group, |event| text(event).filter(|it| it == "back again")).await;
            }
        });
    }
}

#[test]
fn member_whose_application_takes_nothing_is_removed() {
    let mut world = world(3, 11, Loss::None);
    let nodes: [Node; 3] = start(&world, || Node::builder().queue(100));
    let groups = run(&mut world, join_all(&nodes, Profile::ordered()));
    let [slow, writer, reader] = &groups[..] else { panic!("three groups") };
    run(&mut world, async {
        for number in 0..2000 {
            drop(writer.publish(format!("{number}")).await.expect("published"));
            while writer.try_recv().is_some() {}
            while reader.try_recv().is_some() {}
            nodes[1].sleep(Duration::from_millis(1)).await;
        }
        while reader.members().len() > 1 {
            nodes[1].sleep(Duration::from_millis(5)).await;
        }
    });
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
    assert!(notices.iter().any(|it| it.text.contains("did not receive")), "{notices:?}");
}
