//! Tests that each checker finds its violation, and none in a correct run.

mod quorums;

use bytes::Bytes;
use carom_proto::ring::{
    Answer, Epoch, ListChange, ListChangeKind, LockChange, LockName, LockNews, Member, Outcome,
    Place, Process, Qos, Quorum, Removal, RequestId, RingEvent, RingNews, RingView, Timestamp,
    ViewEvent,
};
use carom_proto::{Event, GroupId, How, Message, NodeId, SeqNo, Time};

use super::{all, is_all_delivered, reply_to};
use crate::Record as _;
use crate::rmp::history::{FinalState, History, Sent};

const GROUP: GroupId = GroupId(7);
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const D: NodeId = NodeId(4);
const FIRST: Epoch = Epoch { version: 1, creator: process(A) };
const SECOND: Epoch = Epoch { version: 2, creator: process(A) };
const THIRD: Epoch = Epoch { version: 3, creator: process(B) };

const fn process(node: NodeId) -> Process {
    Process { node, life: 1 }
}

fn ring(epoch: Epoch, nodes: &[NodeId], quorum: Quorum) -> RingView {
    let member = |node: &NodeId| Member {
        process: process(*node),
        quorum,
        is_multicast: true,
        is_voter: true,
    };
    let mut view = RingView::founded_by(member(&A), 0);
    view.members = nodes.iter().map(member).collect();
    (view.epoch, view.version) = (epoch, 0);
    view
}

fn view(view: &RingView, failed: &[NodeId]) -> Event {
    let event = ViewEvent {
        view: view.clone(),
        place: Place { ring: view.epoch, at: Timestamp(1) },
        joined: Vec::new(),
        left: Vec::new(),
        failed: failed.iter().copied().map(process).collect(),
        by: process(A),
        answered: None,
    };
    news(RingNews::View(Box::new(event)))
}

fn news(news: RingNews) -> Event {
    Event::Ring(RingEvent { group: GROUP, news })
}

fn payload(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn message(number: u64) -> Event {
    Event::Message(Message {
        group: GROUP,
        sender: A,
        seqno: SeqNo(number as u32),
        payload: payload(number),
        how: How::Direct,
        age: None,
        missing_for: core::time::Duration::ZERO,
        place: None,
    })
}

fn state(node: NodeId, view: &RingView) -> FinalState {
    let (group, view) = (GROUP, Some(view.clone()));
    FinalState { group, node, view, is_voter: true, is_minority: false }
}

/// A ring of A, B and C, in which A has sent messages of given levels.
struct Run {
    history: History,
    now: Time,
}

impl Run {
    fn of(quorum: Quorum, levels: &[Qos]) -> Self {
        let mut run = Self { history: History::default(), now: Time(1) };
        let first = ring(FIRST, &[A, B, C], quorum);
        for node in [A, B, C] {
            run.history.joined(run.now, node, GROUP);
            run.tell(node, [view(&first, &[])]);
        }
        for (ix, qos) in levels.iter().enumerate() {
            let number = ix as u64 + 1;
            let (seqno, payload) = (SeqNo(number as u32), payload(number));
            let sent =
                Sent { group: GROUP, sender: A, life: 0, seqno, qos: *qos, at: run.now, payload };
            run.history.sent(number, sent);
        }
        run
    }

    fn tell<const N: usize>(&mut self, node: NodeId, events: [Event; N]) {
        for event in events {
            self.now.0 += 1;
            self.history.event(self.now, node, event);
        }
    }

    fn rules(&self) -> Vec<&'static str> {
        let mut rules: Vec<&str> = all(&self.history).into_iter().map(|it| it.rule).collect();
        rules.dedup();
        rules
    }
}

#[test]
fn nothing_is_found_where_all_is_well() {
    let levels = [Qos::Unreliable, Qos::SourceOrdered, Qos::TotallyOrdered, Qos::TotallyResilient];
    let mut run = Run::of(Quorum::Majority, &levels);
    let second = ring(SECOND, &[A, B], Quorum::Majority);
    for node in [A, B] {
        run.tell(node, [message(1), message(1), message(2), message(3), message(4)]);
        run.tell(node, [view(&second, &[C])]);
    }
    run.history.died(run.now, C);
    run.history.healed(run.now);
    run.history.note_states([A, B].map(|node| state(node, &second)).into());
    run.history.memory.note(10, 10);
    assert_eq!(all(&run.history), []);
    assert!(is_all_delivered(&run.history));
}

