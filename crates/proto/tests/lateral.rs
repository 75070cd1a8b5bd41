//! Several lateral engines together, under loss.

mod rig;

use std::time::Duration;

use carom_proto::lateral::block::{Arena, Block};
use carom_proto::lateral::packet::{Packet, WireId};
use carom_proto::lateral::{AskFirst, Config, NakConfig, RepairScope, Solver, StreamStart};
use carom_proto::loss::Loss;
use carom_proto::*;
use rig::{MILLISECOND, SECOND, World, payload};

const RATE: RateOfFire = RateOfFire::new(8, 5);

fn group(number: u32) -> GroupId {
    GroupId(100 + number)
}

/// `hosts` hosts, of which each group leaves out one; every host sends `per_host` messages, each
/// into one of its groups at random, one every 5 ms; then time to repair what is missing.
fn exchange(config: &Config, loss: Loss, hosts: usize, per_host: u32, seed: u64) -> World {
    let mut world = World::new(hosts, config, loss, seed);
    let mut rng = Rng::new(seed);
    for number in 0..8 {
        let outsider = rng.below(hosts);
        (0..hosts).filter(|host| *host != outsider).for_each(|host| {
            world.join(host, group(number), RATE);
        });
    }
    for number in 0..per_host {
        for host in 0..hosts {
            let groups: Vec<GroupId> = world.hosts[host].groups.iter().copied().collect();
            let group = groups[rng.below(groups.len())];
            world.send(host, group, &payload(number)).expect("nobody holds back");
            world.run_for(Duration::from_micros(5000 / hosts as u64));
        }
    }
    world.run_for(8 * SECOND);
    world
}

/// Every member of a group has every message that was sent there, once.
fn assert_complete(world: &World) {
    for sender in &world.hosts {
        for group in &sender.groups {
            let members = || world.hosts.iter().filter(|host| host.groups.contains(group));
            let others: Vec<_> = members().filter(|host| host.id != sender.id).collect();
            let sent = others.iter().map(|host| host.got(sender.id, *group).len()).max();
            let expected: Vec<u32> = (1..=sent.unwrap_or(0) as u32).collect();
            for host in others {
                assert_eq!(host.got(sender.id, *group), expected, "at {:?}", host.id);
            }
        }
    }
    let delivered: usize = world.hosts.iter().map(|host| host.messages.len()).sum();
    assert_eq!(world.hosts.iter().map(|host| host.lost.len()).sum::<usize>(), 0);
    let hosts = world.hosts.len() as u64;
    assert_eq!(delivered as u64, world.total().data_sent * (hosts - 2));
}

#[test]
fn at_one_percent_loss_everything_is_delivered_once_and_nearly_all_by_repairs() {
    let world = exchange(&Config::default(), Loss::Uniform(0.01), 8, 400, 1);
    assert_complete(&world);
    let total = world.total();
    let repaired = total.recovered + total.retransmitted;
    assert!(repaired > 100, "there was something to repair: {total:?}");
    assert!(total.recovered * 100 >= repaired * 95, "{total:?}");
    assert!((total.overhead() - 5.0 / 13.0).abs() < 0.02, "overhead {}", total.overhead());
    assert!(total.xors_per_packet() <= 5.1, "{} XORs per packet", total.xors_per_packet());
    assert_eq!((total.repairs_contradictory, total.malformed), (0, 0));
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
fn everything_is_delivered_at_twenty_percent_loss_and_in_bursts_of_twenty() {
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
            // The last packets of a stream can only be noticed by what follows: all but those come.
            let streams = world.hosts.iter().map(|host| host.groups.len()).sum::<usize>() * 4;
            let delivered: usize = world.hosts.iter().map(|host| host.messages.len()).sum();
            assert!(delivered + streams >= 6 * 120 * 4 && delivered <= 6 * 120 * 4);
            let missing = world.total().missing - world.total().late;
            let repaired = world.total().recovered + world.total().retransmitted;
            assert_eq!(missing, repaired, "what was noticed was repaired: {config:?}");
        } else {
            assert_complete(&world);
        }
    }
}

