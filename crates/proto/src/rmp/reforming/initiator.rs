//! Initiator of a reformation: collects votes, brings all members to one position, proposes the
//! list.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::super::around::{Around, Timer};
use super::super::group::Group;
use super::super::names::{Epoch, Process};
use super::super::packet::{Accepted, NewList, Packet, Position, Proposal};
use super::super::view::RingView;
use super::super::{Removal, RingNews};
use super::lists::MAX_ACCEPTED;
use super::{State, Vote};
use crate::{NodeId, Time};

impl Group {
    pub(in crate::rmp) fn initiate(&mut self, cx: &mut Around<'_>) {
        let Some(ring) = &self.ring else { return };
        let (epoch, position) = (ring.view().epoch, self.position(ring));
        let version = self.reforming.highest.max(epoch.version).saturating_add(1);
        let ballot = Epoch { version, creator: self.me };
        let accepted = self.reforming.lists.on_the_wire();
        let vote = Vote { position: position.clone(), accepted };
        self.reforming.highest = version;
        self.reforming.promised = Some(ballot);
        self.reforming.began.get_or_insert(cx.now);
        (self.reforming.tries, self.reforming.lost_turns) = (0, 0);
        self.reforming.state =
            State::Initiating { votes: BTreeMap::from([(self.me, vote)]), said: position.clone() };
        cx.counters.reformations_begun += 1;
        self.pace.on_ballot(cx.now, ballot);
        self.say_start(cx, position);
        cx.set(Timer::Recovery, self.pace.recovery_retry(cx.config));
    }

    pub(super) fn say_start(&mut self, cx: &mut Around<'_>, position: Position) {
        let (Some(epoch), Some(ballot)) = (self.epoch(), self.reforming.promised) else { return };
        let (refuted, released) =
            (self.reforming.lists.refuted.clone(), self.reforming.lists.released.clone());
        cx.multicast(&Packet::RecoveryStart { epoch, ballot, position, refuted, released });
    }

    pub(in crate::rmp) fn on_recovery_vote(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        epoch: Epoch,
        ballot: Epoch,
        position: Position,
        accepted: Vec<Accepted>,
    ) {
        self.pace.on_vote(cx.now, sender, ballot, cx.config);
        let (Some(ring), true) = (&self.ring, self.reforming.promised == Some(ballot)) else {
            return;
        };
        let voter = ring.view().process_of(sender);
        let (Some(voter), true) = (voter, ring.view().epoch == epoch) else { return };
        self.note_heard(voter, &position);
        match &mut self.reforming.state {
            State::Initiating { votes, .. } => {
                votes.insert(voter, Vote { position: position.clone(), accepted });
                self.reforming.seen.insert(voter, cx.now);
                self.refute();
                self.fetch(cx, sender, position);
                self.consider(cx, false);
            }
            State::Proposing { proposal, acks } => {
                // The voter's position differs from that of the list, so it cannot accept the list.
                let is_in = proposal.view.contains(voter) && !acks.contains(&voter);
                if is_in && proposal.position != position {
                    self.give_up(cx);
                }
            }
            State::Idle | State::Voted { .. } | State::BackingOff => {}
        }
    }

    /// Refutes lists that a member of theirs has not accepted when it voted. They can no longer
    /// hold, so no member has to wait for them.
    fn refute(&mut self) {
        let State::Initiating { votes, .. } = &mut self.reforming.state else { return };
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
        self.reforming.lists.refute(&refuted);
    }

    /// Proposes a list if all members have voted at the same position. With `is_last` it proposes
    /// one with the members that have.
    pub(super) fn consider(&mut self, cx: &mut Around<'_>, is_last: bool) {
        let Some(ring) = &self.ring else { return };
        let mine = self.position(ring);
        let view = ring.view().clone();
        let State::Initiating { votes, .. } = &mut self.reforming.state else { return };
        if let Some(own) = votes.get_mut(&self.me) {
            own.position.clone_from(&mine);
        }
        let here: Vec<Process> = view
            .processes()
            .filter(|process| votes.get(process).is_some_and(|vote| vote.position == mine))
            .collect();
        if here.len() < view.len() && !is_last {
            return;
        }
        let is_somebody_whole = votes.values().any(|vote| vote.position.is_whole);
        if !mine.is_whole && (is_somebody_whole || !is_last) {
            // A member that has these messages completely must initiate. If there is none, they are
            // given up.
            return self.on_minority(cx, &here);
        }
        let voted: Vec<Process> = votes.keys().copied().collect();
        let votes = votes.clone();
        if self.is_enough(&view, &here, &votes) {
            return self.propose(cx, &view, mine, here);
        }
        if self.is_enough(&view, &voted, &votes) && self.release_voters(cx, &votes) {
            return;
        }
        self.on_minority(cx, &voted);
    }

