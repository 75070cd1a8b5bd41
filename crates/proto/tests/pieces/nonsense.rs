//! Mutated and replayed fragments, which change nothing.

use carom_proto::lateral::Config;
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{MILLISECOND, SECOND, World};
use crate::{GROUP, message_of, send};

#[test]
fn mutated_and_replayed_pieces_change_nothing() {
    let mut world = World::of_members(3, &Config::default(), Loss::Uniform(0.02), 3);
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
