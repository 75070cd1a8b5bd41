//! Pending repairs: repairs of which two or more packets are missing.
//!
//! Each is an equation over GF(2): the XOR of its missing packets is what remains of its sum when
//! the packets that are there are XORed out. The papers' rule waits until one packet is left
//! ([`Solver::Peeling`]). [`Solver::Elimination`] keeps the equations in reduced row echelon form
//! instead, so that it solves whatever they determine together: the pivot of a row (its first
//! packet) stands in no other row.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::block::xor_growing;
use super::config::Solver;
use crate::{NodeId, PacketId, Time};

/// The pending repairs of a node.
#[derive(Debug)]
pub(super) struct PendingRepairs {
    solver: Solver,
    max_rows: usize,
    max_age: Duration,
    /// In the order in which the repairs came.
    rows: VecDeque<Row>,
    solved: VecDeque<Solved>,
    dropped: u64,
}

/// A packet that came out of the equations.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Solved {
    pub(super) id: PacketId,
    /// Its block, zeros may follow.
    pub(super) sum: Vec<u8>,
    /// Who sent the repair.
    pub(super) from: NodeId,
}

#[derive(Debug)]
struct Row {
    missing: Vec<PacketId>,
    sum: Vec<u8>,
    from: NodeId,
    received_at: Time,
}

impl PendingRepairs {
    pub(super) fn new(solver: Solver, max_rows: usize, max_age: Duration) -> Self {
        Self {
            solver,
            max_rows,
            max_age,
            rows: VecDeque::new(),
            solved: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Takes in a repair: `sum` is the XOR of the `missing` packets, two or more.
    pub(super) fn insert(&mut self, now: Time, from: NodeId, missing: Vec<PacketId>, sum: Vec<u8>) {
        self.drop_old(now);
        self.place(Row { missing, sum, from, received_at: now });
        if self.rows.len() > self.max_rows {
            self.rows.pop_front();
            self.dropped += 1;
        }
    }

    /// The packet is there now: it is XORed out of every row.
    pub(super) fn on_packet(&mut self, id: PacketId, block: &[u8]) {
        let mut unsettled = Vec::new();
        let mut place = 0;
        while let Some(row) = self.rows.get_mut(place) {
            let Some(at) = row.missing.iter().position(|missing| *missing == id) else {
                place += 1;
                continue;
            };
            row.missing.remove(at);
            row.subtract(block);
            // A row that is solved, or that lost its pivot, has to find its place again.
            if at == 0 || row.missing.len() < 2 {
                unsettled.extend(self.rows.remove(place));
            } else {
                place += 1;
            }
        }
        for row in unsettled {
            self.place(row);
        }
    }

    /// The next packet that was solved.
    pub(super) fn pop_solved(&mut self) -> Option<Solved> {
        self.solved.pop_front()
    }

    /// When the oldest pending repair is to be dropped.
    pub(super) fn next_drop(&self) -> Option<Time> {
        self.rows.front().map(|row| row.received_at + self.max_age)
    }

    /// Drops the pending repairs that are too old to help.
    pub(super) fn drop_old(&mut self, now: Time) {
        while self.next_drop().is_some_and(|due| due <= now) {
            self.rows.pop_front();
            self.dropped += 1;
        }
    }

    /// Bytes of the sums that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.sum.len()).sum()
    }

    /// How many repairs were dropped for age or want of room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn check(&self) {
        assert!(self.rows.len() <= self.max_rows, "more repairs are pending than allowed");
        assert!(self.solved.is_empty(), "a solved packet was not taken");
        for (place, row) in self.rows.iter().enumerate() {
            assert!(row.missing.len() >= 2, "a solved row is pending");
            let pivot = row.missing[0];
            let elsewhere = self
                .rows
                .iter()
                .enumerate()
                .any(|(other, row)| other != place && row.missing.contains(&pivot));
            let reduced = self.solver == Solver::Elimination;
            assert!(!reduced || !elsewhere, "a pivot stands in two rows");
        }
    }

    /// Finds the place of a row that is not among the others.
    fn place(&mut self, mut row: Row) {
        if self.solver == Solver::Elimination {
            for other in &self.rows {
                if row.missing.contains(&other.missing[0]) {
                    row.add(other);
                }
            }
        }
        match row.missing.len() {
            0 => {}
            1 => self.solved.push_back(row.into_solved()),
            _ if self.solver == Solver::Elimination => self.reduce_with(row),
            _ => self.insert_by_age(row),
        }
    }

    /// Eliminates the new row's pivot from the others; what is solved by that goes.
    fn reduce_with(&mut self, row: Row) {
        let pivot = row.missing[0];
        let mut place = 0;
        while let Some(other) = self.rows.get_mut(place) {
            if other.missing.contains(&pivot) {
                other.add(&row);
                if other.missing.len() == 1 {
                    let solved = self.rows.remove(place).expect("it was looked at just now");
                    self.solved.push_back(solved.into_solved());
                    continue;
                }
            }
            place += 1;
        }
        self.insert_by_age(row);
    }

