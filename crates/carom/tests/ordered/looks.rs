use std::time::{Duration, Instant};

use carom::LockName;
use carom::{Group, Loss, Node, PathChoice, Profile, RingNews, RingStatus};
use pollster::block_on;

use crate::join_all;
use crate::network::{multicast_port, on_loopback};
use crate::simulation::{PATIENCE, news, run, started};

const TIMEOUT: Duration = Duration::from_secs(3);

async fn only_ring(node: &Node) -> RingStatus {
    let mut rings = node.query("accounts", TIMEOUT).await.expect("the query is allowed");
    assert_eq!(rings.len(), 1, "{rings:?}");
    rings.remove(0)
}

async fn ring_of(node: &Node, group: &Group) -> RingStatus {
    let groups = node.status().await.groups;
    let status =
        groups.into_iter().find(|it| it.id == group.id()).expect("the node is in the group");
    status.ring.expect("it is in a ring")
}

fn views(group: &Group) -> usize {
    let events = std::iter::from_fn(|| group.try_recv());
    events.filter(|event| matches!(news(event), Some(RingNews::View(_)))).count()
}

#[test]
fn stranger_sees_the_ring_of_the_members_without_any_event() {
    let (mut world, nodes) = started::<4>(1, Loss::Uniform(0.02));
    let [members @ .., stranger] = &nodes;
    let first = &members[0];
    run(&mut world, async {
        let rings = stranger.query("accounts", TIMEOUT).await;
        assert_eq!(rings, Ok(Vec::new()), "the group has no members yet");
        let groups = join_all(members, Profile::ordered()).await;
        let group = &groups[0];
        let lock = group.lock("nightly").await.expect("the lock");
        // Waits until the ring is quiet.
        first.sleep(Duration::from_secs(2)).await;
        views(group);
        for _ in 0..10 {
            let ring = only_ring(stranger).await;
            assert_eq!(ring, ring_of(first, group).await);
            assert!(ring.is_working);
            let holder = ring.view.locks.holder(LockName::of_name("nightly"));
            assert_eq!(holder.map(|process| process.node), Some(first.id()));
        }
        let own = ring_of(first, group).await;
        assert_eq!(only_ring(first).await, own, "a member reports its own ring");
        assert_eq!(views(group), 0, "the ring has changed");
        assert_eq!(stranger.query("another group", TIMEOUT).await, Ok(Vec::new()));
        assert!(stranger.status().await.groups.is_empty());
        drop(lock);
    });
}

#[test]
fn a_ring_is_seen_over_sockets_with_and_without_multicast() {
    for path in [PathChoice::Auto, PathChoice::Unicast] {
        let port = multicast_port();
        let member = on_loopback(port).path(path).start().expect("a node");
        let group = block_on(member.join("accounts", Profile::ordered())).expect("a group");
        let seed = member.endpoint().to_string();
        let stranger = on_loopback(port).path(path).seeds([seed]).start().expect("a node");
        let begun = Instant::now();
        let rings = loop {
            let rings =
                block_on(stranger.query("accounts", TIMEOUT)).expect("the query is allowed");
            // The member may not have formed its ring yet.
            if !rings.is_empty() || begun.elapsed() > PATIENCE {
                break rings;
            }
        };
        assert_eq!(rings, [block_on(ring_of(&member, &group))]);
    }
}
