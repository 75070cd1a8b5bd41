//! Pending repairs: repairs with two or more missing packets.
//!
//! Each pending repair is an equation over GF(2): the XOR of its missing packets equals its own XOR
//! without the held packets. By the papers' rule, a repair waits until only one packet is missing
//! ([`Solver::Peeling`]). [`Solver::Elimination`] instead keeps the equations in reduced row
//! echelon form and solves every packet that they determine together. The pivot of a row is one of
//! its packets and occurs in no other row.
//!
//! Rows are bit sets with a column for each unknown packet. The cost of a datagram is bounded:
//! there are at most [`MAX_UNKNOWN`] columns, and a row that would exceed [`MAX_WORK`] is dropped.
//! Any subset of the rows is still correct and in echelon form. Once half of the work limit is used
//! up, solved packets wait for the next call.

use alloc::collections::VecDeque;
use core::time::Duration;

use fixedbitset::FixedBitSet;

use crate::lateral::config::Solver;
use crate::lateral::packet::symbol::xor_growing;
use crate::{IdMap, NodeId, PacketId, Time};

const MAX_UNKNOWN: usize = 2048;
/// Maximum number of bytes XORed for one datagram, more than twice 256 repairs of 1500 bytes.
const MAX_WORK: usize = 1 << 20;
const WORK_OF_BITS: usize = MAX_UNKNOWN / 8;

/// Maximum number of unknown packets of a row that are considered as its pivot.
const MAX_CANDIDATES: usize = 8;

#[derive(Debug)]
pub(crate) struct PendingRepairs {
    solver: Solver,
    max_rows: usize,
    max_age: Duration,
    rows: VecDeque<Row>,
    columns: Columns,
    solved: VecDeque<Solved>,
    work: Work,
    pub(crate) dropped: u64,
    pub(crate) over_budget: u64,
    now: Time,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Solved {
    pub(crate) id: PacketId,
    /// Symbol of the packet, possibly followed by zeros.
    pub(crate) sum: Vec<u8>,
    pub(crate) from: NodeId,
}

#[derive(Debug)]
struct Row {
    unknown: FixedBitSet,
    pivot: usize,
    sum: Vec<u8>,
    from: NodeId,
    received_at: Time,
}

#[derive(Debug)]
struct Columns {
    by_id: IdMap<PacketId, usize>,
    /// Packet of each column. The entry of a vacant column is meaningless.
    ids: Vec<PacketId>,
    vacant: Vec<usize>,
}

#[derive(Debug)]
struct Work(usize);

impl PendingRepairs {
    pub(crate) fn new(solver: Solver, max_rows: usize, max_age: Duration, seed: u64) -> Self {
        Self {
            solver,
            max_rows,
            max_age,
            rows: VecDeque::new(),
            columns: Columns::new(seed),
            solved: VecDeque::new(),
            work: Work(MAX_WORK),
            dropped: 0,
            over_budget: 0,
            now: Time::default(),
        }
    }

    /// Resets the work limit. Must be called at the start of each datagram or timeout.
    pub(crate) fn renew_work(&mut self) {
        self.work = Work(MAX_WORK);
    }

    /// Adds a repair. `sum` is the XOR of the `missing` packets, of which there are two or more.
    pub(crate) fn insert(&mut self, now: Time, from: NodeId, missing: Vec<PacketId>, sum: Vec<u8>) {
        self.drop_old(now);
        if self.columns.room() < missing.len() {
            self.release_columns();
            if self.columns.room() < missing.len() {
                self.over_budget += 1;
                return;
            }
        }
        let mut unknown = FixedBitSet::with_capacity(MAX_UNKNOWN);
        missing.into_iter().for_each(|id| unknown.insert(self.columns.of(id)));
        self.place(Row { unknown, pivot: 0, sum, from, received_at: now });
        if self.rows.len() > self.max_rows {
            self.rows.pop_front();
            self.dropped += 1;
        }
    }

