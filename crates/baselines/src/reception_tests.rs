use super::*;
use carom_proto::{RateOfFire, ViewChangeKind};

const GROUP: GroupId = GroupId(5);
const SENDER: NodeId = NodeId(2);
const TERMS: Terms = terms(Owed::FirstHeard);

const fn terms(owed: Owed) -> Terms {
    let streams = StreamConfig { path_mtu: 1500, owed, max_missing: 8, max_streams: 2 };
    Terms { streams, give_up_after: Duration::from_secs(1) }
}

fn settings(profile: Profile) -> GroupSettings {
    GroupSettings { profile, name_check: 0 }
}

fn joined(terms: Terms) -> Reception {
    let mut reception = Reception::new(NodeId(1), terms);
    reception.join(GROUP, &settings(Profile::Guest)).expect("the first time");
    reception
}

fn id(sender: NodeId, seqno: u32) -> PacketId {
    PacketId { sender, group: GROUP, seqno: SeqNo(seqno) }
}

fn block() -> Block {
    Block::of_message(Time(0), None, b"x")
}

fn delivered(reception: &mut Reception) -> Vec<(u32, Duration)> {
    let events = std::iter::from_fn(|| reception.poll_event());
    let of_message = |event| match event {
        Event::Message(message) => (message.seqno.0, message.missing_for),
        other => panic!("{other:?}"),
    };
    events.map(of_message).collect()
}

#[test]
fn stream_is_owed_from_the_first_heard_or_the_very_first() {
    let mut reception = joined(TERMS);
    assert!(reception.on_block(Time(0), id(SENDER, 3), &block(), How::Recovered(SENDER)).is_none());
    assert!(reception.on_data(Time(0), id(SENDER, 4), &block()).is_some());
    assert!(reception.on_data(Time(0), id(SENDER, 3), &block()).is_none());
    assert_eq!(reception.missing_count(), 0);
    reception.check();
    let mut reception = joined(terms(Owed::First));
    let gap = reception.on_data(Time(0), id(SENDER, 4), &block()).expect("it is new");
    assert_eq!(gap.missing, [SeqNo(1), SeqNo(2), SeqNo(3)]);
}

#[test]
fn missing_packet_is_delivered_once_with_its_waiting_time() {
    let mut reception = joined(TERMS);
    reception.on_data(Time(0), id(SENDER, 1), &block());
    reception.on_announced(Time(5), GROUP, SENDER, SeqNo(3));
    let how = How::Retransmitted(NodeId(3));
    for _ in 0..2 {
        reception.on_block(Time(9), id(SENDER, 2), &block(), how);
    }
    let waited = Duration::from_nanos(4);
    assert_eq!(delivered(&mut reception), [(1, Duration::ZERO), (2, waited)]);
    let stats: Vec<_> = reception.by_name().collect();
    for expected in [("duplicates", 1), ("missing", 1), ("discovery_ns", 5), ("missing_ns", 4)] {
        assert!(stats.contains(&expected), "{expected:?} in {stats:?}");
    }
    reception.check();
}

#[test]
fn missing_packets_are_reported_lost_in_time() {
    let mut reception = joined(TERMS);
    reception.on_data(Time(0), id(SENDER, 1), &block());
    reception.on_data(Time(3), id(SENDER, 4), &block());
    let due = reception.next_due().expect("something is missing");
    assert_eq!(due, Time(3) + TERMS.give_up_after);
    reception.handle_timeout(due);
    reception.check();
    let lost = std::iter::from_fn(|| reception.poll_event()).last();
    let Some(Event::Lost(lost)) = lost else { panic!("{lost:?}") };
    assert_eq!((lost.first, lost.last), (SeqNo(2), SeqNo(3)));
    assert!(reception.on_data(due, id(SENDER, 2), &block()).is_none());
}

#[test]
fn rejoining_member_gets_nothing_twice_and_numbers_continue() {
    let mut reception = joined(TERMS);
    reception.on_data(Time(0), id(SENDER, 1), &block());
    reception.on_data(Time(0), id(SENDER, 2), &block());
    reception.groups.get_mut(&GROUP).expect("joined").next = SeqNo(9);
    reception.leave(GROUP);
    assert!(reception.on_data(Time(0), id(SENDER, 3), &block()).is_none());
    reception.join(GROUP, &settings(Profile::Guest)).expect("again");
    assert!(reception.on_data(Time(0), id(SENDER, 2), &block()).is_none());
    assert!(reception.on_data(Time(0), id(SENDER, 3), &block()).is_some());
    assert_eq!(reception.group(GROUP).map(|group| group.next), Some(SeqNo(9)));
    reception.check();
}

#[test]
fn streams_of_gone_senders_make_room_and_others_are_refused() {
    let mut reception = joined(TERMS);
    let joins = |node| ViewChange { group: GROUP, node, kind: ViewChangeKind::Joined, version: 1 };
    assert!(reception.handle_view(&joins(NodeId(2))));
    assert!(!reception.handle_view(&joins(NodeId(1))), "a view does not include this node");
    for sender in [2, 3] {
        reception.on_data(Time(0), id(NodeId(sender), 7), &block());
    }
    assert!(reception.on_data(Time(0), id(NodeId(4), 1), &block()).is_some());
    assert!(reception.handle_view(&joins(NodeId(4))));
    assert!(reception.on_data(Time(0), id(NodeId(3), 7), &block()).is_none());
    assert!(reception.by_name().any(|it| it == ("streams_refused", 1)));
    reception.check();
}

#[test]
fn groups_of_other_profiles_are_refused() {
    let mut reception = Reception::new(NodeId(1), TERMS);
    let profile = Profile::TimeCritical(RateOfFire::default());
    let refused = reception.join(GROUP, &settings(profile));
    assert_eq!(refused, Err(JoinError::NoEngine { profile }));
    assert_eq!(reception.join(GROUP, &settings(Profile::Guest)), Ok(()));
    assert_eq!(reception.join(GROUP, &settings(Profile::Guest)), Err(JoinError::AlreadyJoined));
}
