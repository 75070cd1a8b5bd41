//! Tests nodes that stop and restart under the same id.

use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::wire::Datagram;
use carom_proto::{Incarnation, NodeId, Origin};

use super::net::with_seeds;
use super::{GROUPS, Rig, agreed, endpoint, in_group, join_all, millis, node_id, seconds};

#[test]
fn a_node_that_left_is_a_member_again_when_it_restarts() {
    let mut net = agreed(3, 0.0, 6);
    net.shut_down(1);
    net.run_for(seconds(2));
    assert_eq!(net.view(0, "all").members().len(), 1);
    bounced(&mut net, 9);
    net.join_name(1, "all").unwrap();
    net.join_name(1, "b").unwrap();
    let done = net.run_until(seconds(5), |net| net.agrees_on(&GROUPS, in_group));
    assert!(done, "the second start is ignored");
    net.check();
}

/// Restarts host 1 at once, under its id and at its address. The others are not notified.
fn bounced(net: &mut Rig, incarnation: u64) {
    let origin = Origin { node: node_id(1), incarnation: Incarnation(incarnation) };
    let again = Gossip::new(origin, endpoint(1), with_seeds(&[0]), 99);
    net.restart_as(1, again);
}

#[test]
fn node_of_another_network_at_a_members_address_is_ignored() {
    let mut net = agreed(3, 0.0, 6);
    let id = NodeId(77);
    let other = Config { network: 1, ..with_seeds(&[0]) };
    net.restart_as(1, Gossip::new(id, endpoint(1), other, 99));
    // The others send datagrams to the former member for as long as they remember it.
    net.run_for(seconds(60));
    for host in [0, 2] {
        assert_eq!(net.node(host).membership.nodes().len(), 1, "at {host}");
        assert_eq!(net.stat(host, "nodes_failed"), 1);
    }
    assert!(net.node(1).membership.nodes().is_empty());
    assert!((0..2).all(|host| net.stat(host, "datagrams_of_other_networks") > 0));
    net.check();
}

#[test]
fn subscriptions_of_a_former_start_end_with_it() {
    let mut net = agreed(3, 0.0, 6);
    join_all(&mut net, 2, "shared");
    net.run_for(seconds(1));
    assert_eq!(net.view(0, "shared").members(), [node_id(1)]);
    bounced(&mut net, 9);
    // The new incarnation makes as many changes as the former one, but different ones.
    net.join_name(1, "elsewhere").unwrap();
    net.join_name(1, "all").unwrap();
    net.run_for(seconds(2));
    let is_in = |host: usize, name: &str| in_group(host, name) && (host != 1 || name == "all");
    assert!(net.agrees_on(&GROUPS, is_in));
    assert_eq!(net.view(0, "shared").members(), [], "the former start was in it");
    assert_eq!(net.stat(0, "restarts"), 1);
    net.check();
}

#[test]
fn late_datagrams_of_a_former_start_change_nothing() {
    let mut net = agreed(3, 0.0, 6);
    net.join_name(1, "late").unwrap();
    let mut late = net.sent_within(seconds(1));
    late.retain(|it| Datagram::parse(it).is_ok_and(|it| it.header().sender == node_id(1)));
    assert!(!late.is_empty());
    bounced(&mut net, 9);
    net.join_name(1, "all").unwrap();
    net.run_for(millis(500));
    let before = net.node(0).changes.len();
    late.iter().for_each(|datagram| net.feed(0, endpoint(1), datagram));
    net.run_for(seconds(2));
    let is_in = |host: usize, name: &str| in_group(host, name) && (host != 1 || name == "all");
    assert!(net.agrees_on(&GROUPS, is_in));
    assert_eq!(net.node(0).changes.len(), before, "the former start is not the current one");
    net.check();
}
