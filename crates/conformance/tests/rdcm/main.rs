//! Tests RDCM with several engines: losses, dead links, and receivers that join, leave, stop and
//! lag.

use std::time::Duration;

use carom_conformance::rdcm::cluster::place;
use carom_proto::loss::Loss;
use carom_proto::rdcm::Congestion;
use carom_proto::{Engine, LossCause, SendError, SeqNo};
use carom_sim::{Fault, HostIx};

mod findings;
mod hostile;
mod net;
mod places;
mod relays;
mod senders;
mod silence;
mod slowest;

use self::net::{MBIT, Net, Setup};

/// The hosts of figure 6, on BCube(4,1). The first one is the sender.
const HOSTS: [u32; 10] = [0, 1, 2, 5, 6, 7, 9, 10, 12, 15];

#[test]
fn every_receiver_gets_every_message_in_order_whatever_is_lost() {
    for seed in 0..10 {
        let mut setup = Setup::rack(8, seed);
        setup.link.loss = Loss::Uniform(0.03);
        let hosts = [0, 1, 2, 3, 4, 5, 6, 7];
        let mut net = Net::sending(500, setup, &hosts);
        net.run_until_whole(&hosts[1..], 3000);
        let repaired: u64 = hosts[1..].iter().map(|host| net.log(*host).repaired).sum();
        assert!(repaired > 100, "{repaired} messages were repaired");
        net.run(500);
        assert_eq!(net.engine(0).unconfirmed(net.group), [], "the sender knows it");
    }
}

#[test]
fn without_loss_nothing_is_repaired_and_acks_are_few() {
    let hosts: Vec<u32> = (0..32).collect();
    let mut net = Net::sending(2000, Setup::rack(32, 1).at_mbit(800), &hosts);
    net.run_until_whole(&hosts[1..], 2000);
    let data = net.engine(0).counters().data_sent;
    for host in &hosts {
        let counters = net.engine(*host).counters();
        assert_eq!(counters.repairs_sent + counters.data_multicast_again, 0, "host {host}");
        assert!(counters.acks_received < data, "host {host}: {}", counters.acks_received);
    }
}

#[test]
fn a_dead_link_of_the_tree_is_found_and_the_tree_goes_around_it() {
    for seed in 0..5 {
        let mut setup = Setup::bcube(4, 1, seed).at_mbit(400);
        setup.config.congestion = Congestion::Room;
        let cluster = setup.cluster.clone();
        let mut net = Net::sending(20_000, setup, &HOSTS);
        net.run(300);
        let tree = net.engine(0).tree(net.group).expect("it sends").clone();
        let above = tree.above(carom_proto::rdcm::topology::Vertex(5)).expect("it is reached");
        let [a, b] = cluster.links()[above.link.0 as usize].map(|end| place(&cluster, end));
        net.world.apply(&Fault::CutLink(a, b));
        net.run_until_whole(&HOSTS[1..], 4000);
        let after = net.engine(0).tree(net.group).expect("it sends");
        assert!(after.links().all(|link| link != above.link), "seed {seed}: the link is in use");
        let (by_tree, by_repair) = net.engine(5).arrived(net.group).expect("it receives");
        assert!(by_repair > 100 && by_tree > 2 * by_repair, "{by_tree} and {by_repair}");
    }
}

#[test]
fn others_continue_when_a_receiver_is_killed() {
    for seed in 0..5 {
        let mut setup = Setup::bcube(4, 1, seed);
        setup.link.loss = Loss::Uniform(0.002);
        let mut net = Net::sending(3000, setup, &HOSTS);
        net.run(30);
        net.kill(HOSTS[3], false);
        let left: Vec<u32> = HOSTS[1..].iter().copied().filter(|it| *it != HOSTS[3]).collect();
        net.run_until_whole(&left, 5000);
        net.run(500);
        assert!(net.slow.iter().any(|slow| slow.node == Net::id(HOSTS[3])), "{:?}", net.slow);
        net.report_failed(HOSTS[3]);
        net.run(50);
        assert_eq!(net.engine(0).receivers(net.group).len(), HOSTS.len() - 2);
    }
}

