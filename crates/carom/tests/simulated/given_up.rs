//! Tests that given-up messages are never confirmed, no matter when the confirmation is requested.

use std::time::Duration;

use carom::sim::{Fault, World};
use carom::{
    ConfirmError, DeliveryError, Event, Group, LossCause, Node, NodeId, Profile, RingEvent,
    RingNews,
};

use crate::{PATIENCE, config, run, simulation};

fn joined<const N: usize>(seed: u64, profile: Profile) -> (World, [Node; N], Vec<Group>) {
    let mut world = World::new(config(N as u32, seed));
    let nodes = std::array::from_fn(|host| {
        let builder = Node::builder().node_id(NodeId(host as u64 + 1));
        builder.start_on(&world.host(host as u32)).expect("a node")
    });
    let groups = run(&mut world, simulation::join_all(&nodes, "prices", profile));
    (world, nodes, groups)
}

async fn until(group: &Group, is_it: impl Fn(&Event) -> bool) {
    simulation::until(group, |event| is_it(event).then_some(())).await;
}

#[test]
fn bulk_messages_of_a_yielding_sender_are_not_safe_later() {
    let (mut world, _nodes, groups) = joined::<3>(91, Profile::bulk());
    let [first, second, _] = &groups[..] else { panic!("three groups") };
    run(&mut world, async {
        let [early, late] =
            ["early", "late"].map(|text| second.try_publish(text).expect("it is new"));
        first.try_publish("first").expect("it is not known yet");
        let is_lost = |event: &Event| match event {
            Event::Lost(lost) => lost.cause == LossCause::AnotherSender,
            _ => false,
        };
        until(second, is_lost).await;
        assert_eq!(early.delivered().await, Err(DeliveryError::GivenUp));
        for _ in 0..2 {
            assert_eq!(second.confirm(PATIENCE).await, Err(ConfirmError::GivenUp));
        }
        assert_eq!(late.delivered().await, Err(DeliveryError::GivenUp));
        let refused = second.try_publish("the other still sends").expect("it is accepted");
        assert_eq!(refused.delivered().await, Err(DeliveryError::GivenUp));
        assert_eq!(second.confirm(PATIENCE).await, Err(ConfirmError::GivenUp));
        assert_eq!(first.confirm(PATIENCE).await.expect("all have it").members, 2);
    });
}

#[test]
fn bulk_messages_complete_before_their_sender_yielded_are_safe() {
    let (mut world, _nodes, groups) = joined::<3>(93, Profile::bulk());
    let [first, second, third] = &groups[..] else { panic!("three groups") };
    world.apply(&Fault::Partition(vec![world.host(0).ix()]));
    world.run_for(Duration::from_secs(30));
    let published = second.try_publish("the others have this").expect("it is the only sender");
    let is_message = |event: &Event| matches!(event, Event::Message(_));
    run(&mut world, until(third, is_message));
    drop(first.try_publish("no receiver").expect("it knows of no other sender"));
    world.run_for(Duration::from_secs(5));
    world.apply(&Fault::Heal);
    world.run_for(Duration::from_secs(10));
    run(&mut world, async {
        drop(first.try_publish("first").expect("it sends"));
        until(second, is_message).await;
        assert_eq!(published.delivered_timeout(PATIENCE / 4).await, Ok(()));
        let safe = second.confirm(PATIENCE / 4).await.expect("all members had it");
        assert_eq!(safe.incomplete, []);
    });
}

#[test]
fn ordered_messages_of_a_removed_member_are_not_safe_later() {
    let (mut world, _nodes, groups) = joined::<4>(92, Profile::ordered());
    let group = &groups[3];
    run(&mut world, async {
        drop(group.publish("all have this").await.expect("published"));
        assert_eq!(group.confirm(PATIENCE).await.expect("all members are online").members, 3);
    });
    world.apply(&Fault::Partition(vec![world.host(3).ix()]));
    world.run_for(Duration::from_secs(5));
    drop(group.try_publish("into the void").expect("it is kept"));
    world.run_for(Duration::from_secs(5));
    world.apply(&Fault::Heal);
    run(&mut world, async {
        let is_removed = |event: &Event| {
            matches!(event, Event::Ring(RingEvent { news: RingNews::Removed { .. }, .. }))
        };
        until(group, is_removed).await;
        group.wait_for_members(3).await.expect("open");
        for _ in 0..2 {
            assert_eq!(group.confirm(PATIENCE).await, Err(ConfirmError::GivenUp));
        }
        drop(group.publish("back again").await.expect("published"));
        let safe = group.confirm(PATIENCE).await.expect("new messages are confirmed");
        assert_eq!(safe.members, 3);
    });
}
