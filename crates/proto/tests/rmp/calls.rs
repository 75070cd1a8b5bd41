//! Requests of members and guests to a group, and the replies.

use std::time::Duration;

use carom_proto::ring::{
    Handler, LockName, Outcome, Qos, ReplyError, Request, RequestError, RequestId, RequestOptions,
};
use carom_proto::rmp::Rmp;
use carom_proto::{GroupId, NodeId, Rng};

use crate::checks;
use crate::rig::{GROUP, MS, Told, World};

fn outcomes(world: &World, number: usize) -> Vec<&Outcome> {
    world.hosts[number].select(|told| match told {
        Told::Answer { answer } => Some(&answer.outcome),
        _ => None,
    })
}

fn requests(world: &World, number: usize) -> Vec<&Request> {
    world.hosts[number].select(|told| match told {
        Told::Request { request } => Some(request),
        _ => None,
    })
}

fn repliers(world: &World, number: usize) -> Vec<NodeId> {
    let replies = outcomes(world, number).into_iter().filter_map(|outcome| match outcome {
        Outcome::Reply { by, .. } => Some(*by),
        _ => None,
    });
    replies.collect()
}

const HANDLER: LockName = LockName(0);

#[test]
fn handler_replies_to_members_and_guests_alike() {
    let mut world = World::joined(3, 1, 1);
    world.lock_and_run(1, HANDLER, 50 * MS);
    for caller in [0, 1, 2, 3] {
        world.call(caller, Some(0), 2, 100);
        world.run_for(200 * MS);
        assert_eq!(repliers(&world, caller), [NodeId(2)], "caller {caller}");
    }
    for member in 0..3 {
        let told = requests(&world, member);
        let callers: Vec<u64> = told.iter().map(|request| request.id.caller.0).collect();
        assert_eq!(callers, [1, 2, 3, 4]);
        assert!(told.iter().all(|request| request.is_ours == (member == 1)));
    }
    checks::check_safety(&world);
}

#[test]
fn a_request_without_a_handler_is_acknowledged_at_every_level() {
    let mut world = World::joined(3, 1, 1);
    for level in 0..7 {
        for caller in [1, 3] {
            world.call(caller, None, level, 50);
        }
        world.run_for(300 * MS);
        for caller in [1, 3] {
            let expected = vec![&Outcome::Acknowledged; usize::from(level) + 1];
            assert_eq!(outcomes(&world, caller), expected, "level {level}, caller {caller}");
        }
    }
    (0..3).for_each(|member| assert_eq!(requests(&world, member).len(), 14));
    checks::check_safety(&world);
}

#[test]
fn requests_and_replies_may_be_larger_than_a_packet() {
    for loss in [0.0, 0.05] {
        let mut world = World::joined(3, 1, 1);
        world.lock_and_run(1, HANDLER, 50 * MS);
        (world.loss, world.reply_bytes) = (loss, 300_000);
        for caller in [0, 3] {
            world.call(caller, Some(0), 2, 100_000);
            world.run_for(5000 * MS);
            assert_eq!(repliers(&world, caller), [NodeId(2)], "loss {loss}, caller {caller}");
        }
        checks::check_safety(&world);
    }
}

#[test]
fn a_killed_handler_is_replaced_and_every_request_has_one_reply() {
    for seed in crate::random::seeds() {
        let mut rng = Rng::new(seed);
        let mut world = World::joined(4, 2, seed);
        for server in 0..3 {
            world.lock_and_run(server, HANDLER, 20 * MS);
        }
        world.loss = [0.0, 0.02, 0.1][rng.below(3)];
        world.duplicates = [0.0, 0.05][rng.below(2)];
        world.reply_bytes = [20, 5000][rng.below(2)];
        let killed = rng.below(30);
        for turn in 0..30 {
            world.call(3 + rng.below(3), Some(0), 2, 10 + rng.below(3000));
            world.run_for(MS * rng.below(10) as u32);
            if turn == killed {
                world.crash(0);
            }
        }
        world.loss = 0.0;
        world.run_for(20_000 * MS);
        for caller in 3..6 {
            let (made, replied) = (world.hosts[caller].calls.len(), repliers(&world, caller));
            assert_eq!(replied.len(), made, "seed {seed}: caller {caller}");
        }
        checks::check_safety(&world);
    }
}

#[test]
fn request_waits_for_a_handler() {
    let mut world = World::joined(3, 1, 1);
    world.call(3, Some(4), 2, 100);
    world.run_for(300 * MS);
    assert!(outcomes(&world, 3).is_empty());
    world.lock_and_run(2, LockName(4), 300 * MS);
    assert_eq!(repliers(&world, 3), [NodeId(3)]);
    let told = requests(&world, 2);
    let ours: Vec<bool> = told.iter().map(|request| request.is_ours).collect();
    assert_eq!(ours, [false, true]);
    assert!(told[1].is_again && !told[1].may_be_done, "no other member can have done the work");
}