    /// Returns `true` if these members may continue: as many as the ring requires, and of each list
    /// that may already hold as many as that list requires. Lists that cannot hold were
    /// [refuted](Self::refute) before.
    fn is_enough(
        &self,
        view: &RingView,
        members: &[Process],
        votes: &BTreeMap<Process, Vote>,
    ) -> bool {
        if !members.contains(&self.me) {
            return false;
        }
        if self.reforming.is_forced_for(view, members) {
            return true;
        }
        let has_least = |list: &Accepted| {
            let both = members.iter().filter(|member| list.members.contains(member));
            let both: Vec<Process> = both.copied().collect();
            view.voters_among(&both) >= list.least.into()
        };
        votes.values().flat_map(|vote| &vote.accepted).all(has_least)
            && self.may_go_on(view, members)
    }

    /// Releases voters from the lists that they have accepted. The voters could continue, but those
    /// that have accepted a list cannot reach the others' position. Returns `false` if they were
    /// released before.
    fn release_voters(&mut self, cx: &mut Around<'_>, votes: &BTreeMap<Process, Vote>) -> bool {
        let lists = votes.values().flat_map(|vote| &vote.accepted).map(|list| list.ballot);
        let lists: BTreeSet<Epoch> =
            lists.filter(|ballot| !self.reforming.lists.released.contains(ballot)).collect();
        if lists.is_empty() || self.reforming.lists.released.len() + lists.len() > MAX_ACCEPTED {
            return false;
        }
        cx.counters.lists_released += lists.len() as u64;
        self.reforming.lists.released.extend(lists);
        self.reforming.tries = 0;
        self.ask_again(cx);
        self.advance(cx, None);
        true
    }

    /// Returns `true` if these members are as many as the ring requires. A joiner that has not
    /// taken the token yet may be in another ring, so the members before it may continue as if it
    /// had not been admitted. Any two majorities, with and without the one possible joiner, have a
    /// member in common.
    fn may_go_on(&self, view: &RingView, members: &[Process]) -> bool {
        let Some(ring) = &self.ring else { return false };
        let mut before = view.clone();
        before.members.retain(|member| ring.has_spoken(member.process));
        let has_all = view.voters_among(members) >= view.least();
        has_all || before.voters_among(members) >= before.least()
    }

    fn propose(
        &mut self,
        cx: &mut Around<'_>,
        view: &RingView,
        position: Position,
        members: Vec<Process>,
    ) {
        let Some(ballot) = self.reforming.promised else { return };
        if self.reforming.lists.is_full() {
            cx.counters.lists_refused += 1;
            return self.give_up(cx);
        }
        let mut new = view.clone();
        for gone in view.processes().filter(|process| !members.contains(process)) {
            new.remove(gone);
        }
        (new.epoch, new.version) = (ballot, 0);
        let is_forced = self.reforming.is_forced_for(view, &members);
        cx.counters.quorums_forced += u64::from(is_forced);
        new.is_forced |= is_forced;
        new.settle_force();
        let refuted = self.reforming.lists.refuted.clone();
        let proposal = Proposal { base: view.epoch, position, view: new, refuted };
        self.reforming.lists.accepted.push(proposal.clone());
        self.reforming.tries = 0;
        let acks = BTreeSet::from([self.me]);
        self.reforming.state = State::Proposing { proposal: proposal.clone(), acks };
        cx.multicast(&Packet::NewList(NewList::Formation { proposal, is_committed: false }));
        cx.set(Timer::Recovery, self.pace.recovery_retry(cx.config));
        self.commit_if_accepted(cx);
    }

    pub(in crate::rmp) fn on_recovery_ack(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        ballot: Epoch,
    ) {
        let State::Proposing { proposal, acks } = &mut self.reforming.state else { return };
        let process = proposal.view.process_of(sender);
        if let Some(process) = process.filter(|_| proposal.view.epoch == ballot) {
            acks.insert(process);
            self.commit_if_accepted(cx);
        }
    }

