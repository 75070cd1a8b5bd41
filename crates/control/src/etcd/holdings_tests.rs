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

fn news(revision: i64, what: What) -> News {
    News { revision, what }
}

/// Creates a process that knows the cluster at revision 10, with these live processes.
fn holdings(alive: &[i64]) -> Holdings {
    let mut holdings = Holdings::new(PARTITIONS);
    let processes = alive.iter().map(|lease| (*lease, process(*lease))).collect();
    holdings.load(Snapshot { revision: 10, processes, ..Snapshot::default() });
    holdings
}

fn events(holdings: &mut Holdings) -> Vec<StoreEvent> {
    std::iter::from_fn(|| holdings.poll()).collect()
}

fn is_ours(partition: u16) -> bool {
    let both = [OURS, THEIRS].map(|lease| (lease, process(lease))).into();
    entitled(partition, &both) == Some(OURS)
}

/// Creates a process that owns all partitions, in the terms from 100 on.
fn owner_of_all() -> Holdings {
    let mut holdings = holdings(&[OURS]);
    holdings.register(OURS);
    let wishes = holdings.tend(Instant::now());
    assert_eq!(wishes.len(), usize::from(PARTITIONS));
    for partition in 0..PARTITIONS {
        let term = 100 + i64::from(partition);
        holdings.answered(Instant::now(), partition, Some(term));
        holdings.see(news(term, What::Owner(partition, Some(owner(OURS, term)))));
    }
    assert_eq!(holdings.tend(Instant::now()), []);
    let owned = events(&mut holdings);
    let owned = owned.iter().filter(|event| matches!(event, StoreEvent::Owned(_))).count();
    assert_eq!(owned, usize::from(PARTITIONS));
    holdings
}

#[test]
fn free_partition_is_taken_once_and_owned_when_watch_confirms() {
    let now = Instant::now();
    let mut holdings = holdings(&[OURS, THEIRS]);
    assert_eq!(holdings.tend(now), [], "who has no lease takes nothing");
    holdings.register(OURS);
    let wishes = holdings.tend(now);
    let expected: Vec<Wish> = (0..PARTITIONS)
        .filter(|partition| is_ours(*partition))
        .map(|partition| Wish::Take { partition, lease: OURS })
        .collect();
    assert_eq!(wishes, expected);
    let Some(Wish::Take { partition, .. }) = wishes.first().copied() else { panic!("none") };
    events(&mut holdings);
    holdings.answered(now, partition, Some(11));
    assert_eq!(holdings.tend(now), [], "the watch has not come so far");
    assert_eq!(events(&mut holdings), []);
    holdings.see(news(11, What::Owner(partition, Some(owner(OURS, 11)))));
    assert_eq!(holdings.tend(now), []);
    let told = events(&mut holdings);
    assert!(told.contains(&StoreEvent::Owned(partition)), "{told:?}");
    let fence = holdings.begin_commit(partition, CommitId(1)).expect("it is owned");
    assert_eq!((fence.term, fence.commit_revision, fence.is_unsure), (11, 0, false));
}

#[test]
fn partitions_of_a_dead_process_are_taken_after_its_lease() {
    let now = Instant::now();
    let mut holdings = Holdings::new(PARTITIONS);
    let dead = PartitionSnapshot { owner: Some(owner(THEIRS, 5)), ..Default::default() };
    let processes = [OURS, THEIRS].map(|lease| (lease, process(lease))).into();
    let all = (0..PARTITIONS).map(|partition| (partition, dead.clone())).collect();
    holdings.load(Snapshot { revision: 10, processes, partitions: all });
    holdings.register(OURS);
    assert_eq!(holdings.tend(now), [], "somebody owns them all");
    holdings.see(news(11, What::Process(THEIRS, None)));
    assert_eq!(holdings.tend(now), [], "the owner keys are there");
    for partition in 0..PARTITIONS {
        holdings.see(news(11, What::Owner(partition, None)));
    }
    assert_eq!(holdings.tend(now).len(), usize::from(PARTITIONS));
}

#[test]
fn a_request_in_vain_is_made_again_after_a_pause() {
    let now = Instant::now();
    let mut holdings = holdings(&[OURS]);
    holdings.register(OURS);
    assert_eq!(holdings.tend(now).len(), usize::from(PARTITIONS));
    holdings.answered(now, 0, None);
    assert_eq!(holdings.tend(now), []);
    assert_eq!(holdings.due(), Some(now + PAUSE));
    assert_eq!(holdings.tend(now + PAUSE), [Wish::Take { partition: 0, lease: OURS }]);
}

#[test]
fn partition_is_handed_over_after_its_pending_commit() {
    let now = Instant::now();
    let mut holdings = owner_of_all();
    let theirs = (0..PARTITIONS).filter(|partition| !is_ours(*partition));
    let theirs: Vec<u16> = theirs.collect();
    let busy = theirs[0];
    let fence = holdings.begin_commit(busy, CommitId(7)).expect("it is owned");
    holdings.see(news(200, What::Process(THEIRS, Some(process(THEIRS)))));
    let given = holdings.tend(now);
    assert_eq!(given.last(), Some(&Wish::Reload), "what was owned is followed from now on");
    assert_eq!(given.len(), theirs.len(), "all but one are given at once");
    assert!(!given.contains(&Wish::Give { partition: busy, term: fence.term }));
    assert!(holdings.begin_commit(theirs[1], CommitId(8)).is_none(), "it was lost first");
    events(&mut holdings);
    assert_eq!(holdings.end_commit(busy, CommitId(7), Ok(201)), None);
    let give = Wish::Give { partition: busy, term: fence.term };
    assert_eq!(holdings.tend(now), [give, Wish::Reload]);
    let told = events(&mut holdings);
    assert_eq!(told, [StoreEvent::Committed(CommitId(7), Ok(())), StoreEvent::Lost(busy)]);
}

