//! Tests messages between real nodes on loopback.

mod network;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use carom::blocking::{Group, Node};
use carom::unstable::lateral;
use carom::{
    Bytes, ConfirmError, DeliveryError, Driver, Event, Loss, LossCause, MemberPath, Message,
    NodeId, PathChoice, PublishError, RateOfFire,
};
use carom_proto::Rng;
use futures_core::Stream;
use network::{
    PATIENCE, beside_an_absent_member, join, members, multicast_port, next_event, next_message,
    on_loopback, start, wait_for,
};
use pollster::block_on;

fn cluster<const N: usize>(
    build: impl Fn(usize, u16) -> carom::Builder,
) -> ([Node; N], [Group; N]) {
    let port = multicast_port();
    let nodes: [Node; N] = std::array::from_fn(|which| start(build(which, port)));
    let groups: [Group; N] = std::array::from_fn(|which| join(&nodes[which]));
    for (node, group) in nodes.iter().zip(&groups) {
        wait_for(node, "all members on known paths", |it| {
            it.members.len() == N - 1 && it.members.iter().all(|it| it.path != MemberPath::Unknown)
        });
        wait_for(node, "all members in the group", |_| group.members().len() == N - 1);
    }
    (nodes, groups)
}

fn number(message: &Message) -> u32 {
    let bytes = message.payload[..4].try_into().expect("four bytes at least");
    u32::from_be_bytes(bytes)
}

fn receive_all(group: &Group, senders: &[NodeId], count: u32) -> Vec<Message> {
    let mut seen: BTreeMap<NodeId, Vec<bool>> =
        senders.iter().map(|sender| (*sender, vec![false; count as usize])).collect();
    let mut messages = Vec::new();
    while messages.len() < senders.len() * count as usize {
        let message = next_message(group);
        let seen = seen.get_mut(&message.sender).expect("a known sender");
        let first = !std::mem::replace(&mut seen[number(&message) as usize], true);
        assert!(first, "message {} came twice", number(&message));
        messages.push(message);
    }
    messages
}

fn payload(number: u32, bytes: usize) -> Bytes {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(bytes.max(4), number as u8);
    payload.into()
}

#[test]
fn every_member_gets_every_message_once() {
    let (nodes, groups) = cluster::<3>(|_, port| on_loopback(port));
    let before = nodes[0].status().stats;
    for group in &groups {
        (0..1000).for_each(|it| drop(group.publish(payload(it, 200)).expect("published")));
    }
    for (which, group) in groups.iter().enumerate() {
        let others: Vec<NodeId> = group.members();
        assert!(!others.contains(&nodes[which].id()));
        let messages = receive_all(group, &others, 1000);
        assert!(messages.iter().all(|it| it.payload.len() == 200 && it.group == group.id()));
    }
    let stats = nodes[0].status().stats;
    assert_eq!(stats.net.unicast_copies, before.net.unicast_copies, "all are reached by multicast");
    assert_eq!((stats.net.send_errors, stats.net.unroutable), (0, 0));
}

#[test]
fn losses_are_repaired() {
    let build = |_, port| on_loopback(port).loss(Loss::Uniform(0.05));
    let (nodes, groups) = cluster::<4>(build);
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..3000).for_each(|it| drop(groups[0].publish(payload(it, 100)).expect("published")));
        });
        for group in &groups[1..] {
            receive_all(group, &[nodes[0].id()], 3000);
        }
    });
    let stats = nodes[1].status().stats;
    assert!(stats.net.losses_injected > 0 && stats.lateral.recovered > 0, "{stats:#?}");
}

#[test]
fn consecutive_messages_leave_together() {
    let (nodes, groups) = cluster::<2>(|_, port| on_loopback(port));
    (0..2000).for_each(|it| drop(groups[0].publish(payload(it, 500)).expect("published")));
    receive_all(&groups[1], &[nodes[0].id()], 2000);
    let stats = nodes[0].status().stats;
    assert!(stats.net.datagrams_out > 2000 && stats.net.send_calls < 1500, "{stats:#?}");
}

#[test]
fn members_without_multicast_get_copies() {
    let port = multicast_port();
    let a = start(on_loopback(port));
    let seed = a.endpoint().to_string();
    let without = || on_loopback(port).path(PathChoice::Unicast).seeds([&seed]);
    let others = [(); 2].map(|()| start(without()));
    let (in_a, in_others) = (join(&a), others.each_ref().map(join));
    wait_for(&a, "two members in the group", |it| in_a.members().len() == 2 && it.settled);
    wait_for(&others[0], "two members in the group", |_| in_others[0].members().len() == 2);
    (0..500).for_each(|it| drop(in_a.publish(payload(it, 100)).expect("published")));
    for group in &in_others {
        receive_all(group, &[a.id()], 500);
    }
    (0..500).for_each(|it| drop(in_others[0].publish(payload(it, 100)).expect("published")));
    receive_all(&in_a, &[others[0].id()], 500);
    assert!(a.status().stats.net.unicast_copies >= 1000);
    assert_eq!(others[0].status().stats.net.own_echo, 0);
}

