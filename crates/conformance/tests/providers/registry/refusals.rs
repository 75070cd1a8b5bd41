//! Tests joins and connections that the registry refuses, with the reasons.

use carom_proto::codec::Field as _;
use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::membership::service::frame::{JoinRefusal, MAGIC, Snapshot, VERSION};
use carom_proto::membership::service::*;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::{GroupSettings, JoinError, Time};

use super::owners::{all_at, welcome};
use super::{
    Rig, address, agreed, counter, default, encoded, endpoint, group, member, node_id, seconds,
    settings,
};

#[test]
fn a_contradicting_join_is_refused_with_both_values() {
    let mut rig = agreed(1, 2, 1, default(), 4);
    rig.add_node();
    rig.join(2, group(0), settings(4)).unwrap();
    let other_name = GroupSettings { name_check: 8, ..settings(8) };
    rig.join(2, group(5), settings(8)).unwrap();
    assert!(rig.run_until(seconds(1), Rig::all_settled));
    rig.add_node();
    rig.join(3, group(5), other_name).unwrap();
    assert!(rig.run_until(seconds(1), |rig| rig.node(3).refused.len() == 1));
    let by = node_id(0).min(node_id(1));
    let error = JoinError::Contradiction { ours: settings(4), theirs: settings(8), by };
    assert_eq!(rig.node(2).refused, [(group(0), error)]);
    assert_eq!(rig.node(3).refused, [(group(5), JoinError::NameCollision)]);
    assert!(rig.run_until(seconds(1), Rig::agrees));
    // The group's settings end with its last member.
    (0..2).for_each(|node| rig.leave(node, group(0)));
    assert!(rig.run_until(seconds(1), Rig::agrees));
    rig.join(2, group(0), settings(4)).unwrap();
    assert!(rig.run_until(seconds(1), Rig::agrees));
}

#[test]
fn of_two_first_joins_at_once_one_sets_the_settings() {
    let mut rig = Rig::with_registry(1, default(), 5);
    (0..2).for_each(|_| assert!(rig.add_node() < 2));
    rig.join(0, group(0), settings(4)).unwrap();
    rig.join(1, group(0), settings(8)).unwrap();
    assert!(rig.run_until(seconds(1), Rig::has_recovered));
    let refused: Vec<usize> = rig.live().map(|node| node.refused.len()).collect();
    assert_eq!(refused.iter().sum::<usize>(), 1, "{refused:?}");
}

#[test]
fn bounds_of_groups_and_members_are_refusals() {
    let config = ServerConfig { max_members_per_group: 2, max_groups_per_node: 3, ..default() };
    let mut rig = agreed(1, 2, 2, config, 15);
    rig.add_node();
    rig.join_group(2, group(0));
    rig.join_group(0, group(2));
    assert!(rig.run_until(seconds(1), Rig::has_recovered));
    rig.join_group(0, group(3));
    assert!(rig.run_until(seconds(1), Rig::has_recovered));
    let refused = |why| JoinError::Unserved { why };
    assert_eq!(rig.node(2).refused, [(group(0), refused(Unserved::TooManyMembers))]);
    assert_eq!(rig.node(0).refused, [(group(3), refused(Unserved::TooManyGroups))]);
}

fn with_unknown_settings(frame: &Frame, known: GroupSettings) -> Vec<u8> {
    let (mut bytes, settings) = (encoded(frame), known.to_bytes());
    let at = bytes.windows(settings.len()).position(|bytes| bytes == settings);
    bytes[at.expect("the frame has these settings")] = 77;
    bytes
}

fn hello(node: usize) -> Frame {
    let member = member(node_id(node), node);
    let (cluster, rack) = (ServerConfig::default().cluster, String::new());
    Frame::Hello(Hello { role: Role::Node, cluster, member, rack })
}

fn server(config: ServerConfig) -> Server {
    let mut server = Server::new(config, 1);
    for partition in 0..ServerConfig::default().partitions {
        server.load(partition, PartitionState::default());
        server.own(Time(1), partition);
    }
    server
}

fn say(server: &mut Server, link: u64, bytes: &[u8]) -> Vec<Frame> {
    let (now, link) = (Time(1), LinkId(link));
    server.handle_accepted(now, link, endpoint(99));
    server.handle_link(now, link, LinkEvent::Received(bytes));
    let mut reader = FrameReader::default();
    while let Some(command) = server.poll_link() {
        match command {
            LinkCommand::Send { link: to, bytes } if to == link => reader.push(&bytes),
            other => assert_eq!(other, LinkCommand::Close { link }),
        }
    }
    core::iter::from_fn(|| reader.next_frame().ok()?).collect()
}

