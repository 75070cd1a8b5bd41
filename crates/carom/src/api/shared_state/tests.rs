//! Tests a shared state at several members that receive the same events in the same order.

use carom_proto::ring::{Locks, Member, Quorum, RingEvent, RingView};
use carom_proto::{GroupId, How, SeqNo};

use super::*;

const GROUP: GroupId = GroupId(7);

struct Ring {
    sharings: Vec<(NodeId, Sharing, Vec<u8>)>,
    view: RingView,
    at: u64,
}

impl Ring {
    fn of(members: &[u64], founder: Option<u64>) -> Self {
        let process = Process { node: NodeId(members[0]), life: 1 };
        let view = view_of(Epoch { version: 1, creator: process }, members);
        let mut ring = Self { sharings: Vec::new(), view, at: 0 };
        members.iter().for_each(|member| ring.add(*member, founder == Some(*member)));
        ring.tell_view(members, &[]);
        ring
    }

    fn add(&mut self, node: u64, is_founder: bool) {
        let limit_bytes = MAX_KEPT_BYTES;
        let sharing =
            Sharing { is_founder, is_alone: is_founder, limit_bytes, ..Sharing::default() };
        self.sharings.push((NodeId(node), sharing, Vec::new()));
    }

    /// Delivers a view to the members. Failed members receive no more events.
    fn tell_view(&mut self, members: &[u64], failed: &[u64]) {
        self.at += 1;
        self.sharings.retain(|(node, ..)| !failed.contains(&node.0));
        self.view = view_of(self.view.epoch, members);
        let place = Place { ring: self.view.epoch, at: Timestamp(self.at) };
        let processes = |nodes: &[u64]| nodes.iter().map(|node| process(*node)).collect();
        let event = ViewEvent {
            view: self.view.clone(),
            place,
            joined: processes(members),
            left: Vec::new(),
            failed: processes(failed),
            by: process(members[0]),
            answered: None,
        };
        let news = RingNews::View(Box::new(event));
        for (own, sharing, _) in &mut self.sharings {
            sharing.take(Event::Ring(RingEvent { group: GROUP, news: news.clone() }), *own);
        }
    }

    fn tell(&mut self, sender: NodeId, payload: Bytes) {
        self.at += 1;
        let place = Place { ring: self.view.epoch, at: Timestamp(self.at) };
        let message = Message {
            group: GROUP,
            sender,
            seqno: SeqNo(1),
            payload,
            how: How::Direct,
            age: None,
            missing_for: std::time::Duration::ZERO,
            place: Some(place),
        };
        for (own, sharing, _) in &mut self.sharings {
            sharing.take(Event::Message(message.clone()), *own);
        }
    }

    fn apply(&mut self, byte: u8) {
        let sender = self.sharings[0].0;
        self.tell(sender, Bytes::copy_from_slice(&[APPLICATION, byte]));
    }

    fn read(&mut self) -> Vec<(NodeId, Place, Vec<u8>)> {
        let mut givers = Vec::new();
        for (own, sharing, state) in &mut self.sharings {
            while let Some(action) = sharing.actions.pop_front() {
                match action {
                    StateEvent::Message(message) => state.push(message.payload[0]),
                    StateEvent::Take(given) => *state = given.to_vec(),
                    StateEvent::Give => {
                        let place = sharing.given_as_of(*own).expect("it is the giver");
                        givers.push((*own, place, state.clone()));
                    }
                    StateEvent::NoHolder => state.extend(b"no holder"),
                    StateEvent::Forget | StateEvent::NotGiven { .. } => panic!("{action:?}"),
                    StateEvent::Event(_) => {}
                }
            }
        }
        givers
    }

    fn give(&mut self, (node, place, state): &(NodeId, Place, Vec<u8>), numbers: [usize; 2]) {
        for number in numbers[0]..numbers[1] {
            let kind = if number + 1 == state.len() { LAST_PIECE } else { PIECE };
            self.tell(*node, put_before(kind, *place, number as u32, &state[number..=number]));
        }
    }

    fn report(&mut self) {
        let reports: Vec<(NodeId, Bytes)> = self
            .sharings
            .iter_mut()
            .filter_map(|(node, sharing, _)| Some((*node, sharing.report()?)))
            .collect();
        reports.into_iter().for_each(|(node, report)| self.tell(node, report));
    }

