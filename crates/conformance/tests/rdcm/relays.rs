//! Tests relays to receivers without multicast reception.

use std::collections::BTreeMap;

use carom_conformance::rdcm::BulkSuite;
use carom_proto::loss::Loss;
use carom_proto::{Engine as _, NetworkChange, NodeId};
use carom_sim::scenario::Suite as _;
use carom_sim::{Fault, HostIx};

use super::net::{MBIT, Net, Setup};

fn relays(net: &Net, hosts: &[u32]) -> BTreeMap<u32, Vec<NodeId>> {
    let tree = net.engine(0).relays(net.group).expect("it sends");
    hosts.iter().map(|host| (*host, tree.children(Net::id(*host)).to_vec())).collect()
}

fn a_relay(net: &Net, hosts: &[u32]) -> u32 {
    let busy = relays(net, hosts).into_iter().filter(|(_, children)| !children.is_empty());
    busy.map(|(host, _)| host).next_back().expect("a receiver relays data")
}

#[test]
fn relays_send_one_copy_per_child_and_the_tree_is_shallow() {
    for (degree, hops) in [(1, 15), (2, 4), (3, 3), (16, 1)] {
        let hosts: Vec<u32> = (0..16).collect();
        let mut setup = Setup::without_multicast(16, 1).at_mbit(30);
        setup.config.relay_children = degree;
        // Fifteen simultaneous copies must fit in the queue of the sender's link.
        setup.config.burst_packets = 8;
        let mut net = Net::sending(500, setup, &hosts);
        net.run_until_whole(&hosts[1..], 3000);
        let data = net.engine(0).counters().data_sent;
        for host in &hosts {
            let (multicast, unicast) = net.data_from(*host);
            assert_eq!(multicast, 0, "host {host} multicasts");
            assert!(unicast <= degree as u64 * data, "host {host} sent {unicast} of {data}");
            let counters = net.engine(*host).counters();
            assert_eq!(counters.repairs_sent + counters.data_not_relayed, 0, "host {host}");
        }
        let tree = net.engine(0).relays(net.group).expect("it sends");
        let depth = hosts[1..].iter().map(|host| tree.depth(Net::id(*host))).max();
        assert_eq!(depth, Some(hops), "{degree} children each");
        assert_eq!(tree.roots().len(), degree.min(15));
    }
}

#[test]
fn every_receiver_gets_all_in_order_despite_losses() {
    for seed in 0..10 {
        let mut setup = Setup::without_multicast(12, seed);
        setup.link.loss = Loss::Uniform(0.02);
        let hosts: Vec<u32> = (0..12).collect();
        let mut net = Net::sending(500, setup, &hosts);
        net.run_until_whole(&hosts[1..], 8000);
        net.run(500);
        assert_eq!(net.engine(0).unconfirmed(net.group), [], "the sender knows it");
    }
}

#[test]
fn relayed_stream_is_as_fast_as_two_copies_per_link() {
    let rate = |degree| {
        let mut setup = Setup::without_multicast(16, 2);
        setup.link = setup.link.with_bandwidth(400 * MBIT, 200_000);
        setup.config.relay_children = degree;
        let hosts: Vec<u32> = (0..16).collect();
        let mut net = Net::sending(5000, setup, &hosts);
        net.run_until_whole(&hosts[1..], 30_000)
    };
    // 20 MB take 0.4 seconds of a link, and two copies take 0.8 seconds.
    let (relayed, copied) = (rate(2), rate(15));
    assert!(relayed < 1600, "{relayed} ms");
    assert!(copied > 3 * relayed, "{copied} ms with a copy for each, {relayed} ms by relays");
}

#[test]
fn others_continue_when_a_relay_dies_and_the_tree_closes() {
    for seed in 0..5 {
        let mut setup = Setup::without_multicast(10, seed).at_mbit(200);
        setup.link.loss = Loss::Uniform(0.002);
        let hosts: Vec<u32> = (0..10).collect();
        let mut net = Net::sending(5000, setup, &hosts);
        net.run(100);
        let killed = a_relay(&net, &hosts);
        net.kill(killed, false);
        let left: Vec<u32> = hosts[1..].iter().copied().filter(|host| *host != killed).collect();
        net.run_until_whole(&left, 6000);
        assert!(net.slow.iter().any(|slow| slow.node == Net::id(killed)), "{:?}", net.slow);
        let tree = net.engine(0).relays(net.group).expect("it sends");
        assert_eq!(tree.depth(Net::id(killed)), 0, "it is in the tree");
        assert!(left.iter().all(|host| tree.depth(Net::id(*host)) > 0));
    }
}

#[test]
fn late_joiner_is_relayed_all_messages_from_one_on() {
    let mut setup = Setup::without_multicast(8, 5).at_mbit(300);
    setup.link.loss = Loss::Uniform(0.01);
    let hosts = [0, 1, 2, 3, 4];
    let mut net = Net::sending(5000, setup, &hosts);
    net.run(150);
    (5..8).for_each(|host| net.start(host));
    net.run_until_all_have(&[1, 2, 3, 4, 5, 6, 7], 5000);
    net.assert_whole(&hosts[1..]);
    for host in 5..8 {
        let log = net.log(host);
        let first = log.got[0];
        assert!(first > 100, "{first}");
        assert_eq!(log.got, (first..5000).collect::<Vec<u64>>(), "host {host}");
        assert_eq!(log.lost, []);
        let (by_tree, by_repair) = net.engine(host).arrived(net.group).expect("it receives");
        assert!(by_tree > 5 * by_repair, "{by_tree} and {by_repair}");
    }
}

