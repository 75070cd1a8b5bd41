//! Electorates: without a majority of the voters, nothing is ordered, acknowledged or locked.

use carom_proto::ring::{JoinOptions, LockChange, LockName, Qos, Quorum};
use carom_proto::{NodeId, Rng};

use crate::forcing::force;
use crate::rig::{GROUP, MS, Told, World};
use crate::{checks, payloads};

pub(crate) const CLIENT: JoinOptions =
    JoinOptions { rejoin: true, is_multicast: true, via: None, is_voter: false };

pub(crate) const ELECTORATE: Quorum = Quorum::QuorumOf(3);

/// Creates hosts that have not joined. `part` is the part of the network that each host is in.
pub(crate) fn world(hosts: usize, electorate: u16, seed: u64, part: &[u8]) -> World {
    let mut world = World::new(hosts, Quorum::QuorumOf(electorate), seed);
    world.part = part.to_vec();
    world
}

fn lock() -> LockName {
    LockName::of_name("nightly")
}

fn has_lock(world: &World, number: usize) -> bool {
    let is_granted = |told: &Told| match told {
        Told::Lock { news } => matches!(news.change, LockChange::Granted { .. }),
        _ => false,
    };
    world.hosts[number].story.iter().any(is_granted)
}

pub(crate) fn waits(world: &World, number: usize, voters: usize, needed: usize) -> bool {
    let last = world.hosts[number].story.iter().rev().find_map(|told| match told {
        Told::Waiting { voters, needed } => Some(Some((*voters, *needed))),
        Told::View { .. } => Some(None),
        _ => None,
    });
    last == Some(Some((voters, needed)))
}

pub(crate) fn is_working(world: &World, number: usize) -> bool {
    world.hosts[number].engine.is_working(GROUP)
}

/// Two machines start separately, each with a voter and a client. All publish and request a lock.
#[test]
fn halves_that_start_apart_order_and_lock_nothing() {
    for seed in 0..20 {
        let mut world = world(4, 3, seed, &[0, 1, 0, 1]);
        (0..2).for_each(|number| world.join(number));
        (2..4).for_each(|number| world.join_with(number, CLIENT));
        world.run_for(1000 * MS);
        for number in 0..4 {
            for qos in [Qos::TotallyOrdered, Qos::MajorityResilient, Qos::Unordered] {
                world.send(number, qos, 50);
            }
            world.lock(number, lock(), true);
        }
        world.run_for(20_000 * MS);
        for number in 0..4 {
            assert!(payloads(&world, number).is_empty(), "seed {seed}: {number} received some");
            assert!(!has_lock(&world, number) && !is_working(&world, number), "seed {seed}");
            assert!(waits(&world, number, 1, 2), "{number}: {:?}", world.hosts[number].story);
        }
        world.heal(10_000 * MS);
        let ordered = |number| {
            let mut all = payloads(&world, number);
            all.retain(|(_, payload)| payload[5] != 0);
            all
        };
        let whole = (0..2).map(ordered).max_by_key(Vec::len).expect("there are two");
        assert_eq!(whole.len(), 8, "seed {seed}");
        for number in 0..4 {
            // A client may have been admitted after the first messages.
            assert!(whole.ends_with(&ordered(number)), "seed {seed}: {number}");
            assert!(number > 1 || ordered(number) == whole, "seed {seed}: {number}");
            assert!(!world.hosts[number].story.contains(&Told::Removed), "seed {seed}");
        }
        assert_eq!(world.holders(lock()).len(), 1, "seed {seed}");
        checks::check_safety(&world);
    }
}

#[test]
fn the_part_with_a_majority_of_the_electorate_works_alone() {
    for seed in 0..20 {
        let mut world = world(5, 5, seed, &[0, 0, 0, 1, 1]);
        (0..5).for_each(|number| world.join(number));
        world.run_for(3000 * MS);
        (0..5).for_each(|number| world.send(number, Qos::MajorityResilient, 50));
        world.run_for(3000 * MS);
        (0..3).for_each(|number| assert_eq!(payloads(&world, number).len(), 3, "seed {seed}"));
        (3..5).for_each(|number| assert!(payloads(&world, number).is_empty(), "seed {seed}"));
        assert!(waits(&world, 3, 2, 3) && waits(&world, 4, 2, 3), "seed {seed}");
        world.heal(10_000 * MS);
        assert_eq!(world.ring(0).map(|ring| ring.len()), Some(5), "seed {seed}");
        checks::check_safety(&world);
    }
}

