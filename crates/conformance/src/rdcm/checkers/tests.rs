//! Tests that each rule finds its violation, and none in a correct run.

use std::collections::BTreeMap;

use carom_proto::{
    Confirmed, Event, GroupId, How, LossCause, Lost, Message, NodeId, SeqNo, Slow, Time,
    ViewChange, ViewChangeKind,
};

use super::all;
use crate::Record as _;
use crate::rdcm::history::{FinalState, History};

const GROUP: GroupId = GroupId(7);
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

/// A sends messages of two packets each, and B receives them.
struct Run {
    history: History,
    now: Time,
}

impl Run {
    fn new(messages: u64) -> Self {
        let mut run =
            Self { history: History::new(core::time::Duration::ZERO, SeqNo::FIRST), now: Time(1) };
        run.history.joined(run.now, A, GROUP);
        run.history.joined(run.now, B, GROUP);
        for at in 0..messages {
            let (number, payload) = run.history.message(20);
            let seqno = SeqNo(2 * at as u32 + 1);
            if run.history.sent(run.now, A, number, seqno, 2, payload) {
                run.history.begun(A, [B].into());
            }
        }
        run
    }

    fn event(&mut self, node: NodeId, event: Event) {
        self.now.0 += 1;
        self.history.event(self.now, node, event);
    }

    fn deliver(&mut self, number: u64, first: u32) {
        self.hear(B, A, number, first);
    }

    fn hear(&mut self, node: NodeId, sender: NodeId, number: u64, first: u32) {
        let mut payload = vec![number as u8; 20];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        let message = Message {
            group: GROUP,
            sender,
            seqno: SeqNo(first),
            payload: payload.into(),
            how: How::Direct,
            age: None,
            missing_for: core::time::Duration::ZERO,
            place: None,
        };
        self.event(node, Event::Message(message));
    }

    fn lose(&mut self, first: u32, last: u32, cause: LossCause) {
        let (first, last) = (SeqNo(first), SeqNo(last));
        self.event(B, Event::Lost(Lost { group: GROUP, sender: A, first, last, cause }));
    }

    fn leave_behind(&mut self) {
        self.event(A, Event::Slow(Slow { group: GROUP, node: B, behind: 2 }));
    }

    fn confirm(&mut self, up_to: u32) {
        self.history.asked_to_confirm(A);
        let (up_to, incomplete) = (SeqNo(up_to), Vec::new());
        self.event(A, Event::Confirmed(Confirmed { group: GROUP, up_to, members: 1, incomplete }));
    }

    fn heal(&mut self, receivers: Vec<NodeId>) {
        let (senders, unconfirmed, places) = (vec![A], Vec::new(), BTreeMap::new());
        let state = FinalState { sender: A, senders, receivers, unconfirmed, waiting: 0, places };
        self.history.outcome = Some(Ok(state));
    }

    fn rules(&self) -> Vec<&'static str> {
        let mut rules: Vec<&str> = all(&self.history).into_iter().map(|it| it.rule).collect();
        rules.dedup();
        rules
    }
}

#[test]
fn sound_run_with_reported_losses_has_no_finding() {
    let mut run = Run::new(3);
    run.deliver(1, 1);
    run.leave_behind();
    run.lose(3, 4, LossCause::TooFarBehind);
    run.deliver(3, 5);
    run.confirm(6);
    run.history.memory.note(10, 10);
    assert_eq!(all(&run.history), []);
}

#[test]
fn duplicate_and_unsent_messages_are_found() {
    let mut run = Run::new(2);
    run.deliver(1, 1);
    run.deliver(1, 1);
    assert_eq!(run.rules(), ["at most once"]);
    let mut run = Run::new(2);
    run.deliver(1, 1);
    run.deliver(1, 3);
    assert_eq!(run.rules(), ["no invention"]);
}

#[test]
fn unreported_and_wrongly_reported_gaps_are_found() {
    let mut run = Run::new(3);
    run.deliver(1, 1);
    run.deliver(3, 5);
    assert_eq!(run.rules(), ["gaps are reported exactly"]);
    for (first, last) in [(3, 3), (1, 4), (4, 4), (3, 5)] {
        let mut run = Run::new(3);
        run.deliver(1, 1);
        run.leave_behind();
        run.lose(first, last, LossCause::TooFarBehind);
        run.deliver(3, 5);
        assert!(run.rules().contains(&"gaps are reported exactly"), "{first} to {last}");
    }
    let mut run = Run::new(2);
    run.deliver(2, 3);
    assert_eq!(run.rules(), ["gaps are reported exactly"], "it was owed the first one");
}

