use std::net::SocketAddr;

use super::*;

const PARTITIONS: u16 = 8;
const OURS: i64 = 1;
const THEIRS: i64 = 2;

fn process(lease: i64) -> Registered {
    Registered { address: SocketAddr::from(([10, 0, 0, lease as u8], 7402)), since: lease }
}

fn owner(lease: i64, term: i64) -> Owner {
    Owner { lease, address: process(lease).address, term }
}

fn event(revision: i64, change: KeyChange) -> WatchEvent {
    WatchEvent { revision, change }
}

/// Creates a process that knows the cluster at revision 10, with these live processes.
fn ownership(alive: &[i64]) -> Ownership {
    let mut ownership = Ownership::new(PARTITIONS);
    let processes = alive.iter().map(|lease| (*lease, process(*lease))).collect();
    ownership.load(Snapshot { revision: 10, processes, ..Snapshot::default() });
    ownership
}

fn events(ownership: &mut Ownership) -> Vec<StoreEvent> {
    std::iter::from_fn(|| ownership.poll()).collect()
}

fn is_ours(partition: u16) -> bool {
    let both = [OURS, THEIRS].map(|lease| (lease, process(lease))).into();
    entitled(partition, &both) == Some(OURS)
}

/// Creates a process that owns all partitions, in the terms from 100 on.
fn owner_of_all() -> Ownership {
    let mut ownership = ownership(&[OURS]);
    ownership.register(OURS);
    let requests = ownership.update(Instant::now());
    assert_eq!(requests.len(), usize::from(PARTITIONS));
    for partition in 0..PARTITIONS {
        let term = 100 + i64::from(partition);
        ownership.on_answer(Instant::now(), partition, Some(term));
        ownership.on_watch_event(event(term, KeyChange::Owner(partition, Some(owner(OURS, term)))));
    }
    assert_eq!(ownership.update(Instant::now()), []);
    let owned = events(&mut ownership);
    let owned = owned.iter().filter(|event| matches!(event, StoreEvent::Owned(_))).count();
    assert_eq!(owned, usize::from(PARTITIONS));
    ownership
}

#[test]
fn free_partition_is_taken_once_and_owned_when_watch_confirms() {
    let now = Instant::now();
    let mut ownership = ownership(&[OURS, THEIRS]);
    assert_eq!(ownership.update(now), [], "a process without a lease claims nothing");
    ownership.register(OURS);
    let requests = ownership.update(now);
    let expected: Vec<Request> = (0..PARTITIONS)
        .filter(|partition| is_ours(*partition))
        .map(|partition| Request::Claim { partition, lease: OURS })
        .collect();
    assert_eq!(requests, expected);
    let Some(Request::Claim { partition, .. }) = requests.first().copied() else { panic!("none") };
    events(&mut ownership);
    ownership.on_answer(now, partition, Some(11));
    assert_eq!(ownership.update(now), [], "the watch has not reported it yet");
    assert_eq!(events(&mut ownership), []);
    ownership.on_watch_event(event(11, KeyChange::Owner(partition, Some(owner(OURS, 11)))));
    assert_eq!(ownership.update(now), []);
    let reported = events(&mut ownership);
    assert!(reported.contains(&StoreEvent::Owned(partition)), "{reported:?}");
    let fence = ownership.begin_commit(partition, CommitId(1)).expect("it is owned");
    assert_eq!((fence.term, fence.commit_revision, fence.is_unsure), (11, 0, false));
}

