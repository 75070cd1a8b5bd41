//! The rule that views agree after recovery: every member's view of a group consists of its other
//! members, and the membership service has stored all of them.

use std::collections::BTreeSet;

use carom_proto::NodeId;

use super::{Ledger, Violation};

pub(super) fn check(ledger: &Ledger, found: &mut Vec<Violation>) {
    if ledger.healed.is_none() {
        return;
    }
    for (group, members) in &ledger.members {
        for node in members {
            let view = ledger.views.get(&(*node, *group)).into_iter().flatten();
            let view: BTreeSet<NodeId> = view.map(|other| other.node).collect();
            let others = members.iter().filter(|other| *other != node);
            let others: BTreeSet<NodeId> = others.map(|other| other.node).collect();
            if view != others {
                let missing: Vec<&NodeId> = others.difference(&view).collect();
                let strange: Vec<&NodeId> = view.difference(&others).collect();
                let what =
                    format!("{node} in {group}: missing {missing:?}, unexpected {strange:?}");
                found.push(Violation::new("views agree", what));
            }
        }
    }
    stored(ledger, found);
}

fn stored(ledger: &Ledger, found: &mut Vec<Violation>) {
    let Some(stored) = &ledger.stored else { return };
    let living: BTreeSet<NodeId> =
        ledger.members.values().flatten().map(|member| member.node).collect();
    // A process that hears from no node considers itself partitioned and removes none.
    let may_hear_nobody = living.len() < ledger.processes;
    let nobody = BTreeSet::new();
    for group in ledger.members.keys().chain(stored.keys()).collect::<BTreeSet<_>>() {
        let members = ledger.members.get(group).into_iter().flatten();
        let members: BTreeSet<NodeId> = members.map(|member| member.node).collect();
        let stored = stored.get(group).unwrap_or(&nobody);
        if members != *stored && !(may_hear_nobody && members.is_subset(stored)) {
            let missing: Vec<&NodeId> = members.difference(stored).collect();
            let strange: Vec<&NodeId> = stored.difference(&members).collect();
            let what = format!("the store's {group}: missing {missing:?}, unexpected {strange:?}");
            found.push(Violation::new("views agree", what));
        }
    }
}
