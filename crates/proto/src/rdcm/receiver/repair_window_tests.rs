use bytes::Bytes;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::Rng;

const NEXT: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);
const CHILD: NodeId = NodeId(4);
const RING: u32 = 50;
const UPPER: u32 = 60;
const LINGER: Duration = Duration::from_millis(200);
const TIMING: RepairTiming = RepairTiming {
    detect_after: Duration::from_millis(4),
    silent_after: Duration::from_millis(10),
    resend_after: Duration::from_millis(8),
    in_flight: 20,
};

fn at(ms: u64) -> Time {
    Time(1_000_000_000) + Duration::from_millis(ms)
}

fn packet(number: u64) -> KeptPacket {
    let bytes = Bytes::from(number.to_be_bytes().to_vec());
    KeptPacket { fragment: Fragment { is_first: true, is_last: true, bytes }, repaired_by: None }
}

fn ack(ring: u32, next: u64, later: &[u64], known_to: u64) -> RingAck {
    let mut has = SackSet::all_below(next);
    later.iter().for_each(|number| assert!(has.insert(*number)));
    RingAck::new(ring, &has, known_to, 0, 0)
}

fn serve(window: &mut RepairWindow, ms: u64, successors: &[(u32, NodeId)], has_children: bool) {
    window.serve(at(ms), ms as u32 + 1, successors, has_children, LINGER);
}

fn window_of(packets: u64, successors: &[(u32, NodeId)], has_children: bool) -> RepairWindow {
    let mut window = RepairWindow::new(0, 100, TIMING);
    serve(&mut window, 0, successors, has_children);
    for number in 0..packets {
        assert_eq!(window.on_packet(at(0), number, packet(number)), Arrival::New);
    }
    while window.take().is_some() {}
    window
}

/// Returns `true` if the first successor is found cut off from the tree, by which its predecessor
/// has received `by_tree` packets.
fn is_cut(window: &mut RepairWindow, ms: u64, by_tree: u64) -> bool {
    let successor = window.successors.first_mut().expect("there is one");
    successor.is_cut(at(ms), by_tree, Duration::from_millis(200))
}

fn repairs(window: &mut RepairWindow, ms: u64) -> Vec<(NodeId, u64)> {
    core::iter::from_fn(|| window.poll_repair(at(ms))).collect()
}

#[test]
fn packet_is_kept_until_successors_and_one_child_have_it() {
    let mut window = window_of(10, &[(RING, NEXT), (UPPER, OTHER)], true);
    window.on_ack(at(1), NEXT, &ack(RING, 10, &[], 10), false);
    window.on_ack(at(1), OTHER, &ack(UPPER, 8, &[], 8), false);
    assert_eq!(window.end(), 100);
    window.on_ack(at(1), CHILD, &ack(70, 6, &[], 6), true);
    assert_eq!((window.end(), window.kept_bytes), (106, 4 * 8));
    assert!(window.packet(5).is_none() && window.packet(6).is_some());
    window.on_ack(at(1), CHILD, &ack(70, 9, &[], 9), true);
    assert_eq!(window.end(), 108);
    window.check();
}

#[test]
fn repair_delay_does_not_grow_for_successor_fed_by_repairs() {
    let mut window = window_of(0, &[(RING, NEXT)], false);
    for number in 0..20 {
        let ms = 20 * number;
        window.on_packet(at(ms), number, packet(number));
        assert!(window.take().is_some());
        assert_eq!(repairs(&mut window, ms + 9), []);
        assert_eq!(repairs(&mut window, ms + 10), [(NEXT, number)]);
        let next = number + 1;
        window.on_ack(at(ms + 11), NEXT, &ack(RING, next, &[], next), false);
    }
}

#[test]
fn a_packet_is_kept_until_the_application_has_taken_it() {
    let mut window = RepairWindow::new(0, 100, TIMING);
    for number in [0, 1, 3] {
        window.on_packet(at(0), number, packet(number));
    }
    assert_eq!(window.end(), 100);
    assert!(window.take().is_some());
    assert_eq!((window.end(), window.taken_to), (101, 1));
    assert!(window.take().is_some() && window.take().is_none(), "packet 2 is missing");
    window.check();
}

