use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::Rng;

const NEXT: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);
const CHILD: NodeId = NodeId(4);
const PATIENCE: Duration = Duration::from_millis(4);

fn at(ms: u64) -> Time {
    Time(1_000_000_000) + Duration::from_millis(ms)
}

fn payload(packet: u64) -> Bytes {
    packet.to_be_bytes().to_vec().into()
}

/// A window that has got so many packets at the same time.
fn window_of(packets: u64, successors: &[NodeId], has_children: bool) -> RepairWindow {
    let mut window = RepairWindow::new(0, 100);
    window.serve(at(0), successors, has_children);
    for packet in 0..packets {
        assert_eq!(window.on_packet(at(0), packet, payload(packet)), Arrival::New);
    }
    window
}

#[test]
fn a_packet_is_kept_until_all_who_are_served_have_it_and_one_child_has() {
    let mut window = window_of(10, &[NEXT, OTHER], true);
    window.on_ack(NEXT, false, &Having::all_below(10));
    window.on_ack(OTHER, false, &Having::all_below(8));
    assert_eq!(window.end(), 100);
    window.on_ack(CHILD, true, &Having::all_below(6));
    assert_eq!((window.end(), window.kept_bytes()), (106, 4 * 8));
    assert!(window.packet(5).is_none() && window.packet(6).is_some());
    window.on_ack(OTHER, true, &Having::all_below(9));
    assert_eq!(window.end(), 109, "a successor that is a child too counts as both");
    window.check();
}

#[test]
fn what_is_not_acknowledged_in_time_is_repaired_again_and_again() {
    let mut window = window_of(3, &[NEXT], false);
    assert_eq!(window.poll_repair(at(3), PATIENCE), None);
    assert_eq!(window.next_repair(PATIENCE), Some(at(4)));
    let mut has = Having::all_below(1);
    has.insert(2);
    window.on_ack(NEXT, false, &has);
    assert_eq!(window.poll_repair(at(4), PATIENCE), Some((NEXT, 1, payload(1))));
    assert_eq!(window.poll_repair(at(4), PATIENCE), None);
    assert_eq!(window.next_repair(PATIENCE), Some(at(8)));
    assert_eq!(window.poll_repair(at(8), PATIENCE), Some((NEXT, 1, payload(1))));
    window.on_ack(NEXT, false, &Having::all_below(3));
    assert_eq!((window.next_repair(PATIENCE), window.kept_bytes()), (None, 0));
}

#[test]
fn who_gets_a_repair_passes_it_on_at_once_and_then_waits_as_long_as_ever() {
    let mut window = window_of(0, &[NEXT, OTHER], false);
    let mut has = Having::default();
    has.insert(5);
    window.on_ack(OTHER, false, &has);
    assert_eq!(window.on_packet(at(1), 5, payload(5)), Arrival::New);
    assert_eq!(window.pass_on(at(2), 5), [NEXT]);
    assert_eq!(window.next_repair(PATIENCE), Some(at(6)));
    assert_eq!(window.pass_on(at(2), 6), []);
}

#[test]
fn somebody_new_is_served_with_all_that_is_kept() {
    let mut window = window_of(10, &[NEXT], false);
    window.on_ack(NEXT, false, &Having::all_below(7));
    window.serve(at(5), &[OTHER], true);
    let mut repaired = Vec::new();
    while let Some((node, packet, _)) = window.poll_repair(at(9), PATIENCE) {
        assert_eq!(node, OTHER);
        repaired.push(packet);
    }
    assert_eq!(repaired, [7, 8, 9]);
    window.serve(at(9), &[], false);
    assert_eq!(window.kept_bytes(), 0, "nobody needs them");
    window.check();
}

#[test]
fn what_there_is_no_room_for_is_refused_and_can_come_again() {
    let mut window = RepairWindow::new(1000, 2);
    window.serve(at(0), &[NEXT], false);
    assert_eq!(window.on_packet(at(0), 999, payload(9)), Arrival::Known);
    assert_eq!(window.on_packet(at(0), 1001, payload(1)), Arrival::New);
    assert_eq!(window.on_packet(at(0), 1002, payload(2)), Arrival::Beyond);
    assert_eq!(window.on_packet(at(0), u64::MAX, payload(2)), Arrival::Beyond);
    assert_eq!(window.on_packet(at(0), 1000, payload(0)), Arrival::New);
    window.on_ack(NEXT, false, &Having::all_below(1001));
    assert_eq!(window.on_packet(at(0), 1002, payload(2)), Arrival::New);
    window.check();
}

proptest! {
    #[test]
    fn whatever_is_lost_and_acknowledged_a_successor_ends_with_all(
        packets in 1..200_u64, loss in 0.0..0.7_f64, seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let mut window = RepairWindow::new(0, 32);
        window.serve(at(0), &[NEXT], false);
        let mut has = Having::default();
        let (mut sent, mut ms) = (0, 0);
        while has.next() < packets {
            ms += 1;
            prop_assert!(ms < 100_000, "it comes to an end");
            while sent < packets.min(window.end()) {
                prop_assert_eq!(window.on_packet(at(ms), sent, payload(sent)), Arrival::New);
                if !rng.chance(loss) {
                    has.insert(sent);
                }
                sent += 1;
            }
            while let Some((_, packet, bytes)) = window.poll_repair(at(ms), PATIENCE) {
                prop_assert_eq!(bytes, payload(packet));
                if !rng.chance(loss) {
                    has.insert(packet);
                }
            }
            if !rng.chance(loss) {
                window.on_ack(NEXT, false, &has);
            }
            window.check();
        }
        window.on_ack(NEXT, false, &has);
        prop_assert_eq!(window.kept_bytes(), 0);
    }
}
