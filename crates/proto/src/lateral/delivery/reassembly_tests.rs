use super::*;
use crate::NodeId;
use crate::lateral::packet::symbol::Arena;

const STREAM: StreamIx = StreamIx(3);
const FIRST: SeqNo = SeqNo(u32::MAX);
const SECOND: Duration = Duration::from_secs(1);

fn fragment(index: u32) -> Fragment {
    Fragment { index, fragment_bytes: 4, message_bytes: 10 }
}

fn symbol(deadline: Option<Duration>) -> Symbol {
    Symbol::of_fragment(&mut Arena::default(), Time(1), deadline, fragment(0), b"0123456789")
}

fn opened(max_bytes: usize, deadline: Option<Duration>) -> Reassembly {
    let mut all = Reassembly::new(max_bytes);
    all.begin(STREAM, PartialMessage::new(Time(5), FIRST, fragment(0), &symbol(deadline), Time(5)));
    all
}

fn add(all: &mut Reassembly, now: u64, index: u32, came: (How, u64)) -> Added {
    let bytes = &b"0123456789"[fragment(index).offset()..][..fragment(index).bytes()];
    let came = (came.0, Duration::from_nanos(came.1));
    let added = all.add(Time(now), STREAM, FIRST, (fragment(index), bytes), came);
    all.check();
    added
}

#[test]
fn fragments_in_any_order_make_the_message() {
    let mut all = opened(1000, None);
    assert!(matches!(add(&mut all, 6, 2, (How::Direct, 0)), Added::Open));
    assert!(matches!(add(&mut all, 7, 0, (How::Recovered(NodeId(4)), 30)), Added::Open));
    assert_eq!(all.bytes(), 10 + OVERHEAD_BYTES);
    let Added::Whole(whole) = add(&mut all, 8, 1, (How::Retransmitted(NodeId(5)), 20)) else {
        panic!("the last fragment did not complete the message");
    };
    assert_eq!((whole.how, whole.missing_for.as_nanos()), (How::Recovered(NodeId(4)), 30));
    assert_eq!((whole.first, whole.last()), (FIRST, SeqNo(1)), "numbers wrap around");
    assert_eq!(&whole.payload()[..], b"0123456789");
    assert_eq!((all.bytes(), all.is_open(STREAM, FIRST)), (0, false));
}

#[test]
fn open_message_is_found_by_its_own_sequence_numbers_only() {
    let all = opened(1000, None);
    let numbers = [FIRST.minus(1), FIRST, SeqNo(0), SeqNo(1), SeqNo(2)];
    let found = numbers.map(|seqno| all.containing(STREAM, seqno).is_some());
    assert_eq!(found, [false, true, true, true, false]);
    assert_eq!(all.containing(StreamIx(4), FIRST), None);
}

#[test]
fn message_expires_when_nothing_arrives_or_its_deadline_passes() {
    let mut all = opened(1000, None);
    let at = |all: &Reassembly, now| all.over_at(Time(now), STREAM, SECOND);
    assert_eq!(at(&all, 6), (Vec::new(), Some(Time(5) + SECOND)));
    add(&mut all, 100, 1, (How::Direct, 0));
    assert_eq!(at(&all, 1_000_000_099), (Vec::new(), Some(Time(100) + SECOND)));
    assert_eq!(at(&all, 1_000_000_100), (vec![FIRST], None));
    let mut all = opened(1000, Some(Duration::from_micros(1)));
    assert_eq!(at(&all, 6), (Vec::new(), Some(Time(1_005))));
    assert!(matches!(add(&mut all, 1_006, 1, (How::Direct, 0)), Added::Useless(Useless::Late)));
}

#[test]
fn contradictory_fragments_are_found() {
    let mut all = opened(1000, None);
    let other = Fragment { message_bytes: 11, ..fragment(1) };
    let added = all.add(Time(6), STREAM, FIRST, (other, b"4567"), (How::Direct, Duration::ZERO));
    assert!(matches!(added, Added::Useless(Useless::Contradiction)));
}

#[test]
fn oldest_open_message_is_named_when_there_is_no_room() {
    let mut all = opened(3 * (10 + OVERHEAD_BYTES), None);
    assert!(all.can_hold(10) && !all.can_hold(3 * (10 + OVERHEAD_BYTES) as u32));
    for number in 1..200 {
        let first = FIRST.plus(3 * number);
        while let Some((stream, oldest)) = all.in_the_way_of(10) {
            assert_eq!(oldest, first.minus(9));
            all.end(stream, oldest);
        }
        all.begin(STREAM, PartialMessage::new(Time(5), first, fragment(0), &symbol(None), Time(5)));
        all.check();
    }
    assert!(all.begun.len() <= 3, "{} messages are remembered", all.begun.len());
    assert_eq!(all.remove_stream(STREAM), 3);
    assert_eq!(all.bytes(), 0);
}

#[test]
fn start_times_of_completed_messages_are_forgotten() {
    let mut all = Reassembly::new(1000);
    for number in 0..1000 {
        let first = FIRST.plus(3 * number);
        all.begin(STREAM, PartialMessage::new(Time(5), first, fragment(0), &symbol(None), Time(5)));
        all.end(STREAM, first);
    }
    assert!(all.begun.len() <= MOST_ENDED + 1, "{} messages are remembered", all.begun.len());
}

#[test]
fn unwanted_numbers_stay_unwanted_until_forgotten() {
    let mut all = Reassembly::new(1000);
    all.set_unwanted(STREAM, FIRST, SeqNo(3));
    let numbers = [FIRST.minus(1), FIRST, SeqNo(2), SeqNo(3)];
    assert_eq!(numbers.map(|it| all.is_unwanted(STREAM, it)), [false, true, true, false]);
    all.forget_unwanted_before(STREAM, SeqNo(2));
    assert_eq!(all.reported_to(STREAM, FIRST), SeqNo(3));
    all.forget_unwanted_before(STREAM, SeqNo(3));
    assert_eq!(all.reported_to(STREAM, FIRST), FIRST);
    all.check();
}