#[test]
fn known_losses_are_repaired_sooner_than_unreported_packets() {
    let mut window = window_of(4, &[(RING, NEXT)], false);
    window.on_ack(at(1), NEXT, &ack(RING, 1, &[2], 3), false);
    assert_eq!(window.next_repair(), Some(at(5)));
    assert_eq!(repairs(&mut window, 4), []);
    assert_eq!(repairs(&mut window, 5), [(NEXT, 1)]);
    assert_eq!(window.next_repair(), Some(at(10)));
    assert_eq!(repairs(&mut window, 10), [(NEXT, 3)]);
    assert_eq!(repairs(&mut window, 13), [(NEXT, 1)], "it was not acknowledged");
    window.on_ack(at(14), NEXT, &ack(RING, 4, &[], 4), false);
    assert_eq!((window.next_repair(), window.kept_bytes), (None, 0));
}

#[test]
fn an_acknowledgement_counts_in_its_ring_only() {
    let mut window = window_of(4, &[(RING, NEXT)], false);
    window.on_ack(at(1), NEXT, &ack(UPPER, 4, &[], 4), false);
    assert_eq!(window.kept_bytes, 4 * 8);
}

#[test]
fn repair_is_passed_on_at_once_to_successors_known_to_lack_it() {
    let mut window = window_of(0, &[(RING, NEXT), (UPPER, OTHER)], false);
    window.on_ack(at(0), OTHER, &ack(UPPER, 0, &[7], 8), false);
    assert_eq!(window.on_packet(at(1), 5, packet(5)), Arrival::New);
    assert_eq!(window.pass_on(at(1), 5, false), [OTHER], "the state of the next is unknown");
    assert_eq!(window.on_packet(at(2), 9, packet(9)), Arrival::New);
    assert_eq!(window.pass_on(at(2), 9, true), [NEXT, OTHER], "it was unknown to both");
    assert_eq!(repairs(&mut window, 8), []);
    assert_eq!(repairs(&mut window, 9), [(OTHER, 5)]);
    window.check();
}

#[test]
fn silent_successor_is_not_flooded_with_repairs() {
    let mut window = window_of(100, &[(RING, NEXT)], false);
    assert_eq!(repairs(&mut window, 10).len(), 20);
    assert_eq!(repairs(&mut window, 17), []);
    assert_eq!(repairs(&mut window, 18).len(), 4, "it may have come back");
    window.on_ack(at(19), NEXT, &ack(RING, 0, &[], 100), false);
    assert_eq!(repairs(&mut window, 25), [], "an acknowledgment without news changes nothing");
    window.check();
}

#[test]
fn repairs_to_a_successor_follow_its_acknowledgments() {
    let mut window = window_of(100, &[(RING, NEXT)], false);
    window.on_ack(at(0), NEXT, &ack(RING, 0, &[], 100), false);
    assert_eq!(repairs(&mut window, 4), (0..20).map(|it| (NEXT, it)).collect::<Vec<_>>());
    window.on_ack(at(5), NEXT, &ack(RING, 5, &[], 100), false);
    assert_eq!(repairs(&mut window, 5), (20..25).map(|it| (NEXT, it)).collect::<Vec<_>>());
    let later: Vec<u64> = (9..25).collect();
    window.on_ack(at(6), NEXT, &ack(RING, 5, &later, 100), false);
    let again = [5, 6, 7, 8].map(|it| (NEXT, it)).into_iter();
    let expected: Vec<_> = again.chain((25..31).map(|it| (NEXT, it))).collect();
    assert_eq!(repairs(&mut window, 6), expected, "half of the excessive window");
    window.check();
}

