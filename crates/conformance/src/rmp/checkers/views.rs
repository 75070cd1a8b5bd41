//! The rule that a view is the same at all members, and follows from the previous view.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::ring::{Epoch, Process, RingView};

use crate::findings::Findings;
use crate::rmp::history::{Account, name};

const RULE: &str = "views agree";

pub(super) fn check(accounts: &[Account<'_>], found: &mut Findings) {
    let mut known: BTreeMap<(Epoch, u32), &RingView> = BTreeMap::new();
    for account in accounts {
        for view in account.periods.iter().map(|period| &period.event.view) {
            let first = *known.entry((view.epoch, view.version)).or_insert(view);
            if first != view {
                let what = format!(
                    "{account}: {} is {view:?}, but it is {first:?} at another member",
                    name(view)
                );
                found.add(RULE, what);
            }
        }
        for pair in account.periods.windows(2) {
            let (before, event) = (&pair[0].event.view, pair[1].event);
            let gone: BTreeSet<Process> = event.left.iter().chain(&event.failed).copied().collect();
            let rest = before.processes().filter(|process| !gone.contains(process));
            let expected: BTreeSet<Process> = rest.chain(event.joined.iter().copied()).collect();
            let members: BTreeSet<Process> = event.view.processes().collect();
            let is_next =
                event.view.epoch != before.epoch || event.view.version == before.version + 1;
            if expected != members || !is_next || event.view.origin != before.origin {
                found.add(RULE, format!("{account}: {} was followed by {event:?}", name(before)));
            }
        }
    }
}