#[test]
fn later_start_of_a_receiver_is_not_owed_the_beginning() {
    // B restarts when the stream begins.
    let mut run = Run::new(2);
    run.history.died(run.now, B);
    run.history.joined(run.now, B, GROUP);
    run.deliver(2, 3);
    assert!(run.rules().is_empty(), "{:?}", run.rules());
    // B restarts before the stream begins, and the sender notices it later.
    let mut run = Run::new(2);
    let change = ViewChange { group: GROUP, node: B, kind: ViewChangeKind::Failed, version: 2 };
    run.event(A, Event::View(change));
    run.deliver(2, 3);
    assert!(run.rules().is_empty(), "{:?}", run.rules());
}

#[test]
fn resumed_stream_may_lack_only_what_was_reported_lost() {
    for (first, is_well) in [(1, true), (3, true), (5, true), (7, false)] {
        let mut run = Run::new(4);
        run.leave_behind();
        run.lose(1, 2, LossCause::AttemptsSpent);
        if first > 3 {
            run.lose(3, 4, LossCause::TooFarBehind);
        }
        run.deliver(u64::from(first / 2) + 1, first);
        assert_eq!(run.rules().is_empty(), is_well, "{first}: {:?}", run.rules());
    }
}

#[test]
fn live_stream_may_end_only_soon_after_its_sender_left() {
    for (within, is_found) in [(0, true), (100, false)] {
        let mut run = Run::new(0);
        run.history.over_within = core::time::Duration::from_nanos(within);
        run.history.died(run.now, A);
        run.history.joined(run.now, A, GROUP);
        let (number, payload) = run.history.message(20);
        assert!(run.history.sent(run.now, A, number, SeqNo(1), 2, payload));
        run.history.begun(A, [B].into());
        run.lose(1, 2, LossCause::AttemptsSpent);
        run.deliver(1, 1);
        run.heal(Vec::new());
        assert_eq!(run.rules().contains(&"losses have a cause"), is_found, "{:?}", run.rules());
    }
}

#[test]
fn a_loss_without_a_cause_is_found() {
    let mut run = Run::new(3);
    run.deliver(1, 1);
    run.lose(3, 4, LossCause::TooFarBehind);
    run.deliver(3, 5);
    assert_eq!(run.rules(), ["losses have a cause"]);
}

#[test]
fn yielding_sender_without_report_of_its_losses_is_found() {
    for (delivered, is_told, is_found) in
        [(2, false, false), (1, false, true), (1, true, false), (0, false, true)]
    {
        let mut run = Run::new(2);
        (0..delivered).for_each(|it| run.deliver(it + 1, 2 * it as u32 + 1));
        if is_told {
            let (first, last) = (SeqNo(3), SeqNo(4));
            let cause = LossCause::AnotherSender;
            run.event(A, Event::Lost(Lost { group: GROUP, sender: A, first, last, cause }));
        }
        let (number, payload) = run.history.message(20);
        run.history.sent(run.now, B, number, SeqNo(1), 2, payload);
        run.history.begun(B, [A].into());
        run.hear(A, B, number, 1);
        assert_eq!(run.rules().contains(&"losses have a cause"), is_found, "{delivered}");
    }
}

#[test]
fn confirmed_message_without_delivery_is_found() {
    let mut run = Run::new(2);
    run.deliver(1, 1);
    run.confirm(4);
    assert_eq!(run.rules(), ["confirmed messages are delivered"]);
    run.deliver(2, 3);
    assert_eq!(run.rules(), ["confirmed messages are delivered"], "it arrived too late");
}

#[test]
fn healed_receiver_with_gaps_or_without_place_is_found() {
    let mut run = Run::new(2);
    run.deliver(1, 1);
    run.heal(vec![B]);
    let rings = "rings are closed, and no receiver serves more than two";
    assert_eq!(run.rules(), ["complete recovery", rings]);
    run.deliver(2, 3);
    assert_eq!(run.rules(), [rings]);
}

#[test]
fn too_much_memory_is_found() {
    let mut run = Run::new(0);
    run.history.memory.note(11, 10);
    assert_eq!(run.rules(), ["memory is bounded"]);
}
