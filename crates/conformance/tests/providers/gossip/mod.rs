mod detection;
mod forged;
mod joining;
mod net;
mod restarts;

use std::time::Duration;

use carom_conformance::gossip_forgery::path_response;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::wire::{Datagram, HEADER_BYTES};
use carom_proto::*;
use carom_sim::Fault;

use super::rig::{Rig, START, endpoint, ix, millis, node_id, seconds, settings};

use net::with_seeds;

fn cluster(count: usize, loss: f64, seed: u64) -> Rig {
    cluster_of(count, loss, seed, &with_seeds(&[0]))
}

fn cluster_of(count: usize, loss: f64, seed: u64, config: &Config) -> Rig {
    let mut net = Rig::for_gossip(loss, seed);
    (0..count).for_each(|_| _ = net.add_gossip(config.clone()));
    net
}

fn join_all(net: &mut Rig, count: usize, name: &str) {
    (0..count).for_each(|host| net.join_name(host, name).unwrap());
}

/// Creates a cluster whose hosts are each in "all" and in one of three other groups, and agree.
fn agreed(count: usize, loss: f64, seed: u64) -> Rig {
    agreed_after(cluster(count, loss, seed), count, &format!("loss {loss}, seed {seed}"))
}

fn agreed_after(mut net: Rig, count: usize, case: &str) -> Rig {
    for host in 0..count {
        net.join_name(host, "all").unwrap();
        net.join_name(host, GROUPS[1 + host % 3]).unwrap();
    }
    let done = net.run_until(seconds(20), |net| net.agrees_on(&GROUPS, in_group));
    assert!(done, "no agreement: {case}");
    net
}

const GROUPS: [&str; 4] = ["all", "a", "b", "c"];

fn in_group(host: usize, name: &str) -> bool {
    name == "all" || name == GROUPS[1 + host % 3]
}

#[test]
fn three_nodes_find_one_another_by_one_seed() {
    let net = agreed(3, 0.0, 1);
    assert!(net.now() < START + millis(400), "it took until {:?}", net.now());
    net.check();
    let nodes = net.node(1).membership.nodes();
    let mut expected = [(node_id(0), endpoint(0)), (node_id(2), endpoint(2))];
    expected.sort();
    assert_eq!(nodes, expected, "addresses that nodes did not know themselves are filled in");
}

#[test]
fn nodes_on_one_lan_find_one_another_without_seeds() {
    let mut net = cluster_of(5, 0.01, 5, &Config::default());
    join_all(&mut net, 5, "all");
    assert!(net.run_until(seconds(3), |net| net.agrees_on(&["all"], |_, _| true)));
    // The multicast is looped back to its sender.
    net.world.eavesdropper().set_memory(1);
    net.run_for(seconds(60));
    let hello = net.world.eavesdropper().multicasts().next().cloned().expect("a hello");
    (0..5).for_each(|host| net.feed(host, endpoint(host), &hello));
    assert_eq!((0..5).map(|host| net.stat(host, "datagrams_own")).sum::<u64>(), 1);
}

#[test]
fn sixteen_nodes_at_a_fifth_lost_end_with_the_same_views() {
    let mut suspicions = 0;
    for seed in 0..10 {
        let mut net = agreed(16, 0.2, seed);
        for host in 0..16 {
            net.leave_name(host, GROUPS[1 + host % 3]);
        }
        (0..16)
            .filter(|host: &usize| host.is_multiple_of(2))
            .for_each(|host| net.join_name(host, "even").unwrap());
        let even = |host: usize, name: &str| name == "all" || host.is_multiple_of(2);
        let done = net.run_until(seconds(5), |net| net.agrees_on(&["all", "even"], even));
        assert!(done, "seed {seed}");
        net.check();
        let sum = |name: &str| (0..16).map(|host| net.stat(host, name)).sum::<u64>();
        suspicions += sum("suspicions");
        assert_eq!(sum("rejoins"), 0, "suspicions are withdrawn, seed {seed}");
    }
    assert!(suspicions > 0, "no suspicion was withdrawn");
}

