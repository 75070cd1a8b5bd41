//! Streams whose sequence numbers wrap, or advance by more than half of the number space.

use carom_proto::lateral::Config;
use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::packet::symbol::{Arena, Fragment, Symbol};
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{GROUP, MILLISECOND, SECOND, World, datagram, heartbeat, payload_of};

/// Sequence numbers just below 2^31 and just below 2^32.
const FIRST_NUMBERS: [SeqNo; 2] = [SeqNo((1 << 31) - 40), SeqNo(u32::MAX - 40)];

fn world(first_number: SeqNo, hosts: usize, loss: f64) -> World {
    let config = Config { first_number, ..Config::default() };
    World::of_members(hosts, &config, Loss::Uniform(loss), 5)
}

fn got(world: &World, host: usize) -> Vec<(Vec<u8>, SeqNo)> {
    let messages = world.hosts[host].messages.iter();
    let from_0 = messages.filter(|message| message.sender == NodeId(1));
    let mut all: Vec<_> = from_0.map(|it| (it.payload.to_vec(), it.seqno)).collect();
    all.sort_by_key(|(payload, _)| payload.clone());
    all
}

#[test]
fn every_message_arrives_once_across_the_wrap() {
    for first in FIRST_NUMBERS {
        let mut world = world(first, 4, 0.1);
        let mut sent = Vec::new();
        for number in 0..200_u32 {
            let bytes = if number % 20 == 7 { 6_000 } else { 100 };
            let payload = [&number.to_be_bytes()[..], &payload_of(number, bytes)].concat();
            let seqno = world.send(0, &payload);
            sent.push((payload, seqno));
            world.run_for(MILLISECOND);
        }
        assert_eq!(sent[0].1, first);
        world.confirm(0);
        world.run_for(10 * SECOND);
        for host in 1..4 {
            assert_eq!(world.hosts[host].lost, []);
            assert!(got(&world, host) == sent, "{first:?}: host {host}");
        }
        let safe: Vec<_> = world.hosts[0].safe.iter().map(|safe| safe.up_to).collect();
        assert_eq!(safe, [first.plus(239)]);
    }
}

#[test]
fn joiner_and_rejoiner_receive_the_rest_across_the_wrap() {
    for first in FIRST_NUMBERS {
        let mut world = world(first, 3, 0.1);
        let mut sent = Vec::new();
        let mut send = |world: &mut World, sender: usize, count: u32| {
            for _ in 0..count {
                let payload = (sent.len() as u32).to_be_bytes().to_vec();
                let seqno = world.send(sender, &payload);
                sent.push((payload, seqno));
                world.run_for(MILLISECOND);
            }
            sent.clone()
        };
        send(&mut world, 0, 30);
        world.run_for(2 * SECOND);
        world.leave(2, GROUP);
        send(&mut world, 0, 20);
        world.run_for(2 * SECOND);
        world.join(2, GROUP);
        world.leave(0, GROUP);
        world.run_for(MILLISECOND);
        world.join(0, GROUP);
        let all = send(&mut world, 0, 30);
        world.run_for(5 * SECOND);
        assert!(got(&world, 1) == all);
        assert!(got(&world, 2) == [&all[..30], &all[50..]].concat());
        assert!(world.hosts.iter().all(|host| host.lost.is_empty()));
    }
}

#[test]
fn window_holds_back_and_frees_across_the_wrap() {
    for first_number in FIRST_NUMBERS {
        let config = Config { first_number, window: 32, ..Config::default() };
        let mut world = World::of_members(3, &config, Loss::None, 9);
        world.crash(2);
        let mut sent = 0;
        for _ in 0..1_000 {
            sent += u32::from(world.try_send(0, GROUP, b"x").is_ok());
            world.run_for(MILLISECOND);
        }
        assert_eq!(world.hosts[0].slow.len(), 1);
        assert_eq!(sent, 500, "the default patience is half a second");
        assert_eq!(world.hosts[1].messages.len(), 500);
    }
}

#[test]
fn large_message_arrives_after_half_of_all_numbers() {
    let mut world = World::of_members(2, &Config::default(), Loss::None, 1);
    world.send(0, b"the first");
    world.run_for(SECOND);
    world.filter = Box::new(|_, _, _, _| false);
    let mut next = SeqNo(2);
    for _ in 0..4 {
        next = next.plus((1 << 29) + 100);
        world.inject(1, &datagram(heartbeat(next), NodeId(1), GROUP));
        world.answer(1, NodeId(1), next, SeqNo(1));
        world.run_for(20 * SECOND);
    }
    let first = next;
    let message = payload_of(7, 2_500);
    for index in 0..3 {
        let fragment = Fragment { index, fragment_bytes: 1_000, message_bytes: 2_500 };
        let symbol =
            Symbol::of_fragment(&mut Arena::default(), world.now, None, fragment, &message);
        let seqno = first.plus(index);
        let packet = Packet::Data { seqno, confirm: false, symbol: symbol.bytes() };
        world.inject(1, &datagram(packet, NodeId(1), GROUP));
    }
    let last = world.hosts[1].messages.last().expect("a message came before");
    assert_eq!((last.seqno, &last.payload[..]), (first, &message[..]));
}
