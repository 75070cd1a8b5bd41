use alloc::collections::VecDeque;

use super::view_change::{ViewChanges, is_answered, next_number};
use crate::SeqNo;
use crate::ring::{ListChange, ListChangeKind, Process};
use crate::rmp::context::{Context, Timer};
use crate::rmp::own_locks::MAX_OWN;
use crate::rmp::packet::Packet;
use crate::rmp::ring::Ring;

#[derive(Debug)]
pub(super) struct OwnChanges {
    pub(super) me: Process,
    pub(super) waiting: VecDeque<ListChange>,
    next_number: u32,
    tries: u32,
    /// Number of tries since the token site was last heard.
    silent_tries: u32,
}

impl OwnChanges {
    pub(super) fn new(me: Process, first_number: SeqNo) -> Self {
        let (waiting, next_number) = (VecDeque::new(), first_number.0.max(1));
        Self { me, waiting, next_number, tries: 0, silent_tries: 0 }
    }

    // Leaving and releasing are always allowed, because such requests are bounded by the locks.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    pub(super) fn push(&mut self, kind: ListChangeKind) -> u32 {
        let request = self.next_number;
        self.next_number = next_number(request);
        self.waiting.push_back(ListChange { process: self.me, request, kind });
        request
    }

    pub(super) fn enter_life(&mut self, me: Process) {
        self.waiting.retain(|change| change.kind != ListChangeKind::Leave);
        self.waiting.iter_mut().for_each(|change| change.process = me);
        self.me = me;
    }

    pub(super) fn on_answered(&mut self, answered: &ListChange) -> bool {
        if answered.process != self.me {
            return false;
        }
        let is_done = |it: &ListChange| is_answered(it.request, answered.request);
        while self.waiting.front().is_some_and(is_done) {
            self.waiting.pop_front();
        }
        true
    }

    // A ring without its quorum changes no locks, so a request to leave does not wait for them.
    fn next(&self, ring: &Ring) -> Option<ListChange> {
        let is_leave = |change: &&ListChange| change.kind == ListChangeKind::Leave;
        let leave = self.waiting.iter().find(is_leave).filter(|_| ring.shortage().is_some());
        leave.or(self.waiting.front()).copied()
    }

    pub(super) fn request(&mut self, cx: &mut Context<'_>, ring: &Ring, changes: &mut ViewChanges) {
        (self.tries, self.silent_tries) = (0, 0);
        self.repeat(cx, ring, changes);
    }

    fn repeat(&self, cx: &mut Context<'_>, ring: &Ring, changes: &mut ViewChanges) {
        let Some(change) = self.next(ring) else { return cx.cancel(Timer::Request) };
        changes.insert(change);
        cx.counters.requests_sent += 1;
        cx.multicast(&Packet::ListChangeRequest { epoch: Some(ring.epoch()), change });
        cx.set(Timer::Request, cx.timing.timeout(cx.config, self.tries));
    }

    // The token site is alive, so the answer is merely late.
    pub(super) fn on_token_site_heard(&mut self) {
        self.silent_tries = 0;
    }

    pub(super) fn on_timer(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        changes: &mut ViewChanges,
        is_leaving: bool,
    ) -> bool {
        // Requests for locks wait for a quorum without limit.
        let counts = u32::from(ring.shortage().is_none() || is_leaving);
        (self.tries, self.silent_tries) = (self.tries + counts, self.silent_tries + counts);
        // Changes of the members are made one after another. Each takes one rotation of the token.
        let has_tries = self.silent_tries <= cx.config.tries + ring.view().len() as u32;
        if has_tries {
            self.repeat(cx, ring, changes);
        }
        has_tries
    }

    pub(super) fn check(&self) {
        assert!(self.waiting.len() <= MAX_WAITING + MAX_OWN + 1, "too many requests");
    }
}

const MAX_WAITING: usize = 64;
