use std::time::Duration;

use carom::sim::{Host, Membership, PerClass, World};
use carom::{ConfirmError, JoinGroupError, Loss, Node, NodeId, Profile, StartError};

use crate::{PATIENCE, config, join, messages, run, start, started};

#[test]
fn oracle_reports_views_after_its_delay_and_refuses_conflicts() {
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
    let stranger = nodes[2].join("prices", other);
    let stranger = run(&mut world, stranger).expect("not known yet");
    world.run_for(delay);
    assert_eq!(world.block_on(PATIENCE, stranger.recv()), Some(None), "it was refused");
    assert_eq!(nodes[2].notices().len(), 1);

    world.crash(&world.host(1));
    world.run_for(delay);
    assert_eq!(groups[0].members(), []);
}

#[test]
fn member_that_rejoins_within_the_delay_sees_current_members() {
    let delay = Duration::from_millis(100);
    let mut world = World::with_membership(config(2, 10), Membership::Oracle { delay });
    let nodes: [Node; 2] = start(&world);
    let (of_first, of_second) = run(&mut world, async {
        let first = [join(&nodes[0]).await, join(&nodes[1]).await];
        nodes[0].sleep(Duration::from_millis(50)).await;
        drop(first);
        let again = join(&nodes[0]).await;
        nodes[0].sleep(Duration::from_secs(1)).await;
        assert_eq!(again.members(), [], "the other has left for good");
        let other = join(&nodes[1]).await;
        nodes[0].sleep(delay).await;
        (again.members(), other.members())
    });
    assert_eq!((of_first, of_second), (vec![nodes[1].id()], vec![nodes[0].id()]));
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
        groups[0].try_publish("here").expect("published");
        groups[0].confirm(PATIENCE).await.expect("confirmed");
        messages(&groups[1])
    };
    assert_eq!(world.block_on(PATIENCE, told), Some(vec!["here".to_owned()]));
}

#[test]
fn seeds_are_addresses_in_the_world_and_must_answer() {
    let mut world = World::new(config(2, 12));
    let [a, _b] = [0, 1].map(|host| world.host(host));
    let named = Node::builder().seeds(["localhost:7400"]).start_on(&a);
    assert!(matches!(named, Err(StartError::Seed { .. })));
    let node = Node::builder().seeds(["10.0.0.2"]).start_on(&a).expect("a node");
    let alone = world.block_on(PATIENCE, node.join("a", Profile::time_critical()));
    assert!(matches!(alone, Some(Err(JoinGroupError::NoSeedAnswered { .. }))), "{alone:?}");
}

#[test]
fn late_members_do_not_confirm_messages_not_sent_to_them() {
    for profile in [Profile::time_critical(), Profile::ordered(), Profile::bulk()] {
        let (mut world, nodes) = started::<2>(21, Loss::None);
        let (early, late) = run(&mut world, async {
            let first = nodes[0].join("prices", profile).await.expect("a group");
            nodes[0].sleep(Duration::from_secs(2)).await;
            first.publish("early").await.expect("published");
            nodes[0].sleep(Duration::from_secs(2)).await;
            let later = nodes[1].join("prices", profile).await.expect("a group");
            first.wait_for_members(1).await.expect("open");
            later.wait_for_members(1).await.expect("open");
            let early = first.confirm(PATIENCE).await;
            first.publish("late").await.expect("published");
            (early, first.confirm(PATIENCE).await.expect("confirmed"))
        });
        assert_eq!(early, Err(ConfirmError::Nobody), "{profile:?}");
        assert_eq!(late.members, 1, "{profile:?}");
    }
}

#[test]
fn reformation_does_not_make_a_member_one_that_was_sent_all() {
    let (mut world, nodes) = started::<3>(22, Loss::None);
    let (first, second, _third) = run(&mut world, async {
        let first = nodes[0].join("accounts", Profile::ordered()).await.expect("a group");
        nodes[0].sleep(Duration::from_secs(2)).await;
        first.publish("early").await.expect("published");
        nodes[0].sleep(Duration::from_secs(2)).await;
        let second = nodes[1].join("accounts", Profile::ordered()).await.expect("a group");
        let third = nodes[2].join("accounts", Profile::ordered()).await.expect("a group");
        first.wait_for_members(2).await.expect("open");
        (first, second, third)
    });
    world.crash(&world.host(2));
    let confirmed = async {
        second.publish("the others notice").await.expect("published");
        while first.members().len() > 1 {
            nodes[0].sleep(Duration::from_millis(5)).await;
        }
        first.confirm(PATIENCE).await
    };
    assert_eq!(run(&mut world, confirmed), Err(ConfirmError::Nobody));
}