#[test]
fn duplicate_message_is_found() {
    let mut run = Run::of(Quorum::Majority, &[Qos::Unordered]);
    run.tell(B, [message(1), message(1)]);
    assert_eq!(run.rules(), ["at most once"]);
}

#[test]
fn unsent_messages_and_those_from_outside_a_view_are_found() {
    let mut run = Run::of(Quorum::Majority, &[]);
    run.tell(B, [message(1)]);
    assert_eq!(run.rules(), ["no invention"]);
    let mut run = Run::of(Quorum::AtLeast(1), &[Qos::Unordered]);
    run.tell(B, [view(&ring(SECOND, &[B, C], Quorum::AtLeast(1)), &[A]), message(1)]);
    assert_eq!(run.rules(), ["no invention"]);
}

#[test]
fn a_message_before_an_earlier_one_and_a_missing_one_are_found() {
    let levels = [Qos::SourceOrdered; 3];
    let mut run = Run::of(Quorum::Majority, &levels);
    run.tell(B, [message(2), message(1)]);
    assert_eq!(run.rules(), ["source order"]);
    let mut run = Run::of(Quorum::Majority, &levels);
    run.tell(B, [message(1), message(3)]);
    assert_eq!(run.rules(), ["source order"]);
}

#[test]
fn conflicting_views_and_views_out_of_sequence_are_found() {
    let mut run = Run::of(Quorum::AtLeast(1), &[]);
    run.tell(A, [view(&ring(SECOND, &[A, B], Quorum::AtLeast(1)), &[C])]);
    run.tell(B, [view(&ring(SECOND, &[B, A], Quorum::AtLeast(1)), &[C])]);
    assert_eq!(run.rules(), ["views agree"]);
    let mut run = Run::of(Quorum::AtLeast(1), &[]);
    run.tell(A, [view(&ring(SECOND, &[A, B], Quorum::AtLeast(1)), &[])]);
    assert_eq!(run.rules(), ["views agree"]);
}

#[test]
fn other_order_and_gaps_before_the_next_view_are_found() {
    let mut run = Run::of(Quorum::Majority, &[Qos::TotallyOrdered, Qos::SourceOrdered]);
    run.history.sent.entry(2).and_modify(|sent| (sent.sender, sent.qos) = (B, Qos::TotallyOrdered));
    let of_b = |event| match event {
        Event::Message(message) => Event::Message(Message { sender: B, ..message }),
        other => other,
    };
    run.tell(B, [message(1), of_b(message(2))]);
    run.tell(C, [of_b(message(2)), message(1)]);
    assert_eq!(run.rules(), ["total order and virtual synchrony"]);
    let mut run = Run::of(Quorum::Majority, &[Qos::TotallyOrdered]);
    let second = ring(SECOND, &[A, B, C], Quorum::Majority);
    run.tell(B, [message(1), view(&second, &[])]);
    assert_eq!(run.rules(), [""; 0], "C may still be notified");
    run.tell(C, [view(&second, &[])]);
    assert!(run.rules().contains(&"total order and virtual synchrony"));
}

#[test]
fn source_ordered_gap_before_a_new_ring_is_found() {
    let mut run = Run::of(Quorum::Majority, &[Qos::SourceOrdered]);
    let second = ring(SECOND, &[A, B, C], Quorum::Majority);
    run.tell(B, [message(1), view(&second, &[])]);
    run.tell(C, [view(&second, &[]), message(1)]);
    assert_eq!(run.rules(), ["same messages before a new ring"]);
}

