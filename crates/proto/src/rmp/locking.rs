//! Locks of this member: requests, reports and releases (4.3).

use super::RingNews;
use super::around::Around;
use super::delivery::ViewEvent;
use super::group::Group;
use super::locks::{LockChange, LockError, LockName, LockNews};
use super::log::{ListChange, ListChangeKind};
use super::names::Process;

impl Group {
    /// Requests a lock.
    pub(super) fn lock(
        &mut self,
        cx: &mut Around<'_>,
        name: LockName,
        waits: bool,
    ) -> Result<(), LockError> {
        self.locks.may_ask(name)?;
        if !self.may_wish() {
            return Err(LockError::TooMany { asked: self.wishes.len() });
        }
        self.wish_for_lock(cx, name, ListChangeKind::Lock { name, waits });
        Ok(())
    }

    /// Releases a lock, or stops waiting for it.
    pub(super) fn unlock(&mut self, cx: &mut Around<'_>, name: LockName) -> Result<(), LockError> {
        self.locks.may_give_back(name)?;
        self.end_serving(name);
        self.wish_for_lock(cx, name, ListChangeKind::Unlock(name));
        Ok(())
    }

    fn wish_for_lock(&mut self, cx: &mut Around<'_>, name: LockName, kind: ListChangeKind) {
        let is_wanted = matches!(kind, ListChangeKind::Lock { .. });
        let request = self.next_request;
        self.wish(cx, kind);
        self.locks.on_asked(name, is_wanted, request);
        self.advance(cx, None);
    }

    /// Records the request that a delivered view answers, if it is this member's request for a
    /// lock.
    pub(super) fn on_locks_shown(&mut self, event: &ViewEvent) {
        if let Some(ListChange { process, request, kind: ListChangeKind::Lock { name, .. } }) =
            event.answered
            && process == self.me
        {
            self.locks.on_shown(name, request);
        }
    }

    /// Reports a change of a lock, unless this member has made a later request. The change follows
    /// from the view that was just delivered, or from the members that are known to have an earlier
    /// one.
    pub(super) fn on_lock_news(
        &mut self,
        cx: &mut Around<'_>,
        process: Process,
        request: u32,
        news: LockNews,
    ) {
        if process != self.me {
            return;
        }
        let is_current = match news.change {
            LockChange::Granted { .. } => self.locks.is_wanted_as_shown(news.name),
            LockChange::Refused { .. } | LockChange::Released => {
                self.locks.on_ended(news.name, request)
            }
            LockChange::Lost => true,
        };
        if !is_current {
            return;
        }
        match news.change {
            LockChange::Granted { .. } => cx.counters.locks_granted += 1,
            LockChange::Refused { .. } => cx.counters.locks_refused += 1,
            LockChange::Released | LockChange::Lost => {}
        }
        cx.tell(RingNews::Lock(news));
        match news.change {
            LockChange::Granted { .. } => self.begin_serving(cx, news.name),
            LockChange::Refused { .. } => {}
            LockChange::Released | LockChange::Lost => self.end_serving(news.name),
        }
    }

    /// Reports all locks as lost, because this member is no longer in the ring.
    pub(super) fn lose_locks(&mut self, cx: &mut Around<'_>) {
        for name in self.locks.lose() {
            cx.counters.locks_lost += 1;
            cx.tell(RingNews::Lock(LockNews { name, change: LockChange::Lost }));
        }
    }
}