#[test]
fn the_papers_settings_leave_to_phase_one_what_it_can_do_and_report_the_rest() {
    let config = Config { nak: None, give_up_after: SECOND, ..Config::as_in_the_papers() };
    let world = exchange(&config, Loss::Uniform(0.02), 8, 400, 3);
    let total = world.total();
    assert_eq!((total.naks_sent, total.retransmitted), (0, 0));
    assert!(total.recovered * 100 > (total.missing - total.late) * 90, "{total:?}");
    let reported: u32 = world.hosts.iter().flat_map(|host| &host.lost).map(Lost::count).sum();
    assert_eq!(u64::from(reported), total.lost);
    assert_eq!(total.missing, total.recovered + total.late + total.lost);
    assert!(total.xors_per_packet() <= 5.0);
}

#[test]
fn the_last_message_before_a_silence_is_repaired_too() {
    for flush_after in [Config::default().flush_after, None] {
        let config = Config { flush_after, ..Config::default() };
        let mut world = World::new(4, &config, Loss::None, 1);
        (0..4).for_each(|host| world.join(host, group(0), RATE));
        world.send(0, group(0), b"the first").expect("nobody holds back");
        world.run_for(SECOND);
        // Host 2 does not hear the second data packet (type 1 of the lateral protocol).
        world.filter = Box::new(|_, to, datagram| to != NodeId(2) || datagram[4] != 1);
        world.send(0, group(0), b"the last").expect("nobody holds back");
        world.run_for(SECOND);
        assert_eq!(world.hosts[1].got(NodeId(1), group(0)), [1, 2]);
        let how = world.hosts[1].messages[1].how;
        assert_eq!(matches!(how, How::Recovered(_)), flush_after.is_some(), "{how:?}");
    }
}

#[test]
fn a_joiner_gets_everything_from_its_join_on_and_asks_for_nothing_before() {
    for seed in 0..5 {
        let mut world = World::new(4, &Config::default(), Loss::Uniform(0.2), seed);
        (0..3).for_each(|host| world.join(host, group(0), RATE));
        for number in 0..300 {
            if number == 150 {
                world.join(3, group(0), RATE);
            }
            world.send(0, group(0), &payload(number)).expect("nobody holds back");
            world.run_for(MILLISECOND);
        }
        world.run_for(5 * SECOND);
        let all: Vec<u32> = (1..=300).collect();
        assert_eq!(world.hosts[1].got(NodeId(1), group(0)), all);
        assert_eq!(world.hosts[3].got(NodeId(1), group(0)), all[150..], "seed {seed}");
        assert!(world.hosts.iter().all(|host| host.lost.is_empty()));
    }
}

#[test]
fn a_joiner_is_not_asked_for_what_was_lost_before_it_came() {
    for seed in 0..5 {
        let mut world = World::new(8, &Config::default(), Loss::None, seed);
        (0..4).for_each(|host| world.join(host, group(0), RATE));
        world.send(0, group(0), &payload(0)).expect("nobody holds back");
        world.run_for(SECOND);
        // Hosts 2 to 4 lose the second message; all repairs, and the sender, are lost too.
        let asked = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let heard = asked.clone();
        world.filter = Box::new(move |from, to, datagram| {
            if datagram[4] == 3 {
                heard.borrow_mut().push(to.0);
            }
            let is_beat = datagram[4] == 6 && from == NodeId(1);
            is_beat || (from != NodeId(1) && to != NodeId(1) && datagram[4] != 2)
        });
        world.send(0, group(0), &payload(1)).expect("nobody holds back");
        world.run_for(150 * MILLISECOND);
        (4..8).for_each(|host| world.join(host, group(0), RATE));
        world.run_for(9 * SECOND);
        let asked = asked.borrow();
        assert!(asked.len() > 60, "three members asked each other {} times", asked.len());
        assert!(asked.iter().all(|node| *node <= 4), "seed {seed}: joiners were asked: {asked:?}");
        assert!((1..4).all(|host| world.hosts[host].lost.len() == 1), "and told what they lost");
    }
}