#[test]
fn a_joiner_gets_in_at_any_loss() {
    for seed in 0..60 {
        let loss = [0.01, 0.05, 0.2][seed % 3];
        let mut net = agreed(4, loss, seed as u64);
        let joiner = net.add_gossip(with_seeds(&[0]));
        net.join_name(joiner, "all").unwrap();
        let start = net.now();
        let done = net.run_until(seconds(8), |net| {
            net.node(joiner).settled_at.is_some() && net.view(joiner, "all").members().len() == 4
        });
        assert!(done, "loss {loss}, seed {seed}: still outside {:?} later", net.now().since(start));
    }
}

#[test]
fn seed_that_answers_from_another_of_its_addresses_is_met() {
    let mut net = agreed(2, 0.0, 1);
    net.world.eavesdropper().set_memory(9);
    let joiner = net.add_gossip(with_seeds(&[77]));
    net.join_name(joiner, "all").unwrap();
    for _ in 0..100 {
        let at_77 = net.world.eavesdropper().take_strays();
        at_77.iter().for_each(|datagram| net.feed(1, endpoint(joiner), datagram));
        net.run_for(millis(1));
    }
    assert_eq!(net.view(joiner, "all").members().len(), 2);
}

#[test]
fn node_that_is_its_own_seed_has_heard_it() {
    let mut net = Rig::for_gossip(0.0, 1);
    let first = net.add_gossip(with_seeds(&[0, 1]));
    // The world has no path from a host to itself.
    let from_itself = |at, datagram: &[u8]| (at == endpoint(0)).then(|| datagram.to_vec());
    net.with(first, |node, _| node.answer = Some(Box::new(from_itself)));
    net.run_for(seconds(1));
    assert_eq!(net.stat(first, "seeds_unanswered"), 1);
    let second = net.add_gossip(with_seeds(&[0]));
    assert!(net.run_until(seconds(5), |net| {
        let is_met = net.node(second).met.contains(&node_id(first));
        is_met && net.stat(first, "seeds_unanswered") == 0
    }));
}

#[test]
fn a_joiner_is_settled_once_it_knows_everything() {
    for seed in 0..10 {
        let mut net = agreed(8, 0.05, seed);
        let joiner = net.add_gossip(with_seeds(&[3]));
        let start = net.now();
        assert!(net.run_until(seconds(5), |net| net.node(joiner).settled_at.is_some()));
        if seed == 0 {
            assert!(net.now() < start + millis(150), "{:?}", net.now().since(start));
        }
        net.join_name(joiner, "all").unwrap();
        assert_eq!(net.view(joiner, "all").members().len(), 7 + 1, "seed {seed}");
    }
}

#[test]
fn a_node_without_answer_is_settled_after_half_a_second() {
    let mut net = Rig::for_gossip(0.0, 1);
    let host = net.add_gossip(with_seeds(&[7]));
    net.run_for(seconds(1));
    assert_eq!(net.node(host).settled_at, Some(START + millis(500)));
    assert!(net.node(host).membership.is_settled());
    net.run_for(seconds(600));
    assert_eq!(net.stat(host, "seeds_unanswered"), 1);
    let hellos = net.stat(host, "hellos_sent");
    assert!((100..200).contains(&hellos), "{hellos} hellos in ten minutes");
}

#[test]
fn a_crashed_node_is_out_of_every_view_within_three_seconds() {
    for (count, seeds) in [(2, 0..8), (3, 8..16), (12, 16..24)] {
        for seed in seeds {
            let mut net = agreed(count, 0.0, seed);
            net.run_for(millis(700 + 31 * seed));
            net.crash(1);
            let start = net.now();
            let gone = |net: &Rig| net.agrees_on(&GROUPS, in_group);
            assert!(net.run_until(seconds(3), gone), "{count} nodes, seed {seed}");
            let last = net.node(0).changes.last().unwrap();
            assert_eq!(last.1.kind, ViewChangeKind::Failed);
            assert!(last.0 > start + millis(1000), "too hasty");
            assert!(!net.node(0).met.contains(&node_id(1)));
            net.check();
        }
    }
}