#[test]
fn a_join_with_unknown_settings_is_refused_and_the_link_stays() {
    let mut server = server(default());
    let mut bytes = encoded(&hello(50));
    let join = Frame::Join { request: 3, group: group(1), settings: settings(8) };
    bytes.extend(with_unknown_settings(&join, settings(8)));
    Frame::Alive.encode(&mut bytes);
    let frames = say(&mut server, 1000, &bytes);
    let why = JoinRefusal::Unserved(Unserved::Settings);
    assert!(matches!(frames[0], Frame::Welcome(_)), "{frames:?}");
    assert!(frames.contains(&Frame::JoinRefused { request: 3, group: group(1), why }));
    assert_eq!(frames.last(), Some(&Frame::Alive));
    assert_eq!(counter(&server.stats(), "links_nonsense"), 0);
    let no_hello = say(&mut server, 1001, &with_unknown_settings(&join, settings(8)));
    assert_eq!(no_hello, [Frame::Refused(Refusal::Nonsense)]);
}

#[test]
fn a_group_of_unknown_settings_is_refused_to_the_node_alone() {
    let config = ServiceConfig { addresses: vec![address(0)], ..ServiceConfig::default() };
    let mut service = Service::new(node_id(0), endpoint(0), config, 9);
    let now = Time(1_000_000);
    (0..2).for_each(|number| service.join(now, group(number), settings(8)).expect("it is new"));
    service.handle_timeout(now);
    let Some(LinkCommand::Open { link, .. }) = service.poll_link() else { panic!("no link") };
    welcome(&mut service, now, link, all_at(address(0)));
    let mut sent = FrameReader::default();
    while let Some(command) = service.poll_link() {
        let LinkCommand::Send { bytes, .. } = command else { panic!("{command:?}") };
        sent.push(&bytes);
    }
    let mut requests = Vec::new();
    while let Ok(Some(frame)) = sent.next_frame() {
        if let Frame::Join { request, group, .. } = frame {
            requests.push((request, group));
        }
    }
    let [(first, refused), (second, joined)] = requests[..] else { panic!("{requests:?}") };
    let (existing, given) = (settings(4), settings(8));
    let why = JoinRefusal::Contradiction { existing, given, by: node_id(1) };
    let frame = Frame::JoinRefused { request: first, group: refused, why };
    let mut bytes = with_unknown_settings(&frame, existing);
    Frame::Joined { request: second, group: joined, version: 1 }.encode(&mut bytes);
    let (members, settings) = (Vec::new(), settings(8));
    let snapshot = Snapshot { group: joined, version: 1, more: false, settings, members };
    Frame::Snapshot(snapshot).encode(&mut bytes);
    service.handle_link(now, link, LinkEvent::Received(&bytes));
    let events: Vec<_> = core::iter::from_fn(|| service.poll_event()).collect();
    let why = JoinError::Unserved { why: Unserved::Settings };
    assert!(events.contains(&MembershipEvent::Refused(refused, why)), "{events:?}");
    assert!(service.has_joined(joined) && service.links() == 1);
}

#[test]
fn another_version_is_refused_by_name_and_another_cluster_too() {
    let config = ServerConfig { cluster: "lab".into(), ..default() };
    let mut server = server(config.clone());
    let mut hello = Vec::new();
    hello.extend_from_slice(&7_u32.to_be_bytes());
    hello.push(1);
    hello.extend_from_slice(&MAGIC.to_be_bytes());
    hello.extend_from_slice(&9_u16.to_be_bytes());
    let frames = say(&mut server, 1000, &hello);
    assert_eq!(frames, [Frame::Refused(Refusal::Version { ours: VERSION, theirs: 9 })]);
    assert_eq!(say(&mut server, 1001, &[0, 0, 0, 1, 99]), [Frame::Refused(Refusal::Nonsense)]);
    let too_long = [0, 0, 4, 1];
    assert_eq!(
        say(&mut server, 1003, &too_long),
        [Frame::Refused(Refusal::Nonsense)],
        "before it came"
    );
    let join = encoded(&Frame::Join { request: 1, group: group(0), settings: settings(8) });
    assert_eq!(say(&mut server, 1002, &join), [Frame::Refused(Refusal::Nonsense)], "no hello");
    let mut rig = Rig::with_registry(1, config, 14);
    rig.add_node();
    rig.join_group(0, group(0));
    rig.run_for(seconds(20));
    let refusal = Refusal::Cluster { ours: "lab".into() };
    assert_eq!(rig.node(0).membership.trouble(), Some(refusal.to_string()));
    assert!(rig.node(0).is_away);
    assert!(rig.stat(0, "links_refused") <= 14, "attempts are limited");
    let config = ServiceConfig { cluster: "lab".into(), ..rig.service_config() };
    let node = rig.add_node_with(config);
    assert!(rig.run_until(seconds(1), |rig| rig.node(node).settled_at.is_some()));
}