#[test]
fn a_group_can_be_left_and_joined_again_without_repeating_anything() {
    let mut world = World::new(3, &Config::default(), Loss::Uniform(0.05), 4);
    (0..3).for_each(|host| world.join(host, group(0), RATE));
    for round in 0..4 {
        for number in 0..50 {
            world.send(0, group(0), &payload(number)).expect("nobody holds back");
            world.send(1, group(0), &payload(number)).expect("nobody holds back");
            world.run_for(MILLISECOND);
        }
        world.run_for(2 * SECOND);
        let host = round % 2;
        world.leave(host, group(0));
        world.run_for(MILLISECOND);
        world.join(host, group(0), RATE);
    }
    let all: Vec<u32> = (1..=200).collect();
    assert_eq!(world.hosts[2].got(NodeId(1), group(0)), all);
    assert_eq!(world.hosts[2].got(NodeId(2), group(0)), all);
    assert_eq!(world.hosts[0].got(NodeId(2), group(0)), all);
}

#[test]
fn what_a_crashed_sender_left_behind_is_repaired_by_the_others() {
    let mut world = World::new(5, &Config::default(), Loss::None, 1);
    (0..5).for_each(|host| world.join(host, group(0), RATE));
    world.filter =
        Box::new(|from, to, datagram| from != NodeId(1) || to != NodeId(2) || datagram[4] != 1);
    (0..20).for_each(|number| {
        world.send(0, group(0), &payload(number)).expect("nobody holds back");
        world.run_for(MILLISECOND);
    });
    world.crash(0);
    world.announce(0, group(0), ViewChangeKind::Failed);
    world.run_for(5 * SECOND);
    let all: Vec<u32> = (1..=20).collect();
    assert_eq!(world.hosts[2].got(NodeId(1), group(0)), all);
    // Host 2 never heard the sender itself, so that it owes its knowledge to repairs; from the
    // first number that they told it of, it has everything.
    let got = world.hosts[1].got(NodeId(1), group(0));
    assert_eq!(got, all[20 - got.len()..]);
    assert!(got.len() >= 12, "{got:?}");
}

#[test]
fn confirmation_comes_when_every_member_has_everything() {
    let mut world = World::new(4, &Config::default(), Loss::Uniform(0.3), 9);
    (0..4).for_each(|host| world.join(host, group(0), RATE));
    (0..100).for_each(|number| {
        world.send(0, group(0), &payload(number)).expect("nobody holds back");
        world.run_for(MILLISECOND);
    });
    world.confirm(0, group(0));
    assert_eq!(world.hosts[0].safe, []);
    world.run_for(10 * SECOND);
    let safe = Safe { group: group(0), up_to: SeqNo(100), members: 3, incomplete: Vec::new() };
    assert_eq!(world.hosts[0].safe, [safe]);
    assert_eq!(world.hosts[0].engine.unconfirmed(group(0)), []);
    let all: Vec<u32> = (1..=100).collect();
    (1..4).for_each(|host| assert_eq!(world.hosts[host].got(NodeId(1), group(0)), all));
}

#[test]
fn a_member_that_lost_something_and_left_is_named_as_incomplete() {
    let config = Config { nak: None, give_up_after: SECOND, ..Config::default() };
    let mut world = World::new(3, &config, Loss::None, 9);
    (0..3).for_each(|host| world.join(host, group(0), RATE));
    world.send(0, group(0), b"all get this").expect("nobody holds back");
    world.run_for(SECOND);
    // Neither the second message nor a repair of it reaches host 2.
    world.filter = Box::new(|_, to, datagram| to != NodeId(2) || datagram[4] > 2);
    world.send(0, group(0), b"one does not").expect("nobody holds back");
    world.run_for(3 * SECOND);
    world.leave(1, group(0));
    world.run_for(SECOND);
    world.confirm(0, group(0));
    world.run_for(SECOND);
    let incomplete = vec![(NodeId(2), 1)];
    let safe = Safe { group: group(0), up_to: SeqNo(2), members: 1, incomplete };
    assert_eq!(world.hosts[0].safe, [safe]);
}

