//! Random, mutated, replayed and contradictory datagrams, which have no effect.

use carom_proto::lateral::packet::{Packet, WireId};
use carom_proto::lateral::{Config, StreamStart};
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{GROUP, MILLISECOND, SECOND, World, datagram, payload};

#[test]
fn a_million_random_and_mutated_datagrams_change_nothing() {
    let mut world = World::of_members(4, &Config::default(), Loss::Uniform(0.02), 3);
    let seen = world.record();
    let mut rng = Rng::new(5);
    let per_message = 2_500;
    for number in 0..400 {
        world.send(0, &payload(number));
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
    world.check();
    world.assert_got(1..4, 400);
    assert!(world.hosts.iter().all(|host| host.lost.is_empty()));
    for message in &world.hosts[1].messages {
        assert_eq!(message.payload[..], payload(message.seqno.0 - 1)[..]);
    }
}

#[test]
fn repair_that_names_a_packet_twice_is_dropped_harmlessly() {
    let config = Config { stream_start: StreamStart::FromFirst, ..Config::default() };
    let mut world = World::of_members(2, &config, Loss::None, 1);
    let repair = |seqnos: [u32; 2]| {
        let id = |seqno| PacketId { sender: NodeId(2), group: GROUP, seqno: SeqNo(seqno) };
        let ids = seqnos.map(|seqno| WireId::from(id(seqno)));
        datagram(Packet::Repair { ids: &ids, sum: &[7; 40] }, NodeId(2), GroupId::NONE)
    };
    world.inject(0, &repair([5, 5]));
    world.inject(0, &repair([5, 6]));
    world.hosts[0].engine.check();
    let counters = world.hosts[0].engine.counters();
    assert_eq!((counters.repairs_contradictory, counters.repairs_pending), (1, 1));
}

pub(crate) fn mutate(rng: &mut Rng, datagram: &mut Vec<u8>) {
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