    pub(crate) fn on_packet(&mut self, id: PacketId, symbol: &[u8]) {
        let Some(column) = self.columns.remove(id) else { return };
        let Self { rows, work, over_budget, .. } = self;
        let mut unsettled = Vec::new();
        rows.retain_mut(|row| {
            if !row.unknown.contains(column) {
                return true;
            }
            if !work.spend(symbol.len()) {
                *over_budget += 1;
                return false;
            }
            row.unknown.remove(column);
            xor_growing(&mut row.sum, symbol);
            // A row that is solved or has lost its pivot must be placed again.
            let stays = row.pivot != column && !row.is_solved();
            if !stays {
                unsettled.push(row.take());
            }
            stays
        });
        for row in unsettled {
            self.place(row);
        }
    }

    #[inline]
    pub(crate) fn pop_solved(&mut self) -> Option<Solved> {
        if self.work.0 < MAX_WORK / 2 {
            return None;
        }
        self.solved.pop_front()
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        if self.solved.is_empty() { self.next_drop() } else { Some(self.now) }
    }

    fn next_drop(&self) -> Option<Time> {
        self.rows.front().map(|row| row.received_at + self.max_age)
    }

    pub(crate) fn drop_old(&mut self, now: Time) {
        self.now = now;
        while self.next_drop().is_some_and(|due| due <= now) {
            self.rows.pop_front();
            self.dropped += 1;
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let solved: usize = self.solved.iter().map(|solved| solved.sum.len()).sum();
        solved + self.rows.iter().map(|row| row.sum.len()).sum::<usize>()
    }

    pub(crate) fn check(&self) {
        assert!(self.rows.len() <= self.max_rows, "too many repairs are pending");
        for (place, row) in self.rows.iter().enumerate() {
            assert!(!row.is_solved(), "a solved row is pending");
            assert!(row.unknown.contains(row.pivot), "a row has lost its pivot");
            for column in row.unknown.ones() {
                let known = self.columns.by_id.get(&self.columns.ids[column]);
                assert_eq!(known, Some(&column), "a column is both in use and vacant");
            }
            let mut others = self.rows.iter().enumerate().filter(|(other, _)| *other != place);
            let elsewhere = others.any(|(_, other)| other.unknown.contains(row.pivot));
            let reduced = self.solver == Solver::Elimination;
            assert!(!reduced || !elsewhere, "a pivot is in two rows");
        }
    }

    fn place(&mut self, mut row: Row) {
        if self.solver == Solver::Elimination {
            for other in &self.rows {
                if row.unknown.contains(other.pivot) {
                    if !self.work.spend(other.sum.len()) {
                        self.over_budget += 1;
                        return;
                    }
                    row.add(other);
                }
            }
        }
        // Every row with the pivot has to be changed, so the pivot should be in few rows.
        let rows_with = |column: &usize| {
            self.rows.iter().filter(|other| other.unknown.contains(*column)).count()
        };
        let candidates = row.unknown.ones().take(MAX_CANDIDATES);
        // There is no candidate if earlier repairs determine the same packets.
        let Some(pivot) = candidates.min_by_key(rows_with) else { return };
        row.pivot = pivot;
        if row.is_solved() {
            let id = self.columns.ids[pivot];
            self.solved.push_back(Solved { id, sum: row.sum, from: row.from });
            return;
        }
        if self.solver == Solver::Elimination {
            self.reduce_with(&row);
        }
        let after = self.rows.iter().rposition(|other| other.received_at <= row.received_at);
        self.rows.insert(after.map_or(0, |place| place + 1), row);
    }

    /// Eliminates the new row's pivot from the other rows, and removes the rows that this solves.
    fn reduce_with(&mut self, row: &Row) {
        let Self { rows, columns, solved, work, over_budget, .. } = self;
        rows.retain_mut(|other| {
            if !other.unknown.contains(row.pivot) {
                return true;
            }
            if !work.spend(row.sum.len()) {
                *over_budget += 1;
                return false;
            }
            other.add(row);
            let is_solved = other.is_solved();
            if is_solved {
                let (id, from) = (columns.ids[other.pivot], other.from);
                solved.push_back(Solved { id, sum: core::mem::take(&mut other.sum), from });
            }
            !is_solved
        });
    }

    fn release_columns(&mut self) {
        let mut used = FixedBitSet::with_capacity(MAX_UNKNOWN);
        self.rows.iter().for_each(|row| used.union_with(&row.unknown));
        self.columns.retain(&used);
    }
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.unknown.symmetric_difference_with(&other.unknown);
        xor_growing(&mut self.sum, &other.sum);
    }