#[test]
fn a_dead_member_is_named_while_it_is_waited_for() {
    let mut world = World::new(3, &Config::default(), Loss::None, 9);
    (0..3).for_each(|host| world.join(host, group(0), RATE));
    world.crash(2);
    world.send(0, group(0), b"x").expect("nobody holds back");
    world.confirm(0, group(0));
    world.run_for(SECOND);
    assert_eq!(world.hosts[0].engine.unconfirmed(group(0)), [NodeId(3)]);
    world.announce(2, group(0), ViewChangeKind::Failed);
    assert_eq!(world.hosts[0].safe.len(), 1);
}

#[test]
fn a_dead_member_holds_a_sender_back_for_its_patience_and_no_longer() {
    let config = Config { window: 64, ..Config::default() };
    let mut world = World::new(3, &config, Loss::None, 9);
    (0..3).for_each(|host| world.join(host, group(0), RATE));
    world.crash(2);
    let (mut sent, mut refused) = (0, 0);
    for number in 0..1200 {
        match world.send(0, group(0), &payload(number)) {
            Ok(_) => sent += 1,
            Err(error) => {
                assert_eq!(error, SendError::HeldBack { by: NodeId(3), behind: 64 });
                refused += 1;
            }
        }
        world.run_for(MILLISECOND);
    }
    assert_eq!(refused, 500, "patience is half a second by default");
    assert_eq!(world.hosts[0].slow, [Slow { group: group(0), node: NodeId(3), behind: 64 }]);
    assert_eq!(world.hosts[1].got(NodeId(1), group(0)).len(), sent);
}

#[test]
fn a_message_past_its_deadline_is_reported_not_delivered() {
    let mut world = World::new(3, &Config::default(), Loss::None, 1);
    (0..3).for_each(|host| world.join(host, group(0), RATE));
    world.filter = Box::new(|_, to, datagram| to != NodeId(2) || datagram[4] != 1);
    let deadline = Some(Duration::from_millis(10));
    world
        .send_with(0, group(0), b"late", SendOptions { deadline, qos: None })
        .expect("nobody holds back");
    world.send(0, group(0), b"no hurry").expect("nobody holds back");
    world.run_for(5 * SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1), group(0)), [2]);
    let cause = LossCause::DeadlinePassed;
    let (first, last) = (SeqNo(1), SeqNo(1));
    let lost = Lost { group: group(0), sender: NodeId(1), first, last, cause };
    assert_eq!(world.hosts[1].lost, [lost]);
    assert_eq!(world.hosts[2].got(NodeId(1), group(0)), [1, 2]);
}

#[test]
fn a_node_too_far_behind_says_so_and_goes_on() {
    let config = Config { max_gap: 50, window: 0, ..Config::default() };
    let mut world = World::new(3, &config, Loss::None, 1);
    (0..3).for_each(|host| world.join(host, group(0), RATE));
    let mut number = 0;
    let mut send = |world: &mut World, count| {
        for _ in 0..count {
            number += 1;
            world.send(0, group(0), &payload(number)).expect("nobody holds back");
            world.run_for(MILLISECOND);
        }
    };
    send(&mut world, 10);
    world.filter = Box::new(|_, to, _| to != NodeId(2));
    send(&mut world, 100);
    world.filter = Box::new(|_, _, _| true);
    send(&mut world, 30);
    world.run_for(5 * SECOND);
    let host = &world.hosts[1];
    let lost: u32 = host.lost.iter().map(Lost::count).sum();
    assert!(host.lost.iter().all(|lost| lost.cause == LossCause::TooFarBehind));
    assert_eq!(host.messages.len() + lost as usize, 140, "delivered or reported lost");
    assert!(lost > 50, "{lost} lost");
}

