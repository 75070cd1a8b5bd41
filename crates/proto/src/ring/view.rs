//! Membership view of a ring, in the order in which its members pass the token (3.1).

use alloc::vec::Vec;

use super::locks::Locks;
use super::place::{Epoch, Process};
use super::quorum::Quorum;

/// A view of the members and locks of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct RingView {
    /// Epoch of the ring. While it is the same, only New Lists change the view.
    pub epoch: Epoch,
    /// Number of changes in New Lists since the ring was formed, including refusals; wraps around.
    pub version: u32,
    /// First ring of the lineage.
    pub origin: Epoch,
    /// The [check](crate::GroupId::name_check) of the group's name, since two names can have the
    /// same id.
    pub name_check: u32,
    /// `true` if an operator has let the ring continue without a majority of its electorate. Until
    /// the ring has that majority again, a majority of its present voters decides.
    pub is_forced: bool,
    /// The members, in ring order; at least one.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::some(1..5)"))]
    pub members: Vec<Member>,
    /// The locks, with their holders and the waiting processes.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::locks()"))]
    pub locks: Locks,
}

/// A member of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Member {
    /// Node of the member, and its life in the group.
    pub process: Process,
    /// Condition under which a part of the ring may continue, according to this member.
    pub quorum: Quorum,
    /// `true` if the member receives multicast.
    pub is_multicast: bool,
    /// `true` if the member is a voter of an [electorate](Quorum::QuorumOf), `false` if it is a
    /// client. Without an electorate, every member counts as a voter.
    pub is_voter: bool,
}

impl RingView {
    /// Maximum number of members. With the maximum number of members, locks and callers, a snapshot
    /// still fits in one packet, sent in parts, if the path MTU is at least 1400 bytes.
    pub const MAX_MEMBERS: usize = Quorum::MAX_AT_LEAST as usize;

    /// Creates the view of a ring that `founder` creates alone.
    pub fn founded_by(founder: Member, name_check: u32) -> Self {
        let epoch = Epoch::created_by(founder.process);
        let members = vec![founder];
        let locks = Locks::default();
        Self { epoch, version: 0, origin: epoch, name_check, is_forced: false, members, locks }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns `true` if the view has no members. The view of a ring is never empty.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns `true` if `process` is a member.
    pub fn contains(&self, process: Process) -> bool {
        self.place(process).is_some()
    }

    /// Returns the processes, in ring order.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        self.members.iter().map(|member| member.process)
    }

    /// Returns the process of the member on `node`, if any.
    pub fn process_of(&self, node: crate::NodeId) -> Option<Process> {
        self.processes().find(|process| process.node == node)
    }

    /// Returns the successor of `process`, or the first member if `process` is not in the ring.
    pub fn after(&self, process: Process) -> Process {
        let next = self.place(process).map_or(0, |place| (place + 1) % self.members.len());
        self.members[next].process
    }

    /// Returns the configured number of voters, or `None` if there is no electorate. It is the same
    /// for all members, because a ring does not admit a member with another number.
    pub fn electorate(&self) -> Option<usize> {
        match self.members.first()?.quorum {
            Quorum::QuorumOf(voters) => Some(usize::from(voters)),
            Quorum::AtLeast(_) | Quorum::Majority | Quorum::All => None,
        }
    }

    /// Returns the voters of the electorate, or all members if there is no electorate.
    pub fn voters(&self) -> impl Iterator<Item = Process> {
        let has_electorate = self.electorate().is_some();
        let voters = self.members.iter().filter(move |it| it.is_voter || !has_electorate);
        voters.map(|member| member.process)
    }

    /// Returns `true` if `process` is one of the [voters](Self::voters).
    pub fn is_voter(&self, process: Process) -> bool {
        let has_electorate = self.electorate().is_some();
        let member = self.members.iter().find(|member| member.process == process);
        member.is_some_and(|member| member.is_voter || !has_electorate)
    }

    /// Returns the number of [voters](Self::voters) among `members`.
    pub fn voters_among(&self, members: &[Process]) -> usize {
        self.voters().filter(|voter| members.contains(voter)).count()
    }

    /// Returns the number of voters that the ring needs to work: a majority of the electorate.
    /// Returns `None` if there is no electorate, or while the ring is [forced](Self::is_forced).
    pub fn required_voters(&self) -> Option<usize> {
        let voters = self.electorate().filter(|_| !self.is_forced)?;
        Some(voters / 2 + 1)
    }

    /// Returns `true` if the ring has the voters that it needs to work.
    pub fn has_quorum(&self) -> bool {
        self.required_voters().is_none_or(|quorum| self.voters().count() >= quorum)
    }

    /// Returns `true` if some members are clients.
    pub fn has_clients(&self) -> bool {
        self.electorate().is_some() && self.members.iter().any(|member| !member.is_voter)
    }

    /// Returns `true` if the electorate has all of its voters. No further voter is then admitted.
    pub fn is_full(&self) -> bool {
        self.electorate().is_some_and(|voters| self.voters().count() >= voters)
    }

