//! Senders that restart under the same id while members receive their packets only from others.
//!
//! The id of a packet in a repair does not contain the sender's incarnation.

use carom_proto::lateral::Config;
use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::packet::{Packet, WireId};
use carom_proto::loss::Loss;
use carom_proto::*;

use crate::rig::{GROUP, MILLISECOND, SECOND, World, datagram, heartbeat, payload};

const SENDER: NodeId = NodeId(1);
const CUT_OFF: NodeId = NodeId(2);

/// Restarts host 0 and sends 50 messages from it. Then cuts host 0 off from host 1, and reports
/// host 0 as failed.
fn cut_off_from_sender(incarnation: u64) -> World {
    let mut world = World::of_members(3, &Config::default(), Loss::None, 7);
    world.restart(0, incarnation);
    world.send_all(0, 0..50);
    world.run_for(SECOND);
    world.filter = Box::new(|from, to, _, _| {
        (from, to) != (SENDER, CUT_OFF) && (from, to) != (CUT_OFF, SENDER)
    });
    world.announce(0, GROUP, ViewChangeKind::Failed);
    world
}

/// Asserts that host 1 received each message of the sender's last incarnation, or a report of its
/// loss, once, starting with the first message that it received.
fn assert_given_or_told(world: &World, before: usize, sent: &[SeqNo]) {
    let host = &world.hosts[1];
    let given: Vec<SeqNo> = host.messages[before..].iter().map(|message| message.seqno).collect();
    let lost = |seqno: SeqNo| {
        host.lost.iter().any(|lost| {
            seqno.0.wrapping_sub(lost.first.0) <= lost.last.0.wrapping_sub(lost.first.0)
        })
    };
    let first = sent.iter().position(|seqno| given.contains(seqno)).expect("it received some");
    for seqno in &sent[first..] {
        let count = given.iter().filter(|given| *given == seqno).count();
        assert_eq!(count + usize::from(lost(*seqno)), 1, "{seqno:?} of {sent:?}");
    }
    let count: u32 = host.lost_count();
    assert!(count <= sent.len() as u32, "{count} packets lost of {}", sent.len());
}

/// Restarts the sender. Host 1 hears of it from host 2, and is in the sender's view if `is_known`.
fn restart_heard_through_repairs(former: u64, latter: u64, is_known: bool) {
    let mut world = cut_off_from_sender(former);
    let before = world.hosts[1].messages.len();
    world.restart(0, latter);
    if !is_known {
        world.change(0, GROUP, CUT_OFF, ViewChangeKind::Failed);
    }
    let mut sent = Vec::new();
    for number in 0..120 {
        match number {
            60 => world.filter = Box::new(|_, _, _, _| true),
            70 => {
                world.announce(0, GROUP, ViewChangeKind::Joined);
                world.change(0, GROUP, CUT_OFF, ViewChangeKind::Joined);
            }
            _ => {}
        }
        sent.push(world.send(0, &payload(number)));
        world.run_for(MILLISECOND);
    }
    world.run_for(20 * SECOND);
    assert_given_or_told(&world, before, &sent);
}

#[test]
fn restart_first_heard_of_in_repairs_repeats_and_hides_nothing() {
    // Both orders are tried, because the numbers of one incarnation precede those of the other.
    for (former, latter) in (21..29).map(|it| (it, it + 1)) {
        for is_known in [false, true] {
            restart_heard_through_repairs(former, latter, is_known);
            restart_heard_through_repairs(latter, former, is_known);
        }
    }
}

/// Restarts the sender while a new member knows only the former incarnation, from a late repair.
fn former_start_in_first_repair(former: u64, latter: u64) {
    let mut world = cut_off_from_sender(former);
    let last = world.send(0, b"the last");
    world.filter = Box::new(|_, _, _, _| true);
    world.restart(1, 5);
    let before = world.hosts[1].messages.len();
    world.restart(0, latter);
    let ids =
        [2, 1].map(|back| PacketId { sender: SENDER, group: GROUP, seqno: SeqNo(last.0 - back) });
    let packet = Packet::Repair { ids: &ids.map(WireId::from), sum: &[0; 40] };
    world.inject(1, &datagram(packet, NodeId(3), GroupId::NONE));
    let mut sent = Vec::new();
    for number in 0..60 {
        sent.push(world.send(0, &payload(number)));
        world.run_for(MILLISECOND);
    }
    world.run_for(20 * SECOND);
    assert_given_or_told(&world, before, &sent);
    assert!(world.hosts[1].messages.len() >= before + 50);
}