#[test]
fn partitions_of_a_dead_process_are_taken_after_its_lease() {
    let now = Instant::now();
    let mut ownership = Ownership::new(PARTITIONS);
    let dead = PartitionSnapshot { owner: Some(owner(THEIRS, 5)), ..Default::default() };
    let processes = [OURS, THEIRS].map(|lease| (lease, process(lease))).into();
    let all = (0..PARTITIONS).map(|partition| (partition, dead.clone())).collect();
    ownership.load(Snapshot { revision: 10, processes, partitions: all });
    ownership.register(OURS);
    assert_eq!(ownership.update(now), [], "somebody owns them all");
    ownership.on_watch_event(event(11, KeyChange::Process(THEIRS, None)));
    assert_eq!(ownership.update(now), [], "the owner keys are there");
    for partition in 0..PARTITIONS {
        ownership.on_watch_event(event(11, KeyChange::Owner(partition, None)));
    }
    assert_eq!(ownership.update(now).len(), usize::from(PARTITIONS));
}

#[test]
fn a_request_in_vain_is_made_again_after_a_pause() {
    let now = Instant::now();
    let mut ownership = ownership(&[OURS]);
    ownership.register(OURS);
    assert_eq!(ownership.update(now).len(), usize::from(PARTITIONS));
    ownership.on_answer(now, 0, None);
    assert_eq!(ownership.update(now), []);
    assert_eq!(ownership.due(), Some(now + PAUSE));
    assert_eq!(ownership.update(now + PAUSE), [Request::Claim { partition: 0, lease: OURS }]);
}

#[test]
fn partition_is_handed_over_after_its_pending_commit() {
    let now = Instant::now();
    let mut ownership = owner_of_all();
    let theirs = (0..PARTITIONS).filter(|partition| !is_ours(*partition));
    let theirs: Vec<u16> = theirs.collect();
    let busy = theirs[0];
    let fence = ownership.begin_commit(busy, CommitId(7)).expect("it is owned");
    ownership.on_watch_event(event(200, KeyChange::Process(THEIRS, Some(process(THEIRS)))));
    let given = ownership.update(now);
    assert_eq!(given.last(), Some(&Request::Reload), "what was owned is followed from now on");
    assert_eq!(given.len(), theirs.len(), "all but one are given at once");
    assert!(!given.contains(&Request::Release { partition: busy, term: fence.term }));
    assert!(ownership.begin_commit(theirs[1], CommitId(8)).is_none(), "it was lost first");
    events(&mut ownership);
    assert_eq!(ownership.end_commit(busy, CommitId(7), Ok(201)), None);
    let give = Request::Release { partition: busy, term: fence.term };
    assert_eq!(ownership.update(now), [give, Request::Reload]);
    let reported = events(&mut ownership);
    assert_eq!(reported, [StoreEvent::Committed(CommitId(7), Ok(())), StoreEvent::Lost(busy)]);
}

/// Returns the cluster in which this process owns all partitions, as after [`owner_of_all`].
fn snapshot_of_ours(revision: i64) -> Snapshot {
    let partition = |partition| {
        let owner = Some(owner(OURS, 100 + i64::from(partition)));
        (partition, PartitionSnapshot { owner, ..Default::default() })
    };
    let partitions = (0..PARTITIONS).map(partition).collect();
    Snapshot { revision, processes: [(OURS, process(OURS))].into(), partitions }
}

/// Creates a process that is again entitled to two partitions that it is handing over.
fn giver_that_is_the_heir_again(now: Instant) -> (Ownership, [u16; 2]) {
    let mut ownership = owner_of_all();
    ownership.on_watch_event(event(200, KeyChange::Process(THEIRS, Some(process(THEIRS)))));
    let given = ownership.update(now).into_iter().filter_map(|request| match request {
        Request::Release { partition, .. } => Some(partition),
        _ => None,
    });
    let given: Vec<u16> = given.collect();
    ownership.on_watch_event(event(201, KeyChange::Process(THEIRS, None)));
    let snapshot = snapshot_of_ours(201);
    ownership.load(snapshot);
    events(&mut ownership);
    assert_eq!(ownership.update(now), []);
    (ownership, [given[0], given[1]])
}

fn owned(ownership: &mut Ownership) -> Vec<u16> {
    let owned = events(ownership).into_iter().filter_map(|event| match event {
        StoreEvent::Owned(partition) => Some(partition),
        _ => None,
    });
    owned.collect()
}

