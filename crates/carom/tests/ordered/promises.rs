use std::rc::Rc;
use std::time::Duration;

use carom::sim::Fault;
use carom::{
    ConfirmError, Event, Group, JoinError, JoinGroupError, Loss, Profile, PublishError, Qos,
    Quorum, RingNews,
};

use crate::ring;
use crate::simulation::{PATIENCE, run, started, text, until};

const ALL_LEVELS: [Qos; 7] = [
    Qos::Unreliable,
    Qos::Unordered,
    Qos::SourceOrdered,
    Qos::TotallyOrdered,
    Qos::Resilient(1),
    Qos::MajorityResilient,
    Qos::TotallyResilient,
];

#[test]
fn every_promise_is_kept_and_confirmed() {
    let (mut world, _nodes, groups) = ring::<3>(7, Loss::Uniform(0.02));
    run(&mut world, async {
        for qos in ALL_LEVELS {
            let published = groups[1].publish_with(qos.to_string(), qos).await;
            let told = published.expect("published").delivered_timeout(PATIENCE).await;
            assert_eq!(told, Ok(()), "{qos}");
            if qos == Qos::TotallyResilient {
                // All members hold the message by now, but each delivers it only after it has
                // learned this.
                for group in [&groups[0], &groups[2]] {
                    until(group, |event| text(event).filter(|it| *it == qos.to_string())).await;
                }
            }
        }
    });
}

#[test]
fn confirmation_succeeds_under_load_or_names_missing_members() {
    let (mut world, nodes, groups) = ring::<3>(14, Loss::Uniform(0.02));
    let groups: Rc<[Group]> = groups.into();
    let busy = Rc::clone(&groups);
    let host = world.host(0);
    world.spawn(&host, async move {
        loop {
            drop(busy[0].publish(vec![7; 500]).await.expect("published"));
            busy[0].recv_timeout(Duration::from_micros(300)).await.ok();
        }
    });
    let safe = run(&mut world, groups[0].confirm(PATIENCE)).expect("confirmed");
    assert_eq!((safe.members, safe.incomplete.len()), (2, 0));
    world.apply(&Fault::Partition(vec![world.host(0).ix()]));
    let limit = Duration::from_secs(3);
    let told = run(&mut world, groups[0].confirm(limit));
    let Err(ConfirmError::Timeout { mut waiting_for }) = told else { panic!("{told:?}") };
    waiting_for.sort_unstable();
    let mut others = [nodes[1].id(), nodes[2].id()];
    others.sort_unstable();
    assert_eq!(waiting_for, others);
}

#[test]
fn stability_is_reported_when_all_members_have_a_message() {
    let (mut world, _nodes, groups) = ring::<3>(16, Loss::None);
    world.run_for(Duration::from_secs(1));
    while groups[0].try_recv().is_some() {}
    world.apply(&Fault::Partition(vec![world.host(2).ix()]));
    drop(groups[0].try_publish("for two of three").expect("published"));
    let program = async {
        let (mut place, mut has_failed) = (None, false);
        loop {
            let event = groups[0].recv_timeout(PATIENCE).await;
            match event.expect("in time").expect("open") {
                Event::Message(message) => place = message.place,
                Event::Ring(event) => match event.news {
                    RingNews::View(view) => has_failed |= !view.failed.is_empty(),
                    RingNews::Stable { up_to, members }
                        if place.is_some_and(|place| place <= up_to) =>
                    {
                        assert!(has_failed, "the third member does not have it");
                        return members;
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    };
    assert_eq!(run(&mut world, program), 2);
}

#[test]
fn promise_beyond_the_group_is_refused_at_once() {
    let (mut world, [a, b]) = started::<2>(12, Loss::None);
    run(&mut world, async {
        let unordered = a.join("prices", Profile::time_critical()).await.expect("a group");
        let asked = Qos::TotallyOrdered;
        let refused = unordered.publish_with("x", asked).await.err();
        assert_eq!(refused, Some(PublishError::Qos { asked }));
        let refused = unordered.try_publish_with("x", asked).err();
        assert_eq!(refused, Some(PublishError::Qos { asked }));

        let any = Profile::ordered().quorum(Quorum::AtLeast(1));
        let group = a.join("accounts", any).await.expect("a group");
        let asked = Qos::MajorityResilient;
        let refused = group.publish_with("x", asked).await.err();
        assert_eq!(refused, Some(PublishError::Qos { asked }));
        let limit = group.payload_limit();
        assert_eq!(limit, 16 << 20);
        let refused = group.publish(vec![0; limit + 1]).await.err();
        assert_eq!(refused, Some(PublishError::TooLarge { bytes: limit + 1, limit }));
        let refused = group.publish_with(vec![0; 2000], Qos::Unreliable).await.err();
        assert!(matches!(refused, Some(PublishError::TooLarge { bytes: 2000, limit: ..1500 })));
        let told = group.publish("this one fits").await.expect("it does").delivered().await;
        assert_eq!(told, Ok(()), "a refused message blocks no other");

        for profile in [Profile::ordered(), Profile::time_critical()] {
            let refused = b.join("accounts", profile).await.map(drop);
            let error = refused.expect_err("the settings differ");
            let is_contradiction =
                matches!(error, JoinGroupError::Refused(JoinError::Contradiction { .. }));
            assert!(is_contradiction, "{error}");
        }
    });
}
