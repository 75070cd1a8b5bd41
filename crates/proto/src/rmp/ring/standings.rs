use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::NodeId;
use crate::ring::{Process, RingView, Timestamp};

#[derive(Debug)]
pub(crate) struct Standings {
    me: Process,
    members: BTreeMap<Process, Standing>,
    settled: Timestamp,
    /// Round of the last change of the members, and the number of voters before it.
    pub(super) last_change: (Timestamp, usize),
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    /// Place of the member's join, or of the last reformation if that is later.
    joined: Timestamp,
    /// Place of the member's join, or 0 if it joined before this member. No reformation changes it.
    since: Timestamp,
    accepted: Timestamp,
    request: u32,
}

impl Standings {
    // The members of the view have everything up to `last`.
    pub(super) fn new(me: Process, view: &RingView, last: Timestamp) -> Self {
        let mut standings = Self {
            me,
            members: BTreeMap::new(),
            settled: Timestamp(0),
            last_change: (last, view.voters().count()),
        };
        view.processes().for_each(|process| standings.insert(process, Timestamp(0), last));
        standings
    }

    fn insert(&mut self, process: Process, since: Timestamp, accepted: Timestamp) {
        let standing = Standing { joined: since, since, accepted, request: 0 };
        self.members.insert(process, standing);
    }

    pub(super) fn admit(&mut self, process: Process, at: Timestamp) {
        self.insert(process, at, Timestamp(at.0.saturating_sub(1)));
    }

    pub(super) fn remove(&mut self, process: Process) {
        self.members.remove(&process);
    }

    pub(super) fn on_answered(&mut self, process: Process, request: u32) {
        if let Some(standing) = self.members.get_mut(&process) {
            standing.request = request;
        }
    }

    pub(super) fn on_round(&mut self, site: Process, at: Timestamp) {
        if let Some(standing) = self.members.get_mut(&site) {
            standing.accepted = at;
        }
    }

    pub(super) fn on_formed(&mut self, view: &RingView, at: Timestamp) {
        self.members.retain(|process, _| view.contains(*process));
        for standing in self.members.values_mut() {
            (standing.joined, standing.accepted) = (at, at);
        }
        (self.settled, self.last_change) = (at, (at, view.voters().count()));
    }

    // This member has everything up to `last`, even before the others can conclude it.
    pub(super) fn settle(&mut self, last: Timestamp) -> Option<Timestamp> {
        let accepted = self.others().map(|(_, standing)| standing.accepted);
        let least = accepted.fold(last, Timestamp::min);
        let has_advanced = least > self.settled;
        self.settled = self.settled.max(least);
        has_advanced.then_some(least)
    }

    fn others(&self) -> impl Iterator<Item = (Process, &Standing)> {
        let others = self.members.iter().filter(|(process, _)| **process != self.me);
        others.map(|(process, standing)| (*process, standing))
    }

    pub(crate) fn settled(&self) -> Timestamp {
        self.settled
    }

    pub(crate) fn answered(&self, process: Process) -> u32 {
        self.members.get(&process).map_or(0, |standing| standing.request)
    }

    pub(crate) fn others_before(&self, place: Timestamp) -> impl Iterator<Item = NodeId> {
        let others = self.others().filter(move |(_, standing)| standing.accepted < place);
        others.map(|(process, _)| process.node)
    }

    pub(crate) fn others_since(&self, place: Timestamp) -> usize {
        self.others().filter(|(_, standing)| standing.since <= place).count()
    }

    /// Returns `true` if the member has taken the token or was in a reformation since it joined, or
    /// if it joined before this member. Until then, requests and packets may be those of a former
    /// member.
    pub(crate) fn has_spoken(&self, process: Process) -> bool {
        self.members.get(&process).is_some_and(|standing| standing.accepted >= standing.joined)
    }

    pub(crate) fn may_change_members(&self) -> bool {
        self.last_change.0 <= self.settled
    }

    pub(super) fn has_accepted(&self, process: Process, place: Timestamp) -> bool {
        self.members.get(&process).is_some_and(|standing| standing.accepted >= place)
    }

    pub(super) fn awaits(&self, place: Timestamp, takers: usize) -> bool {
        let taken = self.members.values().filter(|standing| standing.accepted >= place).count();
        taken < takers.min(self.members.len())
    }

    pub(super) fn holders(
        &self,
        place: Timestamp,
        counted: impl Fn(Process) -> bool,
    ) -> (usize, usize) {
        let (mut count, mut holders) = (0, 0);
        for (process, standing) in self.others().filter(|(_, it)| it.joined < place) {
            count += 1;
            holders += usize::from(standing.accepted >= place && counted(process));
        }
        (count, holders)
    }

    /// Returns the majority of the electorate, or of the largest view that a member may be in
    /// (MaxN, 3.2).
    pub(super) fn majority(&self, view: &RingView) -> usize {
        if let Some(quorum) = view.required_voters() {
            return quorum;
        }
        let voters = view.voters().count();
        let widest = match self.may_change_members() {
            true => voters,
            false => voters.max(self.last_change.1),
        };
        widest / 2 + 1
    }

    /// Returns the numbers of voters present and needed, if the ring has too few to work. A voter
    /// counts once it has taken the token, because until then it may be in another ring.
    pub(super) fn shortage(&self, view: &RingView) -> Option<(usize, usize)> {
        let quorum = view.required_voters()?;
        let here = view.voters().filter(|voter| self.has_spoken(*voter)).count();
        (here < quorum).then_some((here, quorum))
    }

    pub(super) fn check(&self, view: &RingView) {
        let mut members: Vec<Process> = view.processes().collect();
        members.sort_unstable();
        assert!(self.members.keys().eq(&members), "the standings and the members differ");
    }
}