#[test]
fn new_successor_gets_all_and_the_former_is_served_briefly() {
    let mut window = window_of(10, &[(RING, NEXT)], false);
    window.on_ack(at(0), NEXT, &ack(RING, 7, &[], 7), false);
    serve(&mut window, 5, &[(RING, OTHER)], true);
    let repaired = repairs(&mut window, 15);
    let both = [7, 8, 9].map(|number| (NEXT, number)).into_iter();
    assert_eq!(repaired, both.chain([7, 8, 9].map(|number| (OTHER, number))).collect::<Vec<_>>());
    assert_eq!(window.poll_timeout(), Some(at(200)), "it was heard last at the beginning");
    window.handle_timeout(at(200));
    assert_eq!(window.poll_timeout(), None);
    serve(&mut window, 206, &[], false);
    window.handle_timeout(at(406));
    assert_eq!(window.kept_bytes, 0, "no successor needs them");
    window.check();
}

#[test]
fn former_successor_is_served_until_another_node_takes_over() {
    let mut window = window_of(10, &[(RING, NEXT)], false);
    window.on_ack(at(0), NEXT, &ack(RING, 3, &[], 10), false);
    serve(&mut window, 150, &[], false);
    window.on_ack(at(190), NEXT, &ack(RING, 4, &[], 10), false);
    assert_eq!(window.poll_timeout(), Some(at(390)), "it was heard");
    window.on_release(NEXT, RING, 200, 6);
    assert_eq!(repairs(&mut window, 190), [(NEXT, 4), (NEXT, 5)], "the others it gets elsewhere");
    assert_eq!(window.kept_bytes, 6 * 8);
    window.check();
    window.on_ack(at(192), NEXT, &ack(RING, 6, &[], 10), false);
    assert_eq!((window.kept_bytes, window.poll_timeout()), (0, None), "it needs nothing more");
}

#[test]
fn a_former_successor_is_not_served_for_ever() {
    let mut window = window_of(10, &[(RING, NEXT)], false);
    serve(&mut window, 0, &[], false);
    for ms in 1..2000 {
        window.on_ack(at(ms), NEXT, &ack(RING, 3, &[], 10), false);
        window.handle_timeout(at(ms));
        assert_eq!(window.kept_bytes, 7 * 8);
    }
    window.handle_timeout(at(2000));
    assert_eq!(window.kept_bytes, 0);
}

#[test]
fn release_may_precede_the_change_of_successor() {
    let mut window = window_of(10, &[(RING, NEXT)], false);
    window.on_release(NEXT, RING, 100, 0);
    assert_eq!(window.kept_bytes, 10 * 8, "it is served");
    serve(&mut window, 5, &[(RING, OTHER)], false);
    window.on_ack(at(5), OTHER, &ack(RING, 10, &[], 10), false);
    assert_eq!((window.kept_bytes, window.poll_timeout()), (0, None));
}

#[test]
fn releases_of_an_earlier_epoch_are_ignored() {
    let mut window = window_of(10, &[(RING, NEXT)], false);
    window.on_release(NEXT, RING, 100, 0);
    serve(&mut window, 150, &[(RING, NEXT)], false);
    window.on_release(NEXT, RING, 101, 0);
    serve(&mut window, 160, &[(RING, OTHER)], false);
    window.on_ack(at(165), OTHER, &ack(RING, 10, &[], 10), false);
    assert_eq!(window.kept_bytes, 10 * 8, "it left in a later epoch");
    serve(&mut window, 170, &[(RING, NEXT)], false);
    assert_eq!(window.kept_bytes, 10 * 8);
    let served = window.successors.iter().filter(|it| it.node == NEXT);
    assert_eq!(served.map(|it| it.until()).collect::<Vec<_>>(), [None], "it is served again");
    window.check();
}

#[test]
fn a_former_successor_that_was_not_heard_holds_nothing() {
    let mut window = window_of(10, &[(RING, NEXT)], false);
    serve(&mut window, 400, &[], false);
    assert_eq!((window.kept_bytes, window.poll_timeout()), (0, None));
    window.check();
}