    fn insert_by_age(&mut self, row: Row) {
        let after = self.rows.iter().rposition(|other| other.received_at <= row.received_at);
        self.rows.insert(after.map_or(0, |place| place + 1), row);
    }
}

impl Row {
    /// XORs another row into this one. The first packet stays the first if it stays at all.
    fn add(&mut self, other: &Self) {
        for id in &other.missing {
            match self.missing.iter().position(|mine| mine == id) {
                Some(at) => {
                    self.missing.remove(at);
                }
                None => self.missing.push(*id),
            }
        }
        self.subtract(&other.sum);
    }

    fn subtract(&mut self, block: &[u8]) {
        xor_growing(&mut self.sum, block);
    }

    fn into_solved(self) -> Solved {
        Solved { id: self.missing[0], sum: self.sum, from: self.from }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::xor_into;
    use super::*;
    use crate::{GroupId, SeqNo};
    use proptest::prelude::*;

    const FROM: NodeId = NodeId(9);

    fn id(number: u32) -> PacketId {
        PacketId { sender: NodeId(1), group: GroupId(1), seqno: SeqNo(number) }
    }

    /// The block of packet `number`: distinct bytes, distinct lengths.
    fn block(number: u32) -> Vec<u8> {
        (0..=number as u8).map(|byte| byte.wrapping_mul(37) ^ (number as u8 + 1)).collect()
    }

    fn sum(numbers: &[u32]) -> Vec<u8> {
        let mut sum = vec![0; 60];
        numbers.iter().for_each(|number| xor_into(&mut sum, &block(*number)));
        sum
    }

    fn pending(solver: Solver) -> PendingRepairs {
        PendingRepairs::new(solver, 20, Duration::from_secs(1))
    }

    fn insert(pending: &mut PendingRepairs, now: Time, numbers: &[u32]) {
        pending.insert(now, FROM, numbers.iter().map(|n| id(*n)).collect(), sum(numbers));
    }

    /// Takes what is solved, checks that it is right, and feeds it back as the engine does.
    fn drain(pending: &mut PendingRepairs) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(solved) = pending.pop_solved() {
            let number = solved.id.seqno.0;
            let expected = block(number);
            assert_eq!(solved.sum[..expected.len()], expected);
            assert!(solved.sum[expected.len()..].iter().all(|byte| *byte == 0));
            pending.on_packet(solved.id, &expected);
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
        pending.on_packet(id(2), &block(2));
        assert_eq!(drain(&mut pending), [1, 3]);
    }

    #[test]
    fn elimination_solves_what_two_repairs_determine_together() {
        let mut pending = pending(Solver::Elimination);
        insert(&mut pending, Time(0), &[1, 2, 3]);
        insert(&mut pending, Time(0), &[2, 3]);
        assert_eq!(drain(&mut pending), [1]);
        pending.on_packet(id(3), &block(3));
        assert_eq!(drain(&mut pending), [2]);
    }

    #[test]
    fn old_and_too_many_pending_repairs_are_dropped_and_counted() {
        let mut pending = pending(Solver::Elimination);
        (0..25).for_each(|n| insert(&mut pending, Time(u64::from(n)), &[n * 2, n * 2 + 1]));
        assert_eq!(pending.dropped(), 5);
        assert_eq!(pending.next_drop(), Some(Time(5) + Duration::from_secs(1)));
        pending.drop_old(Time(10) + Duration::from_secs(1));
        assert_eq!(pending.dropped(), 11);
        pending.check();
    }

    /// Which of the packets a set of equations determines, by plain elimination over bit masks.
    fn determined(equations: &[u32]) -> Vec<u32> {
        let mut rows: Vec<u32> = Vec::new();
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
        let mut solved: Vec<u32> = rows
            .iter()
            .filter(|row| row.count_ones() == 1)
            .map(|row| row.trailing_zeros())
            .collect();
        solved.sort_unstable();
        solved
    }

    proptest! {
        #[test]
        fn elimination_solves_exactly_what_is_determined(
            equations in prop::collection::vec(1..1024_u32, 1..12),
            arrivals in prop::collection::vec(0..10_u32, 0..4),
        ) {
            let mut pending = pending(Solver::Elimination);
            let mut there = 0_u32;
            let mut known = Vec::new();
            for equation in &equations {
                let numbers: Vec<u32> =
                    (0..10).filter(|n| (equation & !there) & (1 << n) != 0).collect();
                // As the engine does: a repair with one missing packet never becomes pending.
                if numbers.len() == 1 {
                    pending.on_packet(id(numbers[0]), &block(numbers[0]));
                    known.push(numbers[0]);
                } else if numbers.len() > 1 {
                    insert(&mut pending, Time(0), &numbers);
                }
                known.extend(drain(&mut pending));
                known.iter().for_each(|n| there |= 1 << n);
            }
            for number in &arrivals {
                pending.on_packet(id(*number), &block(*number));
                known.push(*number);
                known.extend(drain(&mut pending));
            }
            known.sort_unstable();
            known.dedup();
            let mut all = equations.clone();
            all.extend(arrivals.iter().map(|n| 1 << n));
            prop_assert_eq!(known, determined(&all));
        }
    }
}
