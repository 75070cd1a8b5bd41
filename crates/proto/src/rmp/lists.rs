//! Changes of the view that need no reformation: joins, departures and locks (4.3).

use alloc::vec::Vec;

use super::Removal;
use super::around::{Around, Timer};
use super::group::Group;
use super::list_requests::{is_answered, next_number};
use super::locks::Locks;
use super::log::{ListChange, ListChangeKind, MAX_CHANGES, Round};
use super::names::{Epoch, Process, Timestamp};
use super::packet::{NewList, Packet, Snapshot};
use super::quorum::is_larger;
use super::ring::Ring;
use super::view::RingView;
use crate::NodeId;

impl Group {
    /// Handles a request for a change of the view.
    pub(super) fn on_request(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        epoch: Option<Epoch>,
        change: ListChange,
    ) {
        if change.process.node != sender {
            cx.counters.malformed += 1;
            return;
        }
        if self.ring.is_none() {
            return self.on_other_joiner(cx, sender, change);
        }
        if self.is_of_another_group(cx, sender, change.kind) {
            return;
        }
        if epoch.is_none() && change.kind == ListChangeKind::Leave {
            return self.on_look(cx, sender, change.request);
        }
        let Some(ring) = &self.ring else { return };
        let is_joining = matches!(change.kind, ListChangeKind::Join { .. });
        let is_ours = epoch.map_or(is_joining, |epoch| epoch == ring.view().epoch);
        if !is_ours {
            match epoch {
                Some(epoch) if !is_joining => self.on_other_epoch(cx, sender, epoch),
                // The ring that it requests to join was created here, and is gone.
                Some(epoch) if epoch.creator.node == cx.node => self.notify_anyway(cx, sender),
                _ => {}
            }
            return;
        }
        let former = ring.view().process_of(sender).filter(|it| it.follows(change.process));
        let is_old = former.is_some() || ring.is_over(change.process);
        if (is_joining && is_old) || !self.requests.enter_life(change.process) {
            cx.counters.foreign += u64::from(is_joining && is_old);
            return;
        }
        if is_joining && self.cannot_change_members() && self.answers_joiners(cx) {
            // A joiner that gets no answer at all creates a ring of its own.
            self.notify_anyway(cx, sender);
        }
        let Some(ring) = &self.ring else { return };
        let token = ring.token();
        let is_later = token != change.process && !token.follows(change.process);
        if token.node == sender && is_later {
            // A quiet ring does not wait for the token, and no other member can take it.
            self.suspect(cx, "the token site has restarted");
        }
        let Some(ring) = &self.ring else { return };
        let former = ring.view().process_of(sender);
        if !is_joining && former.is_some_and(|it| change.process.follows(it)) {
            return;
        }
        if is_joining && ring.view().contains(change.process) {
            // The New List was lost on its way to the joiner, which has the token.
            if ring.token() == change.process {
                self.send_snapshot(cx, sender);
            }
            return;
        }
        if !is_joining && !ring.view().contains(change.process) {
            return self.notify(cx, sender);
        }
        if !self.requests.insert(change) {
            cx.counters.requests_refused += 1;
        }
        self.advance(cx, None);
    }

    /// Returns `true`, and counts it, if a joiner means another group than this one.
    fn is_of_another_group(
        &mut self,
        cx: &mut Around<'_>,
        sender: NodeId,
        kind: ListChangeKind,
    ) -> bool {
        let ListChangeKind::Join { member, name_check } = kind else { return false };
        if name_check != self.terms.name_check {
            cx.counters.name_collisions += 1;
            return true;
        }
        if member.partition != self.terms.partition {
            // The membership refuses one of the two. Until then only one ring must exist.
            cx.counters.joins_contradicting += 1;
            self.notify_anyway(cx, sender);
            return true;
        }
        false
    }

