//! Messages that do not fit a packet, between several lateral engines, under loss.

mod rig;

use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::lateral::block::{Arena, Block, Piece};
use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::{AskFirst, Config, Counters, NakConfig, RepairScope, Solver};
use carom_proto::loss::Loss;
use carom_proto::*;
use rig::{MILLISECOND, SECOND, World, payload_of};

const RATE: RateOfFire = RateOfFire::new(8, 5);
const GROUP: GroupId = GroupId(100);
/// Offsets in a datagram: its type, and a data packet's number.
const KIND: usize = 4;
const SEQNO: usize = 28;
/// Types of the lateral protocol.
const DATA: u8 = 1;
const REPAIR: u8 = 2;
const OPEN: u8 = 8;

fn world(hosts: usize, config: &Config, loss: Loss, seed: u64) -> World {
    let mut world = World::new(hosts, config, loss, seed);
    (0..hosts).for_each(|host| world.join(host, GROUP, RATE));
    world
}

/// Bytes of a piece but for the last, under the default settings.
fn piece_bytes() -> usize {
    Config::default().packet_limit(RATE) - 8
}

/// A message of so many packets.
fn message_of(number: u32, packets: usize) -> Vec<u8> {
    payload_of(number, packets * piece_bytes() - 1)
}

fn seqno_of(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(datagram[SEQNO..SEQNO + 4].try_into().expect("four bytes"))
}

fn send(world: &mut World, host: usize, payload: &[u8]) -> SeqNo {
    world.send(host, GROUP, payload).expect("nobody holds back")
}

fn told_lost(world: &World, host: usize) -> Vec<(u32, u32, LossCause)> {
    world.hosts[host].lost.iter().map(|lost| (lost.first.0, lost.last.0, lost.cause)).collect()
}

