//! Quorum of an electorate: a ring with too few voters, and the operator's command to continue.
//!
//! A ring of an electorate is created by a voter and works once a majority of the electorate has
//! taken its token ([`Ring::shortage`]). Until then, members can only join and leave.
//!
//! # Why two rings never both work
//!
//! A process is in one ring at a time, and counts once it has taken that ring's token. Two working
//! rings would need more voters than the electorate has.
//!
//! This holds at one point in time. A restarted voter has no memory of its former ring, and may be
//! counted in another ring that lacks what the first one has acknowledged. Rings therefore follow
//! each other in one line. More than half of the voters of a view must continue
//! ([`RingView::least`]), even if they are no quorum yet, and every restarted voter joins behind
//! them.

use alloc::vec::Vec;

use super::around::{Around, Timer};
use super::group::Group;
use super::list_requests::ListRequests;
use super::log::{ListChange, ListChangeKind};
use super::names::{Epoch, Process, Timestamp};
use super::packet::Packet;
use super::reforming::Reforming;
use super::ring::Lacks;
use super::view::{Member, RingView};
use super::{RingNews, Rmp};
use crate::{Class, Destination, GroupId, NodeId, Time, Transmit};

/// Reports about the electorate that the application has received.
#[derive(Debug, Default)]
pub(super) struct Quorum {
    /// Number of voters in the last report that they are too few.
    told: Option<usize>,
    /// `true` once it was reported that the electorate is full without this voter.
    is_full_told: bool,
}

impl Rmp {
    /// Requests that the members of a ring continue without a majority of its electorate. It is the
    /// command of an operator who has verified that the other voters will not return.
    ///
    /// `epoch` names the ring, as a [query](Rmp::look) has shown it. `lost` names each of its
    /// voters that no longer answers. Nothing happens if an unnamed voter is silent, if a named
    /// voter answers, or while the ring works.
    ///
    /// If a named voter still works elsewhere, two rings order messages and grant locks from then
    /// on. The view that follows has [`RingView::is_forced`] set.
    pub fn force_quorum(&mut self, now: Time, group: GroupId, epoch: Epoch, lost: Vec<NodeId>) {
        let (node, origin) = (self.id, self.origin);
        let packet = Packet::ForceQuorum { epoch, lost: lost.clone() };
        let destination = Destination::Group(group);
        let transmit = Transmit { destination, class: Class::Control };
        self.outbox.push(transmit, |out| packet.encode(out, group, origin, epoch.version));
        self.with(now, group, |state, cx| state.on_force_quorum(cx, node, epoch, lost));
    }
}