    /// Ends the ring if this token site is alone and leaves. Returns `true` if it does.
    pub(super) fn ends_alone(&mut self, cx: &mut Around<'_>) -> bool {
        if self.ring.as_ref().is_none_or(|ring| ring.view().len() > 1) {
            return false;
        }
        if self.is_leaving {
            self.is_over = true;
        } else if self.merging.is_some() {
            self.on_removed(cx, Removal::Merged);
        } else {
            return false;
        }
        true
    }

    /// Returns the changes that the token site can make now in one New List, in order of arrival. A
    /// change of the members stands alone. Its majorities must be known to be stable before the
    /// next one.
    pub(super) fn next_changes(&mut self, cx: &mut Around<'_>) -> Vec<ListChange> {
        let Some(mut locks) = self.ring.as_ref().map(|ring| ring.view().locks.clone()) else {
            return Vec::new();
        };
        let mut changes: Vec<ListChange> = Vec::new();
        for change in self.requests.by_arrival() {
            let Some(ring) = &self.ring else { break };
            let process = change.process;
            let is_in = ring.view().contains(process);
            let is_answered = is_in && is_answered(change.request, ring.answered(process));
            let is_joining = matches!(change.kind, ListChangeKind::Join { .. });
            if is_answered || (!is_joining && !is_in) {
                self.requests.remove(process);
                continue;
            }
            if change.kind.is_of_members() {
                match self.possible_change(cx, change) {
                    Some(possible) if changes.is_empty() => return vec![possible],
                    _ => continue,
                }
            }
            // A ring without its quorum changes no locks.
            if ring.shortage().is_some() {
                continue;
            }
            changes.push(lock_change(&mut locks, change));
            if changes.len() == MAX_CHANGES {
                break;
            }
        }
        changes
    }

    /// Returns the change for a request to join or leave; `None` if it must wait or was refused.
    fn possible_change(&mut self, cx: &mut Around<'_>, change: ListChange) -> Option<ListChange> {
        let ring = self.ring.as_ref()?;
        let view = ring.view();
        match change.kind {
            ListChangeKind::Join { .. } if ring.is_over(change.process) => {
                self.requests.remove(change.process);
                cx.counters.foreign += 1;
                None
            }
            // A voter beyond the electorate waits until another voter is gone.
            ListChangeKind::Join { member, .. } if self.is_refused(&member) => {
                self.requests.remove(change.process);
                cx.counters.voters_refused += 1;
                self.notify_anyway(cx, change.process.node);
                None
            }
            ListChangeKind::Join { .. } => match view.process_of(change.process.node) {
                Some(old) if old.follows(change.process) => {
                    self.requests.remove(change.process);
                    cx.counters.foreign += 1;
                    None
                }
                // Its former life is over, because otherwise it would not request to join.
                Some(old) if ring.may_change_members() => {
                    let request = next_number(ring.answered(old));
                    Some(ListChange { process: old, request, kind: ListChangeKind::Leave })
                }
                None if view.len() >= RingView::MAX_MEMBERS => {
                    self.requests.remove(change.process);
                    cx.counters.members_refused += 1;
                    self.notify_anyway(cx, change.process.node);
                    None
                }
                None if ring.may_change_members() => Some(change),
                _ => None,
            },
            // A leaving member must have everything with a place: later no member waits for it.
            ListChangeKind::Leave => {
                (ring.may_change_members() && ring.has_all(change.process)).then_some(change)
            }
            ListChangeKind::Lock { .. }
            | ListChangeKind::Unlock(_)
            | ListChangeKind::Refused(_) => None,
        }
    }

    pub(super) fn on_list(&mut self, cx: &mut Around<'_>, round: &Round) {
        for change in round.changes() {
            let is_done = |it: &ListChange| is_answered(it.request, change.request);
            if self.requests.of(change.process).is_some_and(is_done) {
                self.requests.remove(change.process);
            }
            let is_in = self.ring.as_ref().is_some_and(|ring| ring.view().contains(self.me));
            if change.process == self.me && is_in {
                while self.wishes.front().is_some_and(is_done) {
                    self.wishes.pop_front();
                }
                self.ask_for_change(cx);
            }
        }
        if let Some(member) = round.joiner() {
            self.requests.keep_life(member.process.node, member.process);
            if round.site == self.me {
                self.send_snapshot(cx, member.process.node);
            }
        }
        self.refresh_reach(cx);
        self.watch_strangers(cx);
    }