    fn states(&mut self) -> Vec<Vec<u8>> {
        assert!(self.read().is_empty(), "no member gives the state");
        self.sharings.iter().map(|(.., state)| state.clone()).collect()
    }
}

fn process(node: u64) -> Process {
    Process { node: NodeId(node), life: 1 }
}

fn view_of(epoch: Epoch, members: &[u64]) -> RingView {
    let member = |node: &u64| Member {
        process: process(*node),
        quorum: Quorum::Majority,
        is_multicast: true,
        is_voter: true,
    };
    let members = members.iter().map(member).collect();
    RingView {
        epoch,
        origin: epoch,
        version: 0,
        name_check: 0,
        members,
        locks: Locks::default(),
        is_forced: false,
    }
}

fn ring_with_a_newcomer() -> Ring {
    let mut ring = Ring::of(&[1, 2], Some(1));
    ring.read();
    let given = ring.sharings[0].1.given_as_of(NodeId(1)).expect("2 lacks it");
    ring.tell(NodeId(1), put_before(LAST_PIECE, given, 0, &[]));
    [1, 2, 3].into_iter().for_each(|byte| ring.apply(byte));
    ring.read();
    ring.add(3, false);
    ring.tell_view(&[1, 2, 3], &[]);
    ring
}

#[test]
fn transfer_continues_when_the_view_changes() {
    let mut ring = ring_with_a_newcomer();
    let [giver] = &ring.read()[..] else { panic!("one gives") };
    let giver = giver.clone();
    ring.give(&giver, [0, 1]);
    ring.apply(4);
    ring.add(4, false);
    ring.tell_view(&[1, 3, 4], &[2]);
    assert!(ring.read().is_empty(), "the transfer does not restart");
    ring.apply(5);
    let rest = [1, giver.2.len()];
    ring.give(&giver, rest);
    let next = ring.read();
    assert_eq!(next.len(), 1, "the last member lacks it");
    assert_eq!(next[0].2, [1, 2, 3, 4, 5]);
    ring.apply(6);
    ring.give(&next[0].clone(), [0, 5]);
    assert_eq!(ring.states(), vec![vec![1, 2, 3, 4, 5, 6]; 3]);
}

#[test]
fn next_holder_gives_the_state_when_the_giver_dies() {
    let mut ring = ring_with_a_newcomer();
    let giver = ring.read()[0].clone();
    ring.give(&giver, [0, 2]);
    ring.apply(4);
    ring.tell_view(&[2, 3], &[1]);
    let next = ring.read();
    assert_eq!((next.len(), next[0].0, &next[0].2[..]), (1, NodeId(2), &[1, 2, 3, 4][..]));
    ring.apply(5);
    // Late pieces of the first giver are ignored, because some are missing.
    ring.give(&giver, [1, 3]);
    ring.give(&next[0].clone(), [0, 4]);
    assert_eq!(ring.states(), vec![vec![1, 2, 3, 4, 5]; 2]);
}

#[test]
fn waiting_members_are_told_that_all_holders_died() {
    let mut ring = Ring::of(&[1, 2, 3], Some(1));
    let giver =
        (NodeId(1), ring.sharings[0].1.given_as_of(NodeId(1)).expect("it gives"), vec![0; 9]);
    ring.read();
    ring.give(&giver, [0, 3]);
    ring.report();
    assert_eq!(ring.states(), [const { Vec::<u8>::new() }; 3], "one has it");
    ring.tell_view(&[2, 3], &[1]);
    ring.report();
    assert_eq!(ring.states(), vec![b"no holder".to_vec(); 2]);
    ring.report();
    assert_eq!(ring.states(), vec![b"no holder".to_vec(); 2], "once in each view");
    ring.add(4, true);
    ring.apply(7);
    ring.tell_view(&[2, 3, 4], &[]);
    let giver = ring.read()[0].clone();
    assert_eq!(giver.0, NodeId(4));
}

#[test]
fn giver_is_asked_again_when_those_who_waited_are_gone() {
    let mut ring = Ring::of(&[1, 2], Some(1));
    assert_eq!(ring.read().len(), 1);
    ring.tell_view(&[1], &[2]);
    assert!(ring.read().is_empty(), "no member lacks it");
    ring.add(3, false);
    ring.tell_view(&[1, 3], &[]);
    assert_eq!(ring.read().len(), 1, "it never gave the state to the first");
}