#[test]
fn confirmed_messages_are_at_all_members() {
    let (nodes, groups) = cluster::<3>(|_, port| on_loopback(port).loss(Loss::Uniform(0.1)));
    (0..2000).for_each(|it| drop(groups[0].publish(payload(it, 50)).expect("published")));
    let safe = groups[0].confirm(PATIENCE).expect("confirmed");
    assert_eq!((safe.members, safe.incomplete), (2, vec![]));
    for group in &groups[1..] {
        let mut count = 0;
        while let Some(event) = group.try_recv() {
            count += usize::from(matches!(event, Event::Message(_)));
        }
        assert_eq!(count, 2000, "all messages of {} have arrived", nodes[0].id());
    }
}

#[test]
fn message_without_other_members_is_not_delivered_nor_safe() {
    let node = start(on_loopback(multicast_port()));
    let group = join(&node);
    assert_eq!(group.confirm(PATIENCE).expect("nothing was published").members, 0);
    let published = group.publish("into the void").expect("published");
    assert_eq!(published.delivered_timeout(PATIENCE), Err(DeliveryError::Nobody));
    assert_eq!(group.confirm(PATIENCE), Err(ConfirmError::Nobody));
}

#[test]
fn confirmed_messages_stay_safe_at_once_and_when_members_go() {
    let (nodes, groups) = cluster::<2>(|_, port| on_loopback(port));
    groups[0].publish("once").expect("published");
    let safe = groups[0].confirm(PATIENCE).expect("confirmed");
    let again = groups[0].confirm(Duration::ZERO).expect("known without waiting");
    assert_eq!(again, safe);
    let [sender, receiver] = groups;
    drop(receiver);
    wait_for(&nodes[0], "nobody else in the group", |_| sender.members().is_empty());
    assert_eq!(sender.confirm(PATIENCE), Ok(safe));
    sender.publish("twice").expect("published");
    assert_eq!(sender.confirm(PATIENCE), Err(ConfirmError::Nobody));
}

#[test]
fn timed_out_confirmation_names_the_missing_members() {
    let (node, absent) = beside_an_absent_member();
    let group = join(&node);
    let nothing = group.confirm(PATIENCE).expect("nothing was sent");
    assert_eq!(nothing.members, 1);
    group.publish("into the void").expect("published");
    let error = group.confirm(Duration::from_millis(50)).expect_err("no member is online");
    assert_eq!(error, ConfirmError::Timeout { waiting_for: vec![absent] });
}

