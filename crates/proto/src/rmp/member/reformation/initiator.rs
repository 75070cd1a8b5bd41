use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Reformation, State, TooFew, Verdict, Vote};
use crate::ring::{Epoch, Process, RingView};
use crate::rmp::context::{Context, Timer};
use crate::rmp::packet::{NewList, Packet};
use crate::rmp::ring::{Accepted, Position, Proposal, Ring};
use crate::{NodeId, Time};

impl Reformation {
    pub(crate) fn initiate(&mut self, cx: &mut Context<'_>, ring: &Ring) {
        let (me, epoch, position) = (ring.me(), ring.epoch(), self.position(ring));
        let version = self.highest.max(epoch.version).saturating_add(1);
        let ballot = Epoch { version, creator: me };
        let vote = Vote { epoch, position: position.clone(), accepted: self.lists.to_wire() };
        self.highest = version;
        self.promised = Some(ballot);
        self.began.get_or_insert(cx.now);
        (self.tries, self.lost_ballots) = (0, 0);
        let votes = BTreeMap::from([(me, vote)]);
        self.state = State::Initiating { votes, reported: position.clone() };
        cx.counters.reformations_begun += 1;
        cx.timing.on_ballot(cx.now, ballot);
        self.send_start(cx, ring, position);
        cx.set(Timer::Recovery, cx.timing.recovery_retry(cx.config));
    }

    pub(super) fn send_start(&self, cx: &mut Context<'_>, ring: &Ring, position: Position) {
        let (epoch, Some(ballot)) = (ring.epoch(), self.promised) else { return };
        let (refuted, released) = (self.lists.refuted.clone(), self.lists.released.clone());
        cx.multicast(&Packet::RecoveryStart { epoch, ballot, position, refuted, released });
    }

    pub(crate) fn on_vote(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        (sender, ballot): (NodeId, Epoch),
        vote: Vote,
    ) -> Verdict {
        let voter = ring.view().process_of(sender).filter(|_| vote.epoch == ring.epoch());
        let Some(voter) = voter.filter(|_| self.promised == Some(ballot)) else {
            return Verdict::Pending;
        };
        let position = vote.position.clone();
        self.note_heard(ring, voter, &position);
        match &mut self.state {
            State::Initiating { votes, .. } => {
                votes.insert(voter, vote);
                self.voted_at.insert(voter, cx.now);
                self.refute();
                self.fetch(cx, ring, voter.node, &position);
                self.consider(cx, ring, false)
            }
            State::Proposing { proposal, acks } => {
                // The voter's position differs from that of the list, so it cannot accept the list.
                let is_in = proposal.view.contains(voter) && !acks.contains(&voter);
                if is_in && proposal.position != position {
                    self.give_up(cx);
                }
                Verdict::Pending
            }
            State::Idle | State::Voted { .. } | State::BackingOff => Verdict::Pending,
        }
    }

    // A list can no longer hold if one of its members has voted without having accepted it.
    fn refute(&mut self) {
        let State::Initiating { votes, .. } = &mut self.state else { return };
        let lists: Vec<Accepted> =
            votes.values().flat_map(|vote| vote.accepted.iter().cloned()).collect();
        let is_refuted = |list: &&Accepted| {
            let mut voters = list.members.iter().filter_map(|member| votes.get(member));
            voters.any(|vote| vote.accepted.iter().all(|it| it.ballot != list.ballot))
        };
        let refuted: Vec<Epoch> = lists.iter().filter(is_refuted).map(|list| list.ballot).collect();
        if refuted.is_empty() {
            return;
        }
        for vote in votes.values_mut() {
            vote.accepted.retain(|list| !refuted.contains(&list.ballot));
        }
        self.lists.refute(&refuted);
    }