#[test]
fn each_piece_is_repaired_alone_whichever_is_lost_and_however_repairs_are_set() {
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
        (0..4).for_each(|host| world.join(host, GROUP, rate));
        let message = payload_of(7, PIECES * (config.packet_limit(rate) - 8));
        for lost in 0..PIECES as u32 {
            let first = send(&mut world, 0, b"one packet").next();
            world.run_for(50 * MILLISECOND);
            let number = first.plus(lost).0;
            world.filter = Box::new(move |_, to, datagram| {
                to != NodeId(2) || datagram[KIND] != DATA || seqno_of(datagram) != number
            });
            let before = (world.total(), world.hosts[1].engine.counters());
            assert_eq!(send(&mut world, 0, &message), first);
            world.run_for(SECOND);
            let after = (world.total(), world.hosts[1].engine.counters());
            assert_eq!(after.0.data_sent - before.0.data_sent, PIECES as u64);
            assert!(after.0.retransmissions_sent - before.0.retransmissions_sent <= 1);
            let repaired = |it: &Counters| it.recovered + it.retransmitted;
            // A repair may overtake a piece that it has in it, which is then recovered as well.
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

/// Sizes as they come: mostly small, some of several packets, a few of dozens.
fn any_size(rng: &mut Rng) -> usize {
    let most = [100, 100, 1_500, 5_000, 60_000][rng.below(5)];
    rng.below(most)
}

/// Every host sends `count` messages of all sizes, while others do; all come as they were sent.
fn exchange(config: &Config, loss: Loss, seed: u64, count: u32) -> World {
    const HOSTS: usize = 5;
    let mut world = world(HOSTS, config, loss, seed);
    let mut rng = Rng::new(seed);
    let mut sent: BTreeMap<(NodeId, u32), Vec<u8>> = BTreeMap::new();
    for number in 0..count {
        for host in 0..HOSTS {
            let payload = payload_of(number, any_size(&mut rng));
            let seqno = loop {
                match world.send(host, GROUP, &payload) {
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
        assert!(world.total().messages_put_together > 20);
        assert_eq!(world.total().messages_broken, 0);
    }
}

#[test]
fn messages_of_all_sizes_come_through_a_small_window_and_a_slow_pace() {
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
fn the_largest_message_comes_whole_to_three_members_that_lose_a_twentieth() {
    let mut world = world(4, &Config::default(), Loss::Uniform(0.05), 5);
    let message = payload_of(3, 16 << 20);
    assert_eq!(send(&mut world, 0, &message), SeqNo(1));
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
    assert_eq!(world.total().pieces_sent, pieces);
    assert_eq!(send(&mut world, 0, b"the next").0 as u64, pieces + 1);
}

#[test]
fn pieces_leave_at_their_pace_and_other_groups_go_on_meanwhile() {
    const OTHER: GroupId = GroupId(101);
    let mut world = world(3, &Config::default(), Loss::None, 1);
    (0..3).for_each(|host| world.join(host, OTHER, RATE));
    send(&mut world, 0, &message_of(1, 4000));
    let mut sent = world.total().pieces_sent;
    assert!(sent < 120, "{sent} packets at once");
    let mut rounds = 0;
    while sent < 4000 {
        world.send(0, OTHER, b"small").expect("nobody holds back");
        world.run_for(MILLISECOND);
        let now_sent = world.total().pieces_sent;
        assert!(now_sent - sent < 40, "{} in a millisecond", now_sent - sent);
        sent = now_sent;
        rounds += 1;
        assert_eq!(world.hosts[1].got(NodeId(1), OTHER).len(), rounds, "it need not wait");
    }
    let slowest = 4000 * 1300 / (32 << 10) + 10;
    assert!(rounds < slowest, "{rounds} ms");
}

#[test]
fn what_waits_behind_a_large_message_is_bounded_and_refused_beyond() {
    let config = Config { queue_bytes: 100_000, ..Config::default() };
    let mut world = world(2, &config, Loss::None, 1);
    let large = message_of(1, 400);
    assert_eq!(send(&mut world, 0, &large), SeqNo(1), "one is taken whatever its size");
    let refused = world.send(0, GROUP, b"small").expect_err("too much waits");
    assert_eq!(refused, SendError::QueueFull { waiting_bytes: large.len() });
    assert_eq!(world.hosts[0].engine.held_bytes() / large.len(), 1);
    world.run_for(SECOND);
    assert_eq!(send(&mut world, 0, &message_of(2, 150)), SeqNo(401));
    assert_eq!(world.send(0, GROUP, b"small"), Err(SendError::QueueFull { waiting_bytes: 192599 }));
    world.run_for(SECOND);
    assert_eq!(send(&mut world, 0, b"small"), SeqNo(551));
    world.run_for(SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1), GROUP), [1, 401, 551]);
}

#[test]
fn a_dead_member_holds_a_large_message_back_for_the_patience_and_no_longer() {
    let mut world = world(3, &Config::default(), Loss::None, 1);
    world.crash(2);
    let message = message_of(1, 3000);
    send(&mut world, 0, &message);
    world.run_for(400 * MILLISECOND);
    assert_eq!(world.total().pieces_sent, 1024, "the flight is as long");
    world.run_for(SECOND);
    let slow = Slow { group: GROUP, node: NodeId(3), behind: 1024 };
    assert_eq!(world.hosts[0].slow, [slow]);
    assert!(world.hosts[1].messages[0].payload[..] == message[..]);
    world.confirm(0, GROUP);
    world.announce(2, GROUP, ViewChangeKind::Failed);
    world.run_for(SECOND);
    let up_to = SeqNo(3000);
    let safe = Safe { group: GROUP, up_to, members: 1, incomplete: Vec::new() };
    assert_eq!(world.hosts[0].safe, [safe]);
}

#[test]
fn a_confirmation_covers_what_has_not_left_yet() {
    let mut world = world(3, &Config::default(), Loss::Uniform(0.05), 1);
    send(&mut world, 0, &message_of(1, 3000));
    world.confirm(0, GROUP);
    assert_eq!(world.hosts[0].engine.unconfirmed(GROUP), [NodeId(2), NodeId(3)]);
    world.run_for(5 * SECOND);
    let up_to = SeqNo(3000);
    let safe = Safe { group: GROUP, up_to, members: 2, incomplete: Vec::new() };
    assert_eq!(world.hosts[0].safe, [safe]);
    assert!((1..3).all(|host| world.hosts[host].messages.len() == 1));
}

#[test]
fn a_message_of_which_a_piece_is_given_up_is_lost_as_a_whole_and_told_once() {
    let settings = Config { nak: None, give_up_after: SECOND, ..Config::default() };
    for lost in [[1, 1], [3, 5], [1, 9], [9, 9], [1, 10]] {
        let mut world = world(3, &settings, Loss::None, 1);
        send(&mut world, 0, b"before");
        world.run_for(SECOND);
        world.filter = Box::new(move |_, to, datagram| {
            let number = seqno_of(datagram);
            let is_lost = datagram[KIND] == DATA && (1 + lost[0]..=1 + lost[1]).contains(&number);
            to != NodeId(2) || (datagram[KIND] != REPAIR && !is_lost)
        });
        send(&mut world, 0, &message_of(1, 10));
        send(&mut world, 0, b"after");
        world.run_for(5 * SECOND);
        assert_eq!(told_lost(&world, 1), [(2, 11, LossCause::DeadlinePassed)], "{lost:?}");
        assert_eq!(world.hosts[1].got(NodeId(1), GROUP), [1, 12]);
        assert_eq!(world.hosts[2].got(NodeId(1), GROUP), [1, 2, 12]);
        world.confirm(0, GROUP);
        world.run_for(SECOND);
        assert_eq!(world.hosts[0].safe[0].incomplete, [(NodeId(2), 10)]);
        world.hosts.iter().for_each(|host| host.engine.check());
    }
}

#[test]
fn pieces_that_come_after_the_first_was_given_up_tell_the_rest_as_lost() {
    let settings = Config { nak: None, give_up_after: SECOND, ..Config::default() };
    let mut world = world(3, &settings, Loss::None, 1);
    send(&mut world, 0, b"before");
    world.run_for(SECOND);
    let kept = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let caught = kept.clone();
    world.filter = Box::new(move |_, to, datagram| {
        let passes = to != NodeId(2) || (datagram[KIND] != REPAIR && datagram[KIND] != DATA);
        if !passes && datagram[KIND] == DATA {
            caught.borrow_mut().push(datagram.to_vec());
        }
        passes
    });
    send(&mut world, 0, &message_of(1, 10));
    // Half of its numbers are heard of by then, and given up.
    let mut heartbeat = Vec::new();
    let packet = Packet::Heartbeat { next: SeqNo(7), first: None, confirm: false };
    packet.encode(NodeId(1), GROUP, 0, &mut heartbeat);
    world.filter = Box::new(|_, to, _| to != NodeId(2));
    world.inject(1, &heartbeat);
    world.run_for(2 * SECOND);
    assert_eq!(told_lost(&world, 1), [(2, 6, LossCause::DeadlinePassed)]);
    let late = kept.borrow().clone();
    assert_eq!(late.len(), 10);
    late[6..].iter().for_each(|datagram| world.inject(1, datagram));
    let told: u32 = world.hosts[1].lost.iter().map(Lost::count).sum();
    assert_eq!((told, world.hosts[1].messages.len()), (10, 1));
    assert_eq!(world.hosts[1].engine.counters().messages_broken, 1);
    world.hosts[1].engine.check();
    // The numbers of what is lost are not asked for, and the next message is delivered.
    world.filter = Box::new(|_, _, _| true);
    send(&mut world, 0, b"after");
    world.run_for(2 * SECOND);
    assert_eq!(world.hosts[1].got(NodeId(1), GROUP), [1, 12]);
    assert_eq!(told, world.hosts[1].lost.iter().map(Lost::count).sum::<u32>());
}

#[test]
fn a_deadline_is_that_of_all_pieces_of_a_message() {
    let mut world = world(3, &Config::default(), Loss::None, 1);
    world.filter = Box::new(|_, to, datagram| {
        to != NodeId(2) || datagram[KIND] != DATA || seqno_of(datagram) != 4
    });
    let options = SendOptions { deadline: Some(Duration::from_millis(3)), qos: None };
    world.send_with(0, GROUP, &message_of(1, 6), options).expect("nobody holds back");
    send(&mut world, 0, b"no hurry");
    world.run_for(5 * SECOND);
    assert_eq!(told_lost(&world, 1), [(1, 6, LossCause::DeadlinePassed)]);
    assert_eq!(world.hosts[1].got(NodeId(1), GROUP), [7]);
    assert_eq!(world.hosts[2].got(NodeId(1), GROUP), [1, 7]);
    // One that takes longer than its deadline to leave is of no use to anybody.
    let options = SendOptions { deadline: Some(Duration::from_millis(20)), qos: None };
    world.send_with(0, GROUP, &message_of(1, 2000), options).expect("nobody holds back");
    world.run_for(5 * SECOND);
    let late = (8, 2007, LossCause::DeadlinePassed);
    assert_eq!(
        (told_lost(&world, 1)[1..].to_vec(), told_lost(&world, 2)),
        (vec![late], vec![late])
    );
    world.hosts.iter().for_each(|host| host.engine.check());
}

#[test]
fn who_joins_in_the_middle_of_a_message_gets_no_half_of_it_and_is_told_of_no_loss() {
    for seed in 0..20 {
        for loss in [Loss::None, Loss::Uniform(0.1)] {
            let mut world = World::new(4, &Config::default(), loss, seed);
            (0..3).for_each(|host| world.join(host, GROUP, RATE));
            let large = message_of(1, 400);
            send(&mut world, 0, &large);
            world.run_for(Duration::from_micros(100 + 400 * seed));
            world.join(3, GROUP, RATE);
            let after = message_of(2, 20);
            assert_eq!(send(&mut world, 0, &after), SeqNo(401));
            world.run_for(20 * SECOND);
            let late = &world.hosts[3];
            assert_eq!((late.got(NodeId(1), GROUP), late.lost.len()), (vec![401], 0), "{seed}");
            assert!(late.messages[0].payload[..] == after[..]);
            assert_eq!(world.hosts[1].got(NodeId(1), GROUP), [1, 401]);
            late.engine.check();
        }
    }
}

#[test]
fn a_joiner_that_is_not_answered_tells_of_no_loss_of_what_began_before() {
    let config = Config { give_up_after: SECOND, ..Config::default() };
    let mut world = World::new(3, &config, Loss::None, 1);
    (0..2).for_each(|host| world.join(host, GROUP, RATE));
    world.filter = Box::new(|_, _, datagram| datagram[KIND] != OPEN);
    send(&mut world, 0, &message_of(1, 400));
    world.run_for(3 * MILLISECOND);
    world.join(2, GROUP, RATE);
    world.run_for(3 * SECOND);
    assert_eq!((world.hosts[2].messages.len(), world.hosts[2].lost.len()), (0, 0));
    assert_eq!(world.hosts[2].engine.counters().messages_joined_late, 1);
    let held = world.hosts[2].engine.held_bytes() - world.hosts[2].engine.buffer_bytes();
    assert_eq!(held, 0, "nothing is kept for it");
}

#[test]
fn what_a_sender_that_crashed_left_half_sent_is_told_as_lost_and_forgotten() {
    let mut world = world(4, &Config::default(), Loss::Uniform(0.05), 3);
    let message = message_of(1, 1000);
    send(&mut world, 0, &message);
    world.run_for(10 * MILLISECOND);
    world.crash(0);
    world.announce(0, GROUP, ViewChangeKind::Failed);
    world.run_for(SECOND);
    let kept = |world: &World, host: usize| {
        let engine = &world.hosts[host].engine;
        engine.held_bytes() - engine.buffer_bytes()
    };
    assert!(kept(&world, 1) > message.len(), "there is room for all of it");
    world.run_for(15 * SECOND);
    for host in 1..4 {
        assert_eq!(told_lost(&world, host), [(1, 1000, LossCause::DeadlinePassed)]);
        assert_eq!((world.hosts[host].messages.len(), kept(&world, host)), (0, 0));
        world.hosts[host].engine.check();
    }
}

#[test]
fn a_group_can_be_left_and_joined_again_in_the_middle_of_messages() {
    for seed in 0..10 {
        let mut world = world(4, &Config::default(), Loss::Uniform(0.05), seed);
        let mut rng = Rng::new(seed);
        let mut numbers: Vec<Vec<u32>> = vec![Vec::new(); 2];
        for round in 0..6 {
            for (host, numbers) in numbers.iter_mut().enumerate() {
                let packets = 1 + rng.below(200);
                numbers.push(send(&mut world, host, &message_of(round, packets)).0);
            }
            world.run_for(Duration::from_micros(rng.below(9_000) as u64));
            let host = 1 + rng.below(2);
            world.leave(host, GROUP);
            world.run_for(Duration::from_micros(rng.below(9_000) as u64));
            world.join(host, GROUP, RATE);
        }
        world.run_for(25 * SECOND);
        for (sender, numbers) in numbers.iter().enumerate() {
            for host in (0..4).filter(|host| *host != sender) {
                let host = &world.hosts[host];
                let mut got = host.got(NodeId(sender as u64 + 1), GROUP);
                assert!(got.iter().all(|number| numbers.contains(number)), "seed {seed}");
                got.dedup();
                assert_eq!(got.len(), host.got(NodeId(sender as u64 + 1), GROUP).len());
                host.engine.check();
            }
        }
        // Who stayed has all that the one who stayed as well has sent.
        assert_eq!(world.hosts[3].got(NodeId(1), GROUP), numbers[0], "seed {seed}");
    }
}

#[test]
fn halves_of_messages_take_up_no_more_than_their_share_of_the_buffer() {
    let config = Config { buffer_bytes: 200_000, window: 0, nak: None, ..Config::default() };
    let mut world = world(2, &config, Loss::None, 1);
    let mut rng = Rng::new(1);
    let mut next = 1_u32;
    for number in 0..300 {
        let message = payload_of(number, 2_000 + rng.below(60_000));
        let piece = Piece { index: 0, piece_bytes: 1000, message_bytes: message.len() as u32 };
        // Every third of its pieces comes, and never all of them.
        for index in (0..piece.count()).step_by(3) {
            let piece = Piece { index, ..piece };
            let block = Block::of_piece(&mut Arena::default(), world.now, None, piece, &message);
            let (seqno, confirm) = (SeqNo(next + index), false);
            let mut datagram = Vec::new();
            let packet = Packet::Data { seqno, confirm, block: block.bytes() };
            packet.encode(NodeId(2), GROUP, 0, &mut datagram);
            world.inject(0, &datagram);
        }
        next += piece.count();
        let engine = &world.hosts[0].engine;
        assert!(engine.held_bytes() <= 200_000, "{} bytes", engine.held_bytes());
        engine.check();
    }
    assert!(world.hosts[0].engine.counters().messages_without_room > 200);
    assert!(world.hosts[0].lost.iter().any(|lost| lost.cause == LossCause::NoRoom));
    world.run_for(30 * SECOND);
    let told: u32 = world.hosts[0].lost.iter().map(Lost::count).sum();
    assert!(next - 1 - told <= 2, "{told} of {} are told as lost", next - 1);
    assert_eq!(world.hosts[0].engine.held_bytes(), 0);
}

/// How often each message was delivered or told as lost at the host.
fn accounts(world: &World, host: usize, sent: &[u32]) -> Vec<usize> {
    let host = &world.hosts[host];
    let got = host.got(NodeId(1), GROUP);
    let account = |number: &u32| {
        let is_in = |lost: &&Lost| (lost.first.0..=lost.last.0).contains(number);
        let delivered = got.iter().filter(|it| *it == number).count();
        delivered + host.lost.iter().filter(is_in).count()
    };
    sent.iter().map(account).collect()
}

#[test]
fn a_node_without_room_tells_each_message_once_and_before_the_sender_calls_it_safe() {
    for seed in 0..60 {
        let assembly_bytes = [2_000, 6_000][seed as usize % 2];
        let config = Config { assembly_bytes, ..Config::default() };
        let mut world = world(3, &config, Loss::Uniform(0.2), seed);
        let message = |number: u32| message_of(number, 2 + (number as usize + seed as usize) % 4);
        let sent: Vec<u32> = (0..6).map(|it| send(&mut world, 0, &message(it)).0).collect();
        world.confirm(0, GROUP);
        while world.hosts[0].safe.is_empty() {
            world.run_for(MILLISECOND);
        }
        (1..3).for_each(|host| assert_eq!(accounts(&world, host, &sent), [1; 6], "seed {seed}"));
        world.run_for(15 * SECOND);
        (1..3).for_each(|host| assert_eq!(accounts(&world, host, &sent), [1; 6], "seed {seed}"));
        world.hosts.iter().for_each(|host| host.engine.check());
    }
}

#[test]
fn what_was_told_before_a_node_left_is_not_told_again_when_it_is_back() {
    let config = Config { assembly_bytes: 2_000, nak: None, ..Config::default() };
    let slow = Config { pace_bytes_per_second: 1 << 20, ..config };
    for seed in 0..10 {
        let mut world = world(3, &slow, Loss::Uniform(0.1), seed);
        send(&mut world, 0, b"before");
        world.run_for(SECOND);
        send(&mut world, 0, &message_of(1, 30));
        world.run_for(Duration::from_micros(2_000 + 2_000 * seed));
        assert_eq!(told_lost(&world, 1).last(), Some(&(2, 31, LossCause::NoRoom)));
        world.leave(1, GROUP);
        world.join(1, GROUP, RATE);
        world.run_for(30 * SECOND);
        let numbers: Vec<u32> = (2..=31).collect();
        assert_eq!(accounts(&world, 1, &numbers), [1; 30], "seed {seed}");
    }
}

#[test]
fn a_node_too_far_behind_tells_each_message_once() {
    for seed in 0..20 {
        let config = Config { max_gap: 50, window: 0, ..Config::default() };
        let mut world = world(3, &config, Loss::Uniform(0.02), seed);
        let mut rng = Rng::new(seed);
        let mut numbers = Vec::new();
        for round in 0..60 {
            if round % 20 == 10 {
                world.filter = Box::new(|_, to, _| to != NodeId(2));
            } else if round % 20 == 16 {
                world.filter = Box::new(|_, _, _| true);
            }
            let packets = 1 + rng.below(40);
            numbers.push(send(&mut world, 0, &message_of(round, packets)).0);
            world.run_for(Duration::from_micros(rng.below(8_000) as u64));
        }
        world.run_for(15 * SECOND);
        assert!(!world.hosts[1].lost.is_empty());
        assert_eq!(accounts(&world, 1, &numbers), vec![1; numbers.len()], "seed {seed}");
        world.hosts[1].engine.check();
    }
}

#[test]
fn mutated_and_replayed_pieces_change_nothing() {
    let mut world = world(3, &Config::default(), Loss::Uniform(0.02), 3);
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::<Vec<u8>>::new()));
    let kept = seen.clone();
    world.filter = Box::new(move |_, _, datagram| {
        kept.borrow_mut().push(datagram.to_vec());
        true
    });
    let mut rng = Rng::new(5);
    let mut numbers = Vec::new();
    for number in 0..40 {
        numbers.push(send(&mut world, 0, &message_of(number, 1 + number as usize % 7)));
        world.run_for(MILLISECOND);
        for _ in 0..500 {
            let mut datagram = {
                let seen = seen.borrow();
                seen[rng.below(seen.len())].clone()
            };
            match rng.below(3) {
                0 => {
                    let place = rng.below(datagram.len());
                    datagram[place] ^= 1 << rng.below(8);
                }
                1 => datagram.truncate(rng.below(datagram.len())),
                _ => {}
            }
            world.inject(1, &datagram);
        }
    }
    world.run_for(5 * SECOND);
    for host in 1..3 {
        let expected: Vec<u32> = numbers.iter().map(|number| number.0).collect();
        assert_eq!(world.hosts[host].got(NodeId(1), GROUP), expected);
        assert!(world.hosts[host].lost.is_empty());
        world.hosts[host].engine.check();
    }
}

#[test]
fn the_same_seed_gives_the_same_history_of_pieces() {
    let history = |seed| exchange(&Config::default(), Loss::Uniform(0.05), seed, 4).history;
    assert_eq!(history(7), history(7));
}