    /// Returns the number of [voters](Self::voters) of this view that a part of it needs to form a
    /// new ring. It is the largest number that any member demands.
    ///
    /// With an electorate, it is more than half of the voters, so at most one part continues. A
    /// part that is smaller than a quorum forms a ring that does not work until more voters join.
    pub fn least(&self) -> usize {
        let voters = self.voters().count();
        let needs = self.members.iter().map(|member| match member.quorum {
            Quorum::AtLeast(least) => usize::from(least).min(voters),
            Quorum::Majority | Quorum::QuorumOf(_) => voters / 2 + 1,
            Quorum::All => voters,
        });
        needs.max().unwrap_or(1).max(1)
    }

    /// Returns `true` if so many voters of the earlier view `former` are in this one that the
    /// others could not continue.
    pub(crate) fn is_continued_from(&self, former: &Self) -> bool {
        let is_earlier = former.epoch.version < self.epoch.version;
        let rest = former.without_moved(self).voters().count();
        former.origin == self.origin && is_earlier && rest < former.least()
    }

    /// Returns the view without the members that have moved to `other`. These are in `other` with a
    /// later life or, if `other` is a later view of the same lineage, with the same life.
    pub(crate) fn without_moved(&self, other: &Self) -> Self {
        let is_later = other.origin == self.origin && other.epoch.version > self.epoch.version;
        let has_moved = |process: Process| {
            let there = other.process_of(process.node);
            there.is_some_and(|it| it.follows(process) || (is_later && it == process))
        };
        let mut rest = self.clone();
        rest.members.retain(|member| !has_moved(member.process));
        rest
    }

    pub(crate) fn settle_force(&mut self) {
        let quorum = self.electorate().map_or(0, |voters| voters / 2 + 1);
        self.is_forced &= self.voters().count() < quorum;
    }

    /// Adds a member after `site`, so that it is the next token site (4.3).
    pub(crate) fn insert_after(&mut self, site: Process, member: Member) {
        let place = self.place(site).map_or(self.members.len(), |place| place + 1);
        self.members.insert(place, member);
    }

    pub(crate) fn remove(&mut self, process: Process) {
        self.members.retain(|member| member.process != process);
        self.locks.remove(process);
    }

    fn place(&self, process: Process) -> Option<usize> {
        self.members.iter().position(|member| member.process == process)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ring::process;

    pub(crate) fn member(node: u64, quorum: Quorum) -> Member {
        Member { process: process(node), quorum, is_multicast: true, is_voter: true }
    }

    #[test]
    fn a_joiner_stands_behind_the_token_site() {
        let [a, b, c] = [1, 2, 3].map(|node| member(node, Quorum::Majority));
        let mut view = RingView::founded_by(a, 0);
        view.insert_after(a.process, b);
        view.insert_after(a.process, c);
        let order: Vec<u64> = view.processes().map(|process| process.node.0).collect();
        assert_eq!(order, [1, 3, 2]);
        assert_eq!(view.after(b.process), a.process);
    }

    #[test]
    fn the_most_demanding_member_decides_how_many_must_remain() {
        let mut view = RingView::founded_by(member(1, Quorum::AtLeast(1)), 0);
        view.members.extend([2, 3, 4].map(|node| member(node, Quorum::AtLeast(2))));
        assert_eq!(view.least(), 2);
        view.members.push(member(5, Quorum::Majority));
        assert_eq!(view.least(), 3);
        view.members.push(member(6, Quorum::All));
        assert_eq!(view.least(), 6);
    }

    #[test]
    fn a_part_smaller_than_at_least_never_continues() {
        let mut view = RingView::founded_by(member(1, Quorum::AtLeast(3)), 0);
        view.members.push(member(2, Quorum::AtLeast(3)));
        assert_eq!(view.least(), 2, "any failure stops a ring of two");
    }

    #[test]
    fn one_part_of_an_electorate_continues_and_meets_every_quorum() {
        for electorate in 1..=9_u16 {
            let quorum = usize::from(electorate) / 2 + 1;
            let mut view = RingView::founded_by(member(1, Quorum::QuorumOf(electorate)), 0);
            for voters in 1..=usize::from(electorate) {
                assert_eq!(view.voters().count(), voters);
                assert!(2 * view.least() > voters && view.least() <= quorum);
                assert!(view.least() + quorum > voters, "{voters} of {electorate}");
                assert_eq!(view.has_quorum(), voters >= quorum);
                view.members.push(member(voters as u64 + 1, Quorum::QuorumOf(electorate)));
            }
        }
    }

    #[test]
    fn clients_are_counted_in_no_quorum() {
        let mut view = RingView::founded_by(member(1, Quorum::QuorumOf(3)), 0);
        view.members.extend(
            [2, 3, 4].map(|node| Member { is_voter: false, ..member(node, Quorum::QuorumOf(3)) }),
        );
        assert_eq!((view.voters().count(), view.has_quorum(), view.least()), (1, false, 1));
        view.members.push(member(5, Quorum::QuorumOf(3)));
        assert!(view.has_quorum() && !view.is_full());
        view.members.push(member(6, Quorum::QuorumOf(3)));
        assert_eq!((view.least(), view.is_full()), (2, true));
    }
}