#[test]
fn where_multicast_reaches_some_the_others_get_it_from_relays() {
    let hosts: Vec<u32> = (0..12).collect();
    let mut setup = Setup::rack(12, 3).at_mbit(100);
    setup.deaf = [2, 3, 5, 7, 11].into();
    setup.link.loss = Loss::Uniform(0.001);
    let mut net = Net::sending(1000, setup, &hosts);
    net.run_until_whole(&hosts[1..], 3000);
    let data = net.engine(0).counters().data_sent;
    let (multicast, unicast) = net.data_from(0);
    assert!(multicast >= data * 99 / 100 && multicast <= data, "{multicast} of {data}");
    assert!(unicast <= 2 * data, "{unicast} of {data}");
    for host in &hosts[1..] {
        let (multicast, _) = net.data_from(*host);
        assert_eq!(multicast, 0, "host {host} multicasts");
        let (by_tree, by_repair) = net.engine(*host).arrived(net.group).expect("it receives");
        assert!(by_tree > 10 * by_repair, "host {host}: {by_tree} and {by_repair}");
    }
}

#[test]
fn changing_multicast_reach_loses_nothing() {
    for seed in 0..5 {
        let hosts: Vec<u32> = (0..10).collect();
        let mut net = Net::sending(6000, Setup::rack(10, seed).at_mbit(200), &hosts);
        let changes: [&[u32]; 4] = [&[4, 5, 6, 7, 8, 9], &[1, 2, 3, 4, 5, 6, 7, 8, 9], &[3], &[]];
        for deaf in changes {
            net.run(100);
            net.deafen(deaf.iter().copied());
            net.run(2);
            let tree = net.engine(0).relays(net.group).expect("it sends");
            let relayed = hosts.iter().filter(|host| tree.depth(Net::id(**host)) > 0);
            assert_eq!(relayed.copied().collect::<Vec<u32>>(), deaf);
        }
        net.run_until_whole(&hosts[1..], 4000);
        assert_eq!(net.slow, []);
    }
}

#[test]
fn receiver_without_data_gets_another_relay() {
    gets_another_relay(12, 2);
}

#[test]
fn last_of_a_chain_cut_from_its_relay_gets_another_one() {
    gets_another_relay(3, 1);
    gets_another_relay(6, 1);
}

/// Checks that a child that is cut off from its relay gets another relay. There are `count` hosts,
/// each with at most `degree` children.
fn gets_another_relay(count: u32, degree: usize) {
    let hosts: Vec<u32> = (0..count).collect();
    let mut setup = Setup::without_multicast(count, 4).at_mbit(200);
    setup.config.relay_children = degree;
    let mut net = Net::sending(10_000, setup, &hosts);
    net.run(100);
    let relay = a_relay(&net, &hosts);
    let tree = net.engine(0).relays(net.group).expect("it sends");
    let child = tree.children(Net::id(relay))[0];
    let child_host = HostIx(child.0 as u32 - 1);
    net.world.apply(&Fault::OneWay(vec![HostIx(relay)], vec![child_host]));
    net.run_until_whole(&hosts[1..], 6000);
    let tree = net.engine(0).relays(net.group).expect("it sends");
    assert_ne!(tree.parent(child), Some(Net::id(relay)));
    assert!(net.engine(0).counters().relays_moved <= 3);
    let (by_tree, by_repair) = net.engine(child_host.0).arrived(net.group).expect("it receives");
    assert!(by_tree > by_repair, "{by_tree} and {by_repair}");
}

#[test]
fn chain_members_deaf_to_each_other_get_all_and_rarely_swap() {
    let hosts = [0, 1, 2];
    let mut setup = Setup::without_multicast(3, 7).at_mbit(30);
    setup.config.relay_children = 1;
    let mut net = Net::sending(10_000, setup, &hosts);
    net.run(100);
    for (from, to) in [(1, 2), (2, 1)] {
        net.world.apply(&Fault::OneWay(vec![HostIx(from)], vec![HostIx(to)]));
    }
    // The stream fills the links for 11 seconds. No order of the chain is better than another.
    let ms = net.run_until_whole(&hosts[1..], 12_500);
    let moved = net.engine(0).counters().relays_moved;
    assert!(moved < 6, "{moved} in {ms} ms");
}

#[test]
fn packets_stuck_at_a_blocked_relay_are_counted_and_repaired() {
    let hosts: Vec<u32> = (0..8).collect();
    let mut net = Net::sending(6000, Setup::without_multicast(8, 6).at_mbit(400), &hosts);
    net.run(100);
    let relay = a_relay(&net, &hosts);
    let blocked = NetworkChange::Blocked(true);
    net.with(relay, |engine, now| engine.handle_network(now, &blocked));
    net.run(200);
    let counters = net.engine(relay).counters();
    assert!(counters.data_not_relayed > 100, "{counters:?}");
    assert!(net.engine(relay).held_bytes() < 32 << 20);
    let blocked = NetworkChange::Blocked(false);
    net.with(relay, |engine, now| engine.handle_network(now, &blocked));
    net.run_until_whole(&hosts[1..], 4000);
    assert!(net.engine(relay).counters().data_relayed > counters.data_relayed, "it continues");
}

#[test]
fn scenarios_without_multicast_find_nothing() {
    for seed in (0..120).step_by(6) {
        let run = BulkSuite.run_seed(seed);
        let failure = run.failure.map(|failure| failure.violations);
        assert!(failure.is_none(), "seed {seed}: {failure:?}");
    }
}
