//! The members of a ring, in the order in which the token goes round (3.1).

use alloc::vec::Vec;
use core::fmt;

use super::locks::Locks;
use super::names::{Epoch, Process};
use crate::JoinError;

/// A membership view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingView {
    /// The reformation, or the creation, since which it changed by New Lists only.
    pub epoch: Epoch,
    /// How many New Lists have changed it since; wraps around.
    pub version: u32,
    /// Which ring it descends from: that of its first creation.
    pub origin: Epoch,
    /// The [check](crate::GroupId::name_check) of the group's name: a group of another name may
    /// have the same id.
    pub name_check: u32,
    /// Whether an operator has let it continue without a majority of its electorate. Until it has
    /// that majority again a majority of the voters that it has decides.
    pub is_forced: bool,
    /// The members, in ring order; at least one.
    pub members: Vec<Member>,
    /// The locks, who holds them, and who waits.
    pub locks: Locks,
}

/// A member of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub process: Process,
    /// The smallest partition with which it would go on.
    pub partition: Partition,
    /// Whether it hears multicast.
    pub is_multicast: bool,
    /// Whether it is a voter of an [electorate](Partition::QuorumOf), not a client. Without an
    /// electorate every member counts.
    pub is_voter: bool,
}

/// How many members must remain for a partition to continue after a fault (4.4), or vote for a ring
/// to work at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Partition {
    /// So many of the view before, 1 to [`Partition::MAX_AT_LEAST`]; 1 lets every partition
    /// continue. A ring that has no more members than that is stopped by the failure of any of
    /// them: a part of fewer members never continues.
    AtLeast(u16),
    /// An electorate of so many voters, 1 to [`Partition::MAX_ELECTORATE`]: fewer than a majority
    /// of it order nothing, acknowledge nothing and grant no lock, from the first member on. So two
    /// rings cannot work side by side, not even if they were begun apart, while there are no more
    /// voters than that. A ring admits no more of them; other members are
    /// [clients](super::JoinOptions::is_voter).
    QuorumOf(u16),
    /// More than half.
    Majority,
    /// All: any failure stops the ring.
    All,
}

impl Partition {
    /// The largest electorate.
    pub const MAX_ELECTORATE: u16 = 4096;

    /// The largest number of [`Partition::AtLeast`]: that of the members of a ring.
    pub const MAX_AT_LEAST: u16 = RingView::MAX_MEMBERS as u16;

    /// Checks the bounds.
    ///
    /// # Errors
    /// [`JoinError::Partition`] if no ring can have so many members, or so many voters.
    pub fn validate(self) -> Result<(), JoinError> {
        let is_valid = match self {
            Self::AtLeast(least) => (1..=Self::MAX_AT_LEAST).contains(&least),
            Self::QuorumOf(voters) => (1..=Self::MAX_ELECTORATE).contains(&voters),
            Self::Majority | Self::All => true,
        };
        match is_valid {
            true => Ok(()),
            false => Err(JoinError::Partition { given: self }),
        }
    }

    /// The number of voters that are a majority of the electorate; `None` without one.
    pub fn quorum(self) -> Option<usize> {
        match self {
            Self::QuorumOf(voters) => Some(usize::from(voters) / 2 + 1),
            Self::AtLeast(_) | Self::Majority | Self::All => None,
        }
    }

    /// The wire form: a number of members, one of two that no ring has, or the size of an
    /// electorate with the highest bit set.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::AtLeast(least) => least,
            Self::QuorumOf(voters) => QUORUM_OF | voters,
            Self::Majority => MAJORITY,
            Self::All => ALL,
        }
    }

    /// Reads the wire form; a partition of no members is none, nor is an electorate.
    pub fn from_wire(value: u16) -> Option<Self> {
        let voters = value & !QUORUM_OF;
        match value {
            0 => None,
            MAJORITY => Some(Self::Majority),
            ALL => Some(Self::All),
            least if least < QUORUM_OF => Some(Self::AtLeast(least)),
            _ => (1..=Self::MAX_ELECTORATE).contains(&voters).then_some(Self::QuorumOf(voters)),
        }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(1) => f.write_str("every partition goes on"),
            Self::AtLeast(least) => write!(f, "{least} go on"),
            Self::QuorumOf(voters) => write!(f, "quorum of {voters}"),
            Self::Majority => f.write_str("a majority goes on"),
            Self::All => f.write_str("all or none go on"),
        }
    }
}

