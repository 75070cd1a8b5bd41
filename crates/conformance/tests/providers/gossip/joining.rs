use std::time::Duration;

use carom_proto::membership::Membership;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::*;

use super::{agreed, cluster, endpoint, millis, node_id, seconds, settings};

#[test]
fn a_join_that_contradicts_a_known_member_is_refused() {
    let mut net = agreed(3, 0.0, 1);
    let other = GroupSettings::new("all", Profile::TimeCritical(RateOfFire::new(8, 3)));
    net.leave_name(1, "all");
    net.run_for(millis(100));
    let error = net.join_as(1, "all", other).unwrap_err();
    let by = if let JoinError::Contradiction { by, .. } = error { by } else { NodeId(0) };
    assert!(by == node_id(0) || by == node_id(2));
    let theirs = settings("all");
    assert_eq!(error, JoinError::Contradiction { ours: other, theirs, by });
    let group = GroupId::of_name("all");
    let collision = GroupSettings { name_check: 1, ..settings("all") };
    let result = net.join(1, group, collision);
    assert_eq!(result, Err(JoinError::NameCollision));
    assert_eq!(net.join_name(1, "all"), Ok(()));
    assert_eq!(net.view(1, "all").members().len(), 2);
    net.run_for(seconds(1));
    net.check();
}

#[test]
fn of_two_contradicting_joins_the_earlier_one_keeps_the_group() {
    for (pause, seed) in [(0, 1), (0, 2), (1, 3), (200, 4)] {
        let mut net = cluster(4, 0.0, seed);
        net.run_for(seconds(2));
        if pause > 1 {
            net.isolate(3);
        }
        let other = GroupSettings::new("all", Profile::TimeCritical(RateOfFire::new(8, 3)));
        net.join_name(0, "all").unwrap();
        net.run_for(Duration::from_nanos(pause * 1_000_000));
        if pause == 1 {
            assert!(net.join_as(3, "all", other).is_err(), "known after a millisecond");
            continue;
        }
        net.join_as(3, "all", other).unwrap();
        net.heal();
        net.run_for(seconds(3));
        let winner = if pause > 0 || node_id(0) < node_id(3) { 0 } else { 3 };
        let loser = 3 - winner;
        assert_eq!(net.node(loser).refused.len(), 1);
        let (ours, theirs) =
            if winner == 0 { (other, settings("all")) } else { (settings("all"), other) };
        let by = node_id(winner);
        let expected = JoinError::Contradiction { ours, theirs, by };
        assert_eq!(net.node(loser).refused[0], (GroupId::of_name("all"), expected));
        assert_eq!(net.node(winner).refused, []);
        assert_eq!(net.view(winner, "all").members(), []);
        assert!(net.stat(winner, "contradictions_ignored") > 0);
        net.join_as(1, "all", theirs).unwrap();
        net.run_for(millis(100));
        assert_eq!(net.view(winner, "all").members(), [node_id(1)]);
        net.check();
    }
}

#[test]
fn a_node_in_too_many_groups_is_told_the_limit() {
    let config = Config { max_groups_per_node: 2, ..Config::default() };
    let mut gossip = Gossip::new(NodeId(5), endpoint(5), config, 1);
    let settings = |name| GroupSettings::new(name, Profile::TimeCritical(RateOfFire::default()));
    let mut join = |name| gossip.join(Time(1), GroupId::of_name(name), settings(name));
    assert_eq!((join("a"), join("b")), (Ok(()), Ok(())));
    assert_eq!(join("c"), Err(JoinError::TooManyGroups { limit: 2 }));
    assert_eq!(join("b"), Err(JoinError::AlreadyJoined));
    gossip.leave(Time(2), GroupId::of_name("a"));
    assert_eq!(gossip.join(Time(3), GroupId::of_name("c"), settings("c")), Ok(()));
}