    pub(super) fn ask_for_change(&mut self, cx: &mut Around<'_>) {
        self.tries.request = 0;
        self.repeat_request(cx);
    }

    fn repeat_request(&mut self, cx: &mut Around<'_>) {
        let (Some(change), Some(ring)) = (self.next_wish(), &self.ring) else {
            return cx.cancel(Timer::Request);
        };
        let packet = Packet::ListChangeRequest { epoch: Some(ring.view().epoch), change };
        self.requests.insert(change);
        cx.counters.requests_sent += 1;
        cx.multicast(&packet);
        cx.set(Timer::Request, self.pace.timeout(cx.config, self.tries.request));
    }

    pub(super) fn on_request_timer(&mut self, cx: &mut Around<'_>) {
        if !self.reforming.is_idle() {
            return cx.set(Timer::Request, self.pace.longest(cx.config));
        }
        // Requests for locks wait for a quorum without limit.
        self.tries.request += u32::from(!self.is_short() || self.is_leave_asked);
        // Changes of the members are made one after the other. Each takes a rotation of the token.
        let members = self.ring.as_ref().map_or(0, |ring| ring.view().len() as u32);
        if self.tries.request > cx.config.tries + members {
            return self.suspect(cx, "a request was not answered");
        }
        self.repeat_request(cx);
        self.advance(cx, None);
    }

    /// Sends `to` a snapshot of the ring, without the streams if the node is not in the ring.
    pub(super) fn send_snapshot(&mut self, cx: &mut Around<'_>, to: NodeId) {
        if let Some(ring) = &self.ring {
            let mut snapshot = ring.snapshot(self.reforming.is_idle());
            if snapshot.view.process_of(to).is_some() {
                // A life of that node is in the ring. It must not enter the ring with an incomplete
                // snapshot.
                snapshot.seen = self.seen_for_joiner();
            } else {
                (snapshot.sources, snapshot.guests) = (Vec::new(), Vec::new());
            }
            cx.unicast(to, &Packet::NewList(NewList::Whole(snapshot)));
        }
    }

    /// Returns `true` if this member is one of the few that answer a joiner: the token site, and
    /// two others on average. If all members answered each of many joiners, there would be too many
    /// answers.
    fn answers_joiners(&self, cx: &mut Around<'_>) -> bool {
        let ring = self.ring.as_ref();
        ring.is_some_and(|ring| {
            ring.token() == self.me || cx.rng.below(ring.view().len()) < JOINERS_ANSWERED_BY
        })
    }

    fn cannot_change_members(&self) -> bool {
        let may = self.ring.as_ref().is_some_and(|ring| ring.may_change_members());
        !may || !self.reforming.is_idle() || self.requests.len() > 1
    }

    /// Sends a notice about the ring to a node that is not in it. It sends none during a
    /// reformation, because the members are unknown then, and limits the rate.
    pub(super) fn notify(&mut self, cx: &mut Around<'_>, to: NodeId) {
        if self.reforming.is_idle() {
            self.notify_anyway(cx, to);
        }
    }

    fn notify_anyway(&mut self, cx: &mut Around<'_>, to: NodeId) {
        if !self.is_leaving && self.notices.may_go(cx.now, cx.config.least_timeout, to) {
            cx.counters.notices_sent += 1;
            self.send_snapshot(cx, to);
        }
    }