const QUORUM_OF: u16 = 1 << 15;
const MAJORITY: u16 = u16::MAX - 1;
const ALL: u16 = u16::MAX;

impl RingView {
    /// Maximum number of members. A snapshot of a ring with as many members, locks and callers as
    /// it can have fits the parts of one packet if the path MTU is 1280 bytes or more.
    pub const MAX_MEMBERS: usize = 4096;

    /// The view of a ring that `founder` begins alone.
    pub fn founded_by(founder: Member, name_check: u32) -> Self {
        let epoch = Epoch::created_by(founder.process);
        let members = vec![founder];
        let locks = Locks::default();
        Self { epoch, version: 0, origin: epoch, name_check, is_forced: false, members, locks }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none, which no view of a ring is.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether `process` is a member.
    pub fn contains(&self, process: Process) -> bool {
        self.place(process).is_some()
    }

    /// The processes, in ring order.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        self.members.iter().map(|member| member.process)
    }

    /// The member of this node, if there is one.
    pub fn process_of(&self, node: crate::NodeId) -> Option<Process> {
        self.processes().find(|process| process.node == node)
    }

    /// Who follows `process` in the ring; the first member if it is not in it.
    pub fn after(&self, process: Process) -> Process {
        let next = self.place(process).map_or(0, |place| (place + 1) % self.members.len());
        self.members[next].process
    }

    /// How many voters the electorate has; `None` without one. It is the same for all members: who
    /// contradicts is not let in.
    pub fn electorate(&self) -> Option<usize> {
        match self.members.first()?.partition {
            Partition::QuorumOf(voters) => Some(usize::from(voters)),
            Partition::AtLeast(_) | Partition::Majority | Partition::All => None,
        }
    }

    /// The voters of an electorate; without one all members.
    pub fn voters(&self) -> impl Iterator<Item = Process> {
        let has_electorate = self.electorate().is_some();
        let voters = self.members.iter().filter(move |it| it.is_voter || !has_electorate);
        voters.map(|member| member.process)
    }

    /// Whether `process` is one of the [voters](Self::voters).
    pub fn is_voter(&self, process: Process) -> bool {
        let has_electorate = self.electorate().is_some();
        let member = self.members.iter().find(|member| member.process == process);
        member.is_some_and(|member| member.is_voter || !has_electorate)
    }

    /// How many of these are [voters](Self::voters).
    pub fn voters_among(&self, members: &[Process]) -> usize {
        self.voters().filter(|voter| members.contains(voter)).count()
    }

    /// How many voters must be in the ring for it to work: a majority of the electorate. `None`
    /// without an electorate, and while an operator has let the ring continue with fewer.
    pub fn quorum(&self) -> Option<usize> {
        let voters = self.electorate().filter(|_| !self.is_forced)?;
        Some(voters / 2 + 1)
    }

    /// Whether there are as many voters as it takes for the ring to work.
    pub fn has_quorum(&self) -> bool {
        self.quorum().is_none_or(|quorum| self.voters().count() >= quorum)
    }

    /// Whether some of the members are no voters.
    pub fn has_clients(&self) -> bool {
        self.electorate().is_some() && self.members.iter().any(|member| !member.is_voter)
    }

    /// Whether the electorate has all its voters: no other one is admitted.
    pub fn is_full(&self) -> bool {
        self.electorate().is_some_and(|voters| self.voters().count() >= voters)
    }

    /// How many [voters](Self::voters) of this view a part of it must have to form a ring: the
    /// largest of what the members ask for.
    ///
    /// Of an electorate those are more than half, so that at most one part continues, and it holds
    /// each message that a quorum holds. If they are fewer than a quorum they form a ring that does
    /// not work until more voters join.
    pub fn least(&self) -> usize {
        let voters = self.voters().count();
        let needs = self.members.iter().map(|member| match member.partition {
            Partition::AtLeast(least) => usize::from(least).min(voters),
            Partition::Majority | Partition::QuorumOf(_) => voters / 2 + 1,
            Partition::All => voters,
        });
        needs.max().unwrap_or(1).max(1)
    }

    /// Returns `true` if `former` is an earlier view of this ring that cannot continue, because too
    /// many of its voters are here now.
    pub(super) fn is_continued_from(&self, former: &Self) -> bool {
        let is_earlier = former.epoch.version < self.epoch.version;
        let rest = former.without_moved(self).voters().count();
        former.origin == self.origin && is_earlier && rest < former.least()
    }