#[test]
fn detection_can_be_tuned_down_to_a_tenth_of_a_second() {
    let config = Config { detection_time: millis(100), ..with_seeds(&[0]) };
    let mut net = cluster_of(4, 0.0, 3, &config);
    join_all(&mut net, 4, "all");
    net.run_for(seconds(2));
    assert!(net.agrees_on(&["all"], |_, _| true));
    assert_eq!(net.stat(0, "nodes_failed"), 0);
    net.crash(2);
    assert!(net.run_until(millis(100), |net| net.agrees_on(&["all"], |_, _| true)));
}

#[test]
fn a_node_that_leaves_or_stops_is_seen_to_have_left() {
    for (loss, seed) in [(0.0, 1), (0.05, 2), (0.2, 3), (0.2, 4)] {
        let mut net = agreed(8, loss, seed);
        net.leave_name(1, "all");
        let others = |host: usize, _: &str| host != 1;
        assert!(net.run_until(seconds(2), |net| net.agrees_on(&["all"], others)));
        net.run_for(seconds(1));
        net.shut_down(2);
        let gone = |net: &Rig| net.agrees_on(&["all"], others);
        assert!(net.run_until(seconds(3), gone), "loss {loss}");
        if loss == 0.0 {
            assert!(net.node(0).changes.last().unwrap().0 >= net.now().before(millis(1)));
        }
        net.run_for(seconds(5));
        for host in [0, 3, 4, 5, 6, 7] {
            let mut of_two = net.node(host).changes.iter().filter(|c| c.1.node == node_id(2));
            let last = of_two.next_back().unwrap();
            assert_eq!(last.1.kind, ViewChangeKind::Left, "host {host}, loss {loss}");
        }
        net.check();
    }
}

#[test]
fn a_paused_node_comes_back_as_itself() {
    for seed in 0..6 {
        let loss = if seed < 3 { 0.0 } else { 0.1 };
        let mut net = agreed(5, loss, seed);
        net.pause(1);
        net.run_for(seconds(4));
        assert!(!net.view(0, "all").contains(node_id(1)), "it was declared dead");
        net.resume(1);
        let back = net.run_until(seconds(5), |net| net.agrees_on(&GROUPS, in_group));
        assert!(back, "seed {seed}");
        assert!(net.stat(1, "rejoins") > 0);
        net.run_for(seconds(5));
        let of_one = net.node(0).changes.iter().filter(|c| c.1.node == node_id(1));
        let kinds: Vec<_> = of_one.filter(|c| c.1.group == GroupId::of_name("all")).collect();
        if loss == 0.0 {
            assert_eq!(kinds.len(), 3, "in, out and in again: {kinds:?}");
        }
        net.check();
    }
}

#[test]
fn node_cut_off_rejoins_though_all_declared_each_other_dead() {
    for seed in 0..4 {
        let mut net = agreed(4, 0.0, seed);
        net.isolate(2);
        net.run_for(seconds(8));
        assert_eq!(net.view(2, "all").members(), [], "alone");
        net.join_name(2, "late").unwrap();
        net.join_name(0, "late").unwrap();
        net.heal();
        let back = net.run_until(seconds(15), |net| net.agrees_on(&GROUPS, in_group));
        assert!(back, "seed {seed}");
        let late = |host: usize, _: &str| host == 0 || host == 2;
        assert!(net.run_until(seconds(2), |net| net.agrees_on(&["late"], late)));
    }
}

/// Many other hosts have crashed, so hosts 1 and 2 rarely query each other. Hosts 0 and 3 are
/// paused until hosts 1 and 2 have declared each other dead, and then receive from both.
#[test]
fn pair_that_declared_each_other_dead_meets_through_the_others() {
    for seed in 0..4 {
        let mut net = agreed(64, 0.0, seed);
        (4..64).for_each(|host| net.crash(host));
        net.run_for(seconds(20));
        net.cut(1, 2);
        [0, 3].iter().for_each(|host| net.pause(*host));
        net.run_for(seconds(8));
        [1, 2].iter().for_each(|host| assert_eq!(net.view(*host, "all").members(), [], "alone"));
        [0, 3].iter().for_each(|host| net.resume(*host));
        let sees = |net: &Rig, host: usize, other: usize| {
            net.view(host, "all").members().contains(&node_id(other))
        };
        let are_back = |net: &Rig| [1, 2].iter().all(|it| sees(net, *it, 0) && sees(net, *it, 3));
        assert!(net.run_until(seconds(15), are_back), "seed {seed}");
        assert!(!sees(&net, 1, 2) && !sees(&net, 2, 1), "seed {seed}");
        net.heal();
        let meet = net.run_until(seconds(15), |net| net.agrees_on(&GROUPS, in_group));
        assert!(meet, "seed {seed}");
    }
}

