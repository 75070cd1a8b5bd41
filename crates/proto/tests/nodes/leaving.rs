//! Two nodes in a group, one of which leaves.

use carom_proto::node::LEAVE_WITHIN;
use carom_proto::ring::Quorum;
use carom_proto::{JoinError, NodeId, Profile, RateOfFire, SendOptions};

use crate::net::Net;

/// The driver receives the group's multicast until [`carom_proto::node::NodeEvent::Out`] is
/// reported.
#[test]
fn refused_rejoin_still_reports_the_left_group_as_out() {
    let mut pair = Net::new(2, Profile::Ordered(Quorum::Majority));
    pair.run(2000);
    assert_eq!(pair.nodes[0].members(pair.group), [NodeId(2)]);
    // The other member cannot confirm the leave.
    pair.loss = 1.0;
    pair.leave(0);
    pair.run(5);
    assert!(pair.nodes[0].is_leaving());
    assert_eq!(pair.outs, []);
    let refused = pair.nodes[0].join(pair.now, "group", Profile::Guest);
    assert_eq!(refused, Err(JoinError::NoEngine { profile: Profile::Guest }));
    pair.drain(0);
    pair.run(5);
    assert_eq!(pair.outs, [0]);
    assert!(!pair.nodes[0].is_leaving());
}

const PROFILES: [Profile; 2] = [Profile::TimeCritical(RateOfFire { r: 8, c: 5 }), Profile::Bulk];

/// Returns a pair whose second node has sent three messages, the last of which did not reach the
/// first node.
fn pair_with_a_loss(profile: Profile) -> Net {
    let mut pair = Net::new(2, profile);
    pair.run(500);
    for payload in ["first", "second", "last"] {
        let is_last = payload == "last";
        pair.loss = if is_last { 1.0 } else { 0.0 };
        pair.send(1, payload.into(), SendOptions::default());
        pair.run(if is_last { 1 } else { 100 });
    }
    pair
}

#[test]
fn last_messages_of_a_sender_that_leaves_are_repaired() {
    for profile in PROFILES {
        let mut pair = pair_with_a_loss(profile);
        assert_eq!(pair.given[0].len(), 2, "{profile}: the last one is lost");
        pair.loss = 0.0;
        pair.leave(1);
        assert!(pair.nodes[1].is_leaving(), "{profile}");
        pair.run(1000);
        assert!(!pair.nodes[1].is_leaving(), "{profile}");
        let messages = pair.given[0].iter().map(|(_, payload)| &payload[..]);
        assert_eq!(messages.collect::<Vec<_>>(), [&b"first"[..], b"second", b"last"], "{profile}");
    }
}

#[test]
fn sender_leaves_in_time_although_a_member_does_not_answer() {
    for profile in PROFILES {
        let mut pair = pair_with_a_loss(profile);
        pair.leave(1);
        pair.run(LEAVE_WITHIN.as_millis() as u64 - 5);
        assert!(pair.nodes[1].is_leaving(), "{profile}");
        pair.run(10);
        assert!(!pair.nodes[1].is_leaving(), "{profile}");
        assert_eq!(pair.outs, [1], "{profile}");
    }
}