#[test]
fn clients_that_come_and_die_do_not_stop_the_voters() {
    for seed in 0..10 {
        let mut world = World::ring_of(ELECTORATE, 3, 0, seed, 2000 * MS);
        let clients: Vec<usize> = (0..6).map(|_| world.add()).collect();
        clients.iter().for_each(|client| world.join_with(*client, CLIENT));
        world.run_for(5000 * MS);
        assert_eq!(world.ring(0).map(|ring| ring.len()), Some(9), "seed {seed}");
        clients.iter().for_each(|client| world.crash(*client));
        world.crash(2);
        world.send_and_run(0, Qos::MajorityResilient, 50, 20_000 * MS);
        assert_eq!(payloads(&world, 0).len(), 1, "seed {seed}");
        assert_eq!(payloads(&world, 1).len(), 1, "seed {seed}");
        assert_eq!(world.ring(0), world.ring(1));
        // The last of the three voters does not suffice, however many clients there are.
        let clients: Vec<usize> = (0..4).map(|_| world.add()).collect();
        clients.iter().for_each(|client| world.join_with(*client, CLIENT));
        world.run_for(5000 * MS);
        world.crash(1);
        world.send_and_run(clients[0], Qos::TotallyOrdered, 50, 20_000 * MS);
        assert!(waits(&world, 0, 1, 2), "seed {seed}: {:?}", world.hosts[0].story.last());
        assert!(payloads(&world, 0).len() <= 2 && !is_working(&world, 0), "seed {seed}");
    }
}

#[test]
fn clients_alone_begin_no_ring_and_report_it() {
    let mut world = world(3, 1, 4, &[0; 3]);
    (0..2).for_each(|number| world.join_with(number, CLIENT));
    // The id of the voter is larger than those of the clients, which send requests all the time.
    world.send_and_run(0, Qos::TotallyOrdered, 50, 20_000 * MS);
    assert!(waits(&world, 0, 0, 1) && waits(&world, 1, 0, 1));
    assert_eq!(world.ring(0), None);
    world.join(2);
    world.run_for(5000 * MS);
    (0..3).for_each(|number| assert!(is_working(&world, number), "{number}"));
    assert_eq!(payloads(&world, 2).len(), 1);
    // The only voter crashes. The clients wait for it, then let another voter begin a new ring.
    world.crash(2);
    let next = world.add();
    world.join(next);
    world.send_and_run(0, Qos::TotallyOrdered, 50, 60_000 * MS);
    assert!(is_working(&world, next));
    (0..2).for_each(|number| assert_eq!(world.ring(number), world.ring(next)));
}

/// Every view change waits for the quorum, and uses memory until then.
#[test]
fn views_without_a_quorum_are_merged_when_it_is_reached() {
    let mut world = world(5, 5, 5, &[0; 5]);
    world.join(0);
    world.run_for(1000 * MS);
    let clients = [world.add(), world.add()];
    let comes_and_goes = |world: &mut World, number, options| {
        world.join_with(number, options);
        world.run_for(1000 * MS);
        assert!(world.ring(number).is_some(), "it is admitted");
        world.leave(number);
        world.run_for(1000 * MS);
    };
    world.join_with(clients[1], CLIENT);
    for _ in 0..100 {
        comes_and_goes(&mut world, clients[0], CLIENT);
        comes_and_goes(&mut world, 1, JoinOptions::default());
    }
    (1..3).for_each(|number| world.join(number));
    world.run_for(5000 * MS);
    let all = [0, clients[1], 1, 2];
    for number in all {
        let views = world.hosts[number].select(|told| match told {
            Told::View { view, .. } => Some(view),
            _ => None,
        });
        assert!(views.len() < 270, "{} views were kept at {number}", views.len());
        assert_eq!(views.last().expect("a view").len(), all.len());
    }
    assert!(is_working(&world, 0));
    checks::check_safety(&world);
}

#[test]
fn a_voter_that_leaves_below_the_quorum_stops_the_ring() {
    for seed in 0..10 {
        let mut world = World::ring_of(ELECTORATE, 2, 1, seed, 2000 * MS);
        world.lock(0, lock(), true);
        world.send_and_run(0, Qos::TotallyOrdered, 50, 1000 * MS);
        assert!(has_lock(&world, 0) && payloads(&world, 1).len() == 1, "seed {seed}");
        world.leave(1);
        world.run_for(3000 * MS);
        assert!(waits(&world, 0, 1, 2), "seed {seed}: {:?}", world.hosts[0].story);
        world.send(0, Qos::TotallyOrdered, 50);
        world.confirm(0);
        world.run_for(3000 * MS);
        assert_eq!(payloads(&world, 0).len(), 1, "seed {seed}");
        assert!(!world.hosts[0].story.iter().any(|told| matches!(told, Told::Confirmed { .. })));
        world.join(2);
        world.run_for(3000 * MS);
        assert_eq!(payloads(&world, 0).len(), 2, "seed {seed}");
        assert_eq!(world.holders(lock()), [0], "seed {seed}");
        checks::check_safety(&world);
    }
}