#[test]
fn others_do_not_pause_when_a_receiver_is_killed() {
    let networks: [fn(u64) -> Setup; 2] =
        [|seed| Setup::bcube(4, 1, seed), |seed| Setup::rack(HOSTS.len() as u32 + 10, seed)];
    for (network, setup) in networks.into_iter().enumerate() {
        for victim in &HOSTS[1..] {
            let setup = setup(u64::from(*victim)).at_mbit(100);
            let mut net = Net::sending(u64::MAX, setup, &HOSTS);
            net.run(500);
            net.kill(*victim, false);
            let left: Vec<u32> = HOSTS[1..].iter().copied().filter(|it| it != victim).collect();
            let pause = longest_pause(&mut net, &left, 800);
            assert!(pause < 50, "network {network}, {victim} killed: {pause} ms without a message");
        }
    }
}

#[test]
fn receiver_that_pauses_gets_everything_afterwards() {
    let mut net = Net::sending(u64::MAX, Setup::rack(5, 4).at_mbit(100), &[0, 1, 2, 3, 4]);
    net.run(500);
    net.world.apply(&Fault::Pause(HostIx(2)));
    let pause = longest_pause(&mut net, &[1, 3, 4], 150);
    assert!(pause < 50, "{pause} ms without a message");
    net.world.apply(&Fault::Resume(HostIx(2)));
    net.run(1000);
    assert_eq!((&net.slow[..], &net.log(2).lost[..]), (&[][..], &[][..]));
    let behind = net.log(1).got.len() - net.log(2).got.len();
    assert!(behind < 100, "{behind} messages behind");
}

/// Runs for `ms`, and returns the most milliseconds without a message at one of `hosts`.
fn longest_pause(net: &mut Net, hosts: &[u32], ms: u64) -> u64 {
    let mut last: Vec<(usize, u64)> = hosts.iter().map(|_| (0, 0)).collect();
    let mut longest = 0;
    for now in 0..ms {
        for ((got, since), host) in last.iter_mut().zip(hosts) {
            let count = net.log(*host).got.len();
            if count > *got {
                (*got, *since) = (count, now);
            }
            longest = longest.max(now - *since);
        }
        net.run(1);
    }
    longest
}

/// Returns a network in which host 2 has caught up after it was paused for too long.
fn with_paused_receiver(first_number: SeqNo) -> Net {
    let hosts = [0, 1, 2, 3, 4];
    let mut setup = Setup::rack(5, 3).at_mbit(200);
    setup.config.send_bytes = 2 << 20;
    setup.config.first_number = first_number;
    let mut net = Net::sending(20_000, setup, &hosts);
    net.run(100);
    net.pause_for(2, 1500);
    net.run_until_all_have(&hosts[1..], 8000);
    net.assert_whole(&[1, 3, 4]);
    net
}

#[test]
fn numbers_that_applications_see_wrap_around() {
    // The packets that host 2 misses while it is paused lie across the wrap.
    let first_number = SeqNo(u32::MAX - 9999);
    let mut net = with_paused_receiver(first_number);
    let [lost] = net.log(2).lost[..] else { panic!("{:?}", net.log(2).lost) };
    assert!(lost.first.0 > lost.last.0, "{lost:?}");
    let messages = net.to_send - net.log(2).got.len() as u64;
    assert_eq!(u64::from(lost.count()), messages * 3, "three packets each");
    net.confirm(0);
    net.run(500);
    let up_to = net.safe.last().expect("it is confirmed").up_to;
    assert_eq!(up_to, first_number.plus(60_000 - 1));
}

#[test]
fn paused_receiver_reports_its_losses_and_gets_the_rest() {
    let net = with_paused_receiver(SeqNo::FIRST);
    let paused = net.log(2);
    assert_eq!(paused.lost.len(), 1, "{:?}", paused.lost);
    assert_eq!(paused.lost[0].cause, LossCause::TooFarBehind);
    assert!(paused.got.len() < 20_000 && paused.got.len() > 1000, "{}", paused.got.len());
}

#[test]
fn a_late_joiner_gets_all_messages_from_one_on() {
    let mut setup = Setup::rack(6, 5).at_mbit(300);
    setup.link.loss = Loss::Uniform(0.01);
    let mut net = Net::sending(5000, setup, &[0, 1, 2, 3]);
    net.run(150);
    net.start(4);
    net.run(50);
    net.start(5);
    net.run_until_all_have(&[1, 2, 3, 4, 5], 5000);
    net.assert_whole(&[1, 2, 3]);
    for host in [4, 5] {
        let log = net.log(host);
        let first = log.got[0];
        assert!(first > 100, "{first}");
        assert_eq!(log.got, (first..5000).collect::<Vec<u64>>(), "host {host}");
        assert_eq!(log.lost, []);
    }
}