    /// Returns this view without the processes that have moved to `other`: it has later lives of
    /// their nodes, or themselves in a later view of this ring.
    pub(super) fn without_moved(&self, other: &Self) -> Self {
        let is_later = other.origin == self.origin && other.epoch.version > self.epoch.version;
        let has_moved = |process: Process| {
            let there = other.process_of(process.node);
            there.is_some_and(|it| it.follows(process) || (is_later && it == process))
        };
        let mut rest = self.clone();
        rest.members.retain(|member| !has_moved(member.process));
        rest
    }

    /// An operator need not have let the ring continue any more once it has its quorum.
    pub(super) fn settle_force(&mut self) {
        let quorum = self.electorate().map_or(0, |voters| voters / 2 + 1);
        self.is_forced &= self.voters().count() < quorum;
    }

    /// Adds a member behind `site`, whose turn is next (4.3).
    pub(super) fn insert_after(&mut self, site: Process, member: Member) {
        let place = self.place(site).map_or(self.members.len(), |place| place + 1);
        self.members.insert(place, member);
    }

    /// Removes a member; its locks go to who waits for them.
    pub(super) fn remove(&mut self, process: Process) {
        self.members.retain(|member| member.process != process);
        self.locks.remove(process);
    }

    fn place(&self, process: Process) -> Option<usize> {
        self.members.iter().position(|member| member.process == process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn member(node: u64, partition: Partition) -> Member {
        let process = Process { node: NodeId(node), life: 1 };
        Member { process, partition, is_multicast: true, is_voter: true }
    }

    #[test]
    fn a_joiner_stands_behind_the_token_site() {
        let [a, b, c] = [1, 2, 3].map(|node| member(node, Partition::Majority));
        let mut view = RingView::founded_by(a, 0);
        view.insert_after(a.process, b);
        view.insert_after(a.process, c);
        let order: Vec<u64> = view.processes().map(|process| process.node.0).collect();
        assert_eq!(order, [1, 3, 2]);
        assert_eq!(view.after(b.process), a.process);
    }

    #[test]
    fn the_most_demanding_member_decides_how_many_must_remain() {
        let mut view = RingView::founded_by(member(1, Partition::AtLeast(1)), 0);
        view.members.extend([2, 3, 4].map(|node| member(node, Partition::AtLeast(2))));
        assert_eq!(view.least(), 2);
        view.members.push(member(5, Partition::Majority));
        assert_eq!(view.least(), 3);
        view.members.push(member(6, Partition::All));
        assert_eq!(view.least(), 6);
    }

    #[test]
    fn a_part_smaller_than_at_least_never_continues() {
        let mut view = RingView::founded_by(member(1, Partition::AtLeast(3)), 0);
        view.members.push(member(2, Partition::AtLeast(3)));
        assert_eq!(view.least(), 2, "any failure stops a ring of two");
    }

    #[test]
    fn one_part_of_an_electorate_continues_and_meets_every_quorum() {
        for electorate in 1..=9_u16 {
            let quorum = usize::from(electorate) / 2 + 1;
            let mut view = RingView::founded_by(member(1, Partition::QuorumOf(electorate)), 0);
            for voters in 1..=usize::from(electorate) {
                assert_eq!(view.voters().count(), voters);
                assert!(2 * view.least() > voters && view.least() <= quorum);
                assert!(view.least() + quorum > voters, "{voters} of {electorate}");
                assert_eq!(view.has_quorum(), voters >= quorum);
                view.members.push(member(voters as u64 + 1, Partition::QuorumOf(electorate)));
            }
        }
    }

    #[test]
    fn clients_are_counted_in_no_quorum() {
        let mut view = RingView::founded_by(member(1, Partition::QuorumOf(3)), 0);
        view.members.extend(
            [2, 3, 4]
                .map(|node| Member { is_voter: false, ..member(node, Partition::QuorumOf(3)) }),
        );
        assert_eq!((view.voters().count(), view.has_quorum(), view.least()), (1, false, 1));
        view.members.push(member(5, Partition::QuorumOf(3)));
        assert!(view.has_quorum() && !view.is_full());
        view.members.push(member(6, Partition::QuorumOf(3)));
        assert_eq!((view.least(), view.is_full()), (2, true));
    }

    #[test]
    fn the_wire_form_of_a_partition_is_read_back() {
        for value in 0..=u16::MAX {
            if let Some(partition) = Partition::from_wire(value) {
                assert_eq!(partition.to_wire(), value);
            }
        }
        assert_eq!(Partition::from_wire(QUORUM_OF), None, "an electorate of nobody");
    }
}