#[test]
fn two_halves_that_started_apart_merge() {
    for lan in [false, true] {
        let mut net = Rig::for_gossip(0.01, 9);
        net.world.apply(&Fault::Partition((4..8).map(ix).collect()));
        for host in 0..8 {
            // With seeds, each half has its own seed and one of the other half.
            let config = if lan { Config::default() } else { with_seeds(&[host / 4 * 4, 0, 4]) };
            net.add_gossip(config);
            net.join_name(host, "all").unwrap();
        }
        net.run_for(seconds(20));
        assert_eq!(net.view(0, "all").members().len(), 3);
        assert_eq!(net.view(7, "all").members().len(), 3);
        net.heal();
        let merged = net.run_until(seconds(30), |net| net.agrees_on(&["all"], |_, _| true));
        assert!(merged, "lan {lan}");
        net.check();
    }
}

#[test]
fn a_hundred_thousand_damaged_datagrams_change_nothing() {
    let mut net = cluster(4, 0.0, 8);
    join_all(&mut net, 4, "all");
    let kept = net.sent_within(seconds(3));
    assert!(net.agrees_on(&["all"], |_, _| true));
    let changes: Vec<usize> = net.live().map(|node| node.changes.len()).collect();
    let mut rng = Rng::new(77);
    for round in 0..100_000 {
        let mut datagram = kept[rng.below(kept.len())].clone();
        if round % 2 == 0 {
            datagram.truncate(1 + rng.below(datagram.len()));
            (0..8).for_each(|_| {
                let place = rng.below(datagram.len());
                datagram[place] = datagram[place].wrapping_add(1 + rng.below(255) as u8);
            });
        } else {
            datagram.iter_mut().skip(4).for_each(|byte| *byte = rng.next_u64() as u8);
        }
        net.feed(rng.below(4), endpoint(rng.below(6)), &datagram);
        if round % 500 == 0 {
            net.run_for(millis(10));
        }
    }
    net.run_for(seconds(5));
    let after: Vec<usize> = net.live().map(|node| node.changes.len()).collect();
    assert_eq!(changes, after);
    let malformed: u64 = (0..4).map(|host| net.stat(host, "datagrams_malformed")).sum();
    let noticed = malformed + net.live().map(|node| node.unparsed).sum::<u64>();
    assert!(noticed > 99_000, "{noticed} noticed");
    net.check();
}

#[test]
fn well_sealed_nonsense_and_old_datagrams_break_no_invariant() {
    let mut net = cluster(4, 0.0, 8);
    join_all(&mut net, 4, "all");
    let kept = net.sent_within(seconds(2));
    let mut rng = Rng::new(78);
    let sandbox = Config { max_nodes: 40, max_groups_per_node: 20, ..Config::default() };
    let mut gossip = Gossip::new(NodeId(5), endpoint(5), sandbox, 1);
    let mut out = Vec::new();
    let mut now = net.now();
    for round in 0..40_000 {
        let mut datagram = kept[rng.below(kept.len())].clone();
        for _ in 0..rng.below(3) {
            let place = HEADER_BYTES + rng.below(datagram.len() - HEADER_BYTES);
            datagram[place] = rng.next_u64() as u8;
        }
        if rng.chance(0.2) {
            datagram[4] = 1 + rng.below(9) as u8;
        }
        wire::seal(&mut datagram, 0);
        now = now + Duration::from_micros(rng.below(400) as u64);
        let source = endpoint(rng.below(6));
        gossip.handle_datagram(now, source, &Datagram::parse(&datagram).expect("a datagram"));
        gossip.handle_timeout(now);
        while let Some(transmit) = gossip.poll_transmit(&mut out) {
            assert!(out.len() <= 1400);
            let (name, _) = wire::Header::decode(&datagram).expect("a valid header");
            if transmit.destination == Destination::Endpoint(source)
                && let Some(response) = path_response(&name, source, &out)
            {
                for bytes in [&response, &datagram] {
                    let datagram = Datagram::parse(bytes).expect("a datagram");
                    gossip.handle_datagram(now, source, &datagram);
                }
            }
            out.clear();
        }
        while gossip.poll_event().is_some() {}
        if round % 100 == 0 {
            gossip.check();
        }
    }
    let up = gossip.stats().into_iter().find(|(name, _)| *name == "nodes_up");
    assert!(up.is_some_and(|(_, up)| up > 2), "nodes are heard: {up:?}");
}