    fn commit_if_accepted(&mut self, cx: &mut Around<'_>) {
        let State::Proposing { proposal, acks } = &self.reforming.state else { return };
        if acks.len() == proposal.view.len() {
            let proposal = proposal.clone();
            self.must_speak = proposal.view.len() > 1;
            self.commit(cx, proposal);
        }
    }

    /// Gives up this member's own ballot.
    pub(super) fn give_up(&mut self, cx: &mut Around<'_>) {
        let Some(ballot) = self.reforming.promised else { return };
        cx.counters.reformations_aborted += 1;
        self.reforming.lists.refute(&[ballot]);
        cx.multicast(&Packet::RecoveryAbort { ballot, seen: ballot });
        self.back_off(cx, cx.config.back_off);
    }

    /// Gives up this member's own ballot, if there is one, before it leaves the ring, because the
    /// others would wait for it.
    pub(in crate::rmp) fn abandon_ballot(&mut self, cx: &mut Around<'_>) {
        if matches!(self.reforming.state, State::Initiating { .. } | State::Proposing { .. }) {
            self.give_up(cx);
        }
    }

    /// Handles the ballot of another member that began before the own one was over. If this member
    /// waits longer for votes, that can happen each time. The recent voters show whether they are
    /// too few.
    pub(super) fn on_turn_lost(&mut self, cx: &mut Around<'_>) {
        let State::Initiating { votes, .. } = &self.reforming.state else { return };
        let Some(ring) = &self.ring else { return };
        let is_over = |since: Time| since + cx.config.patience <= cx.now;
        let lately = self.reforming.seen.iter().filter(|(_, at)| !is_over(**at));
        let voted: Vec<Process> = lately.map(|(voter, _)| *voter).chain([self.me]).collect();
        let is_long = self.reforming.began.is_some_and(is_over);
        if is_long && !self.is_enough(ring.view(), &voted, votes) {
            self.note_minority(cx, &voted);
        }
    }

    /// Reports to the application that the members that have voted are too few. Returns the number
    /// of voters of the view among them.
    fn note_minority(&mut self, cx: &mut Around<'_>, voted: &[Process]) -> usize {
        let Some(ring) = &self.ring else { return 0 };
        let (members, needed) = (ring.view().len(), ring.view().least());
        let voters = ring.view().voters_among(voted);
        let quorum = self.terms.partition.quorum();
        if !self.reforming.is_minority() {
            self.reforming.minority_since = Some(cx.now);
            cx.counters.minorities += 1;
            if quorum.is_none() {
                cx.tell(RingNews::Minority { members, needed, voters: None });
            }
        }
        if let Some(quorum) = quorum {
            self.tell_voters(cx, voters, quorum);
        }
        voters
    }

    /// Gives up the ballot, because the members that have voted may not continue.
    fn on_minority(&mut self, cx: &mut Around<'_>, voted: &[Process]) {
        let voters = self.note_minority(cx, voted);
        if self.terms.partition.quorum().is_some() {
            let since = self.reforming.is_minority_for(cx.now);
            if voters == 0 && since >= cx.config.patience {
                // Clients alone do not prevent other nodes from creating a ring.
                return self.on_removed(cx, Removal::Removed);
            }
        }
        if self.is_hopeless(cx) {
            return self.dissolve_for_new(cx);
        }
        self.give_up(cx);
        let wait = cx.config.minority_retry;
        self.back_off(cx, wait);
    }

    pub(super) fn ask_again(&mut self, cx: &mut Around<'_>) {
        let Some(position) = self.ring.as_ref().map(|ring| self.position(ring)) else { return };
        let State::Initiating { votes, said } = &mut self.reforming.state else { return };
        said.clone_from(&position);
        let others = votes.iter().filter(|(voter, _)| **voter != self.me);
        let ahead: Vec<(NodeId, Position)> =
            others.map(|(voter, vote)| (voter.node, vote.position.clone())).collect();
        self.say_start(cx, position);
        for (node, position) in ahead {
            self.fetch(cx, node, position);
        }
        cx.set(Timer::Recovery, self.pace.recovery_retry(cx.config));
    }
}