#[test]
fn last_messages_of_a_replaced_life_may_be_lost_to_some() {
    let mut run = Run::of(Quorum::Majority, &[Qos::SourceOrdered]);
    run.tell(B, [message(1)]);
    let next = Process { life: 2, ..process(A) };
    let mut first = ring(FIRST, &[A, B, C], Quorum::Majority);
    first.members[0].process = next;
    first.version = 1;
    run.history.left(run.now, A, GROUP);
    run.history.joined(run.now, A, GROUP);
    run.tell(A, [view(&first, &[])]);
    let mut second = ring(SECOND, &[A, B, C], Quorum::Majority);
    second.members[0].process = next;
    [A, B, C].into_iter().for_each(|node| run.tell(node, [view(&second, &[])]));
    assert!(!run.rules().contains(&"same messages before a new ring"));
}

#[test]
fn last_messages_may_be_lost_if_next_life_joins_a_later_ring() {
    let is_found = |dies: bool| {
        let mut run = Run::of(Quorum::Majority, &[Qos::SourceOrdered]);
        run.tell(B, [message(1)]);
        if dies {
            run.history.died(run.now, A);
        } else {
            run.history.left(run.now, A, GROUP);
        }
        run.history.joined(run.now, A, GROUP);
        let mut first = ring(FIRST, &[B, C], Quorum::Majority);
        first.version = 1;
        [B, C].into_iter().for_each(|node| run.tell(node, [view(&first, &[])]));
        let mut second = ring(SECOND, &[A, B, C], Quorum::Majority);
        second.members[0].process = Process { life: 2, ..process(A) };
        [A, B, C].into_iter().for_each(|node| run.tell(node, [view(&second, &[])]));
        run.rules().contains(&"same messages before a new ring")
    };
    assert!(!is_found(true));
    assert!(is_found(false), "a member that leaves waits until its messages have places");
}

#[test]
fn member_unknown_to_survivors_counts_among_the_dead() {
    let is_found = |joined: &[NodeId]| {
        let mut run = Run::of(Quorum::AtLeast(1), &[Qos::Resilient(1)]);
        let mut wider = ring(FIRST, &[&[A, B, C], joined].concat(), Quorum::AtLeast(1));
        wider.version = 1;
        run.tell(A, [view(&wider, &[]), message(1)]);
        run.history.died(run.now, A);
        let second = ring(SECOND, &[B, C], Quorum::AtLeast(1));
        [B, C].into_iter().for_each(|node| run.tell(node, [view(&second, &[A])]));
        run.rules().contains(&"resilience")
    };
    assert!(is_found(&[]));
    assert!(!is_found(&[D]));
}

#[test]
fn survivor_without_a_resilient_message_is_found() {
    let is_found = |qos, told: NodeId, failed: &[NodeId], rest: &[NodeId]| {
        let mut run = Run::of(Quorum::AtLeast(1), &[qos]);
        run.tell(told, [message(1)]);
        failed.iter().for_each(|node| run.history.died(run.now, *node));
        let second = ring(SECOND, rest, Quorum::AtLeast(1));
        for node in rest {
            run.tell(*node, [view(&second, failed)]);
        }
        run.rules().contains(&"resilience")
    };
    assert!(is_found(Qos::Resilient(1), C, &[C], &[A, B]));
    assert!(!is_found(Qos::Resilient(1), C, &[B, C], &[A]), "two are gone");
    assert!(is_found(Qos::TotallyResilient, C, &[B, C], &[A]));
    assert!(is_found(Qos::MajorityResilient, C, &[C], &[A, B]));
    assert!(!is_found(Qos::TotallyOrdered, C, &[C], &[A, B]), "total order does not promise it");
}

#[test]
fn continuing_minority_and_split_ring_are_found() {
    let mut run = Run::of(Quorum::Majority, &[]);
    run.tell(C, [view(&ring(SECOND, &[C], Quorum::Majority), &[A, B])]);
    assert_eq!(run.rules(), ["a minority does not continue"]);
    let mut run = Run::of(Quorum::Majority, &[]);
    run.tell(B, [view(&ring(SECOND, &[A, B], Quorum::Majority), &[C])]);
    run.tell(C, [view(&ring(THIRD, &[B, C], Quorum::Majority), &[A])]);
    assert_eq!(run.rules(), ["one ring continues"]);
}

