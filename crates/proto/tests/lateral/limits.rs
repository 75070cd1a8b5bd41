//! Limits of calls to the engine, of datagrams, and of the data buffer.

use carom_proto::lateral::Config;
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{GROUP, MILLISECOND, RATE, SECOND, World, payload};

#[test]
fn wrong_use_is_refused_and_loses_nothing() {
    let mut world = World::of_members(2, &Config::default(), Loss::None, 1);
    let limit = world.hosts[0].engine.payload_limit(Profile::TimeCritical(RATE));
    assert_eq!(limit, 16 << 20);
    let too_large = world.try_send(0, GROUP, &vec![0; limit + 1]);
    assert_eq!(too_large, Err(SendError::TooLarge { bytes: limit + 1, limit }));
    assert_eq!(world.try_send(0, GroupId(109), b"x"), Err(SendError::NotJoined));
    let in_one = Config::default().packet_limit(RATE);
    assert_eq!(world.try_send(0, GROUP, &vec![7; in_one]), Ok(SeqNo(1)));
    world.run_for(SECOND);
    assert_eq!(world.hosts[1].messages[0].payload.len(), in_one);
    let settings =
        |r| GroupSettings { profile: Profile::TimeCritical(RateOfFire::new(r, 5)), name_check: 0 };
    let engine = &mut world.hosts[0].engine;
    let other_r = engine.join(Time(0), GroupId(101), settings(9));
    assert_eq!(other_r, Err(JoinError::DifferentR { given: 9, existing: 8 }));
    let impossible = engine.join(Time(0), GroupId(101), settings(33));
    assert_eq!(impossible, Err(JoinError::RateOfFire { given: RateOfFire::new(33, 5) }));
    assert_eq!(engine.join(Time(0), GROUP, settings(8)), Err(JoinError::AlreadyJoined));
}

#[test]
fn no_datagram_exceeds_the_path_mtu() {
    let config = Config { path_mtu: 1000, ..Config::default() };
    let mut world = World::new(6, &config, Loss::Uniform(0.3), 1);
    world.filter = Box::new(|_, _, _, datagram| {
        assert!(datagram.len() <= 1000 - 28, "{} bytes", datagram.len());
        true
    });
    (0..6).for_each(|host| world.join(host, GROUP));
    let limit = config.packet_limit(RATE);
    for number in 0..200 {
        // Every other message needs three packets.
        let bytes = if number % 2 == 0 { limit } else { 2 * limit + 1 };
        world.send(0, &vec![1; bytes]);
        world.run_for(MILLISECOND);
    }
    world.run_for(5 * SECOND);
    assert_eq!(world.hosts[5].got(NodeId(1)).len(), 200);
}

#[test]
fn the_data_buffer_stays_within_its_bytes() {
    let config = Config { buffer_bytes: 50_000, window: 0, ..Config::default() };
    let mut world = World::of_members(4, &config, Loss::Uniform(0.01), 1);
    for number in 0..1000 {
        world.send(0, &payload(number));
        world.run_for(MILLISECOND);
        assert!(world.hosts.iter().all(|host| host.engine.buffer_bytes() <= 50_000));
    }
    assert!(world.hosts[1].engine.counters().evicted_by_bytes > 0);
    world.run_for(20 * SECOND);
    assert!(world.hosts.iter().all(|host| host.engine.buffer_bytes() == 0), "all are too old");
}
