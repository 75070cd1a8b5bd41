//! Mutated and replayed fragments, which have no effect.

use carom_proto::lateral::Config;
use carom_proto::loss::Loss;
use carom_proto::*;

use super::message_of;
use crate::nonsense::mutate;
use crate::rig::{MILLISECOND, SECOND, World};

#[test]
fn mutated_and_replayed_pieces_change_nothing() {
    let mut world = World::of_members(3, &Config::default(), Loss::Uniform(0.02), 3);
    let seen = world.record();
    let mut rng = Rng::new(5);
    let mut numbers = Vec::new();
    for number in 0..40 {
        numbers.push(world.send(0, &message_of(number, 1 + number as usize % 7)));
        world.run_for(MILLISECOND);
        for _ in 0..500 {
            let mut datagram = {
                let seen = seen.borrow();
                seen[rng.below(seen.len())].clone()
            };
            mutate(&mut rng, &mut datagram);
            world.inject(1, &datagram);
        }
    }
    world.run_for(5 * SECOND);
    for host in 1..3 {
        let expected: Vec<u32> = numbers.iter().map(|number| number.0).collect();
        assert_eq!(world.hosts[host].got(NodeId(1)), expected);
        assert!(world.hosts[host].lost.is_empty());
        world.hosts[host].engine.check();
    }
}