#[test]
fn silent_member_that_holds_back_the_publisher_is_named() {
    let members = members::<2>();
    let patience = Duration::from_secs(3600);
    let builder = on_loopback(multicast_port())
        .node_id(members[0].0)
        .port(members[0].1.port())
        .static_members(members.to_vec())
        .lateral(lateral::Config { window: 16, patience, ..lateral::Config::default() });
    let node = start(builder);
    let group = join(&node);
    let mut taken = 0;
    let (by, behind) = loop {
        match group.try_publish(payload(taken, 10)) {
            Ok(_) => taken += 1,
            Err(PublishError::Full { held_back_by: Some(by), payload: returned }) => {
                assert_eq!(returned, payload(taken, 10));
                break by;
            }
            Err(PublishError::Full { held_back_by: None, .. }) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(by, members[1].0);
    assert_eq!(behind, 16);
    assert!(taken >= 1024, "the queue was filled: {taken}");

    let (told, waits) = sync_channel(0);
    thread::scope(|scope| {
        let group = &group;
        let publisher = scope.spawn(move || {
            told.send(()).expect("the main thread waits");
            group.publish(payload(0, 10)).map(drop)
        });
        waits.recv().expect("the thread runs");
        node.close();
        assert_eq!(publisher.join().expect("it ends").err(), Some(PublishError::Closed));
    });
    assert!(matches!(group.try_publish("x"), Err(PublishError::Closed)));
}

#[test]
fn full_event_queue_is_reported_as_losses() {
    let build = |_, port| on_loopback(port).queue(16);
    let (nodes, groups) = cluster::<2>(build);
    (0..500).for_each(|it| drop(groups[0].publish(payload(it, 10)).expect("published")));
    groups[0].confirm(PATIENCE).expect("confirmed");
    let (mut messages, mut lost) = (0, 0);
    while messages + lost < 500 {
        match next_event(&groups[1]) {
            Event::Message(_) => messages += 1,
            Event::Lost(gap) => {
                assert_eq!((gap.cause, gap.sender), (LossCause::QueueFull, nodes[0].id()));
                lost += gap.count();
            }
            _ => {}
        }
    }
    assert_eq!(messages + lost, 500, "each is reported once");
    assert_eq!(u64::from(lost), nodes[1].status().stats.net.queue_dropped);
    assert!(messages >= 15 && lost > 0, "{messages} messages, {lost} lost");
}

#[test]
fn an_oversized_message_is_an_error_with_the_limit() {
    let (_nodes, groups) = cluster::<1>(|_, port| on_loopback(port));
    let limit = groups[0].payload_limit();
    drop(groups[0].publish(vec![0; limit]).expect("it fits"));
    let bytes = limit + 1;
    let error = groups[0].publish(vec![0; bytes]);
    assert_eq!(error.err(), Some(PublishError::TooLarge { bytes, limit }));
    let error = groups[0].try_publish(vec![0; bytes]);
    assert_eq!(error.err(), Some(PublishError::TooLarge { bytes, limit }));
}

#[test]
fn the_largest_message_of_one_packet_passes_and_its_repairs_too() {
    let (nodes, groups) = cluster::<3>(|_, port| on_loopback(port).loss(Loss::Uniform(0.1)));
    let limit = lateral::Config::default().packet_limit(RateOfFire::new(8, 5));
    (0..500).for_each(|it| drop(groups[0].publish(payload(it, limit)).expect("published")));
    receive_all(&groups[1], &[nodes[0].id()], 500);
    assert_eq!(nodes[0].status().stats.net.send_errors, 0);
}

#[test]
fn sixteen_mebibytes_reach_three_members_at_5_percent_loss() {
    let (nodes, groups) = cluster::<4>(|_, port| on_loopback(port).loss(Loss::Uniform(0.05)));
    let mut rng = Rng::new(1);
    let large: Bytes = (0..groups[0].payload_limit()).map(|_| rng.next_u64() as u8).collect();
    assert_eq!(large.len(), 16 << 20);
    drop(groups[0].publish(large.clone()).expect("published"));
    drop(groups[0].publish("after it").expect("published"));
    for group in &groups[1..] {
        let mut messages = [next_message(group), next_message(group)];
        messages.sort_by_key(|message| message.seqno.0);
        assert!(messages[0].payload == large, "it is damaged");
        assert_eq!(&messages[1].payload[..], b"after it");
    }
    let stats = nodes[0].status().stats.lateral;
    let fits = lateral::Config::default().packet_limit(RateOfFire::new(8, 5)) - 8;
    assert_eq!(stats.pieces_sent, large.len().div_ceil(fits) as u64, "each left once");
    let confirmed = groups[0].confirm(PATIENCE).expect("all have it");
    assert!(confirmed.incomplete.is_empty());
}

#[test]
fn nodes_on_one_driver_repair_one_anothers_losses() {
    let driver = Driver::new().expect("a driver");
    let build =
        |_, port| on_loopback(port).driver(&driver).loss(Loss::Burst { rate: 0.05, length: 5 });
    let (nodes, groups) = cluster::<6>(build);
    (0..1000).for_each(|it| drop(groups[0].publish(payload(it, 64)).expect("published")));
    for group in &groups[1..] {
        receive_all(group, &[nodes[0].id()], 1000);
    }
}

#[test]
fn events_come_by_async_calls_and_as_a_stream_on_any_runtime() {
    let (nodes, groups) = cluster::<2>(|_, port| on_loopback(port));
    let (sender, receiver) = (&groups[0], &groups[1]);
    block_on(async {
        for it in 0..10 {
            sender.as_async().publish(payload(it, 4)).await.expect("published");
        }
        let mut count = 0;
        while count < 5 {
            count += u32::from(matches!(receiver.as_async().recv().await, Some(Event::Message(_))));
        }
        let mut events = pin!(receiver.as_async().clone().split().1);
        while count < 10 {
            let event = poll_fn(|context| events.as_mut().poll_next(context)).await;
            count += u32::from(matches!(event, Some(Event::Message(_))));
        }
        drop(nodes);
        while poll_fn(|context| events.as_mut().poll_next(context)).await.is_some() {}
        assert_eq!(receiver.as_async().recv().await, None);
    });
}

#[test]
fn split_handles_publish_and_iterate_until_the_group_closes() {
    let (nodes, [here, there]) = cluster::<2>(|_, port| on_loopback(port));
    let ((sender, _), (_, mut receiver)) = (here.split(), there.split());
    let other = sender.clone();
    sender.publish(payload(1, 4)).expect("published");
    other.publish(payload(2, 4)).expect("published");
    let messages = receiver.by_ref().filter_map(|event| match event {
        Event::Message(message) => Some(number(&message)),
        _ => None,
    });
    let mut numbers: Vec<u32> = messages.take(2).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(receiver.members(), [nodes[0].id()]);
    drop(nodes);
    assert!(receiver.all(|event| !matches!(event, Event::Message(_))), "each message arrives once");
    assert_eq!(receiver.next(), None);
}
