//! Delivery of messages of all sizes, once and whole, under all kinds of loss and settings.

use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::lateral::{AskFirst, Config, Counters, NakConfig, RepairScope, Solver};
use carom_proto::loss::Loss;
use carom_proto::*;

use super::{piece_bytes, seqno_of};
use crate::rig::{DATA, GROUP, KIND, MILLISECOND, RATE, SECOND, World, payload_of};

#[test]
fn each_lost_piece_is_repaired_alone_under_every_setting() {
    const PIECES: usize = 12;
    let asks = |first| Some(NakConfig { first, ..NakConfig::default() });
    let settings = [
        (Config::default(), RATE),
        (Config::default(), RateOfFire::new(8, 0)),
        (Config { scope: RepairScope::PerGroup, ..Config::default() }, RATE),
        (Config { solver: Solver::Peeling, stagger: 3, ..Config::default() }, RATE),
        (Config { flush_after: None, own_packets: false, ..Config::default() }, RATE),
        (Config { nak: asks(AskFirst::AnyMember), ..Config::default() }, RateOfFire::new(8, 1)),
    ];
    for (config, rate) in settings {
        let mut world = World::new(4, &config, Loss::None, 1);
        let profile = Profile::TimeCritical(rate);
        (0..4).for_each(|host| world.join_as(host, GROUP, profile));
        let message = payload_of(7, PIECES * (config.packet_limit(rate) - 8));
        for lost in 0..PIECES as u32 {
            let first = world.send(0, b"one packet").next();
            world.run_for(50 * MILLISECOND);
            let number = first.plus(lost).0;
            world.filter = Box::new(move |_, to, _, datagram| {
                to != NodeId(2) || datagram[KIND] != DATA || seqno_of(datagram) != number
            });
            let sent =
                |world: &World| [world.total("data_sent"), world.total("retransmissions_sent")];
            let before = (sent(&world), world.hosts[1].engine.counters());
            assert_eq!(world.send(0, &message), first);
            world.run_for(SECOND);
            let after = (sent(&world), world.hosts[1].engine.counters());
            assert_eq!(after.0[0] - before.0[0], PIECES as u64);
            assert!(after.0[1] - before.0[1] <= 1);
            let repaired = |it: &Counters| it.recovered + it.retransmitted;
            // A repair may overtake a fragment that it contains, which is then recovered as well.
            let here = repaired(&after.1) - repaired(&before.1);
            assert!((1..=4).contains(&here), "{here} repaired of piece {lost}");
            for host in 1..4 {
                let last = world.hosts[host].messages.last().expect("it came");
                assert_eq!((last.seqno, &last.payload[..]), (first, &message[..]));
                assert!(host != 1 || last.how != How::Direct);
            }
        }
        assert_eq!(world.hosts[1].messages.len(), 2 * PIECES);
        assert_eq!(world.hosts.iter().map(|host| host.lost.len()).sum::<usize>(), 0);
    }
}

fn any_size(rng: &mut Rng) -> usize {
    let most = [100, 100, 1_500, 5_000, 60_000][rng.below(5)];
    rng.below(most)
}

/// Sends `count` messages of all sizes from every host, each of which must arrive once.
fn exchange(config: &Config, loss: Loss, seed: u64, count: u32) -> World {
    const HOSTS: usize = 5;
    let mut world = World::of_members(HOSTS, config, loss, seed);
    let mut rng = Rng::new(seed);
    let mut sent: BTreeMap<(NodeId, u32), Vec<u8>> = BTreeMap::new();
    for number in 0..count {
        for host in 0..HOSTS {
            let payload = payload_of(number, any_size(&mut rng));
            let seqno = loop {
                match world.try_send(host, GROUP, &payload) {
                    Ok(seqno) => break seqno,
                    Err(SendError::HeldBack { .. }) => world.run_for(MILLISECOND),
                    Err(error) => panic!("{error}"),
                }
            };
            sent.insert((world.hosts[host].id, seqno.0), payload);
            world.run_for(Duration::from_micros(rng.below(4000) as u64));
        }
    }
    world.run_for(9 * SECOND);
    for host in &world.hosts {
        assert_eq!(host.lost, [], "seed {seed}");
        let expected = sent.keys().filter(|(sender, _)| *sender != host.id);
        for message in &host.messages {
            let payload = sent.get(&(message.sender, message.seqno.0));
            assert!(payload.is_some_and(|sent| sent[..] == message.payload[..]), "seed {seed}");
        }
        let mut got: Vec<_> = host.messages.iter().map(|it| (it.sender, it.seqno.0)).collect();
        got.sort_unstable();
        assert!(got.iter().eq(expected), "seed {seed}: each message once");
        host.engine.check();
    }
    world
}

#[test]
fn messages_of_all_sizes_come_once_and_whole_under_every_loss() {
    let losses = [
        Loss::None,
        Loss::Uniform(0.01),
        Loss::Uniform(0.1),
        Loss::Burst { rate: 0.05, length: 20 },
        Loss::Markov { rate: 0.1, mean_burst: 5.0 },
    ];
    for (seed, loss) in losses.into_iter().enumerate() {
        let world = exchange(&Config::default(), loss, seed as u64, 12);
        assert!(world.total("messages_put_together") > 20);
        assert_eq!(world.total("messages_broken"), 0);
    }
}

#[test]
fn messages_of_all_sizes_pass_a_small_window_and_a_slow_pace() {
    let settings = [
        Config { window: 1, ..Config::default() },
        Config { window: 8, flight: 3, ..Config::default() },
        Config { window: 0, pace_bytes_per_second: 0, ..Config::default() },
        Config { pace_bytes_per_second: 1 << 20, path_mtu: 700, ..Config::default() },
    ];
    for (seed, config) in settings.into_iter().enumerate() {
        exchange(&config, Loss::Uniform(0.02), seed as u64, 8);
    }
}

#[test]
fn largest_message_reaches_three_members_at_five_percent_loss() {
    let mut world = World::of_members(4, &Config::default(), Loss::Uniform(0.05), 5);
    let message = payload_of(3, 16 << 20);
    assert_eq!(world.send(0, &message), SeqNo(1));
    let mut waited = Duration::ZERO;
    while world.hosts[1..].iter().any(|host| host.messages.is_empty()) {
        world.run_for(100 * MILLISECOND);
        waited += 100 * MILLISECOND;
        assert!(waited < 20 * SECOND, "it takes too long");
    }
    for host in &world.hosts[1..] {
        assert!(host.messages[0].payload[..] == message[..]);
        assert_eq!((host.messages.len(), host.lost.len()), (1, 0));
    }
    let pieces = message.len().div_ceil(piece_bytes()) as u64;
    assert_eq!(world.total("pieces_sent"), pieces);
    assert_eq!(world.send(0, b"the next").0 as u64, pieces + 1);
}

#[test]
fn the_same_seed_gives_the_same_history_of_pieces() {
    let history = |seed| exchange(&Config::default(), Loss::Uniform(0.05), seed, 4).history;
    assert_eq!(history(7), history(7));
}
