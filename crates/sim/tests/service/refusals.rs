//! Joins and links that the service refuses, and the reasons that it gives.

use carom_proto::membership::service::frame::{MAGIC, VERSION};
use carom_proto::membership::service::{Frame, Refusal, ServerConfig, ServiceConfig, Unserved};
use carom_proto::{GroupSettings, JoinError};

use super::rig::{Rig, address, group, node_id, settings};
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
    // The group's last member takes its settings with it.
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
