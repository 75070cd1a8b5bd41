//! The rules of locks.
//!
//! A lock is held by a member of the view. It passes on only when its holder releases it or is
//! gone.

use std::collections::BTreeMap;

use carom_proto::NodeId;
use carom_proto::ring::{
    Epoch, ListChange, ListChangeKind, LockName, Process, Timestamp, ViewEvent,
};

use super::majority::is_by_majority;
use crate::findings::Findings;
use crate::rmp::history::{Account, name};

const RULE: &str = "one holder per lock";

pub(super) fn check(accounts: &[Account<'_>], found: &mut Findings) {
    granted(accounts, found);
    for account in accounts {
        for view in account.periods.iter().map(|period| &period.event.view) {
            let all = view.locks.held().map(|(lock, _)| lock);
            for lock in all {
                let queue = view.locks.holder(lock).into_iter().chain(view.locks.waiting(lock));
                for strange in queue.filter(|process| !view.contains(*process)) {
                    let what = format!(
                        "{account}: {lock} in {} is held by {strange:?}, which is not a member",
                        name(view)
                    );
                    found.add(RULE, what);
                }
            }
        }
        for pair in account.periods.windows(2) {
            let (before, event) = (&pair[0].event.view, pair[1].event);
            for (lock, holder) in before.locks.held() {
                let next = event.view.locks.holder(lock);
                let is_free = !event.view.contains(holder) || is_given_back(event, lock, holder);
                if next != Some(holder) && !is_free {
                    let what = format!(
                        "{account}: {lock} passed unreleased from {holder:?} to {next:?} in {}",
                        name(&event.view)
                    );
                    found.add(RULE, what);
                }
            }
        }
    }
}

/// Checks that a lock is granted to a member that holds it in its current view. Each fence must be
/// larger than the previous ones of the same lineage of rings.
fn granted(accounts: &[Account<'_>], found: &mut Findings) {
    let mut grants: BTreeMap<(Epoch, LockName, Timestamp), NodeId> = BTreeMap::new();
    let has_one_lineage = accounts.iter().any(is_by_majority);
    for account in accounts {
        let mut last: BTreeMap<(Epoch, LockName), Timestamp> = BTreeMap::new();
        for period in &account.periods {
            let view = &period.event.view;
            for (lock, fence) in &period.granted {
                let holder = view.locks.holder(*lock).map(|process| process.node);
                if holder != Some(account.node) {
                    let what = format!(
                        "{account}: {lock} was granted, but {holder:?} holds it in {}",
                        name(view)
                    );
                    found.add(RULE, what);
                }
                let before = last.insert((view.origin, *lock), *fence);
                let is_later = before.is_none_or(|before| before < *fence);
                let other = grants.insert((view.origin, *lock, *fence), account.node);
                if !is_later || (other.is_some() && has_one_lineage) {
                    found.add("fences increase", format!(
                        "{account}: {lock} has fence {fence:?} after {before:?}, also of {other:?}"
                    ));
                }
            }
        }
    }
}

fn is_given_back(event: &ViewEvent, lock: LockName, holder: Process) -> bool {
    let is_it = |change: ListChange| {
        change.process == holder && change.kind == ListChangeKind::Unlock(lock)
    };
    event.answered.is_some_and(is_it)
}
