use super::*;

const MOST: u32 = 256;
const LATEST: Duration = Duration::from_millis(8);

fn at(micros: u64) -> Time {
    Time(1_000_000_000) + Duration::from_micros(micros)
}

fn having(below: u64, later: &[u64]) -> Having {
    let mut has = Having::all_below(below);
    later.iter().for_each(|number| assert!(has.insert(*number)));
    has
}

/// `count` repairs in flight, one sent each microsecond.
fn under_way(count: u64) -> UnderWay {
    let mut under_way = UnderWay::new(at(0));
    (0..count).for_each(|number| under_way.push(at(1 + number), number));
    under_way
}

#[test]
fn a_repair_is_lost_when_some_that_were_sent_later_have_come() {
    let mut under_way = under_way(5);
    assert_eq!(under_way.on_ack(at(101), &having(0, &[2]), MOST), [], "they may be reordered");
    assert_eq!(under_way.on_ack(at(102), &having(0, &[2, 3]), MOST), [0]);
    assert!(!under_way.contains(0) && under_way.contains(1) && under_way.contains(4));
    under_way.push(at(200), 0);
    assert_eq!(under_way.on_ack(at(300), &having(1, &[2, 3]), MOST), [1, 4], "sent long before");
    assert!(under_way.is_empty());
}

#[test]
fn acknowledgment_is_late_after_the_measured_round_trip() {
    let mut under_way = UnderWay::new(at(0));
    for number in 0..50 {
        let sent_at = at(1000 * number);
        under_way.push(sent_at, number);
        let most = if number == 0 { LATEST } else { Duration::from_micros(600) };
        assert!(under_way.next_late(LATEST) <= Some(sent_at + most), "{number}");
        let has = having(number + 1, &[]);
        assert_eq!(under_way.on_ack(sent_at + Duration::from_micros(200), &has, MOST), []);
    }
    under_way.push(at(50_000), 50);
    assert_eq!(under_way.pop_late(at(50_299), LATEST), None);
    assert_eq!(under_way.pop_late(at(50_310), LATEST), Some(50));
    under_way.push(at(50_310), 50);
    assert!(under_way.next_late(LATEST) > Some(at(50_900)), "it is waited for longer then");
    assert_eq!(under_way.on_ack(at(50_320), &having(51, &[]), MOST), []);
    let (smoothed, _) = under_way.round_trip.expect("it was measured");
    assert!(smoothed > Duration::from_micros(190), "which of the two came is not known");
}

#[test]
fn losses_halve_the_window_and_arrivals_widen_it() {
    let mut under_way = under_way(32);
    assert!(!under_way.has_room(MOST));
    assert_eq!(under_way.on_ack(at(132), &having(32, &[]), MOST), []);
    assert_eq!(under_way.window, 64);
    for number in 32..64 {
        under_way.push(at(1000), number);
    }
    let lost: Vec<u64> = (32..61).collect();
    assert_eq!(under_way.on_ack(at(1100), &having(32, &[63]), MOST), lost);
    assert_eq!((under_way.window, under_way.threshold), (16, 16), "half of what was under way");
    assert_eq!(under_way.pop_late(at(20_000), LATEST), Some(61));
    assert_eq!(under_way.pop_late(at(20_000), LATEST), Some(62));
    assert_eq!((under_way.window, under_way.is_empty()), (16, true), "they were sent before");
    under_way.push(at(30_000), 64);
    assert_eq!(under_way.pop_late(at(50_000), LATEST), Some(64));
    assert_eq!(under_way.window, LEAST);
}

#[test]
fn a_window_that_is_not_used_does_not_widen() {
    let mut under_way = UnderWay::new(at(0));
    for number in 0..100 {
        under_way.push(at(1000 * number), number);
        under_way.on_ack(at(1000 * number + 100), &having(number + 1, &[]), MOST);
    }
    assert_eq!(under_way.window, INITIAL);
}