#[test]
fn partition_is_not_owned_again_during_its_own_handover() {
    let now = Instant::now();
    let (mut ownership, [given, kept]) = giver_that_is_the_heir_again(now);
    assert!(owned(&mut ownership).is_empty(), "the keys may go");
    ownership.on_answer(now, given, Some(202));
    assert_eq!(ownership.update(now), []);
    assert!(owned(&mut ownership).is_empty(), "its key has gone, as the watch will tell");
    ownership.on_watch_event(event(202, KeyChange::Owner(given, None)));
    assert_eq!(ownership.update(now), [Request::Claim { partition: given, lease: OURS }]);
    ownership.on_answer(now, kept, None);
    assert_eq!(ownership.update(now), []);
    assert_eq!(owned(&mut ownership), [kept], "the gift was in vain");
    ownership.on_answer(now, given, Some(203));
    ownership.on_watch_event(event(203, KeyChange::Owner(given, Some(owner(OURS, 203)))));
    assert_eq!(ownership.update(now), []);
    assert_eq!(owned(&mut ownership), [given]);
}

#[test]
fn lapsed_lease_loses_all_partitions_and_names_no_owner() {
    let mut ownership = owner_of_all();
    let _ = ownership.begin_commit(0, CommitId(7)).expect("it is owned");
    ownership.lapse();
    let reported = events(&mut ownership);
    let lost = reported.iter().filter(|event| matches!(event, StoreEvent::Lost(_))).count();
    assert_eq!(lost, usize::from(PARTITIONS));
    let nobody = Owners { partitions: PARTITIONS, owned: Vec::new() };
    assert_eq!(reported.last(), Some(&StoreEvent::Owners(nobody)));
    assert_eq!(ownership.end_commit(0, CommitId(7), Ok(300)), None);
    assert_eq!(events(&mut ownership), [], "the answer comes too late");
    assert_eq!(ownership.update(Instant::now()), [Request::Reload], "nothing is taken or given");
}

#[test]
fn commit_of_unknown_fate_is_repeated_as_unsure() {
    let mut ownership = owner_of_all();
    let first = ownership.begin_commit(0, CommitId(7)).expect("it is owned");
    ownership.end_commit(0, CommitId(7), Err(CommitFailure::Unknown));
    // The watch may report the commit before its own response arrives.
    let record = CommitRecord { term: first.term, after: 0, changes: Vec::new() };
    ownership.on_watch_event(event(300, KeyChange::Commit(0, record)));
    let again = ownership.begin_commit(0, CommitId(7)).expect("it is owned");
    assert!(again.is_unsure && !first.is_unsure);
    assert_eq!(again.commit_revision, first.commit_revision, "it takes effect once");
    ownership.end_commit(0, CommitId(7), Ok(300));
    let next = ownership.begin_commit(0, CommitId(8)).expect("it is owned");
    assert_eq!((next.commit_revision, next.is_unsure), (300, false));
}

#[test]
fn deposed_process_reloads_before_it_owns_again() {
    let now = Instant::now();
    let mut ownership = owner_of_all();
    let fence = ownership.begin_commit(0, CommitId(7)).expect("it is owned");
    let deposed = ownership.end_commit(0, CommitId(7), Err(CommitFailure::Deposed));
    assert_eq!(deposed, Some(Request::Reload));
    assert_eq!(ownership.update(now), []);
    let reported = events(&mut ownership);
    assert_eq!(reported, [StoreEvent::Committed(CommitId(7), Err(CommitFailure::Deposed))]);
    ownership.load(snapshot_of_ours(400));
    assert_eq!(ownership.update(now), []);
    let reported = events(&mut ownership);
    let state = PartitionState::default();
    assert_eq!(reported, [StoreEvent::Loaded(0, state), StoreEvent::Owned(0)], "{fence:?}");
}