#[test]
fn a_joiner_serves_requests_from_before_its_time() {
    let mut world = World::joined(2, 2, 1);
    world.call(3, Some(0), 2, 5000);
    world.run_for(300 * MS);
    world.join(2);
    world.run_for(500 * MS);
    world.lock_and_run(2, HANDLER, 5000 * MS);
    assert_eq!(repliers(&world, 3), [NodeId(3)]);
    assert_eq!(requests(&world, 0).len(), 1, "it was made again, and is the same");
}

#[test]
fn repeated_requests_are_handled_once_while_later_ones_wait() {
    let mut world = World::joined(3, 1, 1);
    world.lock_and_run(1, HANDLER, 50 * MS);
    world.call(3, Some(0), 2, 100);
    world.run_for(200 * MS);
    world.call(3, Some(0), 2, 100);
    world.call(3, Some(0), 2, 100);
    world.run_for(MS / 1000);
    // Both requests are in flight, and their replies will be lost.
    world.part[3] = 1;
    world.run_for(400 * MS);
    assert_eq!((repliers(&world, 3).len(), requests(&world, 1).len()), (1, 3));
    world.part[3] = 0;
    world.run_for(5000 * MS);
    assert_eq!(repliers(&world, 3), [NodeId(2); 3]);
    assert_eq!(requests(&world, 1).len(), 3, "a request was handled twice");
    checks::check_safety(&world);
}

#[test]
fn a_group_that_does_not_answer_is_given_up() {
    let mut world = World::joined(1, 1, 1);
    world.crash(0);
    world.call_for(1, None, 2, 100, Duration::from_secs(3));
    world.run_for(2900 * MS);
    assert!(outcomes(&world, 1).is_empty());
    world.run_for(200 * MS);
    assert_eq!(outcomes(&world, 1), [&Outcome::Unanswered]);
    world.run_for(5000 * MS);
    let before = world.datagrams_sent();
    world.run_for(100_000 * MS);
    assert_eq!(world.datagrams_sent(), before, "no datagrams are sent");
}

#[test]
fn a_caller_that_was_flushed_introduces_itself_again() {
    let mut world = World::joined(2, 300, 1);
    for guest in (2..302).chain([2, 3, 301]) {
        world.call(guest, None, 2, 50);
        world.run_for(20 * MS);
    }
    world.run_for(3000 * MS);
    for guest in 2..302 {
        let made = world.hosts[guest].calls.len();
        assert_eq!(outcomes(&world, guest), vec![&Outcome::Acknowledged; made], "{guest}");
    }
    assert_eq!(requests(&world, 0).len(), 303);
    assert_eq!(requests(&world, 1).len(), 303);
    assert!(world.hosts[0].engine.counters().calls_unknown > 0, "no member was flushed");
}

#[test]
fn joiner_keeps_its_requests() {
    let mut world = World::joined(2, 1, 1);
    world.call(2, Some(0), 2, 50);
    world.run_for(100 * MS);
    world.join(2);
    world.run_for(1000 * MS);
    world.lock_and_run(0, HANDLER, 3000 * MS);
    assert_eq!(repliers(&world, 2), [NodeId(1)]);
}

#[test]
fn impossible_requests_and_replies_are_refused() {
    let mut world = World::joined(1, 1, 1);
    let now = world.now;
    let id = RequestId { caller: NodeId(2), number: 1 };
    let member = &mut world.hosts[0].engine;
    let reply = |it: &mut Rmp, group| it.reply(now, group, id, "x".into());
    assert_eq!(reply(member, GROUP), Err(ReplyError::NotOpen));
    assert_eq!(reply(member, GroupId(99)), Err(ReplyError::NotJoined));
    let guest = &mut world.hosts[1].engine;
    let options = RequestOptions { handler: Handler::new(0), ..RequestOptions::default() };
    let large = guest.request(now, GROUP, vec![0; 16 << 20].into(), options);
    assert!(matches!(large, Err(RequestError::TooLarge { .. })), "{large:?}");
    let asked = Qos::Resilient(0);
    for host in &mut world.hosts {
        let options = RequestOptions { qos: asked, ..options };
        let refused = host.engine.request(now, GROUP, "x".into(), options);
        assert_eq!(refused, Err(RequestError::Qos { asked }), "{:?}", host.id);
    }
    let guest = &mut world.hosts[1].engine;
    for _ in 0..64 {
        guest.request(now, GROUP, "x".into(), options).expect("the limit is not reached");
    }
    let more = guest.request(now, GROUP, "x".into(), options);
    assert_eq!(more, Err(RequestError::TooMany { waiting: 64 }));
}
