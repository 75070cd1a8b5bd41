//! Well-formed datagrams with wrong contents. Their checksums are valid, so they reach the engine.

use crate::rig::{GROUP, MILLISECOND, SECOND, World, payload};
use carom_proto::lateral::{Config, Solver};
use carom_proto::loss::Loss;
use carom_proto::wire::{self, HEADER_BYTES};
use carom_proto::*;

#[test]
fn well_made_nonsense_panics_nobody_and_breaks_no_invariant() {
    for seed in 0..6 {
        let solver = if seed % 3 == 2 { Solver::Peeling } else { Solver::Elimination };
        let config = Config { solver, max_gap: 200, window: 64, ..Config::default() };
        let mut world = World::new(4, &config, Loss::Uniform(0.2), seed);
        (0..4).for_each(|host| {
            world.join_as(host, GROUP, Profile::TimeCritical(RateOfFire::new(4, 2)))
        });
        let seen = world.record();
        let mut rng = Rng::new(seed);
        for number in 0..100 {
            let _ = world.try_send(rng.below(4), GROUP, &payload(number));
            world.run_for(MILLISECOND);
            for _ in 0..30 {
                let mut datagram = {
                    let seen = seen.borrow();
                    let recent = rng.below(seen.len().min(200));
                    seen[seen.len() - 1 - recent].clone()
                };
                distort(&mut rng, &mut datagram);
                let host = rng.below(4);
                world.inject(host, &datagram);
                world.hosts[host].engine.check();
            }
        }
        world.run_for(20 * SECOND);
        world.check();
    }
}

/// Changes some bytes or shortens the datagram, and seals it again.
fn distort(rng: &mut Rng, datagram: &mut Vec<u8>) {
    for _ in 0..rng.below(4) {
        let place = HEADER_BYTES - 5 + rng.below(datagram.len().min(130) - (HEADER_BYTES - 5));
        let byte = &mut datagram[place];
        *byte = match rng.below(4) {
            0 => byte.wrapping_add(1),
            1 => byte.wrapping_sub(1),
            2 => rng.next_u64() as u8,
            _ => [0, 1, 2, 127, 128, 255][rng.below(6)],
        };
    }
    match rng.below(8) {
        0 => datagram[4] = 1 + rng.below(8) as u8,
        1 => datagram[5] = rng.below(4) as u8,
        2 => datagram.truncate(HEADER_BYTES + rng.below(datagram.len() - HEADER_BYTES + 1)),
        3 if datagram.len() >= HEADER_BYTES + 32 => {
            // Repeats an id if this is a repair or a NAK.
            let at = HEADER_BYTES + if datagram.len() >= HEADER_BYTES + 40 { 4 } else { 0 };
            datagram.copy_within(at..at + 16, at + 16);
        }
        _ => {}
    }
    wire::seal(datagram, 0);
}
