//! Delivery of every message once and unchanged, under all kinds of loss and settings.

use std::time::Duration;

use carom_proto::lateral::{AskFirst, Config, NakConfig, RepairScope, Solver};
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{SECOND, World, payload};

/// Runs `hosts` hosts in 8 groups, each of which lacks a random host.
///
/// Every host sends `per_host` messages, one every 5 ms, each to a random one of its groups. After
/// the last message, missing packets are repaired for 8 s.
fn exchange(config: &Config, loss: Loss, hosts: usize, per_host: u32, seed: u64) -> World {
    let mut world = World::new(hosts, config, loss, seed);
    let mut rng = Rng::new(seed);
    for number in 0..8 {
        let outsider = rng.below(hosts);
        let members = (0..hosts).filter(|host| *host != outsider);
        members.for_each(|host| world.join(host, GroupId(100 + number)));
    }
    for number in 0..per_host {
        for host in 0..hosts {
            let groups: Vec<GroupId> = world.hosts[host].groups.iter().copied().collect();
            let group = groups[rng.below(groups.len())];
            world.try_send(host, group, &payload(number)).expect("no member holds back");
            world.run_for(Duration::from_micros(5000 / hosts as u64));
        }
    }
    world.run_for(8 * SECOND);
    world
}

fn assert_complete(world: &World) {
    for sender in &world.hosts {
        for group in &sender.groups {
            let members = || world.hosts.iter().filter(|host| host.groups.contains(group));
            let others: Vec<_> = members().filter(|host| host.id != sender.id).collect();
            let sent = others.iter().map(|host| host.got_in(*group, sender.id).len()).max();
            let expected: Vec<u32> = (1..=sent.unwrap_or(0) as u32).collect();
            for host in others {
                assert_eq!(host.got_in(*group, sender.id), expected, "at {:?}", host.id);
            }
        }
    }
    let delivered: usize = world.hosts.iter().map(|host| host.messages.len()).sum();
    assert_eq!(world.hosts.iter().map(|host| host.lost.len()).sum::<usize>(), 0);
    let hosts = world.hosts.len() as u64;
    assert_eq!(delivered as u64, world.total("data_sent") * (hosts - 2));
}

#[test]
fn at_one_percent_loss_repairs_recover_nearly_everything() {
    let world = exchange(&Config::default(), Loss::Uniform(0.01), 8, 400, 1);
    assert_complete(&world);
    let recovered = world.total("recovered");
    let repaired = recovered + world.total("retransmitted");
    assert!(repaired > 100, "there was something to repair: {repaired}");
    assert!(recovered * 100 >= repaired * 95, "{recovered} of {repaired}");
    for host in &world.hosts {
        let counters = host.engine.counters();
        assert!((counters.overhead() - 5.0 / 13.0).abs() < 0.02, "{counters:?}");
        assert!(counters.xors_per_packet() <= 5.1, "{counters:?}");
        assert_eq!((counters.repairs_contradictory, counters.malformed), (0, 0));
    }
}

#[test]
fn payloads_come_as_they_were_sent() {
    let world = exchange(&Config::default(), Loss::Uniform(0.05), 8, 100, 2);
    let recovered = world.hosts.iter().flat_map(|host| &host.messages);
    let all_sent: Vec<Vec<u8>> = (0..100).map(payload).collect();
    let mut kinds = [0; 3];
    for message in recovered {
        assert!(all_sent.iter().any(|sent| sent[..] == message.payload[..]));
        kinds[match message.how {
            How::Direct => 0,
            How::Recovered(_) => 1,
            How::Retransmitted(_) => 2,
        }] += 1;
    }
    assert!(kinds[1] > 0, "{kinds:?}");
}

#[test]
fn everything_is_delivered_at_heavy_and_bursty_loss() {
    for seed in 0..3 {
        let world = exchange(&Config::default(), Loss::Uniform(0.2), 8, 100, seed);
        assert_complete(&world);
        let bursts = Loss::Burst { rate: 0.05, length: 20 };
        assert_complete(&exchange(&Config::default(), bursts, 8, 100, seed));
    }
}

#[test]
fn every_way_to_set_the_engine_delivers_everything() {
    let settings = [
        Config { scope: RepairScope::PerGroup, ..Config::default() },
        Config { solver: Solver::Peeling, pending_repairs: 20, ..Config::default() },
        Config { stagger: 4, ..Config::default() },
        Config { own_packets: false, ..Config::default() },
        Config { flush_after: None, heartbeat: None, ..Config::default() },
        Config { partial_view: Some(3), ..Config::default() },
        Config {
            nak: Some(NakConfig { first: AskFirst::AnyMember, ..NakConfig::default() }),
            ..Config::default()
        },
        Config {
            nak: Some(NakConfig { first: AskFirst::DataSender, ..NakConfig::default() }),
            ..Config::default()
        },
    ];
    for config in settings {
        let world = exchange(&config, Loss::Uniform(0.03), 6, 120, 5);
        if config.heartbeat.is_none() {
            // Without heartbeats, only the loss of a stream's last packets is not detected.
            let streams = world.hosts.iter().map(|host| host.groups.len()).sum::<usize>() * 4;
            let delivered: usize = world.hosts.iter().map(|host| host.messages.len()).sum();
            assert!(delivered + streams >= 6 * 120 * 4 && delivered <= 6 * 120 * 4);
            let missing = world.total("missing") - world.total("late");
            let repaired = world.total("recovered") + world.total("retransmitted");
            assert_eq!(missing, repaired, "all detected losses were repaired: {config:?}");
        } else {
            assert_complete(&world);
        }
    }
}

#[test]
fn papers_settings_recover_most_losses_and_report_the_rest() {
    let config = Config { nak: None, give_up_after: SECOND, ..Config::as_in_the_papers() };
    let world = exchange(&config, Loss::Uniform(0.02), 8, 400, 3);
    let [recovered, missing, late, lost] =
        ["recovered", "missing", "late", "lost"].map(|name| world.total(name));
    assert_eq!((world.total("naks_sent"), world.total("retransmitted")), (0, 0));
    assert!(recovered * 100 > (missing - late) * 90, "{recovered} of {missing}, {late} late");
    let reported: u32 = world.hosts.iter().map(|host| host.lost_count()).sum();
    assert_eq!(u64::from(reported), lost);
    assert_eq!(missing, recovered + late + lost);
    assert!(world.total("xors") <= 5 * world.total("packets_binned"));
}

#[test]
fn the_last_message_before_a_silence_is_repaired_too() {
    for flush_after in [Config::default().flush_after, None] {
        let config = Config { flush_after, ..Config::default() };
        let mut world = World::of_members(4, &config, Loss::None, 1);
        world.send(0, b"the first");
        world.run_for(SECOND);
        // Node 2 does not receive the second data packet (type 1 of the lateral protocol).
        world.filter = Box::new(|_, to, _, datagram| to != NodeId(2) || datagram[4] != 1);
        world.send(0, b"the last");
        world.run_for(SECOND);
        assert_eq!(world.hosts[1].got(NodeId(1)), [1, 2]);
        let how = world.hosts[1].messages[1].how;
        assert_eq!(matches!(how, How::Recovered(_)), flush_after.is_some(), "{how:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| exchange(&Config::default(), Loss::Uniform(0.05), 6, 60, seed).history;
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}
