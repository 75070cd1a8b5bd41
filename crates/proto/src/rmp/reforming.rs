//! Recovery from faults: agreement on the remaining members, their position and their new list
//! (4.4).
//!
//! # States
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | idle | the ring works | a suspicion, or a Recovery Start |
//! | voted | promised a ballot, waits for its initiator | its New List, a higher ballot, time |
//! | initiating | requests votes, brings all members to one position | a list, a higher ballot |
//! | proposing | has sent the New List, waits for all its members | all their ACKs, or a timeout |
//! | backing off | has given up a ballot, or is in a minority | a random time, a higher ballot |
//!
//! In addition to the state, each member keeps the lists that it has accepted. From the first of
//! them on it applies no round of the old ring, because members that commit the list apply none,
//! until an initiator *releases* it from them. It never commits a list that it was released from.
//!
//! # Why two partitions never both continue where a majority is required
//!
//! A list holds once all its members have accepted it, and it has a majority of the view before.
//! Any two such sets of voters have a member in common. If that member promised the higher ballot
//! before it received the lower list, it refused the lower list. Otherwise it has reported the
//! lower list to the initiator of the higher ballot.
//!
//! An initiator that has received a report of a list that might hold proposes a list with enough
//! members of that list: as many as that list requires. Members that commit the lower list are then
//! too few to continue, even with a joiner. A list is an exception if a member of it votes without
//! having accepted it. That member now never will, so the list is *refuted*.
//!
//! A member that has accepted such a later list does not return to the lower one when it hears that
//! the lower one holds, because members that continued with the later list count on it. It returns
//! when the later list is refuted, for example by a member of it that is in the ring of the lower
//! list.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use self::lists::Lists;
use super::around::{Around, Timer};
use super::group::Group;
use super::names::{Epoch, Process};
use super::packet::{Accepted, NewList, Packet, Position, Proposal};
use super::ring::Ring;
use super::turns::Batch;
use super::view::RingView;
use crate::{NodeId, Time};

mod initiator;
mod lists;

/// Reformation state of a member.
#[derive(Debug, Default)]
pub(super) struct Reforming {
    state: State,
    /// Highest promised ballot. The member takes no part in lower ones.
    promised: Option<Epoch>,
    /// Highest version seen of any ballot.
    highest: u32,
    lists: Lists,
    /// The list that the ring was formed with, for members that have not heard that it holds.
    formation: Option<Proposal>,
    ancestors: VecDeque<Epoch>,
    tries: u32,
    /// Number of ballots of others that were given up since the last own ballot.
    lost_turns: u32,
    /// Time since which the ring does not work.
    began: Option<Time>,
    /// Members that take part. A joiner that has not taken the token counts as a member if it is
    /// one of them. If only some members counted its messages, no two positions would be equal.
    heard: BTreeSet<Process>,
    /// Time of the last vote of each member in a ballot of this one.
    seen: BTreeMap<Process, Time>,
    /// Time since which this part may not continue.
    minority_since: Option<Time>,
    /// Voters that an operator has named as lost: the ring continues without a quorum.
    forced: Option<Vec<NodeId>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Voted {
        said: Option<Position>,
        target: Position,
    },
    Initiating {
        votes: BTreeMap<Process, Vote>,
        said: Position,
    },
    Proposing {
        proposal: Proposal,
        acks: BTreeSet<Process>,
    },
    BackingOff,
}

/// Contents of a Recovery Start.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) epoch: Epoch,
    pub(super) ballot: Epoch,
    pub(super) position: Position,
    pub(super) refuted: Vec<Epoch>,
    pub(super) released: Vec<Epoch>,
}

#[derive(Clone, Debug)]
struct Vote {
    position: Position,
    accepted: Vec<Accepted>,
}

/// Maximum number of predecessor rings that are remembered.
const ANCESTORS: usize = 32;
/// Maximum by which a version may exceed what a member has seen. It covers a member that does not
/// hear the others for five days while they try thirty times a second.
const MAX_LEAP: u32 = 1 << 24;

impl Reforming {
    /// Creates the state of a working ring of this epoch.
    pub(super) fn of(epoch: Epoch) -> Self {
        Self { promised: Some(epoch), highest: epoch.version, ..Self::default() }
    }

    /// Records a version that a member has named. Returns `false` if it is too far ahead, so that
    /// no member can exhaust the versions for later ballots.
    fn note_version(&mut self, version: u32) -> bool {
        let is_near = version.saturating_sub(self.highest) <= MAX_LEAP;
        if is_near {
            self.highest = self.highest.max(version);
        }
        is_near
    }

    /// Returns `true` if the ring works.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Returns `true` if this member may commit a list that it has accepted. It then applies no
    /// rounds.
    pub(super) fn has_accepted(&self) -> bool {
        self.lists.last().is_some()
    }