    pub(super) fn on_snapshot(&mut self, cx: &mut Around<'_>, sender: NodeId, snapshot: Snapshot) {
        if snapshot.view.name_check != self.terms.name_check {
            cx.counters.name_collisions += 1;
            return;
        }
        let Some(ring) = &self.ring else {
            // A ring exists, so this node need not create one. But it may be another ring than the
            // target, which may be gone.
            let epoch = snapshot.view.epoch;
            // The creator of the target is in another ring now.
            self.target = self.target.map(|it| if it.creator.node == sender { epoch } else { it });
            // A ring that does not work is the only target for a limited time: it may never admit a
            // member.
            if self.target.is_none_or(|target| target == epoch && snapshot.is_working) {
                self.tries.join = 0;
            }
            self.is_in_line = true;
            if snapshot.is_working {
                self.tries.in_line = 0;
            }
            self.elsewhere = Some(cx.now);
            self.joiners.remove(&sender);
            self.tell_if_full(cx, &snapshot.view);
            if snapshot.view.contains(self.me) && snapshot.token == self.me {
                self.answering.enter(snapshot.seen.clone());
                let ring = Ring::entered(self.me, snapshot, cx.config.first_number);
                self.enter(cx, ring);
            }
            return;
        };
        let (ours, theirs) = (ring.view(), &snapshot.view);
        if theirs.epoch == ours.epoch {
            let is_out = !theirs.contains(self.me) && snapshot.next > ring.log().next();
            if is_out {
                self.on_out(cx);
            } else if snapshot.token == self.me {
                let (epoch, at) = (theirs.epoch, Timestamp(snapshot.next.0.saturating_sub(1)));
                cx.counters.confirms_sent += 1;
                cx.unicast(sender, &Packet::Confirm { epoch, at });
            }
            return;
        }
        if theirs.contains(self.me) {
            if theirs.origin != ours.origin {
                self.refuse_late_entry(cx, sender, theirs);
            }
            return self.on_other_epoch_of(cx, theirs.epoch);
        }
        self.refuse_late_entry(cx, sender, theirs);
        if self.reforming.is_ancestor(theirs.epoch) || ours.is_continued_from(theirs) {
            // The sender has not heard that the ring continues without it.
            return self.notify(cx, sender);
        }
        self.meet_ring(cx, sender, &snapshot);
    }

    /// Notifies another ring that may have admitted this node after it had entered its own: the
    /// life that the other ring waits for will never come.
    fn refuse_late_entry(&self, cx: &mut Around<'_>, sender: NodeId, theirs: &RingView) {
        let Some(awaited) = theirs.process_of(cx.node) else { return };
        let process = Process { life: self.me.life.max(awaited.life + 1), ..self.me };
        let change = ListChange { process, request: 0, kind: ListChangeKind::Leave };
        cx.unicast(sender, &Packet::ListChangeRequest { epoch: Some(theirs.epoch), change });
    }

    /// Handles the meeting with another ring of this group. One of the two ends, if both cannot
    /// remain.
    fn meet_ring(&mut self, cx: &mut Around<'_>, sender: NodeId, snapshot: &Snapshot) {
        let Some(ring) = &self.ring else { return };
        let (ours, theirs) = (ring.view(), &snapshot.view);
        if let Some(process) = theirs.process_of(sender) {
            // It may have requested to join just before it created a ring of its own.
            self.requests.enter_life(process);
        }
        let is_working = self.reforming.is_idle();
        let is_descendant = theirs.origin == ours.origin;
        let is_known = theirs.processes().any(|process| self.known.contains(&process.node));
        if !is_descendant && !is_known {
            // It is of another network, and has an address that a member had before.
            cx.counters.foreign += 1;
            return;
        }
        if is_descendant && !is_working && theirs.epoch.version > ours.epoch.version {
            return self.on_removed(cx, Removal::Removed);
        }
        let has_ours = theirs.processes().any(|process| ours.contains(process));
        if is_descendant && is_working && has_ours && theirs.epoch.version > ours.epoch.version {
            // Members of this ring have continued. An idle ring may not have missed them.
            return self.suspect(cx, "members of the ring are in another");
        }
        // A ring may not have detected yet that its members are in the other one.
        let (rest, own_rest) = (theirs.without_moved(ours), ours.without_moved(theirs));
        let is_theirs_larger = is_larger((&rest, snapshot.ordered), (&own_rest, ring.ordered()));
        let has_electorate = ours.electorate().is_some();
        if self.is_leaving {
            return;
        }
        if !snapshot.is_working {
            // A ring that may not continue has to join this one. But a ring of an electorate that
            // has ordered something waits for its voters. A ring that has not yields to it.
            let waits = has_electorate && snapshot.ordered > Timestamp(0) && is_theirs_larger;
            if waits && self.has_done_nothing() {
                self.merging = Some(theirs.epoch);
                self.on_removed(cx, Removal::Merged);
            }
            return;
        }
        let is_stronger = is_descendant || is_theirs_larger;
        let is_patient = self.reforming.is_minority_for(cx.now) < cx.config.patience;
        if self.reforming.is_minority() && has_electorate && !is_stronger && !theirs.has_quorum() {
            self.notify_anyway(cx, sender);
        } else if self.reforming.is_minority() && (is_stronger || !is_patient) {
            self.merging = Some(theirs.epoch);
            self.on_removed(cx, Removal::Merged);
        } else if is_working && is_theirs_larger && self.merging.is_none() {
            // The others of this ring may need the member for their majority: it leaves in order.
            self.merging = Some(theirs.epoch);
            self.advance(cx, None);
        }
    }

