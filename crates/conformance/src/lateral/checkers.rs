//! Rules that every run must obey. Each rule checks the [`History`] of the run.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use carom_proto::NodeId;
use carom_sim::scenario::Violation;

use super::history::{Got, History};
use crate::findings::Findings;

/// Returns the violations of all rules in a run.
pub fn all(history: &History) -> Vec<Violation> {
    let mut found = Findings::default();
    at_most_once(history, &mut found);
    invention(history, &mut found);
    accounted(history, &mut found);
    acknowledged(history, &mut found);
    agreement(history, &mut found);
    history.memory.check(&mut found);
    liveness(history, &mut found);
    promises(history, &mut found);
    confirmed(history, &mut found);
    found.0
}

pub(super) fn do_views_agree(history: &History) -> bool {
    let mut found = Findings::default();
    agreement(history, &mut found);
    found.0.is_empty() && history.unsettled.is_empty()
}

fn at_most_once(history: &History, found: &mut Findings) {
    for ((node, id), got) in &history.got {
        let Got { delivered, lost, .. } = *got;
        if delivered + lost > 1 {
            let what =
                format!("{node}: {id} was delivered {delivered} times and lost {lost} times");
            found.add(AT_MOST_ONCE, what);
        }
    }
    for ((node, id), fragments) in &history.lost_fragments {
        if let Some((number, count)) = fragments.iter().find(|(_, count)| **count > 1) {
            found.add(AT_MOST_ONCE, format!("{node}: #{number} of {id} was lost {count} times"));
        }
        let got = history.got.get(&(*node, *id)).copied().unwrap_or_default();
        if got.delivered > 0 {
            let what = format!("{node}: {id} was delivered, but fragments of it were lost");
            found.add(AT_MOST_ONCE, what);
        }
    }
}

fn invention(history: &History, found: &mut Findings) {
    for ((node, id), got) in &history.got {
        let was_sent = history.sent.contains_key(id);
        if !was_sent {
            found.add("no invention", format!("{node}: {id} was never sent"));
        } else if got.is_altered {
            let what = format!("{node}: {id} was delivered with a different payload");
            found.add("no invention", what);
        }
        if id.sender.node == node.node {
            found.add("no invention", format!("{node}: received its own {id}"));
        }
    }
}

fn accounted(history: &History, found: &mut Findings) {
    for (id, sent) in &history.sent {
        for node in history.owed(id, sent) {
            if !history.got.contains_key(&(node, *id)) {
                let what = format!("{node}: {id} was neither delivered nor reported as lost");
                found.add("delivered or reported lost", what);
            }
        }
    }
}

fn acknowledged(history: &History, found: &mut Findings) {
    for (group, node) in &history.unstored {
        let what = format!("{node}: join of {group} was acknowledged, but not stored");
        found.add("joins are stored before acknowledgment", what);
    }
}

/// Checks that, after recovery, all views and the registry consist of the members.
fn agreement(history: &History, found: &mut Findings) {
    if history.healed.is_none() {
        return;
    }
    for (group, members) in &history.members {
        for node in members {
            let view = history.views.get(&(*node, *group)).into_iter().flatten();
            let view: BTreeSet<NodeId> = view.map(|other| other.node).collect();
            let others = members.iter().filter(|other| *other != node);
            let others: BTreeSet<NodeId> = others.map(|other| other.node).collect();
            if view != others {
                let missing: Vec<&NodeId> = others.difference(&view).collect();
                let strange: Vec<&NodeId> = view.difference(&others).collect();
                let what =
                    format!("{node} in {group}: missing {missing:?}, unexpected {strange:?}");
                found.add("views agree", what);
            }
        }
    }
    stored(history, found);
}

fn stored(history: &History, found: &mut Findings) {
    let Some(stored) = &history.stored else { return };
    let living: BTreeSet<NodeId> =
        history.members.values().flatten().map(|member| member.node).collect();
    // A process that hears from no node considers itself partitioned, and removes no node.
    let may_hear_nobody = living.len() < history.processes;
    let nobody = BTreeSet::new();
    for group in history.members.keys().chain(stored.keys()).collect::<BTreeSet<_>>() {
        let members = history.members.get(group).into_iter().flatten();
        let members: BTreeSet<NodeId> = members.map(|member| member.node).collect();
        let stored = stored.get(group).unwrap_or(&nobody);
        if members != *stored && !(may_hear_nobody && members.is_subset(stored)) {
            let missing: Vec<&NodeId> = members.difference(stored).collect();
            let strange: Vec<&NodeId> = stored.difference(&members).collect();
            let what = format!("the store's {group}: missing {missing:?}, unexpected {strange:?}");
            found.add("views agree", what);
        }
    }
}

/// Checks that everything works within a bound after the faults have ended. No sender may be held
/// back or lack its registry. Messages must be confirmed, and delivered if `must_deliver` is set.
fn liveness(history: &History, found: &mut Findings) {
    let Some(healed) = history.healed else { return };
    for (node, group) in &history.held_back {
        found.add(LIVE, format!("{node} still cannot send in {group}"));
    }
    for node in &history.unsettled {
        found.add(LIVE, format!("{node} is not connected to its registry"));
    }
    for ((node, group), _) in history.awaited.iter().filter(|(_, awaited)| !awaited.is_there) {
        found.add(LIVE, format!("{node} in {group} got no confirmation"));
    }
    for (id, sent) in history.sent.iter().filter(|(_, sent)| sent.at >= healed) {
        if sent.has_deadline || !history.must_deliver {
            continue;
        }
        for node in history.owed(id, sent) {
            let got = history.got.get(&(node, *id)).copied().unwrap_or_default();
            if got.delivered == 0 {
                found.add(LIVE, format!("{node}: {id} was not delivered"));
            }
        }
    }
}

fn promises(history: &History, found: &mut Findings) {
    for (node, promise) in &history.broken {
        found.add("protocol guarantees", format!("{node}: {promise}"));
    }
}

fn confirmed(history: &History, found: &mut Findings) {
    for (node, id) in &history.not_safe {
        let what = format!("{id} was confirmed, but not settled at {node}");
        found.add("confirmed means settled", what);
    }
}

const AT_MOST_ONCE: &str = "at most once";
const LIVE: &str = "live after recovery";
