use super::*;

fn packet(qos: Qos, is_first: bool, is_last: bool, payload: &'static str) -> Data {
    let payload = Bytes::from_static(payload.as_bytes());
    Data { is_first, is_last, ..Data::whole(SeqNo(1), qos, payload) }
}

fn single(qos: Qos, payload: &'static str) -> Data {
    packet(qos, true, true, payload)
}

fn texts(whole: Vec<Data>) -> Vec<String> {
    whole.iter().map(|it| String::from_utf8(it.payload.to_vec()).expect("text")).collect()
}

#[test]
fn source_ordered_messages_wait_for_those_before_them() {
    let mut stream = Stream::new(SeqNo(1), SeqNo(1));
    stream.insert(SeqNo(2), single(Qos::SourceOrdered, "b"));
    assert!(stream.take_early(Some(SeqNo(2))).is_empty());
    stream.insert(SeqNo(1), single(Qos::SourceOrdered, "a"));
    assert_eq!(texts(stream.take_early(Some(SeqNo(1)))), ["a", "b"]);
    stream.check();
}

#[test]
fn unordered_messages_wait_for_nothing_and_come_once() {
    let mut stream = Stream::new(SeqNo(1), SeqNo(1));
    stream.insert(SeqNo(3), single(Qos::Unordered, "c"));
    assert_eq!(texts(stream.take_early(Some(SeqNo(3)))), ["c"]);
    assert_eq!(stream.insert(SeqNo(3), single(Qos::Unordered, "c")), Arrival::Duplicate);
    assert!(stream.take_early(Some(SeqNo(3))).is_empty());
}

#[test]
fn message_is_whole_once_all_its_fragments_have_arrived() {
    let mut stream = Stream::new(SeqNo(9), SeqNo(9));
    let total = Qos::TotallyOrdered;
    stream.insert(SeqNo(11), packet(total, false, true, "c"));
    stream.insert(SeqNo(9), packet(total, true, false, "a"));
    stream.order_to(SeqNo(12));
    assert_eq!(stream.take_whole_around(SeqNo(11)), None);
    assert_eq!(stream.missing(SeqNo(9), SeqNo(12), 9), [SeqNo(10)]);
    stream.insert(SeqNo(10), packet(total, false, false, "b"));
    assert_eq!(stream.ends_undelivered(SeqNo(11)), Some(total));
    let whole = stream.take_whole_around(SeqNo(11)).expect("all fragments have arrived");
    assert_eq!(&whole.payload[..], b"abc");
    assert_eq!(stream.held_bytes, 3, "other members may still request it");
    stream.settle_to(SeqNo(12));
    assert_eq!(stream.held_bytes, 0);
    stream.check();
}

#[test]
fn a_message_that_has_a_place_in_part_is_open() {
    let mut stream = Stream::new(SeqNo(1), SeqNo(1));
    let total = Qos::TotallyOrdered;
    stream.insert(SeqNo(1), single(total, "x"));
    stream.insert(SeqNo(2), packet(total, true, false, "a"));
    stream.insert(SeqNo(3), packet(total, false, false, "b"));
    stream.order_to(SeqNo(2));
    assert_eq!(stream.open_from(), SeqNo(2));
    stream.order_to(SeqNo(4));
    assert_eq!(stream.open_from(), SeqNo(2));
    // A new joiner needs both fragments, and reports the same state to the next joiner.
    let joiner = Stream::new(SeqNo(2), SeqNo(4));
    assert_eq!(joiner.open_from(), SeqNo(2));
    assert_eq!(joiner.missing(SeqNo(2), SeqNo(4), 9), [SeqNo(2), SeqNo(3)]);
}

#[test]
fn numbers_wrap_around() {
    let mut stream = Stream::new(SeqNo(u32::MAX), SeqNo(u32::MAX));
    for seqno in [SeqNo(u32::MAX), SeqNo(0), SeqNo(1)] {
        assert_eq!(stream.insert(seqno, single(Qos::SourceOrdered, "m")), Arrival::New);
    }
    assert_eq!(stream.received_to(), SeqNo(2));
    assert_eq!(stream.take_early(None).len(), 3);
    stream.order_to(SeqNo(2));
    stream.settle_to(SeqNo(2));
    assert_eq!(stream.end(), SeqNo(2));
    stream.check();
}

#[test]
fn packets_too_far_ahead_are_not_kept() {
    let mut stream = Stream::new(SeqNo(1), SeqNo(1));
    let far = SeqNo(1).plus(MAX_SLOTS as u32);
    assert_eq!(stream.insert(far, single(Qos::Unordered, "")), Arrival::TooFar);
    stream.check();
}