#[test]
fn voter_that_dies_is_followed_by_another_one() {
    for seed in 0..10 {
        let mut world = World::ring_of(ELECTORATE, 3, 0, seed, 3000 * MS);
        for round in 0..5 {
            let (oldest, alive) = (round, world.hosts.len() - 1);
            world.crash(oldest);
            world.send_and_run(alive, Qos::MajorityResilient, 50, 3000 * MS);
            let next = world.add();
            world.join(next);
            world.run_for(3000 * MS);
            assert!(is_working(&world, next), "seed {seed}, round {round}");
        }
        assert_eq!(payloads(&world, 2).len(), 2, "seed {seed}");
        checks::check_safety(&world);
    }
}

/// The ring cannot know whether voter 1 has crashed or continues in another part of the network.
#[test]
fn half_of_the_voters_wait_for_the_others_or_for_an_operator() {
    for seed in 0..10 {
        let mut world = World::ring_of(ELECTORATE, 2, 1, seed, 2000 * MS);
        world.send_and_run(0, Qos::MajorityResilient, 50, 1000 * MS);
        world.crash(1);
        world.send(0, Qos::MajorityResilient, 50);
        world.join(2);
        world.tell_views();
        world.run_for(30_000 * MS);
        assert_eq!(payloads(&world, 0).len(), 1, "seed {seed}");
        assert!(waits(&world, 0, 1, 2), "seed {seed}: {:?}", world.hosts[0].story);
        assert!(!is_working(&world, 2), "seed {seed}");
        let epoch = world.hosts[0].engine.view(GROUP).expect("its ring").epoch;
        force(&mut world, 2, epoch, &[2]);
        assert_eq!(payloads(&world, 0).len(), 2, "seed {seed}");
        assert!(is_working(&world, 2), "seed {seed}");
        checks::check_safety(&world);
    }
}

/// Each member learns in a ballot of its own that the ring cannot continue.
#[test]
fn far_members_leave_a_ring_without_a_quorum_together() {
    for seed in 0..10 {
        let mut world = world(8, 8, seed, &[0; 8]);
        world.delay = (100 * MS, 102 * MS);
        (0..4).for_each(|number| world.join(number));
        (4..8).for_each(|number| world.join_with(number, CLIENT));
        world.run_for(10_000 * MS);
        assert!((2..8).all(|it| waits(&world, it, 4, 5)), "seed {seed}");
        (0..2).for_each(|number| world.crash(number));
        world.tell_views();
        // The members give the ring up after 10 s.
        let is_new =
            |world: &World| (2..8).all(|it| world.ring(it).is_some_and(|it| it.len() == 6));
        let took = world.run_until(100 * MS, 60_000 * MS, is_new);
        assert!(took < 25_000 * MS, "seed {seed}: {took:?}");
    }
}

/// Two of three voters are cut off from each other. The third works with one of them, crashes, and
/// is restarted on the other side, without its memory.
#[test]
fn restarted_voter_forms_no_quorum_without_what_it_knew() {
    for seed in 0..20 {
        let mut world = World::ring_of(ELECTORATE, 2, 1, seed, 2000 * MS);
        world.send_and_run(0, Qos::MajorityResilient, 50, 1000 * MS);
        world.part = vec![0, 1, 1];
        world.send(1, Qos::MajorityResilient, 50);
        world.join(2);
        world.run_for(5000 * MS);
        world.crash(2);
        let again = world.add();
        world.part[again] = 0;
        world.join(again);
        world.run_for(3000 * MS);
        (0..2).for_each(|number| world.send(number, Qos::MajorityResilient, 50));
        world.run_for(20_000 * MS);
        let [first, second] = [0, 1].map(|number| payloads(&world, number));
        let is_one_order = first.starts_with(&second) || second.starts_with(&first);
        assert!(is_one_order, "seed {seed}: {first:?} and {second:?}");
        world.heal(20_000 * MS);
        checks::check_safety(&world);
        assert_eq!(world.ring(0).map(|ring| ring.len()), Some(3), "seed {seed}");
        [0, 1, again].iter().for_each(|number| assert!(is_working(&world, *number), "{seed}"));
    }
}

