//! Tests that each checker finds its violation, and none in a correct run.

use bytes::Bytes;
use carom_proto::{
    Confirmed, Event, GroupId, How, LossCause, Lost, Message, NodeId, PacketId, SeqNo, Time,
    ViewChange, ViewChangeKind,
};

use super::all;
use crate::Record as _;
use crate::lateral::{History, OwedFrom};

const GROUP: GroupId = GroupId(7);
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

fn id(number: u32) -> PacketId {
    PacketId { sender: A, group: GROUP, seqno: SeqNo(number) }
}

fn view(node: NodeId, kind: ViewChangeKind) -> Event {
    Event::View(ViewChange { group: GROUP, node, kind, version: 1 })
}

fn safe(number: u32) -> Event {
    let up_to = SeqNo(number);
    Event::Confirmed(Confirmed { group: GROUP, up_to, members: 1, incomplete: Vec::new() })
}

fn message(number: u32, payload: &'static [u8]) -> Event {
    Event::Message(Message {
        group: GROUP,
        sender: A,
        seqno: SeqNo(number),
        payload: Bytes::from_static(payload),
        how: How::Direct,
        age: None,
        missing_for: core::time::Duration::ZERO,
        place: None,
    })
}

fn lost(number: u32) -> Event {
    let (first, last) = (SeqNo(number), SeqNo(number));
    Event::Lost(Lost { group: GROUP, sender: A, first, last, cause: LossCause::TooFarBehind })
}

fn history() -> History {
    let mut history = History::new(OwedFrom::View);
    [A, B].into_iter().for_each(|node| history.started(node));
    for (node, other) in [(A, B), (B, A)] {
        history.joined(Time(0), node, GROUP);
        history.event(Time(1), node, view(other, ViewChangeKind::Joined));
    }
    history.sent(Time(2), id(1), b"one".to_vec(), false);
    history
}

fn rules(history: &History) -> Vec<&'static str> {
    all(history).into_iter().map(|violation| violation.rule).collect()
}

#[test]
fn nothing_is_found_where_all_is_well() {
    let mut history = history();
    history.event(Time(3), B, message(1, b"one"));
    history.event(Time(4), A, safe(1));
    history.healed(Time(5), true);
    history.sent(Time(6), id(2), b"two".to_vec(), false);
    history.awaits(A, GROUP);
    history.event(Time(7), B, message(2, b"two"));
    history.event(Time(8), A, safe(2));
    history.memory.note(10, 10);
    assert_eq!(all(&history), []);
}

#[test]
fn duplicate_and_loss_of_a_delivered_message_are_found() {
    for again in [message(1, b"one"), lost(1)] {
        let mut history = history();
        history.event(Time(3), B, message(1, b"one"));
        history.event(Time(4), B, again);
        assert_eq!(rules(&history), ["at most once"]);
    }
}

#[test]
fn part_lost_twice_or_of_a_delivered_message_is_found() {
    let large: &[u8] = &[7; 350];
    let told = |events: &[Event]| {
        let mut history = history();
        history.event(Time(3), B, message(1, b"one"));
        history.sent(Time(3), id(2), large.to_vec(), false);
        history.sent(Time(3), id(6), b"six".to_vec(), false);
        events.iter().for_each(|event| history.event(Time(4), B, event.clone()));
        history.event(Time(5), B, message(6, b"six"));
        rules(&history)
    };
    assert_eq!(told(&[lost(2), lost(3), lost(4), lost(5)]), Vec::<&str>::new());
    assert_eq!(told(&[lost(2), lost(4), lost(4)]), ["at most once"]);
    assert_eq!(told(&[message(2, &[7; 350]), lost(5)]), ["at most once"]);
    assert_eq!(told(&[lost(4)]), ["delivered or reported lost"]);
}

#[test]
fn altered_and_unsent_messages_are_found() {
    for strange in [message(1, b"other"), message(2, b"one"), lost(2)] {
        let mut history = history();
        history.event(Time(3), B, strange.clone());
        assert!(rules(&history).contains(&"no invention"), "{strange:?}");
    }
    let mut history = history();
    history.event(Time(3), B, message(1, b"one"));
    history.event(Time(3), A, message(1, b"one"));
    assert_eq!(rules(&history), ["no invention"], "its own");
}

#[test]
fn unreported_message_is_found_unless_either_node_left() {
    assert_eq!(rules(&history()), ["delivered or reported lost"]);
    for (observer, gone) in [(A, B), (B, A)] {
        let mut history = history();
        history.event(Time(3), observer, view(gone, ViewChangeKind::Failed));
        history.event(Time(4), observer, view(gone, ViewChangeKind::Joined));
        assert_eq!(all(&history), []);
    }
    let mut history = history();
    history.died(Time(3), B);
    assert_eq!(all(&history), []);
}

