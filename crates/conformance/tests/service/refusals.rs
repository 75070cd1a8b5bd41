//! Joins and connections that the service refuses, and its reasons.

use carom_proto::membership::link::{LinkCommand, LinkEvent};
use carom_proto::membership::service::frame::{JoinRefusal, MAGIC, Snapshot, VERSION, Welcome};
use carom_proto::membership::service::*;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::{GroupSettings, Incarnation, JoinError, Time};

use super::rig::{PARTITIONS, Rig, address, endpoint, group, node_id, settings};
use super::{agreed, all_settled, default, seconds};

#[test]
fn a_contradicting_join_is_refused_with_both_values() {
    let mut rig = agreed(1, 2, 1, default(), 4);
    rig.add_node();
    rig.join_with(2, group(0), settings(4)).unwrap();
    let other_name = GroupSettings { name_check: 8, ..settings(8) };
    rig.join_with(2, group(5), settings(8)).unwrap();
    rig.add_node();
    rig.join_with(3, group(5), other_name).unwrap();
    assert!(rig.run_until(seconds(1), |rig| rig.nodes[3].refused.len() == 1));
    let by = node_id(0).min(node_id(1));
    let error = JoinError::Contradiction { ours: settings(4), theirs: settings(8), by };
    assert_eq!(rig.nodes[2].refused, [(group(0), error)]);
    assert_eq!(rig.nodes[3].refused, [(group(5), JoinError::NameCollision)]);
    assert!(rig.run_until(seconds(1), Rig::agrees));
    // The group's settings end with its last member.
    (0..2).for_each(|node| rig.leave(node, group(0)));
    assert!(rig.run_until(seconds(1), Rig::agrees));
    rig.join_with(2, group(0), settings(4)).unwrap();
    assert!(rig.run_until(seconds(1), Rig::agrees));
}

#[test]
fn of_two_first_joins_at_once_one_sets_the_settings() {
    let mut rig = Rig::new(1, default(), 5);
    (0..2).for_each(|_| assert!(rig.add_node() < 2));
    rig.join_with(0, group(0), settings(4)).unwrap();
    rig.join_with(1, group(0), settings(8)).unwrap();
    assert!(rig.run_until(seconds(1), |rig| all_settled(rig) && rig.agrees()));
    let refused: Vec<usize> = rig.nodes.iter().map(|host| host.refused.len()).collect();
    assert_eq!(refused.iter().sum::<usize>(), 1, "{refused:?}");
}

#[test]
fn bounds_of_groups_and_members_are_refusals() {
    let config = ServerConfig { max_members_per_group: 2, max_groups_per_node: 3, ..default() };
    let mut rig = agreed(1, 2, 2, config, 15);
    rig.add_node();
    rig.join(2, group(0));
    rig.join(0, group(2));
    assert!(rig.run_until(seconds(1), |rig| rig.agrees() && all_settled(rig)));
    rig.join(0, group(3));
    assert!(rig.run_until(seconds(1), |rig| rig.agrees() && all_settled(rig)));
    let refused = |why| JoinError::Unserved { why };
    assert_eq!(rig.nodes[2].refused, [(group(0), refused(Unserved::TooManyMembers))]);
    assert_eq!(rig.nodes[0].refused, [(group(3), refused(Unserved::TooManyGroups))]);
}

/// Returns the bytes of a frame with unknown settings in place of its own.
fn with_unknown_settings(frame: &Frame, known: GroupSettings) -> Vec<u8> {
    let (mut bytes, mut settings) = (Vec::new(), Vec::new());
    frame.encode(&mut bytes);
    known.encode(&mut settings);
    let at = bytes.windows(settings.len()).position(|bytes| bytes == settings);
    bytes[at.expect("the frame has these settings")] = 77;
    bytes
}

fn hello(node: usize) -> Frame {
    let (node, endpoint) = (node_id(node), endpoint(node));
    let member = Member { node, incarnation: 0, start: Incarnation(0), endpoint };
    let (cluster, rack) = (ServerConfig::default().cluster, String::new());
    Frame::Hello(Hello { role: Role::Node, cluster, member, rack })
}

#[test]
fn a_join_with_unknown_settings_is_refused_and_the_link_stays() {
    let mut rig = agreed(1, 2, 1, default(), 17);
    let mut bytes = Vec::new();
    hello(50).encode(&mut bytes);
    let join = Frame::Join { request: 3, group: group(1), settings: settings(8) };
    bytes.extend(with_unknown_settings(&join, settings(8)));
    Frame::Alive.encode(&mut bytes);
    let frames = rig.say(0, 1000, &bytes);
    let why = JoinRefusal::Unserved(Unserved::Settings);
    assert!(matches!(frames[0], Frame::Welcome(_)), "{frames:?}");
    assert!(frames.contains(&Frame::JoinRefused { request: 3, group: group(1), why }));
    assert_eq!(frames.last(), Some(&Frame::Alive));
    assert_eq!(rig.process_stat(0, "links_nonsense"), 0);
    let no_hello = rig.say(0, 1001, &with_unknown_settings(&join, settings(8)));
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
    service.handle_link(now, link, LinkEvent::Opened);
    let owned = (0..PARTITIONS).map(|partition| (partition, address(0))).collect();
    let owners = Owners { partitions: PARTITIONS, owned };
    let mut bytes = Vec::new();
    Frame::Welcome(Welcome { process: 1, lease_ms: 3000, owners }).encode(&mut bytes);
    service.handle_link(now, link, LinkEvent::Received(&bytes));
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
    bytes = with_unknown_settings(&frame, existing);
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
    let mut rig = Rig::new(1, ServerConfig { cluster: "lab".into(), ..default() }, 14);
    let mut hello = Vec::new();
    hello.extend_from_slice(&7_u32.to_be_bytes());
    hello.push(1);
    hello.extend_from_slice(&MAGIC.to_be_bytes());
    hello.extend_from_slice(&9_u16.to_be_bytes());
    let frames = rig.say(0, 1000, &hello);
    assert_eq!(frames, [Frame::Refused(Refusal::Version { ours: VERSION, theirs: 9 })]);
    assert_eq!(rig.say(0, 1001, &[0, 0, 0, 1, 99]), [Frame::Refused(Refusal::Nonsense)]);
    let too_long = [0, 0, 4, 1];
    assert_eq!(rig.say(0, 1003, &too_long), [Frame::Refused(Refusal::Nonsense)], "before it came");
    let join = {
        let mut bytes = Vec::new();
        let settings = settings(8);
        Frame::Join { request: 1, group: group(0), settings }.encode(&mut bytes);
        bytes
    };
    assert_eq!(rig.say(0, 1002, &join), [Frame::Refused(Refusal::Nonsense)], "no hello");
    rig.add_node();
    rig.join(0, group(0));
    rig.run_for(seconds(20));
    let refusal = rig.nodes[0].service.last_refusal();
    assert_eq!(refusal, Some(&Refusal::Cluster { ours: "lab".into() }));
    assert!(rig.nodes[0].is_away);
    assert!(rig.stat(0, "links_refused") <= 14, "it is not asked again and again");
    let addresses = vec![address(0)];
    let node = rig.add_node_with(ServiceConfig {
        addresses,
        cluster: "lab".into(),
        ..ServiceConfig::default()
    });
    assert!(rig.run_until(seconds(1), |rig| rig.nodes[node].settled_at.is_some()));
}