#[test]
fn packet_without_room_is_refused_and_accepted_later() {
    let mut window = RepairWindow::new(1000, 2, TIMING);
    serve(&mut window, 0, &[(RING, NEXT)], false);
    assert_eq!(window.on_packet(at(0), 999, packet(9)), Arrival::Known);
    assert_eq!(window.on_packet(at(0), 1001, packet(1)), Arrival::New);
    assert_eq!(window.on_packet(at(0), 1002, packet(2)), Arrival::Beyond);
    assert_eq!(window.on_packet(at(0), u64::MAX, packet(2)), Arrival::Beyond);
    assert_eq!(window.on_packet(at(0), 1000, packet(0)), Arrival::New);
    while window.take().is_some() {}
    window.on_ack(at(0), NEXT, &ack(RING, 1001, &[], 1001), false);
    assert_eq!(window.on_packet(at(0), 1002, packet(2)), Arrival::New);
    window.check();
}

#[test]
fn successor_is_cut_off_if_only_its_predecessor_gets_the_tree() {
    let mut window = window_of(50, &[(RING, NEXT)], false);
    assert!(!is_cut(&mut window, 0, 0));
    assert_eq!(repairs(&mut window, 10).len(), 20);
    assert!(!is_cut(&mut window, 100, 20), "it is too early");
    assert!(!is_cut(&mut window, 250, 20), "it may be gone");
    window.on_ack(at(250), NEXT, &ack(RING, 0, &[], 0), false);
    assert!(!is_cut(&mut window, 250, 5), "its predecessor is not reached either");
    assert!(is_cut(&mut window, 250, 20));
    assert!(!is_cut(&mut window, 260, 50), "it was reported");
    assert_eq!(repairs(&mut window, 300).len(), 4);
    let by_tree = RingAck { by_tree: 3, ..ack(RING, 4, &[], 4) };
    window.on_ack(at(300), NEXT, &by_tree, false);
    assert_eq!(repairs(&mut window, 301).len(), 8);
    assert!(!is_cut(&mut window, 480, 90), "it got something by the tree meanwhile");
}

#[test]
fn packets_before_a_failure_of_both_do_not_prove_a_cut() {
    let mut window = window_of(50, &[(RING, NEXT)], false);
    assert!(!is_cut(&mut window, 0, 0));
    assert_eq!(repairs(&mut window, 10).len(), 20);
    assert!(!is_cut(&mut window, 50, 100), "it is too early");
    window.on_ack(at(250), NEXT, &ack(RING, 0, &[], 0), false);
    assert!(!is_cut(&mut window, 250, 100), "its predecessor is not reached either");
    assert!(is_cut(&mut window, 260, 110));
}

proptest! {
    #[test]
    fn successor_ends_with_everything_under_any_losses(
        packets in 1..200_u64, loss in 0.0..0.7_f64, seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let mut window = RepairWindow::new(0, 32, TIMING);
        serve(&mut window, 0, &[(RING, NEXT)], false);
        let mut has = SackSet::default();
        let (mut sent, mut ms) = (0, 0);
        while has.next() < packets {
            ms += 1;
            prop_assert!(ms < 100_000, "it comes to an end");
            while sent < packets.min(window.end()) {
                prop_assert_eq!(window.on_packet(at(ms), sent, packet(sent)), Arrival::New);
                if !rng.chance(loss) {
                    has.insert(sent);
                }
                sent += 1;
                while window.take().is_some() {}
            }
            while let Some((_, number)) = window.poll_repair(at(ms)) {
                prop_assert!(window.packet(number).is_some());
                if !rng.chance(loss) {
                    has.insert(number);
                }
            }
            if !rng.chance(loss) {
                let known_to = has.end();
                window.on_ack(at(ms), NEXT, &RingAck::new(RING, &has, known_to, 0, 0), false);
            }
            window.check();
        }
        window.on_ack(at(ms), NEXT, &RingAck::new(RING, &has, has.end(), 0, 0), false);
        prop_assert_eq!(window.kept_bytes, 0);
    }
}