#[test]
fn views_that_differ_from_the_members_are_found_once_healed() {
    let mut history = history();
    history.event(Time(3), A, view(B, ViewChangeKind::Failed));
    assert_eq!(all(&history), []);
    history.healed(Time(4), true);
    assert_eq!(rules(&history), ["views agree"]);
}

#[test]
fn losses_and_missing_confirmations_after_healing_are_found() {
    let mut history = history();
    history.event(Time(3), B, message(1, b"one"));
    history.healed(Time(4), true);
    history.sent(Time(5), id(2), b"two".to_vec(), false);
    history.event(Time(6), B, lost(2));
    assert_eq!(rules(&history), ["live after recovery"]);
    history.awaits(A, GROUP);
    history.event(Time(7), A, safe(1));
    assert!(!history.is_all_confirmed(), "that answers an earlier request");
    history.held_back.push((B, GROUP));
    assert_eq!(rules(&history), ["live after recovery"; 3]);
}

#[test]
fn a_confirmation_of_what_is_not_settled_is_found() {
    let mut history = history();
    history.event(Time(3), A, safe(1));
    history.event(Time(4), B, message(1, b"one"));
    assert_eq!(rules(&history), ["confirmed means settled"]);
}

#[test]
fn too_much_memory_and_a_broken_promise_are_found() {
    let mut history = history();
    history.event(Time(3), B, message(1, b"one"));
    history.memory.note(11, 10);
    history.memory.note(5, 10);
    history.broken.push((A, "too many repairs".to_owned()));
    assert_eq!(rules(&history), ["memory is bounded", "protocol guarantees"]);
}

#[test]
fn restarted_node_is_owed_nothing_sent_to_its_former_start() {
    let mut history = history();
    history.died(Time(3), B);
    history.started(B);
    history.joined(Time(3), B, GROUP);
    history.event(Time(4), B, view(A, ViewChangeKind::Joined));
    assert_eq!(rules(&history), [""; 0]);
    // A has not noticed the restart, and sends to the previous start.
    history.sent(Time(5), id(2), b"two".to_vec(), false);
    assert_eq!(rules(&history), [""; 0]);
    history.event(Time(6), A, view(B, ViewChangeKind::Failed));
    history.event(Time(6), A, view(B, ViewChangeKind::Joined));
    history.sent(Time(7), id(3), b"three".to_vec(), false);
    assert_eq!(rules(&history), ["delivered or reported lost"]);
}

#[test]
fn equal_numbers_of_two_starts_are_different_messages() {
    let mut history = history();
    history.event(Time(3), B, message(1, b"one"));
    history.died(Time(3), A);
    history.started(A);
    history.joined(Time(4), A, GROUP);
    history.event(Time(5), A, view(B, ViewChangeKind::Joined));
    history.event(Time(5), B, view(A, ViewChangeKind::Failed));
    history.event(Time(5), B, view(A, ViewChangeKind::Joined));
    history.sent(Time(6), id(1), b"one again".to_vec(), false);
    assert_eq!(rules(&history), ["delivered or reported lost"]);
    history.event(Time(7), B, message(1, b"one again"));
    assert_eq!(rules(&history), [""; 0]);
    history.event(Time(8), B, message(1, b"one"));
    assert_eq!(rules(&history), ["at most once"]);
}

#[test]
fn wrapped_numbers_are_distinguished() {
    let mut history = history();
    let group = GroupId(8);
    for (node, other) in [(A, B), (B, A)] {
        history.joined(Time(0), node, group);
        let change = ViewChange { group, node: other, kind: ViewChangeKind::Joined, version: 1 };
        history.event(Time(1), node, Event::View(change));
    }
    history.event(Time(2), B, message(1, b"one"));
    for number in [u32::MAX, 0] {
        let id = PacketId { sender: A, group, seqno: SeqNo(number) };
        history.sent(Time(2), id, b"x".to_vec(), false);
    }
    let (first, last) = (SeqNo(u32::MAX), SeqNo(0));
    let cause = LossCause::TooFarBehind;
    history.event(Time(3), B, Event::Lost(Lost { group, sender: A, first, last, cause }));
    assert_eq!(rules(&history), [""; 0]);
    history.awaits(A, group);
    let safe = Confirmed { group, up_to: SeqNo(u32::MAX), members: 1, incomplete: Vec::new() };
    history.event(Time(4), A, Event::Confirmed(safe.clone()));
    assert!(!history.is_all_confirmed());
    history.event(Time(5), A, Event::Confirmed(Confirmed { up_to: SeqNo(0), ..safe }));
    assert!(history.is_all_confirmed());
}
