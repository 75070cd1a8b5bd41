use super::*;

#[test]
fn clients_that_wait_outside_of_a_ring_are_no_quorum() {
    let electorate = Quorum::QuorumOf(3);
    let (held, alone) = (ring(FIRST, &[A, B, D], electorate), ring(SECOND, &[C], electorate));
    let rules = |is_voter| {
        let mut run = Run::of(electorate, &[]);
        let outside = FinalState { view: None, is_voter, ..state(NodeId(5), &alone) };
        run.history.note_states(vec![state(A, &held), state(C, &alone), outside]);
        run.rules()
    };
    assert_eq!(rules(true), ["one ring after recovery"]);
    assert_eq!(rules(false), [""; 0]);
}

#[test]
fn ring_that_waits_for_a_member_that_left_is_found() {
    let rules = |are_all_heard| {
        let mut run = Run::of(Quorum::Majority, &[]);
        let two = ring(SECOND, &[A, B], Quorum::Majority);
        for node in [A, B] {
            run.tell(node, [view(&two, &[C])]);
        }
        run.history.died(run.now, C);
        run.history.left(run.now, B, GROUP);
        run.history.are_all_heard = are_all_heard;
        run.history.note_states(vec![FinalState { is_minority: true, ..state(A, &two) }]);
        run.rules()
    };
    assert_eq!(rules(true), ["one ring after recovery"]);
    assert_eq!(rules(false), [""; 0], "B may have left while A could not hear it");
}

#[test]
fn report_of_a_minority_holds_until_the_next_view() {
    let rules = |continues| {
        let mut run = Run::of(Quorum::Majority, &[]);
        let two = ring(SECOND, &[A, B], Quorum::Majority);
        for node in [A, B] {
            run.tell(node, [news(RingNews::Minority { members: 3, needed: 2, voters: None })]);
            if continues {
                run.tell(node, [view(&two, &[C])]);
            }
        }
        run.history.died(run.now, C);
        let three = ring(FIRST, &[A, B, C], Quorum::Majority);
        run.history.note_states([A, B].map(|node| state(node, &three)).into());
        run.rules()
    };
    assert_eq!(rules(true), ["one ring after recovery"]);
    assert_eq!(rules(false), [""; 0], "C may have continued with the list that A and B accepted");
}

/// Creates a run in which A and B are each alone in a ring that has ordered a message.
fn parted(electorate: Quorum, forced: bool) -> Run {
    let mut run = Run { history: History::default(), now: Time(1) };
    for (ix, node) in [A, B].into_iter().enumerate() {
        run.history.joined(run.now, node, GROUP);
        let epoch = Epoch { version: 1, creator: process(node) };
        let mut alone = ring(epoch, &[node], electorate);
        (alone.origin, alone.is_forced) = (epoch, forced);
        let number = ix as u64 + 1;
        let (qos, seqno) = (Qos::TotallyOrdered, SeqNo(number as u32));
        let (at, payload) = (run.now, payload(number));
        let sent = Sent { group: GROUP, sender: node, life: 0, seqno, qos, at, payload };
        run.history.sent(number, sent);
        let Event::Message(own) = message(number) else { panic!("it is a message") };
        let own = Event::Message(Message { sender: node, ..own });
        run.tell(node, [view(&alone, &[]), own]);
    }
    run
}

#[test]
fn rings_of_one_electorate_that_both_work_are_found() {
    let rules = parted(Quorum::QuorumOf(3), false).rules();
    assert!(rules.contains(&"no work without a quorum"), "{rules:?}");
    assert!(rules.contains(&"one ring per electorate"), "{rules:?}");
    // An electorate that is too small for its voters.
    let rules = parted(Quorum::QuorumOf(1), false).rules();
    assert_eq!(rules, ["one ring per electorate"]);
}

#[test]
fn rings_without_an_electorate_and_forced_ones_may_work_apart() {
    assert_eq!(parted(Quorum::Majority, false).rules(), [""; 0]);
    assert_eq!(parted(Quorum::QuorumOf(3), true).rules(), [""; 0]);
}

#[test]
fn a_lock_that_is_granted_without_a_quorum_is_found() {
    let mut run = Run { history: History::default(), now: Time(1) };
    run.history.joined(run.now, A, GROUP);
    let mut alone = ring(FIRST, &[A], Quorum::QuorumOf(3));
    let lock = LockName(9);
    alone.locks.ask(lock, process(A));
    let granted = LockNews { name: lock, change: LockChange::Granted { fence: Timestamp(3) } };
    run.tell(A, [view(&alone, &[]), news(RingNews::Lock(granted))]);
    assert_eq!(run.rules(), ["no work without a quorum"]);
}