#[test]
fn ring_known_to_some_may_be_followed_by_one_of_a_majority() {
    let go_on = |second: &[NodeId], third: &[NodeId]| {
        let mut run = Run::of(Quorum::Majority, &[]);
        for node in second {
            run.tell(*node, [view(&ring(SECOND, &[A, B, C], Quorum::Majority), &[])]);
        }
        for node in third {
            run.tell(*node, [view(&ring(THIRD, &[B, C], Quorum::Majority), &[A])]);
        }
        run.rules()
    };
    assert_eq!(go_on(&[A], &[B, C]), Vec::<&str>::new());
    assert_eq!(go_on(&[A, B], &[C]), ["one ring continues"], "B was expected in the other ring");
}

#[test]
fn two_orders_of_messages_held_by_a_majority_are_found() {
    let mut run = Run::of(Quorum::Majority, &[Qos::MajorityResilient; 2]);
    run.history.sent.entry(2).and_modify(|sent| sent.sender = B);
    let Event::Message(second) = message(2) else { panic!("a message") };
    let second = Event::Message(Message { sender: B, ..second });
    run.tell(A, [message(1), second.clone()]);
    run.tell(C, [second, message(1)]);
    assert!(run.rules().contains(&"one order for all partitions"));
}

#[test]
fn lock_of_a_gone_holder_and_unreleased_transfer_are_found() {
    // The ring itself releases locks, so a view that has not released them is built by hand.
    let locked = |nodes: &[NodeId], holder: NodeId| {
        let mut view = ring(FIRST, nodes, Quorum::AtLeast(1));
        view.locks.ask(LockName(9), process(holder));
        view.version = 1;
        view
    };
    let mut run = Run::of(Quorum::AtLeast(1), &[]);
    let second = RingView { epoch: SECOND, ..locked(&[A, B], C) };
    run.tell(A, [view(&second, &[C])]);
    assert_eq!(run.rules(), ["one holder per lock"]);

    for is_given_back in [true, false] {
        let mut run = Run::of(Quorum::AtLeast(1), &[]);
        let next = RingView { version: 2, ..locked(&[A, B, C], B) };
        let kind = match is_given_back {
            true => ListChangeKind::Unlock(LockName(9)),
            false => ListChangeKind::Lock { name: LockName(9), waits: false },
        };
        let Event::Ring(RingEvent { news: RingNews::View(mut event), .. }) = view(&next, &[])
        else {
            panic!("a view")
        };
        event.answered = Some(ListChange { process: process(A), request: 1, kind });
        run.tell(A, [view(&locked(&[A, B, C], A), &[]), news(RingNews::View(event))]);
        assert_eq!(run.rules().is_empty(), is_given_back);
    }
}

#[test]
fn lock_granted_to_a_non_holder_and_reused_fence_are_found() {
    let granted = |fence| {
        let change = LockChange::Granted { fence: Timestamp(fence) };
        news(RingNews::Lock(LockNews { name: LockName(9), change }))
    };
    let mut locked = ring(FIRST, &[A, B, C], Quorum::Majority);
    locked.locks.ask(LockName(9), process(A));
    locked.version = 1;
    let mut run = Run::of(Quorum::Majority, &[]);
    run.tell(A, [view(&locked, &[]), granted(5)]);
    assert_eq!(run.rules(), [""; 0]);
    run.tell(A, [granted(5)]);
    assert_eq!(run.rules(), ["fences increase"]);
    let mut run = Run::of(Quorum::Majority, &[]);
    run.tell(B, [view(&locked, &[]), granted(5)]);
    assert_eq!(run.rules(), ["one holder per lock"]);
}