#[test]
fn nodes_beyond_the_limit_are_counted_and_others_continue() {
    let mut net = cluster_of(12, 0.0, 4, &Config { max_nodes: 6, ..with_seeds(&[0]) });
    join_all(&mut net, 12, "all");
    net.run_for(seconds(20));
    net.check();
    for host in 0..12 {
        let members = net.view(host, "all").members().len();
        assert!(members <= 6, "host {host} has {members}");
    }
    assert_eq!(net.view(0, "all").members().len(), 6);
    assert!((0..12).any(|host| net.stat(host, "nodes_refused") > 0));
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| {
        let mut net = agreed(6, 0.1, seed);
        net.crash(2);
        net.run_for(seconds(6));
        (net.world.history(), net.traffic(), net.now())
    };
    assert_eq!(history(4), history(4));
    assert_ne!(history(4).0, history(5).0);
}

#[test]
fn sixty_four_nodes_with_two_hundred_groups_each_converge() {
    let mut net = cluster(64, 0.01, 2);
    let names: Vec<String> = (0..400).map(|group| format!("group {group}")).collect();
    let member = |host: usize, group: usize| (host + group).is_multiple_of(2);
    for host in 0..64 {
        for (group, name) in names.iter().enumerate() {
            if member(host, group) {
                net.join_name(host, name).unwrap();
            }
        }
    }
    let all = |net: &Rig| {
        net.live().all(|node| node.views.values().all(|view| view.members().len() == 31))
    };
    let mut next_look = net.now();
    let done = net.run_until(seconds(10), |net| {
        let look = net.now() >= next_look;
        next_look = if look { net.now() + millis(50) } else { next_look };
        look && all(net)
    });
    assert!(done, "not after ten seconds");
    let (datagrams, bytes) = net.traffic();
    // 64 tables of 200 rows of 25 bytes to 63 nodes each are 20 MB.
    assert!(bytes < 60_000_000, "{datagrams} datagrams, {bytes} bytes at {:?}", net.now());
    net.check();
    net.run_for(seconds(1));
    let before = net.traffic();
    net.run_for(seconds(2));
    let per_node = (net.traffic().1 - before.1) / 128;
    let count = (net.traffic().0 - before.0) / 128;
    assert!(per_node < 20_000, "{per_node} bytes, {count} datagrams per node and second at rest");
}

#[test]
fn stopped_node_no_longer_waits_for_subscriptions() {
    // Found by the simulator.
    let mut net = agreed(4, 0.0, 1);
    let joiner = net.add_gossip(with_seeds(&[0]));
    assert!(net.run_until(seconds(1), |net| net.stat(joiner, "pulls_sent") > 0));
    net.shut_down(joiner);
    net.check();
}

#[test]
fn events_of_a_stopped_node_cease() {
    let mut net = agreed(3, 0.0, 1);
    net.with(0, |node, now| node.shut_down(now));
    net.with(0, |node, now| {
        let membership = &mut node.membership;
        membership.handle_timeout(now + seconds(9));
        assert_eq!(membership.poll_event(), None::<MembershipEvent>);
        assert!(membership.poll_transmit(&mut Vec::new()).is_none());
    });
}
