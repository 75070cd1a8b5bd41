//! Parts of a group that meet: one part waits, and the other joins it.

use carom_proto::ring::{Qos, Quorum};
use carom_proto::{Engine as _, NodeId};

use crate::checks;
use crate::rig::{GROUP, MS, Told, World};

#[test]
fn member_of_a_working_ring_does_not_join_a_stopped_one() {
    for seed in 0..20 {
        let mut world = World::ring_of(Quorum::All, 4, 2, seed, 1000 * MS);
        world.crash(3);
        world.send_and_run(0, Qos::TotallyOrdered, 50, 5000 * MS);
        (0..3).for_each(|it| assert!(world.hosts[it].story.contains(&Told::Minority)));
        world.part[4] = 1;
        world.join(4);
        world.run_for(1000 * MS);
        assert_eq!(world.ring(4), Some(vec![NodeId(5)]), "seed {seed}");
        // The small ring admits host 5. Packets of the large ring arrive before or after that.
        world.part[4] = 0;
        world.delay.1 = 5 * MS;
        world.join(5);
        world.tell_views();
        world.run_for(20_000 * MS);
        assert!(!world.hosts[5].story.contains(&Told::Removed), "seed {seed}");
        world.assert_ring_sizes([0, 1, 2, 4, 5], 5);
    }
}

#[test]
fn joiners_of_a_stopped_ring_begin_no_ring_of_their_own() {
    let mut world = World::ring_of(Quorum::Majority, 2, 7, 1, 1000 * MS);
    world.crash(1);
    world.send_and_run(0, Qos::TotallyOrdered, 50, 1000 * MS);
    assert!(world.hosts[0].story.contains(&Told::Minority));
    (2..9).for_each(|number| world.join(number));
    world.run_for(60_000 * MS);
    assert!(!world.hosts[0].story.contains(&Told::Removed), "it has found a ring to join");
    (2..9).for_each(|number| assert!(world.hosts[number].engine.view(GROUP).is_none()));
}

#[test]
fn restarted_token_site_of_a_quiet_ring_is_readmitted() {
    for seed in 0..10 {
        let mut world = World::ring_of(Quorum::Majority, 3, 0, seed, 3000 * MS);
        let token = world.hosts[0].engine.token(GROUP).expect("it is in a ring");
        let number = token.node.0 as usize - 1;
        world.hosts[number].engine.abandon(world.now, GROUP);
        world.join(number);
        world.run_for(3000 * MS);
        world.assert_ring_sizes(0..3, 3);
        assert!(world.process(number).is_some_and(|it| it.life > token.life), "seed {seed}");
    }
}

/// A list is in force, but at most its initiator and one other member have learned of it when they
/// are cut off. The three other members have accepted it too, and continue with a list of their
/// own. When that list has all necessary acknowledgments, one of the three is cut off from the
/// others, and receives from the first two members.
#[test]
fn member_that_accepted_a_later_list_does_not_revert() {
    let (mut torn, mut undecided) = (0, 0);
    for seed in 0..40 {
        let mut world = World::joined(5, 0, seed);
        world.suspect(0, 1);
        world.run_until_sent(RECOVERY_ACK_NEW_LIST, 4);
        world.part = vec![0, 0, 1, 1, 1];
        world.run_until_sent(RECOVERY_ACK_NEW_LIST, 6);
        let version = |world: &World, number: usize| {
            world.hosts[number].engine.view(GROUP).map(|view| view.epoch.version)
        };
        if version(&world, 0) != Some(2) || (2..5).any(|it| version(&world, it) != Some(1)) {
            continue;
        }
        torn += 1;
        let last = 2 + seed as usize % 3;
        world.part[last] = 0;
        for turn in 0..400 {
            world.send_and_run(turn % 5, Qos::MajorityResilient, 20, 5 * MS);
        }
        undecided += u32::from(version(&world, last) == Some(1));
        checks::check_safety(&world);
        checks::check_one_lineage(&world);
        world.part = vec![0; 5];
        world.run_for(5000 * MS);
        checks::check_safety(&world);
        checks::check_one_lineage(&world);
        world.assert_ring_sizes(0..5, 5);
    }
    assert!(torn >= 10 && undecided > 0, "{torn} were torn, {undecided} undecided");
}

const RECOVERY_ACK_NEW_LIST: u8 = 9;
