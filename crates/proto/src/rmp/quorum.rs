//! The electorate of a group: what a ring does, and tells, that has too few voters, and what an
//! operator may do about it.
//!
//! A ring of an electorate is begun by a voter and works once a majority of the electorate has
//! taken its token ([`Ring::shortage`]). Until then it lets members in and out, and that is all.
//!
//! # Why two rings never both work
//!
//! A process is in one ring at a time, and counts once it has taken that ring's token. Two rings
//! that work have more voters between them than the electorate has.
//!
//! That is so at one time. A voter that is started again has no memory of the ring that it was in,
//! and may be counted in another one that lacks what the first has acknowledged. So rings follow
//! each other in one line: more than half of the voters of a view must continue
//! ([`RingView::least`]), even if they are no quorum yet, and every voter that is started joins
//! behind them.

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

/// What the application was told of the electorate.
#[derive(Debug, Default)]
pub(super) struct Quorum {
    /// The voters that were here when it was told last that they are too few.
    told: Option<usize>,
    /// It was told that there are all voters without this one.
    is_full_told: bool,
}

impl Rmp {
    /// Asks the members of a ring to continue without a majority of its electorate, for an operator
    /// who knows that the others do not come back. The ring is named by its epoch, as a
    /// [look](Rmp::look) has shown it, and each of its voters that does not answer any more by its
    /// node: if one that is not named is silent, or one that is named answers, nothing happens. Nor
    /// does it while the ring works.
    ///
    /// If a voter that is named works elsewhere there are two rings from now on, which order and
    /// lock side by side. The view that follows says that it was [forced](RingView::is_forced).
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
    /// Whether this node is in a ring that has too few voters to work.
    pub(super) fn is_short(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.shortage().is_some())
    }

    /// A client of an electorate waits for a ring of its voters.
    pub(super) fn may_begin_ring(&self) -> bool {
        self.terms.is_voter || self.terms.partition.quorum().is_none()
    }

    /// Tells how many voters are waited for, if that has changed.
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

    /// So many voters are here, which are too few.
    pub(super) fn tell_voters(&mut self, cx: &mut Around<'_>, voters: usize, needed: usize) {
        if self.quorum.told.replace(voters) != Some(voters) {
            cx.counters.quorums_lacked += 1;
            let members = self.ring.as_ref().map_or(0, |ring| ring.view().len());
            tracing::info!(me = ?self.me, group = %cx.group, voters, needed, "waits for a quorum");
            cx.tell(RingNews::Minority { members, needed, voters: Some(voters) });
        }
    }

    /// Whether a voter more than the electorate has asks to be let in.
    pub(super) fn is_refused(&self, member: &Member) -> bool {
        let Some(ring) = &self.ring else { return false };
        let is_new = ring.view().process_of(member.process.node).is_none();
        member.is_voter && is_new && ring.view().is_full()
    }

    /// The ring that this node asks to let it in has all its voters.
    pub(super) fn tell_if_full(&mut self, cx: &mut Around<'_>, view: &RingView) {
        let is_out = self.terms.is_voter && view.process_of(cx.node).is_none();
        if is_out && view.is_full() && !core::mem::replace(&mut self.quorum.is_full_told, true) {
            let voters = view.voters().count();
            tracing::warn!(me = ?self.me, group = %cx.group, voters, "the electorate is full");
            cx.tell(RingNews::ElectorateFull { voters });
        }
    }

    /// The change of the view that this member asks for next. A ring without its quorum makes no
    /// change of locks, which nobody who leaves it waits for.
    pub(super) fn next_wish(&self) -> Option<ListChange> {
        let is_leave = |wish: &&ListChange| wish.kind == ListChangeKind::Leave;
        let leave = self.wishes.iter().find(is_leave).filter(|_| self.is_short());
        leave.or(self.wishes.front()).copied()
    }

    /// Whether this member's ring has never had a quorum: whatever was asked of it here can be
    /// asked of another ring.
    pub(super) fn has_done_nothing(&self) -> bool {
        let ring = self.ring.as_ref().filter(|ring| ring.shortage().is_some());
        let is_unused = ring.is_some_and(|ring| ring.is_unused());
        is_unused && self.terms.rejoin && !self.is_leaving && self.sending.has_all_placed()
    }

    /// Returns `true` if this member's ring has never had a quorum, has not worked for
    /// [`Config::patience`](super::Config::patience), and had too few members when they were last
    /// counted. Nothing is lost with it, and others may wait to be let in.
    pub(super) fn is_hopeless(&self, cx: &Around<'_>) -> bool {
        let is_long = self.reforming.is_broken_for(cx.now) >= cx.config.patience;
        let is_small = self.reforming.is_minority() && !self.reforming.is_forced();
        let has_electorate = self.terms.partition.quorum().is_some();
        is_long && is_small && has_electorate && self.has_done_nothing()
    }

    /// Gives up a hopeless ring for any other, or a new one.
    pub(super) fn dissolve_for_new(&mut self, cx: &mut Around<'_>) {
        self.dissolve(cx);
        self.elsewhere = None;
    }

    /// Joins another ring instead of its own, which has never had a quorum. The application was
    /// told of no view of it, and is told nothing now.
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
        // Requests end in time, whichever ring they wait for.
        self.watch_calls(cx);
        self.begin_joining(cx);
    }

    /// An operator lets this ring continue with the voters that it has: all others are among
    /// `lost`.
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

/// Whether one ring of a group is the larger of two: that one stays when they meet. Of an
/// electorate it is the one that has its quorum, or has ordered more. Of equal ones it is that with
/// the smaller name.
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
