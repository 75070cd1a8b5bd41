//! Recovery from faults: agreement on the remaining members, their position, and their new list
//! (4.4).
//!
//! # States
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | idle | the ring works | a suspicion, or a Recovery Start |
//! | voted | has promised a ballot to its initiator | a list that holds, a higher ballot, time |
//! | initiating | brings all members to one position | a list, too few votes, a higher ballot |
//! | proposing | waits for all members of its New List | their ACKs, a higher ballot, a timeout |
//! | backing off | a ballot was given up, or too few voted | a random time, a higher ballot |
//!
//! In addition to the state, each member keeps the lists that it has accepted. Once it has accepted
//! a list, it applies no round of the old ring, because members that commit the list apply none.
//! This ends when the list is refuted (see below), or when an initiator *releases* the member from
//! its lists. A member never commits a list that it was released from.
//!
//! # Why two partitions never both continue where a majority is required
//!
//! A list holds once all of its members have accepted it, and these include a majority of the
//! previous view. Any two such sets of voters have a member in common. If that member promised the
//! higher ballot before it received the lower list, it refused the lower list. Otherwise, it has
//! reported the lower list to the initiator of the higher ballot.
//!
//! An initiator that has received a report of a list that might hold proposes a list with as many
//! members of the reported list as the latter requires. There are then too few members to continue
//! with the lower list, even with a joiner. The only exception is a list one of whose members votes
//! without having accepted it. That member will never accept it, so the list is *refuted*.
//!
//! A member that has accepted such a later list does not return to the lower list when it learns
//! that the lower list holds, because members that continued with the later list rely on it. It
//! returns when the later list is refuted, for example by one of its members that is in the ring of
//! the lower list.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use self::accepted_lists::AcceptedLists;
use super::nack;
use crate::ring::{Epoch, Process};
use crate::rmp::context::{Context, Timer};
use crate::rmp::packet::{NewList, Packet};
use crate::rmp::ring::{Accepted, Position, Proposal, Ring};
use crate::{NodeId, Time};

mod accepted_lists;
mod initiator;

#[derive(Debug, Default)]
pub(super) struct Reformation {
    state: State,
    /// Highest ballot in which the member takes part. It refuses lower ballots.
    promised: Option<Epoch>,
    highest: u32,
    lists: AcceptedLists,
    /// List that formed this ring. It is sent to members that have not heard that the list holds.
    formation: Option<Proposal>,
    ancestors: VecDeque<Epoch>,
    tries: u32,
    /// Number of other members' ballots that were given up since this member's last ballot.
    lost_ballots: u32,
    began: Option<Time>,
    /// Members heard in the reformation. A joiner that has not taken the token counts as a member
    /// only if it is in this set. If only some members counted its messages, their positions would
    /// never equal those of the others.
    heard: BTreeSet<Process>,
    voted_at: BTreeMap<Process, Time>,
    minority_since: Option<Time>,
    forced: Option<Vec<NodeId>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Voted {
        reported: Option<Position>,
        target: Position,
    },
    Initiating {
        votes: BTreeMap<Process, Vote>,
        reported: Position,
    },
    Proposing {
        proposal: Proposal,
        acks: BTreeSet<Process>,
    },
    BackingOff,
}

#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) epoch: Epoch,
    pub(super) ballot: Epoch,
    pub(super) position: Position,
    pub(super) refuted: Vec<Epoch>,
    pub(super) released: Vec<Epoch>,
}

#[derive(Clone, Debug)]
pub(super) struct Vote {
    pub(super) epoch: Epoch,
    pub(super) position: Position,
    pub(super) accepted: Vec<Accepted>,
}

#[derive(Debug)]
#[must_use]
pub(super) enum Verdict {
    Pending,
    Advance,
    /// The member has voted. `Some` if its own previous ballot had too few voters.
    Voted(Option<TooFew>),
    Overtaken(TooFew),
    Stranger(NodeId),
    Holds(Proposal),
    Commit(Proposal),
    TooFew(TooFew),
    Overdue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooFew {
    pub(super) voters: usize,
    pub(super) is_first: bool,
}

const ANCESTORS: usize = 32;
/// Maximum step between two versions of ballots. At thirty ballots a second, members that are not
/// heard take six days to exceed it.
const MAX_LEAP: u32 = 1 << 24;

impl Reformation {
    pub(super) fn of(epoch: Epoch) -> Self {
        Self { promised: Some(epoch), highest: epoch.version, ..Self::default() }
    }

    pub(super) fn on_formed(&mut self, proposal: Proposal) {
        let epoch = proposal.view.epoch;
        let mut ancestors = core::mem::take(&mut self.ancestors);
        ancestors.push_back(proposal.base);
        if ancestors.len() > ANCESTORS {
            ancestors.pop_front();
        }
        let highest = self.highest.max(epoch.version);
        let formation = Some(proposal);
        *self = Self { ancestors, highest, formation, ..Self::of(epoch) };
    }

