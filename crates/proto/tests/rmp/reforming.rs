//! Reformations in which packets arrive at the worst moments.

use carom_proto::ring::{Epoch, Qos};
use carom_proto::rmp::Counters;
use carom_proto::rmp::packet::{NewList, Packet, Position, Proposal};

use super::rig::{GROUP, MS, World, packet};

pub(crate) fn is_start(packet: &Packet) -> bool {
    matches!(packet, Packet::RecoveryStart { .. })
}

pub(crate) fn is_vote(packet: &Packet) -> bool {
    matches!(packet, Packet::RecoveryVote { .. })
}

pub(crate) fn is_list(packet: &Packet) -> bool {
    matches!(packet, Packet::NewList(_))
}

#[test]
fn round_that_reveals_a_list_in_force_is_not_lost() {
    let mut world = World::joined(4, 0, 3);
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
fn late_packets_after_an_accepted_list_stop_no_member() {
    let mut world = World::joined(3, 0, 3);
    world.held_back = Some(Vec::new());
    world.send(0, Qos::MajorityResilient, 100);
    // Members 1 and 2 agree on a list without member 0. Then the message of member 0 reaches member
    // 1, which requests a reformation from member 2 before member 2 has learned of the agreement.
    world.suspect(2, 0);
    world.hand_over(2, 1, is_start);
    world.hand_over(1, 2, is_vote);
    world.time_out_until(2, is_list);
    world.hand_over(2, 1, is_list);
    world.hand_over(0, 1, |packet| matches!(packet, Packet::Data(_)));
    world.time_out_until(1, is_start);
    world.hand_over(1, 2, is_start);
    // Held-back datagrams are lost, and member 0 is cut off.
    world.held_back = None;
    world.part = vec![1, 0, 0];
    world.run_for(3000 * MS);
    let rings = [1, 2].map(|number| world.ring(number).expect("it is in a ring"));
    assert!(rings.iter().all(|ring| ring.len() == 2), "they continue: {rings:?}");
    world.heal(3000 * MS);
    let ring = world.ring(0);
    assert_eq!(ring.as_ref().map(Vec::len), Some(3));
    assert!((1..3).all(|number| world.ring(number) == ring), "{ring:?}");
}

#[test]
fn members_continue_when_the_initiator_of_a_new_list_dies() {
    let mut world = World::joined(4, 0, 4);
    world.held_back = Some(Vec::new());
    // Three of four members accept a list without member 3. Member 0 may have put it in force.
    world.suspect(0, 3);
    (1..3).for_each(|member| world.hand_over(0, member, is_start));
    (1..3).for_each(|member| world.hand_over(member, 0, is_vote));
    world.time_out_until(0, is_list);
    (1..3).for_each(|member| world.hand_over(0, member, is_list));
    world.crash(0);
    world.held_back = None;
    world.tell_views();
    world.run_for(5000 * MS);
    let ring = world.ring(1);
    assert_eq!(ring.as_ref().map(Vec::len), Some(3), "two that accepted it, and the other");
    assert!((2..4).all(|number| world.ring(number) == ring), "{ring:?}");
}

const MAX_ACCEPTED: usize = 32;

/// Begins a ballot of member 0, as member `to` receives it. Returns the ballot, and a list of the
/// other members in the name of member 0.
fn begin_ballot(world: &mut World, to: usize, version: u32) -> (Epoch, Packet) {
    let ring = world.hosts[0].engine.view(GROUP).cloned().expect("it is in a ring");
    let ballot = Epoch { version, creator: world.process(0).expect("it is in a ring") };
    let (epoch, position) = (ring.epoch, Position::default());
    let (refuted, released) = (Vec::new(), Vec::new());
    world.forge(0, to, &Packet::RecoveryStart { epoch, ballot, position, refuted, released });
    let mut view = ring;
    view.members.retain(|member| member.process != ballot.creator);
    view.epoch = ballot;
    let sent = world.held_back.iter().flatten().rev();
    let position = sent.map(|(_, _, datagram)| packet(datagram)).find_map(|packet| match packet {
        Packet::RecoveryVote { position, .. } => Some(position),
        _ => None,
    });
    let position = position.expect("it votes");
    let proposal = Proposal { base: epoch, position, view, refuted: Vec::new() };
    (ballot, Packet::NewList(NewList::Formation { proposal, is_committed: false }))
}

fn acknowledged(world: &World, number: usize) -> usize {
    let sent = world.held_back.iter().flatten().filter(|(from, ..)| *from == number);
    let packets = sent.map(|(_, _, datagram)| packet(datagram));
    packets.filter(|packet| matches!(packet, Packet::RecoveryAckNewList { .. })).count()
}

#[test]
fn list_is_not_acknowledged_when_it_cannot_be_remembered() {
    let mut world = World::joined(3, 0, 1);
    world.held_back = Some(Vec::new());
    let mut ballots = Vec::new();
    for version in 1000..=1000 + MAX_ACCEPTED as u32 {
        let (ballot, list) = begin_ballot(&mut world, 1, version);
        world.forge(0, 1, &list);
        ballots.push(ballot);
    }
    assert_eq!(acknowledged(&world, 1), MAX_ACCEPTED);
    assert_eq!(world.hosts[1].engine.counters().lists_refused, 1);
    // An aborted list can no longer come into force, which makes room for another list.
    world.forge(0, 1, &Packet::RecoveryAbort { ballot: ballots[0], seen: ballots[0] });
    let (_, list) = begin_ballot(&mut world, 1, 2000);
    world.forge(0, 1, &list);
    assert_eq!(acknowledged(&world, 1), MAX_ACCEPTED + 1);
}

#[test]
fn initiator_proposes_no_list_that_it_cannot_remember() {
    let mut world = World::joined(3, 0, 1);
    world.held_back = Some(Vec::new());
    for version in 1000..1000 + MAX_ACCEPTED as u32 {
        for member in 1..3 {
            let (_, list) = begin_ballot(&mut world, member, version);
            world.forge(0, member, &list);
        }
    }
    world.time_out_until(1, is_start);
    world.held_back.iter_mut().for_each(|held_back| held_back.retain(|(from, ..)| *from == 1));
    world.hand_over(1, 2, is_start);
    // The vote contains all these lists, and is sent in parts.
    let parts = world.held_back.iter().flatten().filter(|(from, ..)| *from == 2).count();
    (0..parts).for_each(|_| world.hand_over(2, 1, |_| true));
    world.time_out_until(1, |packet| matches!(packet, Packet::RecoveryAbort { .. }));
    assert_eq!(world.hosts[1].engine.counters().lists_refused, 1);
    let mut sent = world.held_back.iter().flatten().map(|(_, _, datagram)| packet(datagram));
    assert!(!sent.any(|packet| is_list(&packet)));
}

#[test]
fn late_list_of_a_ballot_that_was_given_up_is_not_acknowledged() {
    let mut world = World::joined(3, 0, 1);
    world.held_back = Some(Vec::new());
    for version in 1000..1000 + 2 * MAX_ACCEPTED as u32 {
        let (ballot, list) = begin_ballot(&mut world, 1, version);
        world.forge(0, 1, &Packet::RecoveryAbort { ballot, seen: ballot });
        world.forge(0, 1, &list);
        assert_eq!(acknowledged(&world, 1), 0, "version {version}");
    }
}
