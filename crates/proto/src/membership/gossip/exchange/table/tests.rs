use super::*;
use crate::{GroupSettings, Profile, RateOfFire, Rng, Time};

const OWNER: NodeId = NodeId(1);

fn subscription(joined_at: u64) -> Subscription {
    let settings = GroupSettings::new("a", Profile::TimeCritical(RateOfFire::default()));
    Subscription { settings, joined_at: Time(joined_at) }
}

fn owner_of(groups: u32) -> Table {
    let mut owner = Table::default();
    (0..groups).for_each(|group| owner.change(GroupId(group), Some(subscription(1))));
    owner
}

fn absorb_all(replica: &mut Table, parts: &[Changes]) {
    parts.iter().for_each(|part| drop(replica.absorb(part, 9999)));
}

fn all(table: &Table) -> Vec<(GroupId, Subscription)> {
    table.subscriptions().collect()
}

fn parts(table: &Table, mut wanted: Wanted, capacity: usize) -> Vec<Changes> {
    let mut parts = Vec::new();
    while let Some(part) = table.changes(wanted, capacity) {
        assert!(part.up_to > part.after, "an empty part");
        wanted.after = part.up_to;
        wanted.floor = wanted.floor.max(part.floor);
        parts.push(part);
    }
    parts
}

fn wanted(after: u32, up_to: u32) -> Wanted {
    Wanted { node: OWNER, after, up_to, floor: 0 }
}

#[test]
fn parts_may_come_in_any_order_and_the_gaps_are_known() {
    let owner = owner_of(10);
    let parts = parts(&owner, wanted(0, 10), 3);
    assert_eq!(parts.len(), 4);
    let mut replica = Table::default();
    replica.absorb(&parts[2], 100);
    assert_eq!((replica.version(), replica.len()), (0, 3));
    assert_eq!(replica.gaps(OWNER, 10, 9), [wanted(0, 6), wanted(9, 10)]);
    assert_eq!(replica.gaps(OWNER, 10, 1), [wanted(0, 6)]);
    replica.absorb(&parts[0], 100);
    assert_eq!(replica.version(), 3);
    assert_eq!(replica.gaps(OWNER, 10, 9), [wanted(3, 6), wanted(9, 10)]);
    replica.absorb(&parts[1], 100);
    let (differences, _) = replica.absorb(&parts[3], 100);
    assert_eq!(differences.len(), 1);
    assert_eq!((replica.version(), all(&replica)), (10, all(&owner)));
    assert_eq!(replica.gaps(OWNER, 10, 9), []);
    replica.check();
}

#[test]
fn old_news_does_not_undo_what_is_newer() {
    let mut owner = Table::default();
    owner.change(GroupId(7), Some(subscription(1)));
    let old = owner.changes(wanted(0, 1), 9).expect("there is a change");
    owner.change(GroupId(7), None);
    let new = owner.changes(wanted(1, 2), 9).expect("there is another");
    let mut replica = Table::default();
    assert_eq!(replica.absorb(&new, 9).0, []);
    assert_eq!(replica.absorb(&old, 9).0, []);
    assert_eq!((replica.version(), replica.len()), (2, 0));
    // In the right order, the second change revokes the first.
    let mut replica = Table::default();
    let gained = Difference { group: GroupId(7), now: Some(subscription(1)) };
    assert_eq!(replica.absorb(&old, 9).0, [gained]);
    assert_eq!(replica.absorb(&new, 9).0, [Difference { group: GroupId(7), now: None }]);
}

#[test]
fn replica_too_far_behind_is_replaced_by_the_full_table() {
    let (mut owner, mut replica) = (owner_of(3000), Table::default());
    absorb_all(&mut replica, &parts(&owner, wanted(0, 3000), 50));
    (0..2500).for_each(|group| owner.change(GroupId(group), None));
    owner.check();
    assert!(owner.rows.len() <= 500 + Table::MAX_LEFT, "left groups are forgotten");
    let gap = replica.gaps(OWNER, owner.version(), 1)[0];
    let answer = parts(&owner, gap, 50);
    assert_eq!(answer[0].after, 0, "left groups are forgotten, so all changes are sent");
    let lost: usize = answer.iter().map(|part| replica.absorb(part, 9999).0.len()).sum();
    assert_eq!(lost, 2500);
    assert_eq!((replica.version(), all(&replica)), (owner.version(), all(&owner)));
    replica.check();
}

#[test]
fn replica_too_far_behind_catches_up_despite_lost_parts() {
    let (mut owner, mut replica) = (owner_of(3000), Table::default());
    absorb_all(&mut replica, &parts(&owner, wanted(0, 3000), 50));
    let laggard = replica.clone();
    (0..2500).for_each(|group| owner.change(GroupId(group), None));
    let answer = parts(&owner, replica.gaps(OWNER, owner.version(), 1)[0], 50);
    // Every second part arrives, in reverse order. Then old changes arrive from the laggard.
    answer.iter().rev().step_by(2).for_each(|part| drop(replica.absorb(part, 9999)));
    assert!(replica.version() < owner.version());
    for gap in replica.gaps(OWNER, laggard.version(), 8) {
        absorb_all(&mut replica, &parts(&laggard, gap, 50));
    }
    let mut rounds = 0;
    while replica.version() < owner.version() {
        for gap in replica.gaps(OWNER, owner.version(), 8) {
            let answer = parts(&owner, gap, 50);
            answer.iter().take(5).for_each(|part| drop(replica.absorb(part, 9999)));
        }
        rounds += 1;
        assert!(rounds < 20, "no progress beyond {}", replica.version());
    }
    assert_eq!(all(&replica), all(&owner));
    replica.check();
}

#[test]
fn more_subscriptions_than_allowed_are_counted_and_not_kept() {
    let (owner, mut replica) = (owner_of(10), Table::default());
    let everything = owner.changes(wanted(0, 10), 99).expect("ten changes");
    let (differences, overflow) = replica.absorb(&everything, 6);
    assert_eq!((differences.len(), overflow, replica.len()), (6, 4, 6));
    assert_eq!(replica.version(), 10, "they are requested only once");
}

#[test]
fn replicas_that_exchange_changes_become_equal() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut tables = [Table::default(), Table::default(), Table::default()];
        let mut seen = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
        for round in 0..300 {
            if round < 200 && rng.chance(0.4) {
                let group = GroupId(rng.below(12) as u32);
                let joins = tables[0].subscription(group).is_none();
                tables[0].change(group, joins.then(|| subscription(round)));
            }
            let (from, to) = (rng.below(3), 1 + rng.below(2));
            let version = tables[from].version();
            for gap in tables[to].gaps(OWNER, version, 8) {
                for part in parts(&tables[from], gap, 1 + rng.below(4)) {
                    if from == to || rng.chance(0.3) {
                        continue;
                    }
                    for difference in tables[to].absorb(&part, 99).0 {
                        seen[to].insert(difference.group, difference.now);
                    }
                }
            }
            tables.iter().for_each(Table::check);
        }
        for (table, seen) in tables.iter().zip(&seen).skip(1) {
            assert_eq!(table.version(), tables[0].version(), "seed {seed}");
            assert_eq!(all(table), all(&tables[0]), "seed {seed}");
            let told = seen.iter().filter_map(|(group, now)| Some((*group, (*now)?)));
            assert_eq!(told.collect::<Vec<_>>(), all(table), "seed {seed}");
        }
    }
}
