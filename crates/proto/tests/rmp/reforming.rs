//! Reformations in which what is sent comes at the worst moments.

use carom_proto::rmp::packet::Packet;
use carom_proto::rmp::{Counters, Qos};

use super::joined;
use super::rig::{MS, World};

#[test]
fn the_round_by_which_a_member_learns_that_a_list_holds_is_not_lost() {
    let mut world = joined(4, 3);
    world.crash(3);
    let sum = |world: &World, pick: fn(&Counters) -> u64| -> u64 {
        world.hosts[..3].iter().map(|host| pick(&host.engine.counters())).sum()
    };
    let before = sum(&world, |counters| counters.rounds_resent);
    world.tell_views();
    world.run_for(2000 * MS);
    assert_eq!((0..3).filter_map(|it| world.ring(it)).map(|ring| ring.len()).sum::<usize>(), 9);
    assert!(sum(&world, |counters| counters.reformations_done) >= 3, "each of them enters it");
    assert_eq!(sum(&world, |counters| counters.rounds_resent), before);
}

#[test]
fn what_comes_after_a_list_was_accepted_stops_nobody() {
    let mut world = joined(3, 3);
    world.held_back = Some(Vec::new());
    world.send(0, Qos::MajorityResilient, 100);
    let is_start = |packet: &Packet| matches!(packet, Packet::RecoveryStart { .. });
    let is_vote = |packet: &Packet| matches!(packet, Packet::RecoveryVote { .. });
    let is_list = |packet: &Packet| matches!(packet, Packet::NewList(_));
    // The last two agree on a list without the first. Then its message comes to one of them, which
    // asks the other to reform the ring, before the other knows that they have agreed.
    world.suspect(2, 0);
    world.hand_over(2, 1, is_start);
    world.hand_over(1, 2, is_vote);
    world.time_out_until(2, is_list);
    world.hand_over(2, 1, is_list);
    world.hand_over(0, 1, |packet| matches!(packet, Packet::Data(_)));
    world.time_out_until(1, is_start);
    world.hand_over(1, 2, is_start);
    // What is held back is lost, and the first is cut off.
    world.held_back = None;
    world.part = vec![1, 0, 0];
    world.run_for(3000 * MS);
    let rings = [1, 2].map(|number| world.ring(number).expect("it is in a ring"));
    assert!(rings.iter().all(|ring| ring.len() == 2), "they go on: {rings:?}");
    world.part = vec![0; 3];
    world.tell_views();
    world.run_for(3000 * MS);
    let ring = world.ring(0);
    assert_eq!(ring.as_ref().map(Vec::len), Some(3));
    assert!((1..3).all(|number| world.ring(number) == ring), "{ring:?}");
}