impl Group {
    /// Returns `true` if this node is in a ring that has too few voters to work.
    pub(super) fn is_short(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.shortage().is_some())
    }

    /// Returns `true` if this node may create a ring. A client of an electorate waits for a ring of
    /// voters.
    pub(super) fn may_begin_ring(&self) -> bool {
        self.terms.is_voter || self.terms.partition.quorum().is_none()
    }

    /// Reports the number of voters that are present, if it is too small and has changed.
    pub(super) fn tell_shortage(&mut self, cx: &mut Around<'_>) {
        if !self.reforming.is_idle() {
            return;
        }
        let shortage = match &self.ring {
            Some(ring) => ring.shortage(),
            None if self.is_of_guest() => None,
            None => self.terms.partition.quorum().map(|needed| (0, needed)),
        };
        match shortage {
            Some((voters, needed)) => self.tell_voters(cx, voters, needed),
            None => self.quorum.told = None,
        }
    }

    /// Reports that `voters` are present and `needed` are required, if the number has changed.
    pub(super) fn tell_voters(&mut self, cx: &mut Around<'_>, voters: usize, needed: usize) {
        if self.quorum.told.replace(voters) != Some(voters) {
            cx.counters.quorums_lacked += 1;
            let members = self.ring.as_ref().map_or(0, |ring| ring.view().len());
            tracing::info!(me = ?self.me, group = %cx.group, voters, needed, "waits for a quorum");
            cx.tell(RingNews::Minority { members, needed, voters: Some(voters) });
        }
    }

    /// Returns `true` if `member` is a voter beyond the electorate.
    pub(super) fn is_refused(&self, member: &Member) -> bool {
        let Some(ring) = &self.ring else { return false };
        let is_new = ring.view().process_of(member.process.node).is_none();
        member.is_voter && is_new && ring.view().is_full()
    }

    /// Reports once that the ring that this node requests to join has all its voters.
    pub(super) fn tell_if_full(&mut self, cx: &mut Around<'_>, view: &RingView) {
        let is_out = self.terms.is_voter && view.process_of(cx.node).is_none();
        if is_out && view.is_full() && !core::mem::replace(&mut self.quorum.is_full_told, true) {
            let voters = view.voters().count();
            tracing::warn!(me = ?self.me, group = %cx.group, voters, "the electorate is full");
            cx.tell(RingNews::ElectorateFull { voters });
        }
    }

    /// Returns the change of the view that this member requests next. A ring without its quorum
    /// changes no locks, so a request to leave does not wait for them.
    pub(super) fn next_wish(&self) -> Option<ListChange> {
        let is_leave = |wish: &&ListChange| wish.kind == ListChangeKind::Leave;
        let leave = self.wishes.iter().find(is_leave).filter(|_| self.is_short());
        leave.or(self.wishes.front()).copied()
    }

    /// Returns `true` if this member's ring has never had a quorum, so that everything that was
    /// requested of it can be requested of another ring.
    pub(super) fn has_done_nothing(&self) -> bool {
        let ring = self.ring.as_ref().filter(|ring| ring.shortage().is_some());
        let is_unused = ring.is_some_and(|ring| ring.is_unused());
        is_unused && self.terms.rejoin && !self.is_leaving && self.sending.has_all_placed()
    }

    /// Returns `true` if this member's ring has never had a quorum, has not worked for
    /// [`Config::patience`](super::Config::patience), and had too few members when they were last
    /// counted. Nothing is lost with it, and other nodes may wait to join.
    pub(super) fn is_hopeless(&self, cx: &Around<'_>) -> bool {
        let is_long = self.reforming.is_broken_for(cx.now) >= cx.config.patience;
        let is_small = self.reforming.is_minority() && !self.reforming.is_forced();
        let has_electorate = self.terms.partition.quorum().is_some();
        is_long && is_small && has_electorate && self.has_done_nothing()
    }

    /// Gives up a hopeless ring, to join any other or create a new one.
    pub(super) fn dissolve_for_new(&mut self, cx: &mut Around<'_>) {
        self.dissolve(cx);
        self.elsewhere = None;
    }

    /// Joins another ring instead of its own, which has never had a quorum. The application has
    /// received no view of that ring, so nothing is reported now.
    pub(super) fn dissolve(&mut self, cx: &mut Around<'_>) {
        tracing::info!(me = ?self.me, group = %cx.group, "joins another ring");
        self.abandon_ballot(cx);
        self.stop_timers(cx);
        *cx.lives += 1;
        self.me = Process { node: cx.node, life: *cx.lives };
        self.target = self.merging.take();
        self.elsewhere = Some(cx.now);
        (self.ring, self.reforming) = (None, Reforming::default());
        self.requests = ListRequests::default();
        self.wishes.retain(|wish| wish.kind != ListChangeKind::Leave);
        self.wishes.iter_mut().for_each(|wish| wish.process = self.me);
        (self.passed, self.unconfirmed) = (None, None);
        (self.must_speak, self.is_leave_asked) = (false, false);
        self.lacked = Lacks::default();
        // Requests expire in any ring that they wait for.
        self.watch_calls(cx);
        self.begin_joining(cx);
    }

    /// Handles the command of an operator that this ring continue with the voters that it has. All
    /// others are in `lost`.
    pub(super) fn on_force_quorum(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        epoch: Epoch,
        lost: Vec<NodeId>,
    ) {
        let Some(ring) = &self.ring else { return };
        let view = ring.view();
        let is_named = view.epoch == epoch && !lost.contains(&cx.node);
        let is_short = !self.reforming.is_idle() || ring.shortage().is_some();
        if !is_named || !is_short || view.electorate().is_none() {
            cx.counters.forces_refused += 1;
            return;
        }
        if self.reforming.force(lost.clone()) {
            tracing::warn!(me = ?self.me, group = %cx.group, ?sender, ?lost, "a quorum is forced");
            cx.cancel(Timer::Recovery);
            self.initiate(cx);
        }
    }
}

/// Returns `true` if `theirs` is the larger of two rings of a group: it remains when they meet.
/// With an electorate, it is the ring that has its quorum, or that has ordered more. Of equal rings
/// it is the one with the smaller epoch.
pub(super) fn is_larger(theirs: (&RingView, Timestamp), ours: (&RingView, Timestamp)) -> bool {
    let size = |(view, ordered): (&RingView, Timestamp)| {
        let has_electorate = view.electorate().is_some();
        let is_whole = view.has_quorum() && !view.is_forced;
        let rank = (is_whole, view.is_forced, ordered, view.voters().count());
        let of_electorate = has_electorate.then_some(rank);
        (of_electorate, view.len())
    };
    match size(theirs).cmp(&size(ours)) {
        core::cmp::Ordering::Equal => theirs.0.epoch < ours.0.epoch,
        order => order.is_gt(),
    }
}