#[test]
fn second_sender_is_refused_until_the_first_has_left() {
    let mut net = Net::sending(3, Setup::rack(3, 1), &[0, 1, 2]);
    net.run(50);
    let refused = net.try_send(1, 3);
    assert_eq!(refused, Err(SendError::HasSender { sender: Net::id(0) }));
    net.leave(0);
    net.run(20);
    assert_eq!(net.try_send(1, 3), Ok(()));
    net.run(100);
    assert_eq!(net.log(2).got, [0, 1, 2, 3]);
}

#[test]
fn smaller_id_of_two_simultaneous_senders_continues() {
    let mut net = Net::new(Setup::rack(3, 1), &[0, 1, 2]);
    assert_eq!(net.try_send(1, 500), Ok(()));
    net.to_send = 300;
    net.run_until_all_have(&[1, 2], 1000);
    let given_way = &net.log(1).lost;
    assert_eq!(given_way.len(), 1);
    assert_eq!((given_way[0].sender, given_way[0].cause), (Net::id(1), LossCause::AnotherSender));
    assert_eq!(net.try_send(1, 7), Err(SendError::HasSender { sender: Net::id(0) }));
}

#[test]
fn sender_waits_within_bounds_for_an_idle_application() {
    let mut setup = Setup::rack(3, 1);
    setup.config.window_packets = 1000;
    setup.config.send_bytes = 4 << 20;
    let mut net = Net::sending(50_000, setup, &[0, 1, 2]);
    net.run(100);
    net.set_backpressure(1, 1.0);
    net.run(200);
    let before = net.log(2).got.len();
    net.run(200);
    assert_eq!(net.log(2).got.len(), before, "the other waits, too");
    for host in [0, 1, 2] {
        assert!(Engine::held_bytes(net.engine(host)) <= 5 << 20, "host {host}");
    }
    net.set_backpressure(1, 0.0);
    net.run_until_whole(&[1, 2], 10_000);
    assert_eq!(net.slow, []);
}

#[test]
fn a_confirmation_comes_when_all_have_all() {
    let mut setup = Setup::rack(4, 9);
    setup.link.loss = Loss::Uniform(0.05);
    let mut net = Net::sending(50, setup, &[0, 1, 2, 3]);
    net.run(1);
    net.confirm(0);
    net.run_until_all_have(&[1, 2, 3], 1000);
    net.run(100);
    let [safe] = &net.safe[..] else { panic!("{:?}", net.safe) };
    assert_eq!((safe.members, &safe.incomplete[..]), (3, &[][..]));
    assert_eq!(safe.up_to.0, 50 * 3, "messages of 4000 bytes are three packets");
}

#[test]
fn a_window_by_bic_finds_a_rate_that_the_links_carry() {
    let mut setup = Setup::rack(5, 2);
    setup.link = setup.link.with_bandwidth(200 * MBIT, 100_000);
    let hosts = [0, 1, 2, 3, 4];
    let mut net = Net::sending(12_500, setup, &hosts);
    // 50 MB take two seconds of the link.
    let ms = net.run_until_whole(&hosts[1..], 10_000);
    assert!(ms < 3300, "{ms} ms are less than three fifths of the link");
}

#[test]
fn losses_of_whole_branches_are_rarely_repaired_twice() {
    let mut setup = Setup::bcube(4, 1, 4).at_mbit(400);
    setup.link.loss = Loss::Uniform(0.005);
    setup.config.detect_after = Duration::ZERO;
    setup.config.congestion = Congestion::Room;
    let mut net = Net::sending(3000, setup, &HOSTS);
    net.run_until_whole(&HOSTS[1..], 5000);
    let counters = HOSTS[1..].iter().map(|host| net.engine(*host).counters());
    let (received, useless) = counters.fold((0, 0), |(received, useless), it| {
        (received + it.repairs_received, useless + it.repairs_useless)
    });
    assert!(received > 500, "{received}");
    assert!(useless * 20 <= received, "{useless} of {received} repairs were useless");
}