/// Creates a process that hands over two partitions, becomes entitled to all of them again before
/// etcd answers, and reads all data. Also returns the two partitions.
fn giver_that_is_the_heir_again(now: Instant) -> (Holdings, [u16; 2]) {
    let mut holdings = owner_of_all();
    holdings.see(news(200, What::Process(THEIRS, Some(process(THEIRS)))));
    let given = holdings.tend(now).into_iter().filter_map(|wish| match wish {
        Wish::Give { partition, .. } => Some(partition),
        _ => None,
    });
    let given: Vec<u16> = given.collect();
    holdings.see(news(201, What::Process(THEIRS, None)));
    let mut snapshot = Snapshot { revision: 201, ..Snapshot::default() };
    snapshot.processes.insert(OURS, process(OURS));
    for partition in 0..PARTITIONS {
        let owner = Some(owner(OURS, 100 + i64::from(partition)));
        let found = PartitionSnapshot { owner, ..Default::default() };
        snapshot.partitions.insert(partition, found);
    }
    holdings.load(snapshot);
    events(&mut holdings);
    assert_eq!(holdings.tend(now), []);
    (holdings, [given[0], given[1]])
}

fn owned(holdings: &mut Holdings) -> Vec<u16> {
    let owned = events(holdings).into_iter().filter_map(|event| match event {
        StoreEvent::Owned(partition) => Some(partition),
        _ => None,
    });
    owned.collect()
}

#[test]
fn partition_is_not_owned_again_during_its_own_handover() {
    let now = Instant::now();
    let (mut holdings, [given, kept]) = giver_that_is_the_heir_again(now);
    assert!(owned(&mut holdings).is_empty(), "the keys may go");
    holdings.answered(now, given, Some(202));
    assert_eq!(holdings.tend(now), []);
    assert!(owned(&mut holdings).is_empty(), "its key has gone, as the watch will tell");
    holdings.see(news(202, What::Owner(given, None)));
    assert_eq!(holdings.tend(now), [Wish::Take { partition: given, lease: OURS }]);
    holdings.answered(now, kept, None);
    assert_eq!(holdings.tend(now), []);
    assert_eq!(owned(&mut holdings), [kept], "the gift was in vain");
    holdings.answered(now, given, Some(203));
    holdings.see(news(203, What::Owner(given, Some(owner(OURS, 203)))));
    assert_eq!(holdings.tend(now), []);
    assert_eq!(owned(&mut holdings), [given]);
}

#[test]
fn lapsed_lease_loses_all_partitions_and_names_no_owner() {
    let mut holdings = owner_of_all();
    let _ = holdings.begin_commit(0, CommitId(7)).expect("it is owned");
    holdings.lapse();
    let told = events(&mut holdings);
    let lost = told.iter().filter(|event| matches!(event, StoreEvent::Lost(_))).count();
    assert_eq!(lost, usize::from(PARTITIONS));
    let nobody = Owners { partitions: PARTITIONS, owned: Vec::new() };
    assert_eq!(told.last(), Some(&StoreEvent::Owners(nobody)));
    assert_eq!(holdings.end_commit(0, CommitId(7), Ok(300)), None);
    assert_eq!(events(&mut holdings), [], "the answer comes too late");
    assert_eq!(holdings.tend(Instant::now()), [Wish::Reload], "nothing is taken or given");
}

#[test]
fn commit_of_unknown_fate_is_repeated_as_unsure() {
    let mut holdings = owner_of_all();
    let first = holdings.begin_commit(0, CommitId(7)).expect("it is owned");
    holdings.end_commit(0, CommitId(7), Err(CommitFailure::Unknown));
    // The watch may report the commit before its own response arrives.
    let record = CommitRecord { term: first.term, after: 0, changes: Vec::new() };
    holdings.see(news(300, What::Commit(0, record)));
    let again = holdings.begin_commit(0, CommitId(7)).expect("it is owned");
    assert!(again.is_unsure && !first.is_unsure);
    assert_eq!(again.commit_revision, first.commit_revision, "it takes effect once");
    holdings.end_commit(0, CommitId(7), Ok(300));
    let next = holdings.begin_commit(0, CommitId(8)).expect("it is owned");
    assert_eq!((next.commit_revision, next.is_unsure), (300, false));
}

#[test]
fn deposed_process_reloads_before_it_owns_again() {
    let now = Instant::now();
    let mut holdings = owner_of_all();
    let fence = holdings.begin_commit(0, CommitId(7)).expect("it is owned");
    let deposed = holdings.end_commit(0, CommitId(7), Err(CommitFailure::Deposed));
    assert_eq!(deposed, Some(Wish::Reload));
    assert_eq!(holdings.tend(now), []);
    let told = events(&mut holdings);
    assert_eq!(told, [StoreEvent::Committed(CommitId(7), Err(CommitFailure::Deposed))]);
    let mut snapshot = Snapshot { revision: 400, ..Snapshot::default() };
    snapshot.processes.insert(OURS, process(OURS));
    for partition in 0..PARTITIONS {
        let owner = Some(owner(OURS, 100 + i64::from(partition)));
        let found = PartitionSnapshot { owner, ..Default::default() };
        snapshot.partitions.insert(partition, found);
    }
    holdings.load(snapshot);
    assert_eq!(holdings.tend(now), []);
    let told = events(&mut holdings);
    let state = PartitionState::default();
    assert_eq!(told, [StoreEvent::Loaded(0, state), StoreEvent::Owned(0)], "{fence:?}");
}