#[test]
fn a_voter_more_than_the_electorate_waits_outside() {
    for seed in 0..10 {
        let mut world = World::ring_of(ELECTORATE, 3, 1, seed, 3000 * MS);
        world.join(3);
        world.run_for(20_000 * MS);
        assert!(world.hosts[3].story.contains(&Told::Full { voters: 3 }), "seed {seed}");
        assert_eq!(world.ring(3), None, "seed {seed}");
        world.crash(1);
        world.send_and_run(0, Qos::TotallyOrdered, 50, 10_000 * MS);
        let ring = world.ring(3).expect("it was admitted");
        assert!(ring.len() == 3 && !ring.contains(&NodeId(2)), "seed {seed}");
    }
}

/// Runs a random history of five voters and three clients, with changing partitions, losses, pauses
/// and crashes. Crashed voters are replaced by other processes.
fn random_history(seed: u64) -> World {
    let mut rng = Rng::new(seed);
    let mut world = world(8, 5, seed, &[0; 8]);
    world.loss = [0.0, 0.01, 0.1][rng.below(3)];
    world.delay.1 = [MS / 5, MS, 5 * MS][rng.below(3)];
    world.part.iter_mut().for_each(|part| *part = rng.below(2) as u8);
    (0..5).for_each(|number| world.join(number));
    (5..8).for_each(|number| world.join_with(number, CLIENT));
    let mut voters: Vec<usize> = (0..5).collect();
    for _ in 0..40 {
        let number = rng.below(world.hosts.len());
        let is_up = world.hosts[number].is_alive;
        match rng.below(12) {
            0 => world.part.iter_mut().for_each(|part| *part = rng.below(2) as u8),
            1 => world.hosts[number].is_paused = rng.chance(0.5),
            2 if is_up && number >= 5 && !voters.contains(&number) => world.crash(number),
            3 if world.hosts.len() < 12 => {
                let place = rng.below(voters.len());
                world.crash(voters[place]);
                voters[place] = world.add();
                world.join(voters[place]);
            }
            4 | 5 if is_up => world.lock(number, lock(), true),
            6 if is_up => world.unlock(number, lock()),
            _ if is_up => {
                let qos = [Qos::TotallyOrdered, Qos::MajorityResilient][rng.below(2)];
                world.send(number, qos, 50);
            }
            _ => {}
        }
        world.run_for(MS * rng.below(400) as u32);
    }
    world
}

fn check_quorums(world: &World, seed: u64) {
    for host in &world.hosts {
        let mut voters = 0;
        for told in &host.story {
            match told {
                Told::View { view, .. } => voters = view.voters().count(),
                Told::Message { .. } => assert!(voters >= 3, "seed {seed}: {:?}", host.id),
                Told::Lock { news } if matches!(news.change, LockChange::Granted { .. }) => {
                    assert!(voters >= 3, "seed {seed}: {:?}", host.id);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn random_histories_of_an_electorate_need_its_majority() {
    let mut whole = 0;
    for seed in 0..100 {
        let mut world = random_history(seed);
        check_quorums(&world, seed);
        checks::check_safety(&world);
        world.loss = 0.0;
        world.hosts.iter_mut().for_each(|host| host.is_paused = false);
        world.heal(30_000 * MS);
        check_quorums(&world, seed);
        checks::check_safety(&world);
        let alive: Vec<usize> =
            (0..world.hosts.len()).filter(|it| world.hosts[*it].is_alive).collect();
        let is_whole = |it: &usize| world.ring(*it).map(|ring| ring.len()) == Some(alive.len());
        whole += usize::from(alive.iter().all(is_whole));
    }
    // If too many voters crash at once, the other members wait for an operator.
    assert!(whole >= 60, "{whole} of 100 are whole");
}

/// Two of five voters meet, each in a ring of its own. The voter that gives up its ring has made a
/// request, which ends in time.
#[test]
fn a_request_ends_in_time_although_its_ring_is_given_up() {
    for seed in 0..10 {
        let mut world = world(2, 5, seed, &[0, 1]);
        (0..2).for_each(|number| world.join(number));
        world.run_for(2000 * MS);
        (0..2).for_each(|number| world.call_for(number, Some(0), 2, 50, 5000 * MS));
        world.heal(20_000 * MS);
        assert_eq!(world.ring(0).map(|ring| ring.len()), Some(2), "seed {seed}");
        for host in &world.hosts {
            let answers = host.story.iter().filter(|told| matches!(told, Told::Answer { .. }));
            assert_eq!(answers.count(), 1, "seed {seed}: {:?}", host.id);
        }
    }
}