    /// Returns `true` if this member's part may not continue.
    pub(super) fn is_minority(&self) -> bool {
        self.minority_since.is_some()
    }

    /// Returns the time for which this part may not continue.
    pub(super) fn is_minority_for(&self, now: Time) -> Duration {
        self.minority_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Returns the time for which the ring has not worked.
    pub(super) fn is_broken_for(&self, now: Time) -> Duration {
        self.began.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Returns `true` if an operator lets the ring continue without some voters.
    pub(super) fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// Lets the ring continue without the voters `lost`. Returns `false` if they are already
    /// recorded.
    pub(super) fn force(&mut self, lost: Vec<NodeId>) -> bool {
        self.forced.replace(lost.clone()) != Some(lost)
    }

    /// Returns `true` if an operator lets these members of the view continue without a quorum: it
    /// has named each voter that is not among them, and none that is.
    fn is_forced_for(&self, view: &RingView, members: &[Process]) -> bool {
        let Some(lost) = &self.forced else { return false };
        let is_here = |voter: &Process| members.contains(voter);
        view.voters_among(members) > 0
            && view.voters().all(|voter| is_here(&voter) != lost.contains(&voter.node))
    }

    /// Returns `true` if the ring descends from `epoch`.
    pub(super) fn is_ancestor(&self, epoch: Epoch) -> bool {
        self.ancestors.contains(&epoch)
    }

    /// Refutes the list that this member proposes. Only this member could have made it hold, as its
    /// initiator, and it takes part in another ballot now.
    fn refute_own(&mut self) {
        if let State::Proposing { proposal, .. } = &self.state {
            let own = proposal.view.epoch;
            self.lists.refute(&[own]);
        }
    }
}

impl Group {
    /// Begins a reformation, if the ring works: a packet got no answer after all its retries (4.4).
    pub(super) fn suspect(&mut self, cx: &mut Around<'_>, why: &'static str) {
        if self.reforming.is_idle() && self.ring.as_ref().is_some_and(|it| it.view().len() > 1) {
            tracing::info!(me = ?self.me, group = %cx.group, why, "starts a reformation");
            self.initiate(cx);
        }
    }

    pub(super) fn on_recovery_start(&mut self, cx: &mut Around<'_>, sender: NodeId, start: Start) {
        let Start { epoch, ballot, position, refuted, released } = start;
        if self.epoch() != Some(epoch) {
            self.on_other_epoch(cx, sender, epoch);
        }
        let Some(ring) = &self.ring else { return };
        if ring.view().epoch != epoch {
            return;
        }
        if !ring.view().contains(self.me) {
            return self.answer_as_former(cx, sender, position.next);
        }
        if ballot.creator.node != sender || !ring.view().contains(ballot.creator) {
            return self.notify(cx, sender);
        }
        if !self.reforming.note_version(ballot.version) {
            cx.counters.foreign += 1;
            return;
        }
        self.note_heard(ballot.creator, &position);
        let promised = self.reforming.promised.unwrap_or(epoch);
        if ballot < promised {
            return cx.unicast(sender, &Packet::RecoveryAbort { ballot, seen: promised });
        }
        if ballot > promised {
            self.on_turn_lost(cx);
            self.reforming.began.get_or_insert(cx.now);
            self.reforming.refute_own();
            self.pace.forget_old_floor(cx.now);
            self.reforming.promised = Some(ballot);
            self.reforming.tries = 0;
            self.reforming.state = State::Voted { said: None, target: position.clone() };
        }
        let State::Voted { target, .. } = &mut self.reforming.state else { return };
        target.clone_from(&position);
        self.reforming.lists.refute(&refuted);
        self.reforming.lists.release(&released);
        let patience = self.patience(cx);
        cx.set(Timer::Recovery, patience);
        self.vote(cx);
        self.fetch(cx, sender, position);
        self.advance(cx, None);
    }

    /// Returns the position of this member. Packets that arrive after it has accepted a list are
    /// not in that list, nor in a later one while that list may hold, because other members that
    /// have accepted it may no longer receive them.
    fn position(&self, ring: &Ring) -> Position {
        let accepted = self.reforming.lists.last();
        accepted.map_or_else(
            || ring.position(&self.reforming.heard),
            |proposal| proposal.position.clone(),
        )
    }

    /// Records that `member` takes part in a reformation, and that it has heard the sources in
    /// `position`.
    fn note_heard(&mut self, member: Process, position: &Position) {
        let Some(ring) = &self.ring else { return };
        let sources = position.received.iter().map(|(source, _)| *source);
        let members = sources.chain([member]).filter(|process| ring.view().contains(*process));
        self.reforming.heard.extend(members);
    }

    fn vote(&mut self, cx: &mut Around<'_>) {
        let (Some(ring), Some(ballot)) = (&self.ring, self.reforming.promised) else { return };
        let position = self.position(ring);
        let State::Voted { said, .. } = &mut self.reforming.state else { return };
        *said = Some(position.clone());
        let (epoch, accepted) = (ring.view().epoch, self.reforming.lists.on_the_wire());
        let vote = Packet::RecoveryVote { epoch, ballot, position, accepted };
        cx.unicast(ballot.creator.node, &vote);
    }

    /// Requests from `node` what this member lacks to reach `target`.
    pub(super) fn fetch(&mut self, cx: &mut Around<'_>, node: NodeId, target: Position) {
        let Some(ring) = &self.ring else { return };
        let (epoch, lacks) = (ring.view().epoch, ring.lacks_for(&target));
        if !lacks.is_empty() && !self.reforming.has_accepted() {
            self.ask(cx, epoch, Some(node), lacks, false);
        }
    }

    pub(super) fn on_formation(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        proposal: Proposal,
        is_committed: bool,
    ) {
        let ballot = proposal.view.epoch;
        if is_committed {
            // The sender has continued with this list. It has accepted no later one, and never
            // will.
            self.reforming.lists.refute_after(ballot, sender);
            return self.on_other_epoch_of(cx, ballot);
        }
        let Some(ring) = &self.ring else { return };
        if ring.view().epoch != proposal.base || ballot.creator.node != sender {
            return self.on_other_epoch(cx, sender, proposal.base);
        }
        let promised = self.reforming.promised.unwrap_or(proposal.base);
        if ballot < promised {
            return cx.unicast(sender, &Packet::RecoveryAbort { ballot, seen: promised });
        }
        self.note_heard(ballot.creator, &proposal.position);
        let Some(ring) = &self.ring else { return };
        let position = self.position(ring);
        let is_dead = self.reforming.lists.refuted.contains(&ballot);
        if ballot > promised || is_dead || !proposal.view.contains(self.me) {
            return;
        }
        let is_known = self.reforming.lists.accepted.iter().any(|it| it.view.epoch == ballot);
        if !is_known && position != proposal.position {
            return self.vote(cx);
        }
        if !is_known {
            self.reforming.lists.refute(&proposal.refuted);
            if self.reforming.lists.is_full() {
                // A list that is not remembered must not be acknowledged.
                cx.counters.lists_refused += 1;
                return;
            }
            self.reforming.lists.accepted.push(proposal);
        }
        let patience = self.patience(cx);
        cx.set(Timer::Recovery, patience);
        cx.unicast(sender, &Packet::RecoveryAckNewList { ballot });
    }

    /// Commits a list that holds: all its members have accepted it.
    pub(super) fn commit(&mut self, cx: &mut Around<'_>, proposal: Proposal) {
        let Some(ring) = &mut self.ring else { return };
        let epoch = proposal.view.epoch;
        ring.form(&proposal);
        for (source, message) in ring.take_lost() {
            cx.give_up(source, message);
        }
        cx.version = epoch.version;
        cx.counters.reformations_done += 1;
        let mut ancestors = core::mem::take(&mut self.reforming.ancestors);
        ancestors.push_back(proposal.base);
        if ancestors.len() > ANCESTORS {
            ancestors.pop_front();
        }
        let highest = self.reforming.highest.max(epoch.version);
        self.reforming = Reforming { ancestors, highest, ..Reforming::of(epoch) };
        self.release_placed(cx);
        self.confirming.place = None;
        let has_own = proposal.position.received.iter().any(|(source, _)| *source == self.me);
        if let Some(ring) = self.ring.as_ref().filter(|_| has_own) {
            self.confirming.last_place = ring.settled();
        }
        self.reforming.formation = Some(proposal);
        self.sending.restart(cx.now);
        (self.passed, self.unconfirmed, self.batch) = (None, None, Batch::default());
        for timer in [Timer::Pass, Timer::Idle, Timer::Batch, Timer::Confirm, Timer::Recovery] {
            cx.cancel(timer);
        }
        self.refresh_reach(cx);
        self.ask_for_change(cx);
        self.watch_strangers(cx);
        self.advance(cx, None);
    }

    /// Handles a packet of another ring from `sender`.
    pub(super) fn on_other_epoch(&mut self, cx: &mut Around<'_>, sender: NodeId, epoch: Epoch) {
        cx.counters.foreign += 1;
        let Some(ring) = &self.ring else { return };
        if self.reforming.lists.accepted.iter().any(|it| it.view.epoch == epoch) {
            return self.on_other_epoch_of(cx, epoch);
        }
        let formation = self.reforming.formation.as_ref();
        let is_behind = formation.is_some_and(|it| it.base == epoch);
        if is_behind && ring.view().process_of(sender).is_some() {
            let Some(proposal) = formation.cloned() else { return };
            let list = NewList::Formation { proposal, is_committed: true };
            return cx.unicast(sender, &Packet::NewList(list));
        }
        self.notify(cx, sender);
    }

    /// Handles the report that the ring of this epoch works. If this member has accepted its list,
    /// the list holds, and the member commits it unless it has accepted another list since.
    pub(super) fn on_other_epoch_of(&mut self, cx: &mut Around<'_>, epoch: Epoch) {
        let last = self.reforming.lists.accepted.last().filter(|it| it.view.epoch == epoch);
        let last = last.filter(|_| !self.reforming.lists.released.contains(&epoch));
        if let Some(proposal) = last.cloned() {
            self.commit(cx, proposal);
        }
    }

    pub(super) fn on_recovery_abort(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        ballot: Epoch,
        seen: Epoch,
    ) {
        if self.ring.as_ref().is_none_or(|ring| ring.view().process_of(sender).is_none()) {
            // A stranger could name the largest possible version.
            cx.counters.foreign += 1;
            return;
        }
        let are_near = [ballot, seen].map(|it| self.reforming.note_version(it.version));
        if are_near.contains(&false) {
            cx.counters.foreign += 1;
        }
        if ballot.creator.node == sender {
            // Only its initiator could have made it hold.
            self.reforming.lists.refute(&[ballot]);
            if self.reforming.promised == Some(ballot) && !self.reforming.is_idle() {
                self.reforming.lost_turns += 1;
                self.back_off(cx, cx.config.back_off);
            }
        } else if ballot.creator == self.me && self.reforming.promised == Some(ballot) {
            let is_active =
                matches!(self.reforming.state, State::Initiating { .. } | State::Proposing { .. });
            if is_active && seen > ballot {
                self.on_turn_lost(cx);
                self.give_up(cx);
            }
        }
    }

    pub(super) fn back_off(&mut self, cx: &mut Around<'_>, span: Duration) {
        self.reforming.state = State::BackingOff;
        // A member that is farther away, or was slow, gets its turn too: only an initiator detects
        // that the members are too few.
        let retry = self.pace.recovery_retry(cx.config) / (1 + self.reforming.lost_turns);
        let wait = retry / 2 + cx.random(span.max(retry));
        cx.set(Timer::Recovery, wait);
    }

    /// Returns the time for which a voter waits for the initiator.
    fn patience(&self, cx: &mut Around<'_>) -> Duration {
        let asks = self.pace.recovery_retry(cx.config) * (cx.config.recovery_tries + 2);
        asks + cx.random(cx.config.back_off)
    }

    pub(super) fn on_recovery_timer(&mut self, cx: &mut Around<'_>) {
        self.reforming.tries += 1;
        let is_last = self.reforming.tries >= cx.config.recovery_tries;
        match &self.reforming.state {
            State::Idle => {}
            State::Voted { .. } | State::BackingOff
                if self.is_hopeless(cx) && !self.reforming.has_accepted() =>
            {
                self.dissolve_for_new(cx);
            }
            State::Voted { .. } | State::BackingOff => self.initiate(cx),
            State::Initiating { .. } if is_last => self.consider(cx, true),
            State::Initiating { .. } => self.ask_again(cx),
            State::Proposing { .. } if is_last => self.give_up(cx),
            State::Proposing { proposal, acks } => {
                let rest = proposal.view.processes().filter(|it| !acks.contains(it));
                let rest: Vec<Process> = rest.collect();
                let proposal = proposal.clone();
                let list = Packet::NewList(NewList::Formation { proposal, is_committed: false });
                rest.into_iter().for_each(|process| cx.unicast(process.node, &list));
                cx.set(Timer::Recovery, self.pace.recovery_retry(cx.config));
            }
        }
    }

    /// Reports the position of this member after rounds or data arrived during a reformation,
    /// because the other members wait for it.
    pub(super) fn reformation_advanced(&mut self, cx: &mut Around<'_>) {
        let Some(ring) = &self.ring else { return };
        match &self.reforming.state {
            State::Voted { said: Some(said), target } => {
                let position = self.position(ring);
                if position != *said && ring.lacks_for(target).is_empty() {
                    self.vote(cx);
                }
            }
            State::Initiating { said, .. } => {
                let position = self.position(ring);
                if position != *said {
                    self.reforming.tries = 0;
                    if let State::Initiating { said, .. } = &mut self.reforming.state {
                        said.clone_from(&position);
                    }
                    self.say_start(cx, position);
                    self.consider(cx, false);
                }
            }
            _ => {}
        }
    }
}