#[test]
fn members_without_a_ring_are_found_unless_quorum_is_lost() {
    let rules = |alive: &[NodeId], rings: &[&RingView]| {
        let mut run = Run::of(Quorum::Majority, &[]);
        let states = alive.iter().zip(rings).map(|(node, view)| state(*node, view));
        run.history.note_states(states.collect());
        run.rules()
    };
    let three = ring(FIRST, &[A, B, C], Quorum::Majority);
    let two = ring(SECOND, &[A, B], Quorum::Majority);
    assert_eq!(rules(&[A, B, C], &[&three; 3]), [""; 0]);
    assert_eq!(rules(&[A, B, C], &[&two, &two, &three]), ["one ring after recovery"]);
    assert_eq!(rules(&[A, B], &[&three; 2]), ["one ring after recovery"], "C is not in a ring");
    assert_eq!(rules(&[A], &[&three]), [""; 0], "A may not continue alone");
    // A ring of an electorate with too few remaining voters waits, and so does a single voter.
    let electorate = Quorum::QuorumOf(3);
    let held = ring(FIRST, &[A, B, D], electorate);
    let alone = ring(SECOND, &[C], electorate);
    assert_eq!(rules(&[A, C], &[&held, &alone]), [""; 0]);
    assert_eq!(rules(&[A, B, C], &[&held, &held, &alone]), ["one ring after recovery"]);
    // B continued with D, which is permanently gone, and does not return to the ring of A.
    let [earlier, later] =
        [(FIRST, A), (THIRD, D)].map(|(epoch, it)| ring(epoch, &[B, it], Quorum::Majority));
    assert_eq!(rules(&[A, B], &[&earlier, &later]), [""; 0]);
    assert_eq!(rules(&[A, B, D], &[&earlier, &later, &later]), ["one ring after recovery"]);
}

#[test]
fn message_neither_delivered_nor_reported_is_found() {
    let mut run = Run::of(Quorum::Majority, &[Qos::TotallyOrdered]);
    let removed = |unsent| news(RingNews::Removed { why: Removal::Removed, unsent, rejoins: true });
    run.history.note_states(Vec::new());
    run.tell(A, [removed(None)]);
    assert_eq!(run.rules(), ["delivered or reported"]);
    let mut run = Run::of(Quorum::Majority, &[Qos::TotallyOrdered]);
    run.history.note_states(Vec::new());
    run.tell(A, [removed(Some((SeqNo(1), SeqNo(1))))]);
    assert_eq!(run.rules(), [""; 0]);
}

#[test]
fn undelivered_message_in_the_healed_world_is_found() {
    let mut run = Run::of(Quorum::Majority, &[]);
    let three = ring(FIRST, &[A, B, C], Quorum::Majority);
    run.history.healed(Time(10));
    let (seqno, payload, at) = (SeqNo(1), payload(1), Time(11));
    run.now = at;
    let sent = Sent { group: GROUP, sender: A, life: 0, seqno, qos: Qos::Unordered, at, payload };
    run.history.sent(1, sent);
    run.history.note_states([A, B, C].map(|node| state(node, &three)).into());
    run.tell(A, [message(1)]);
    run.tell(B, [message(1)]);
    assert_eq!(run.rules(), ["delivered after recovery"], "C lacks it");
    run.tell(C, [message(1)]);
    assert_eq!(run.rules(), [""; 0]);
}

#[test]
fn a_second_answer_a_wrong_one_and_none_at_all_are_found() {
    let id = RequestId { caller: C, number: 1 };
    let rules = |outcomes: &[Outcome]| {
        let mut run = Run::of(Quorum::Majority, &[]);
        run.history.requested(GROUP, id, payload(1), true);
        for outcome in outcomes {
            run.tell(C, [news(RingNews::Answer(Answer { id, outcome: outcome.clone() }))]);
        }
        run.history.note_states(Vec::new());
        run.rules()
    };
    let reply = Outcome::Reply { by: A, payload: reply_to(&payload(1)) };
    let wrong = Outcome::Reply { by: A, payload: payload(1) };
    assert_eq!(rules(std::slice::from_ref(&reply)), [""; 0]);
    assert_eq!(rules(&[Outcome::Unanswered]), [""; 0]);
    for outcomes in [&[][..], &[reply.clone(), reply], &[wrong], &[Outcome::Acknowledged]] {
        assert_eq!(rules(outcomes), ["one answer to each request"], "{outcomes:?}");
    }
}

#[test]
fn too_much_memory_is_found() {
    let mut run = Run::of(Quorum::Majority, &[]);
    run.history.memory.note(11, 10);
    run.history.memory.note(5, 10);
    assert_eq!(run.rules(), ["memory is bounded"]);
}