    /// Notes the version of a ballot. Returns `false` if it is too far ahead, so that no member can
    /// exhaust the versions.
    fn note_version(&mut self, version: u32) -> bool {
        let is_near = version.saturating_sub(self.highest) <= MAX_LEAP;
        if is_near {
            self.highest = self.highest.max(version);
        }
        is_near
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    // A member that may commit a list applies no rounds.
    pub(super) fn has_accepted(&self) -> bool {
        self.lists.last().is_some()
    }

    pub(super) fn is_minority(&self) -> bool {
        self.minority_since.is_some()
    }

    pub(super) fn is_minority_for(&self, now: Time) -> Duration {
        self.minority_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    // No operator may have forced the members to continue.
    pub(super) fn is_stuck(&self, now: Time, patience: Duration) -> bool {
        let broken_for = self.began.map_or(Duration::ZERO, |since| now.since(since));
        broken_for >= patience && self.is_minority() && self.forced.is_none()
    }

    pub(super) fn force(&mut self, lost: Vec<NodeId>) -> bool {
        self.forced.replace(lost.clone()) != Some(lost)
    }

    pub(super) fn is_ancestor(&self, epoch: Epoch) -> bool {
        self.ancestors.contains(&epoch)
    }

    pub(super) fn on_start(&mut self, cx: &mut Context<'_>, ring: &Ring, start: Start) -> Verdict {
        let Start { epoch, ballot, position, refuted, released } = start;
        let initiator = ballot.creator.node;
        if !self.note_version(ballot.version) {
            cx.counters.foreign += 1;
            return Verdict::Pending;
        }
        self.note_heard(ring, ballot.creator, &position);
        let promised = self.promised.unwrap_or(epoch);
        if ballot < promised {
            cx.unicast(initiator, &Packet::RecoveryAbort { ballot, seen: promised });
            return Verdict::Pending;
        }
        let mut too_few = None;
        if ballot > promised {
            too_few = self.on_overtaken(cx, ring);
            self.began.get_or_insert(cx.now);
            if let State::Proposing { proposal, .. } = &self.state {
                // Only this member, as the initiator, could have made its list hold.
                self.lists.refute(&[proposal.view.epoch]);
            }
            cx.timing.forget_old_floor(cx.now);
            self.promised = Some(ballot);
            self.tries = 0;
            self.state = State::Voted { reported: None, target: position.clone() };
        }
        let State::Voted { target, .. } = &mut self.state else { return Verdict::Pending };
        target.clone_from(&position);
        self.lists.refute(&refuted);
        self.lists.release(&released);
        wait_for_initiator(cx);
        self.vote(cx, ring);
        self.fetch(cx, ring, initiator, &position);
        Verdict::Voted(too_few)
    }

    /// Returns the position to report. It excludes later packets while an accepted list may hold,
    /// because other members that have accepted the list may no longer receive them.
    fn position(&self, ring: &Ring) -> Position {
        let accepted = self.lists.last();
        accepted.map_or_else(|| ring.position(&self.heard), |proposal| proposal.position.clone())
    }

    // `member` takes part in a reformation and has heard the sources in `position`.
    fn note_heard(&mut self, ring: &Ring, member: Process, position: &Position) {
        let sources = position.received.iter().map(|(source, _)| *source);
        let members = sources.chain([member]).filter(|process| ring.view().contains(*process));
        self.heard.extend(members);
    }

    fn vote(&mut self, cx: &mut Context<'_>, ring: &Ring) {
        let Some(ballot) = self.promised else { return };
        let position = self.position(ring);
        let State::Voted { reported, .. } = &mut self.state else { return };
        *reported = Some(position.clone());
        let (epoch, accepted) = (ring.epoch(), self.lists.to_wire());
        let vote = Packet::RecoveryVote { epoch, ballot, position, accepted };
        cx.unicast(ballot.creator.node, &vote);
    }

    fn fetch(&self, cx: &mut Context<'_>, ring: &Ring, node: NodeId, target: &Position) {
        let missing = ring.gaps_to(target);
        if !missing.is_empty() && !self.has_accepted() {
            nack::request_from(cx, node, ring.epoch(), missing);
        }
    }

    pub(super) fn on_formation(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        proposal: Proposal,
    ) -> Verdict {
        let ballot = proposal.view.epoch;
        let initiator = ballot.creator.node;
        let promised = self.promised.unwrap_or(proposal.base);
        if ballot < promised {
            cx.unicast(initiator, &Packet::RecoveryAbort { ballot, seen: promised });
            return Verdict::Pending;
        }
        self.note_heard(ring, ballot.creator, &proposal.position);
        let position = self.position(ring);
        let is_dead = self.lists.refuted.contains(&ballot);
        if ballot > promised || is_dead || !proposal.view.contains(ring.me()) {
            return Verdict::Pending;
        }
        if !self.lists.contains(ballot) {
            if position != proposal.position {
                self.vote(cx, ring);
                return Verdict::Pending;
            }
            self.lists.refute(&proposal.refuted);
            if self.lists.is_full() {
                cx.counters.lists_refused += 1;
                return Verdict::Pending;
            }
            self.lists.accept(proposal);
        }
        wait_for_initiator(cx);
        cx.unicast(initiator, &Packet::RecoveryAckNewList { ballot });
        Verdict::Pending
    }

    pub(super) fn on_committed(&mut self, sender: NodeId, ballot: Epoch) -> Verdict {
        // The sender has accepted no later list, and never will.
        self.lists.refute_after(ballot, sender);
        self.on_working(ballot)
    }

    // The list of a ring that works holds. It is committed if it was the last one to be accepted.
    pub(super) fn on_working(&self, ballot: Epoch) -> Verdict {
        self.lists.committable(ballot).map_or(Verdict::Pending, |it| Verdict::Commit(it.clone()))
    }

    pub(super) fn on_other_ring(
        &self,
        cx: &mut Context<'_>,
        ring: &Ring,
        sender: NodeId,
        epoch: Epoch,
    ) -> Verdict {
        if self.lists.contains(epoch) {
            return self.on_working(epoch);
        }
        let formation = self.formation.as_ref().filter(|proposal| proposal.base == epoch);
        match formation {
            Some(proposal) if ring.view().process_of(sender).is_some() => {
                let proposal = proposal.clone();
                let list = NewList::Formation { proposal, is_committed: true };
                cx.unicast(sender, &Packet::NewList(list));
                Verdict::Pending
            }
            _ => Verdict::Stranger(sender),
        }
    }

    // `seen` is the highest ballot that `sender` has seen.
    pub(super) fn on_abort(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        sender: NodeId,
        (ballot, seen): (Epoch, Epoch),
    ) -> Verdict {
        if ring.view().process_of(sender).is_none() {
            // A node outside the ring could name the largest possible version.
            cx.counters.foreign += 1;
            return Verdict::Pending;
        }
        let are_near = [ballot, seen].map(|it| self.note_version(it.version));
        if are_near.contains(&false) {
            cx.counters.foreign += 1;
        }
        if ballot.creator.node == sender {
            // Only the initiator could have made the list of its ballot hold.
            self.lists.refute(&[ballot]);
            if self.promised == Some(ballot) && !self.is_idle() {
                self.lost_ballots += 1;
                self.back_off(cx, cx.config.back_off);
            }
        } else if ballot.creator == ring.me()
            && self.promised == Some(ballot)
            && self.is_initiator()
            && seen > ballot
        {
            let too_few = self.on_overtaken(cx, ring);
            self.give_up(cx);
            return too_few.map_or(Verdict::Pending, Verdict::Overtaken);
        }
        Verdict::Pending
    }

    fn back_off(&mut self, cx: &mut Context<'_>, span: Duration) {
        self.state = State::BackingOff;
        // Distant members must also get a turn, because only an initiator counts the members.
        let retry = cx.timing.recovery_retry(cx.config) / (1 + self.lost_ballots);
        let wait = retry / 2 + cx.random(span.max(retry));
        cx.set(Timer::Recovery, wait);
    }

    pub(super) fn on_timer(&mut self, cx: &mut Context<'_>, ring: &Ring) -> Verdict {
        self.tries += 1;
        let is_last = self.tries >= cx.config.recovery_tries;
        match &self.state {
            State::Idle => Verdict::Pending,
            State::Voted { .. } | State::BackingOff => Verdict::Overdue,
            State::Initiating { .. } if is_last => self.consider(cx, ring, true),
            State::Initiating { .. } => {
                self.repeat_start(cx, ring);
                Verdict::Pending
            }
            State::Proposing { .. } if is_last => {
                self.give_up(cx);
                Verdict::Pending
            }
            State::Proposing { proposal, acks } => {
                let rest = proposal.view.processes().filter(|process| !acks.contains(process));
                let proposal = proposal.clone();
                let list = Packet::NewList(NewList::Formation { proposal, is_committed: false });
                rest.for_each(|process| cx.unicast(process.node, &list));
                cx.set(Timer::Recovery, cx.timing.recovery_retry(cx.config));
                Verdict::Pending
            }
        }
    }

    // Rounds or data have arrived, and other members wait for the new position.
    pub(super) fn on_progress(&mut self, cx: &mut Context<'_>, ring: &Ring) -> Verdict {
        match &self.state {
            State::Voted { reported: Some(reported), target } => {
                if self.position(ring) != *reported && ring.gaps_to(target).is_empty() {
                    self.vote(cx, ring);
                }
                Verdict::Pending
            }
            State::Initiating { reported, .. } => {
                let position = self.position(ring);
                if position == *reported {
                    return Verdict::Pending;
                }
                self.tries = 0;
                if let State::Initiating { reported, .. } = &mut self.state {
                    reported.clone_from(&position);
                }
                self.send_start(cx, ring, position);
                self.consider(cx, ring, false)
            }
            _ => Verdict::Pending,
        }
    }
}

fn wait_for_initiator(cx: &mut Context<'_>) {
    let starts = cx.timing.recovery_retry(cx.config) * (cx.config.recovery_tries + 2);
    let wait = starts + cx.random(cx.config.back_off);
    cx.set(Timer::Recovery, wait);
}