#[test]
fn wrong_use_is_refused_and_loses_nothing() {
    let mut world = World::new(2, &Config::default(), Loss::None, 1);
    (0..2).for_each(|host| world.join(host, group(0), RATE));
    let limit = world.hosts[0].engine.payload_limit(Profile::TimeCritical(RATE));
    assert_eq!(limit, 16 << 20);
    let too_large = world.send(0, group(0), &vec![0; limit + 1]);
    assert_eq!(too_large, Err(SendError::TooLarge { bytes: limit + 1, limit }));
    assert_eq!(world.send(0, group(9), b"x"), Err(SendError::NotJoined));
    let in_one = Config::default().packet_limit(RATE);
    assert_eq!(world.send(0, group(0), &vec![7; in_one]), Ok(SeqNo(1)));
    world.run_for(SECOND);
    assert_eq!(world.hosts[1].messages[0].payload.len(), in_one);
    let settings =
        |r| GroupSettings { profile: Profile::TimeCritical(RateOfFire::new(r, 5)), name_check: 0 };
    let engine = &mut world.hosts[0].engine;
    let other_r = engine.join(Time(0), group(1), settings(9));
    assert_eq!(other_r, Err(JoinError::DifferentR { given: 9, existing: 8 }));
    let impossible = engine.join(Time(0), group(1), settings(33));
    assert_eq!(impossible, Err(JoinError::RateOfFire { given: RateOfFire::new(33, 5) }));
    assert_eq!(engine.join(Time(0), group(0), settings(8)), Err(JoinError::AlreadyJoined));
}

#[test]
fn no_datagram_exceeds_the_path_mtu() {
    let config = Config { path_mtu: 1000, ..Config::default() };
    let mut world = World::new(6, &config, Loss::Uniform(0.3), 1);
    world.filter = Box::new(|_, _, datagram| {
        assert!(datagram.len() <= 1000 - 28, "{} bytes", datagram.len());
        true
    });
    (0..6).for_each(|host| world.join(host, group(0), RATE));
    let limit = config.packet_limit(RATE);
    for number in 0..200 {
        // Every other one is of three packets.
        let bytes = if number % 2 == 0 { limit } else { 2 * limit + 1 };
        world.send(0, group(0), &vec![1; bytes]).expect("nobody holds back");
        world.run_for(MILLISECOND);
    }
    world.run_for(5 * SECOND);
    assert_eq!(world.hosts[5].got(NodeId(1), group(0)).len(), 200);
}

#[test]
fn the_data_buffer_stays_within_its_bytes() {
    let config = Config { buffer_bytes: 50_000, window: 0, ..Config::default() };
    let mut world = World::new(4, &config, Loss::Uniform(0.01), 1);
    (0..4).for_each(|host| world.join(host, group(0), RATE));
    for number in 0..1000 {
        world.send(0, group(0), &payload(number)).expect("nobody holds back");
        world.run_for(MILLISECOND);
        assert!(world.hosts.iter().all(|host| host.engine.buffer_bytes() <= 50_000));
    }
    assert!(world.hosts[1].engine.counters().evicted_by_bytes > 0);
    world.run_for(20 * SECOND);
    assert!(world.hosts.iter().all(|host| host.engine.buffer_bytes() == 0), "all are too old");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| exchange(&Config::default(), Loss::Uniform(0.05), 6, 60, seed).history;
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

#[test]
fn a_million_random_and_mutated_datagrams_change_nothing() {
    let mut world = World::new(4, &Config::default(), Loss::Uniform(0.02), 3);
    (0..4).for_each(|host| world.join(host, group(0), RATE));
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::<Vec<u8>>::new()));
    let kept = seen.clone();
    world.filter = Box::new(move |_, _, datagram| {
        let mut kept = kept.borrow_mut();
        if kept.len() < 4_000 {
            kept.push(datagram.to_vec());
        }
        true
    });
    let mut rng = Rng::new(5);
    let per_message = 2_500;
    for number in 0..400 {
        world.send(0, group(0), &payload(number)).expect("nobody holds back");
        world.run_for(MILLISECOND);
        for _ in 0..per_message {
            let mut datagram = {
                let seen = seen.borrow();
                seen[rng.below(seen.len())].clone()
            };
            mutate(&mut rng, &mut datagram);
            world.inject(1, &datagram);
        }
    }
    world.run_for(5 * SECOND);
    world.hosts.iter().for_each(|host| host.engine.check());
    let all: Vec<u32> = (1..=400).collect();
    (1..4).for_each(|host| assert_eq!(world.hosts[host].got(NodeId(1), group(0)), all));
    assert!(world.hosts.iter().all(|host| host.lost.is_empty()));
    for message in &world.hosts[1].messages {
        assert_eq!(message.payload[..], payload(message.seqno.0 - 1)[..]);
    }
}