    /// Handles a node that has joined the group, as reported by the membership provider.
    pub(super) fn on_neighbour(&mut self, cx: &mut Around<'_>, node: NodeId) {
        self.known.insert(node);
        self.refresh_reach(cx);
        if self.ring.is_none() && !self.is_of_guest() {
            // It may have a ring, so it receives a request at once.
            self.ask_to_join(cx);
        }
        self.watch_strangers(cx);
    }

    /// Handles a node that has left the group, as reported by the membership provider.
    pub(super) fn on_neighbour_gone(&mut self, cx: &mut Around<'_>, node: NodeId) {
        self.known.remove(&node);
        self.joiners.remove(&node);
        // No node remains that could be in another ring.
        self.elsewhere = self.elsewhere.filter(|_| !self.known.is_empty());
        self.refresh_reach(cx);
        self.watch_strangers(cx);
        if self.ring.as_ref().is_some_and(|ring| ring.view().process_of(node).is_some()) {
            self.suspect(cx, "the membership reported a failure");
        }
    }

    /// Sets the timer for announcements of the ring while nodes of the group are not in it.
    pub(super) fn watch_strangers(&mut self, cx: &mut Around<'_>) {
        match self.strangers().is_empty() {
            true => cx.cancel(Timer::Announce),
            false => cx.set_no_later(Timer::Announce, cx.config.announce),
        }
    }

    fn strangers(&self) -> Vec<NodeId> {
        let Some(ring) = &self.ring else { return Vec::new() };
        let is_strange = |node: &&NodeId| ring.view().process_of(**node).is_none();
        self.known.iter().filter(is_strange).copied().collect()
    }

    pub(super) fn on_announce_timer(&mut self, cx: &mut Around<'_>) {
        let is_mine = self.ring.as_ref().is_some_and(|ring| {
            // Any member could announce the ring. The token site does.
            ring.token() == self.me
        });
        if is_mine && self.reforming.is_idle() {
            for stranger in self.strangers() {
                cx.counters.notices_sent += 1;
                self.send_snapshot(cx, stranger);
            }
        }
        self.watch_strangers(cx);
    }
}

/// Average number of members other than the token site that answer a joiner.
const JOINERS_ANSWERED_BY: usize = 2;

/// Returns the change that a request to acquire or release a lock leads to, and applies it to
/// `locks`. Earlier changes of the same New List are already applied to `locks`.
fn lock_change(locks: &mut Locks, change: ListChange) -> ListChange {
    match change.kind {
        ListChangeKind::Lock { name, waits } if locks.admits(name, change.process, waits) => {
            locks.ask(name, change.process);
        }
        ListChangeKind::Lock { name, .. } => {
            return ListChange { kind: ListChangeKind::Refused(name), ..change };
        }
        ListChangeKind::Unlock(name) => locks.give_back(name, change.process),
        ListChangeKind::Join { .. } | ListChangeKind::Leave | ListChangeKind::Refused(_) => {}
    }
    change
}
