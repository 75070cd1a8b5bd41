use super::*;

const MOST: u32 = 256;
const LATEST: Duration = Duration::from_millis(8);

fn at(micros: u64) -> Time {
    Time(1_000_000_000) + Duration::from_micros(micros)
}

fn having(below: u64, later: &[u64]) -> SackSet {
    let mut has = SackSet::all_below(below);
    later.iter().for_each(|number| assert!(has.insert(*number)));
    has
}

fn in_flight(count: u64) -> InFlight {
    let mut in_flight = InFlight::new(at(0));
    (0..count).for_each(|number| in_flight.push(at(1 + number), number));
    in_flight
}

#[test]
fn a_repair_is_lost_when_some_that_were_sent_later_have_come() {
    let mut in_flight = in_flight(5);
    assert_eq!(in_flight.on_ack(at(101), &having(0, &[2]), MOST), [], "they may be reordered");
    assert_eq!(in_flight.on_ack(at(102), &having(0, &[2, 3]), MOST), [0]);
    assert!(!in_flight.contains(0) && in_flight.contains(1) && in_flight.contains(4));
    in_flight.push(at(200), 0);
    assert_eq!(in_flight.on_ack(at(300), &having(1, &[2, 3]), MOST), [1, 4], "sent long before");
    assert!(in_flight.is_empty());
}

#[test]
fn acknowledgment_is_late_after_the_measured_round_trip() {
    let mut in_flight = InFlight::new(at(0));
    for number in 0..50 {
        let sent_at = at(1000 * number);
        in_flight.push(sent_at, number);
        let most = if number == 0 { LATEST } else { Duration::from_micros(600) };
        assert!(in_flight.next_late(LATEST) <= Some(sent_at + most), "{number}");
        let has = having(number + 1, &[]);
        assert_eq!(in_flight.on_ack(sent_at + Duration::from_micros(200), &has, MOST), []);
    }
    in_flight.push(at(50_000), 50);
    assert_eq!(in_flight.pop_late(at(50_299), LATEST), None);
    assert_eq!(in_flight.pop_late(at(50_310), LATEST), Some(50));
    in_flight.push(at(50_310), 50);
    assert!(in_flight.next_late(LATEST) > Some(at(50_900)), "the timeout has grown");
    assert_eq!(in_flight.on_ack(at(50_320), &having(51, &[]), MOST), []);
    let smoothed = in_flight.rtt.smoothed().expect("it was measured");
    assert!(smoothed > Duration::from_micros(190), "it is unknown which copy arrived");
}

#[test]
fn losses_halve_the_window_and_arrivals_widen_it() {
    let mut in_flight = in_flight(32);
    assert!(!in_flight.has_room(MOST));
    assert_eq!(in_flight.on_ack(at(132), &having(32, &[]), MOST), []);
    assert_eq!(in_flight.window, 64);
    for number in 32..64 {
        in_flight.push(at(1000), number);
    }
    let lost: Vec<u64> = (32..61).collect();
    assert_eq!(in_flight.on_ack(at(1100), &having(32, &[63]), MOST), lost);
    assert_eq!((in_flight.window, in_flight.threshold), (16, 16), "half of the number in flight");
    assert_eq!(in_flight.pop_late(at(20_000), LATEST), Some(61));
    assert_eq!(in_flight.pop_late(at(20_000), LATEST), Some(62));
    assert_eq!((in_flight.window, in_flight.is_empty()), (16, true), "they were sent before");
    in_flight.push(at(30_000), 64);
    assert_eq!(in_flight.pop_late(at(50_000), LATEST), Some(64));
    assert_eq!(in_flight.window, LEAST);
}

#[test]
fn a_window_that_is_not_used_does_not_widen() {
    let mut in_flight = InFlight::new(at(0));
    for number in 0..100 {
        in_flight.push(at(1000 * number), number);
        in_flight.on_ack(at(1000 * number + 100), &having(number + 1, &[]), MOST);
    }
    assert_eq!(in_flight.window, INITIAL);
}