    /// Proposes a list if the votes permit one, or releases the voters from lists that prevent it.
    /// With `is_last`, the list may omit members that have not reached the common position.
    pub(super) fn consider(&mut self, cx: &mut Context<'_>, ring: &Ring, is_last: bool) -> Verdict {
        let mine = self.position(ring);
        let view = ring.view();
        let State::Initiating { votes, .. } = &mut self.state else { return Verdict::Pending };
        if let Some(own) = votes.get_mut(&ring.me()) {
            own.position.clone_from(&mine);
        }
        let here: Vec<Process> = view
            .processes()
            .filter(|process| votes.get(process).is_some_and(|vote| vote.position == mine))
            .collect();
        if here.len() < view.len() && !is_last {
            return Verdict::Pending;
        }
        let is_somebody_whole = votes.values().any(|vote| vote.position.is_whole);
        if !mine.is_whole && (is_somebody_whole || !is_last) {
            // A member with these messages must initiate. If there is none, they are given up.
            return Verdict::TooFew(self.count(cx, ring, &here));
        }
        let voted: Vec<Process> = votes.keys().copied().collect();
        let votes = votes.clone();
        if self.is_enough(ring, &here, &votes) {
            return self.propose(cx, ring, mine, here);
        }
        if self.is_enough(ring, &voted, &votes) {
            // The voters could continue, but those that have accepted a list cannot reach the
            // position of the other voters unless they are released from the list.
            let lists = votes.values().flat_map(|vote| &vote.accepted).map(|list| list.ballot);
            if let Some(released) = self.lists.release_voters(lists.collect()) {
                cx.counters.lists_released += released;
                self.tries = 0;
                self.repeat_start(cx, ring);
                return Verdict::Advance;
            }
        }
        Verdict::TooFew(self.count(cx, ring, &voted))
    }

    /// Returns `true` if the members may continue. Unless they are forced to, each list that may
    /// already hold must have as many of its voters among them as it requires. Lists that cannot
    /// hold have already been [refuted](Self::refute).
    fn is_enough(&self, ring: &Ring, members: &[Process], votes: &BTreeMap<Process, Vote>) -> bool {
        let view = ring.view();
        if !members.contains(&ring.me()) {
            return false;
        }
        if self.is_forced_for(view, members) {
            return true;
        }
        let has_least = |list: &Accepted| {
            let both = members.iter().filter(|member| list.members.contains(member));
            let both: Vec<Process> = both.copied().collect();
            view.voters_among(&both) >= list.least.into()
        };
        votes.values().flat_map(|vote| &vote.accepted).all(has_least) && may_continue(ring, members)
    }

    // An operator has named each voter that is not among the members, and none that is.
    fn is_forced_for(&self, view: &RingView, members: &[Process]) -> bool {
        let Some(lost) = &self.forced else { return false };
        let is_here = |voter: &Process| members.contains(voter);
        view.voters_among(members) > 0
            && view.voters().all(|voter| is_here(&voter) != lost.contains(&voter.node))
    }

    fn propose(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        position: Position,
        members: Vec<Process>,
    ) -> Verdict {
        let (view, Some(ballot)) = (ring.view(), self.promised) else { return Verdict::Pending };
        if self.lists.is_full() {
            cx.counters.lists_refused += 1;
            self.give_up(cx);
            return Verdict::Pending;
        }
        let mut new = view.clone();
        for gone in view.processes().filter(|process| !members.contains(process)) {
            new.remove(gone);
        }
        (new.epoch, new.version) = (ballot, 0);
        let is_forced = self.is_forced_for(view, &members);
        cx.counters.quorums_forced += u64::from(is_forced);
        new.is_forced |= is_forced;
        new.settle_force();
        let refuted = self.lists.refuted.clone();
        let proposal = Proposal { base: view.epoch, position, view: new, refuted };
        self.lists.accept(proposal.clone());
        self.tries = 0;
        let acks = BTreeSet::from([ring.me()]);
        self.state = State::Proposing { proposal: proposal.clone(), acks };
        cx.multicast(&Packet::NewList(NewList::Formation { proposal, is_committed: false }));
        cx.set(Timer::Recovery, cx.timing.recovery_retry(cx.config));
        self.holds()
    }