    #[inline]
    fn is_solved(&self) -> bool {
        self.unknown.ones().nth(1).is_none()
    }

    fn take(&mut self) -> Self {
        let (unknown, sum) = (core::mem::take(&mut self.unknown), core::mem::take(&mut self.sum));
        Self { unknown, sum, ..*self }
    }
}

impl Columns {
    fn new(seed: u64) -> Self {
        Self { by_id: IdMap::new(seed), ids: Vec::new(), vacant: Vec::new() }
    }

    fn room(&self) -> usize {
        MAX_UNKNOWN - self.by_id.len()
    }

    /// Returns the column of a packet. There must be a vacant column if the packet is new.
    fn of(&mut self, id: PacketId) -> usize {
        let Self { by_id, ids, vacant } = self;
        *by_id.get_or_insert_with(id, || match vacant.pop() {
            Some(column) => {
                ids[column] = id;
                column
            }
            None => {
                ids.push(id);
                ids.len() - 1
            }
        })
    }

    fn remove(&mut self, id: PacketId) -> Option<usize> {
        let column = self.by_id.remove(&id)?;
        self.vacant.push(column);
        Some(column)
    }

    fn retain(&mut self, used: &FixedBitSet) {
        for (column, id) in self.ids.iter().enumerate() {
            if !used.contains(column) && self.by_id.get(id) == Some(&column) {
                self.by_id.remove(id);
                self.vacant.push(column);
            }
        }
    }
}

impl Work {
    fn spend(&mut self, bytes: usize) -> bool {
        let rest = self.0.checked_sub(bytes + WORK_OF_BITS);
        self.0 = rest.unwrap_or(0);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lateral::packet::symbol::xor_into;
    use crate::{GroupId, SeqNo};
    use proptest::prelude::*;

    const FROM: NodeId = NodeId(9);

    fn id(number: u32) -> PacketId {
        PacketId { sender: NodeId(1), group: GroupId(1), seqno: SeqNo(number) }
    }

    fn symbol(number: u32) -> Vec<u8> {
        (0..=number as u8).map(|byte| byte.wrapping_mul(37) ^ (number as u8 + 1)).collect()
    }

    fn sum(numbers: &[u32]) -> Vec<u8> {
        let mut sum = vec![0; 60];
        numbers.iter().for_each(|number| xor_into(&mut sum, &symbol(*number)));
        sum
    }

    fn pending(solver: Solver) -> PendingRepairs {
        PendingRepairs::new(solver, 20, Duration::from_secs(1), 7)
    }

    fn renewed(pending: &mut PendingRepairs) -> &mut PendingRepairs {
        pending.renew_work();
        pending
    }

    fn insert(pending: &mut PendingRepairs, now: Time, numbers: &[u32]) {
        insert_sum(pending, now, numbers, sum(numbers));
    }

    fn insert_sum(pending: &mut PendingRepairs, now: Time, numbers: &[u32], sum: Vec<u8>) {
        renewed(pending).insert(now, FROM, numbers.iter().map(|n| id(*n)).collect(), sum);
    }

    fn roomy(solver: Solver) -> PendingRepairs {
        PendingRepairs::new(solver, 4096, Duration::from_secs(1), 7)
    }

    fn drain(pending: &mut PendingRepairs) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(solved) = renewed(pending).pop_solved() {
            let number = solved.id.seqno.0;
            let expected = symbol(number);
            assert_eq!(solved.sum[..expected.len()], expected);
            assert!(solved.sum[expected.len()..].iter().all(|byte| *byte == 0));
            renewed(pending).on_packet(solved.id, &expected);
            numbers.push(number);
        }
        pending.check();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    #[test]
    fn the_papers_rule_waits_until_one_packet_is_left() {
        let mut pending = pending(Solver::Peeling);
        insert(&mut pending, Time(0), &[1, 2, 3]);
        insert(&mut pending, Time(0), &[2, 3]);
        assert_eq!(drain(&mut pending), [] as [u32; 0]);
        renewed(&mut pending).on_packet(id(2), &symbol(2));
        assert_eq!(drain(&mut pending), [1, 3]);
    }

    #[test]
    fn elimination_solves_what_two_repairs_determine_together() {
        let mut pending = pending(Solver::Elimination);
        insert(&mut pending, Time(0), &[1, 2, 3]);
        insert(&mut pending, Time(0), &[2, 3]);
        assert_eq!(drain(&mut pending), [1]);
        renewed(&mut pending).on_packet(id(3), &symbol(3));
        assert_eq!(drain(&mut pending), [2]);
    }

    #[test]
    fn old_and_too_many_pending_repairs_are_dropped_and_counted() {
        let mut pending = pending(Solver::Elimination);
        (0..25).for_each(|n| insert(&mut pending, Time(u64::from(n)), &[n * 2, n * 2 + 1]));
        assert_eq!(pending.dropped, 5);
        assert_eq!(pending.next_due(), Some(Time(5) + Duration::from_secs(1)));
        pending.drop_old(Time(10) + Duration::from_secs(1));
        assert_eq!(pending.dropped, 11);
        pending.check();
    }

    #[test]
    fn what_would_cost_too_much_is_given_up_and_counted() {
        let mut pending = roomy(Solver::Peeling);
        // All 300 rows of 4 KiB contain packet 0, whose arrival changes 240 of them and drops the
        // other 60.
        for number in 1..=300 {
            insert_sum(&mut pending, Time(0), &[0, number], vec![0; 4096]);
        }
        assert_eq!((pending.rows.len(), pending.over_budget), (300, 0));
        renewed(&mut pending).on_packet(id(0), &[0; 4096]);
        let kept = MAX_WORK / (4096 + WORK_OF_BITS);
        assert_eq!(pending.over_budget, 300 - kept as u64);
        pending.check();
    }

    #[test]
    fn elimination_drops_rows_whose_turn_comes_too_late() {
        let mut pending = roomy(Solver::Elimination);
        // The last repair takes packet 1 as its pivot, and would solve all 300 rows before it.
        for number in 0..300 {
            insert_sum(&mut pending, Time(0), &[10 + number, 1, 2], vec![number as u8; 4096]);
        }
        assert_eq!((pending.rows.len(), pending.over_budget), (300, 0));
        insert_sum(&mut pending, Time(0), &[1, 2], vec![9; 4096]);
        let kept = MAX_WORK / (4096 + WORK_OF_BITS);
        assert_eq!((pending.rows.len(), pending.solved.len()), (1, kept));
        assert_eq!(pending.over_budget, 300 - kept as u64);
        pending.check();
        while let Some(solved) = renewed(&mut pending).pop_solved() {
            let number = solved.id.seqno.0 - 10;
            assert_eq!(solved.sum, vec![number as u8 ^ 9; 4096]);
        }
    }

    #[test]
    fn elimination_drops_a_new_row_that_needs_too_many_others() {
        let mut pending = roomy(Solver::Elimination);
        for number in 0..300 {
            insert_sum(&mut pending, Time(0), &[10 + number, 1], vec![0; 4096]);
        }
        let all: Vec<u32> = (10..310).collect();
        insert_sum(&mut pending, Time(0), &all, vec![0; 4096]);
        assert_eq!((pending.rows.len(), pending.over_budget), (300, 1));
        pending.check();
    }

    #[test]
    fn too_many_unknown_packets_are_refused_until_others_are_known() {
        let mut pending = roomy(Solver::Elimination);
        let pair = |n| [2 * n, 2 * n + 1];
        for n in 0..MAX_UNKNOWN as u32 / 2 + 3 {
            insert_sum(&mut pending, Time(0), &pair(n), vec![1; 60]);
        }
        assert_eq!((pending.rows.len(), pending.over_budget), (MAX_UNKNOWN / 2, 3));
        let later = Time(0) + Duration::from_secs(1);
        pending.drop_old(later);
        insert_sum(&mut pending, later, &pair(5000), vec![1; 60]);
        assert_eq!((pending.rows.len(), pending.over_budget), (1, 3));
        pending.check();
    }

    fn determined(equations: &[u64]) -> Vec<u32> {
        let mut rows: Vec<u64> = Vec::new();
        for equation in equations {
            let mut row = *equation;
            for other in &rows {
                if row & (1 << other.trailing_zeros()) != 0 {
                    row ^= other;
                }
            }
            if row != 0 {
                let pivot = 1 << row.trailing_zeros();
                rows.iter_mut().filter(|other| **other & pivot != 0).for_each(|o| *o ^= row);
                rows.push(row);
            }
        }
        let alone = rows.iter().filter(|row| row.count_ones() == 1);
        let mut solved: Vec<u32> = alone.map(|row| row.trailing_zeros()).collect();
        solved.sort_unstable();
        solved
    }

    fn solves_what_is_determined(equations: &[u64], arrivals: &[u32]) -> Result<(), TestCaseError> {
        let mut pending = PendingRepairs::new(Solver::Elimination, 64, Duration::from_secs(1), 7);
        let mut there = 0_u64;
        let mut known = Vec::new();
        for equation in equations {
            let numbers: Vec<u32> =
                (0..50).filter(|n| (equation & !there) & (1 << n) != 0).collect();
            // A repair with one missing packet never becomes pending.
            if numbers.len() == 1 {
                renewed(&mut pending).on_packet(id(numbers[0]), &symbol(numbers[0]));
                known.push(numbers[0]);
            } else if numbers.len() > 1 {
                insert(&mut pending, Time(0), &numbers);
            }
            known.extend(drain(&mut pending));
            known.iter().for_each(|n| there |= 1 << n);
        }
        for number in arrivals {
            renewed(&mut pending).on_packet(id(*number), &symbol(*number));
            known.push(*number);
            known.extend(drain(&mut pending));
        }
        known.sort_unstable();
        known.dedup();
        let mut all = equations.to_vec();
        all.extend(arrivals.iter().map(|n| 1 << n));
        prop_assert_eq!(known, determined(&all));
        prop_assert_eq!(pending.over_budget, 0);
        Ok(())
    }

    proptest! {
        #[test]
        fn elimination_solves_exactly_what_is_determined(
            equations in prop::collection::vec(1..1024_u64, 1..12),
            arrivals in prop::collection::vec(0..10_u32, 0..4),
        ) {
            solves_what_is_determined(&equations, &arrivals)?;
        }

        /// About as many equations as packets, with few packets each, as after a burst of losses.
        #[test]
        fn it_does_in_large_sparse_systems(
            equations in prop::collection::vec(prop::collection::vec(0..50_u32, 1..5), 20..60),
            arrivals in prop::collection::vec(0..50_u32, 0..20),
        ) {
            let sum = |numbers: &Vec<u32>| numbers.iter().fold(0, |sum, n| sum | 1_u64 << n);
            let equations: Vec<u64> = equations.iter().map(sum).collect();
            solves_what_is_determined(&equations, &arrivals)?;
        }
    }
}