#[test]
fn a_repair_that_names_a_packet_twice_is_dropped_and_spoils_no_equation() {
    let config = Config { stream_start: StreamStart::FromFirst, ..Config::default() };
    let mut world = World::new(2, &config, Loss::None, 1);
    (0..2).for_each(|host| world.join(host, group(0), RATE));
    let repair = |seqnos: [u32; 2]| {
        let id = |seqno| PacketId { sender: NodeId(2), group: group(0), seqno: SeqNo(seqno) };
        let ids = seqnos.map(|seqno| WireId::from(id(seqno)));
        let mut datagram = Vec::new();
        let packet = Packet::Repair { ids: &ids, sum: &[7; 40] };
        packet.encode(NodeId(2), GroupId::NONE, 0, &mut datagram);
        datagram
    };
    world.inject(0, &repair([5, 5]));
    world.inject(0, &repair([5, 6]));
    world.hosts[0].engine.check();
    let counters = world.hosts[0].engine.counters();
    assert_eq!((counters.repairs_contradictory, counters.repairs_pending), (1, 1));
}

#[test]
fn what_was_owed_from_before_and_is_given_up_together_is_told_as_one() {
    let config = Config { nak: None, ..Config::default() };
    let mut world = World::new(2, &config, Loss::None, 1);
    (0..2).for_each(|host| world.join(host, group(0), RATE));
    world.filter = Box::new(|_, _, _| false);
    let mut heartbeat = Vec::new();
    let (next, first) = (SeqNo(5_001), Some(SeqNo(1)));
    let packet = Packet::Heartbeat { next, first, confirm: false };
    packet.encode(NodeId(2), group(0), 0, &mut heartbeat);
    world.inject(0, &heartbeat);
    assert_eq!(world.hosts[0].engine.bins_and_missing().1, 5_000);
    world.run_for(20 * SECOND);
    let told: Vec<_> =
        world.hosts[0].lost.iter().map(|lost| (lost.first, lost.last, lost.cause)).collect();
    assert_eq!(told, [(SeqNo(1), SeqNo(5_000), LossCause::DeadlinePassed)]);
}

#[test]
fn packets_from_long_before_the_first_heard_are_left_to_the_senders_answer() {
    let mut world = World::new(2, &Config::default(), Loss::None, 1);
    (0..2).for_each(|host| world.join(host, group(0), RATE));
    world.filter = Box::new(|_, _, _| false);
    for number in [200_000, 1, 2, 3] {
        let mut datagram = Vec::new();
        let block = Block::of_message(&mut Arena::default(), world.now, None, b"x");
        let (seqno, confirm) = (SeqNo(number), false);
        let packet = Packet::Data { seqno, confirm, block: block.bytes() };
        packet.encode(NodeId(2), group(0), 0, &mut datagram);
        world.inject(0, &datagram);
    }
    assert_eq!(world.hosts[0].lost, [], "nobody has said that they are owed");
    let mut answer = Vec::new();
    let (next, first) = (SeqNo(200_001), Some(SeqNo(10)));
    let packet = Packet::Heartbeat { next, first, confirm: false };
    packet.encode(NodeId(2), group(0), 0, &mut answer);
    world.inject(0, &answer);
    let told: Vec<_> = world.hosts[0].lost.iter().map(|lost| (lost.first, lost.last)).collect();
    assert_eq!(told, [(SeqNo(10), SeqNo(199_999))]);
    assert_eq!(world.hosts[0].got(NodeId(2), group(0)), [200_000]);
}

/// Flips bits, cuts, extends, or replaces by noise; or leaves as it is, an old datagram replayed.
fn mutate(rng: &mut Rng, datagram: &mut Vec<u8>) {
    match rng.below(5) {
        0 => {
            let place = rng.below(datagram.len());
            datagram[place] ^= 1 << rng.below(8);
        }
        1 => datagram.truncate(rng.below(datagram.len())),
        2 => datagram.push(rng.next_u64() as u8),
        3 => datagram.iter_mut().skip(rng.below(40)).for_each(|byte| *byte = rng.next_u64() as u8),
        _ => {}
    }
}