#[test]
fn former_start_in_a_late_repair_hides_nothing_of_the_next() {
    for (former, latter) in (21..29).map(|it| (it, it + 1)) {
        former_start_in_first_repair(former, latter);
        former_start_in_first_repair(latter, former);
    }
}

/// Returns two incarnations whose first numbers in this group differ by a distance in `apart`. The
/// first number of the second incarnation is later.
fn starts_apart(apart: std::ops::Range<u32>) -> (u64, u64) {
    let first = |bits: u64| Rng::new(bits ^ u64::from(GROUP.0)).next_u64() as u32 >> 1;
    let of = |bits: u64| (bits, first(100).wrapping_sub(first(bits)));
    let (earlier, _) = (1..).map(of).find(|it| apart.contains(&it.1)).expect("there is one");
    (earlier, 100)
}

#[test]
fn near_numbers_of_two_starts_are_separate_streams() {
    for apart in [300..2000, 20_000..60_000] {
        let (earlier, later) = starts_apart(apart.clone());
        for (former, latter) in [(earlier, later), (later, earlier)] {
            let mut world = World::of_members(3, &Config::default(), Loss::Uniform(0.1), 7);
            world.restart(0, former);
            world.send_all(0, 0..50);
            world.run_for(SECOND);
            let before = world.hosts[1].messages.len();
            let last = world.hosts[1].messages[before - 1].seqno;
            world.restart(0, latter);
            let sent = world.send(0, &payload(0));
            let distance = sent.distance_from(last).unsigned_abs();
            assert!((250..60_100).contains(&distance), "{distance} apart");
            world.send_all(0, 1..50);
            world.run_for(10 * SECOND);
            assert_eq!(world.hosts[1].messages.len(), before + 50, "{former} before {latter}");
            assert_eq!(world.hosts[1].lost, [], "{former} before {latter}");
        }
    }
}

/// A member that left the group and came back receives packets of another incarnation of a sender,
/// which falls silent. Then it receives repairs of packets that it had received before it left.
#[test]
fn late_repairs_from_before_leaving_the_group_repeat_nothing() {
    for (former, latter) in (21..29).map(|it| (it, it + 1)) {
        let mut world = World::of_members(3, &Config::default(), Loss::None, 7);
        world.restart(0, former);
        world.send_all(0, 0..10);
        world.run_for(SECOND);
        let given: Vec<SeqNo> = world.hosts[1].messages.iter().map(|it| it.seqno).collect();
        assert_eq!(given.len(), 10);
        world.leave(1, GROUP);
        world.join(1, GROUP);
        world.restart(0, latter);
        world.send_all(0, 0..1);
        world.run_for(SECOND);
        world.filter = Box::new(|from, to, _, _| ![from, to].contains(&SENDER));
        let last = world.hosts[1].messages.last().expect("it received one").seqno;
        let origin = Origin { node: SENDER, incarnation: Incarnation(latter) };
        world.inject(1, &datagram(heartbeat(last.plus(1000)), origin, GROUP));
        world.run_for(5 * SECOND);
        let before = world.hosts[1].messages.len();
        for seqno in &given[5..] {
            let id = WireId::from(PacketId { sender: SENDER, group: GROUP, seqno: *seqno });
            let symbol = Symbol::of_message(&mut Arena::default(), world.now, None, b"again");
            let packet = Packet::Repair { ids: &[id], sum: symbol.bytes() };
            world.inject(1, &datagram(packet, NodeId(3), GroupId::NONE));
        }
        world.run_for(SECOND);
        assert_eq!(world.hosts[1].messages.len(), before, "from {former} to {latter}");
    }
}