    pub(crate) fn on_accepted(&mut self, sender: NodeId, ballot: Epoch) -> Verdict {
        let State::Proposing { proposal, acks } = &mut self.state else { return Verdict::Pending };
        let process = proposal.view.process_of(sender);
        match process.filter(|_| proposal.view.epoch == ballot) {
            Some(process) => {
                acks.insert(process);
                self.holds()
            }
            None => Verdict::Pending,
        }
    }

    fn holds(&self) -> Verdict {
        match &self.state {
            State::Proposing { proposal, acks } if acks.len() == proposal.view.len() => {
                Verdict::Holds(proposal.clone())
            }
            _ => Verdict::Pending,
        }
    }

    pub(super) fn is_initiator(&self) -> bool {
        matches!(self.state, State::Initiating { .. } | State::Proposing { .. })
    }

    pub(super) fn give_up(&mut self, cx: &mut Context<'_>) {
        let Some(ballot) = self.promised else { return };
        cx.counters.reformations_aborted += 1;
        self.lists.refute(&[ballot]);
        cx.multicast(&Packet::RecoveryAbort { ballot, seen: ballot });
        self.back_off(cx, cx.config.back_off);
    }

    // There are too few voters. The next ballot begins after a longer time.
    pub(crate) fn wait_in_minority(&mut self, cx: &mut Context<'_>) {
        self.give_up(cx);
        self.back_off(cx, cx.config.minority_retry);
    }

    /// Gives up the ballot of a member that leaves, because the other members would wait for it.
    pub(crate) fn abandon_ballot(&mut self, cx: &mut Context<'_>) {
        if self.is_initiator() {
            self.give_up(cx);
        }
    }

    /// Returns the number of recent voters if there have been too few for a long time. A member
    /// that waits longer for votes than other members may be overtaken in each of its ballots.
    pub(super) fn on_overtaken(&mut self, cx: &mut Context<'_>, ring: &Ring) -> Option<TooFew> {
        let State::Initiating { votes, .. } = &self.state else { return None };
        let is_over = |since: Time| since + cx.config.patience <= cx.now;
        let lately = self.voted_at.iter().filter(|(_, at)| !is_over(**at));
        let voted: Vec<Process> = lately.map(|(voter, _)| *voter).chain([ring.me()]).collect();
        let is_long = self.began.is_some_and(is_over);
        (is_long && !self.is_enough(ring, &voted, votes)).then(|| self.count(cx, ring, &voted))
    }

    fn count(&mut self, cx: &mut Context<'_>, ring: &Ring, voted: &[Process]) -> TooFew {
        let is_first = !self.is_minority();
        if is_first {
            self.minority_since = Some(cx.now);
            cx.counters.minorities += 1;
        }
        TooFew { voters: ring.view().voters_among(voted), is_first }
    }

    pub(super) fn repeat_start(&mut self, cx: &mut Context<'_>, ring: &Ring) {
        let position = self.position(ring);
        let State::Initiating { votes, reported } = &mut self.state else { return };
        reported.clone_from(&position);
        let others = votes.iter().filter(|(voter, _)| **voter != ring.me());
        let ahead: Vec<(NodeId, Position)> =
            others.map(|(voter, vote)| (voter.node, vote.position.clone())).collect();
        self.send_start(cx, ring, position);
        for (node, position) in ahead {
            self.fetch(cx, ring, node, &position);
        }
        cx.set(Timer::Recovery, cx.timing.recovery_retry(cx.config));
    }
}

/// Returns `true` if the members are enough to continue, with or without a joiner that has not
/// taken the token. Such a joiner may be in another ring, and the earlier members may continue
/// without it. Any two majorities, with and without the joiner, share a member.
fn may_continue(ring: &Ring, members: &[Process]) -> bool {
    let view = ring.view();
    let mut before = view.clone();
    before.members.retain(|member| ring.standings().has_spoken(member.process));
    let has_all = view.voters_among(members) >= view.least();
    has_all || before.voters_among(members) >= before.least()
}
