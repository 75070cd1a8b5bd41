//! The rule that all remaining members are in one ring within a bounded time after the faults have
//! ended.
//!
//! A group is exempt if members that every ring requires are permanently gone. A member that left
//! in order is not required, unless the other members could not hear it.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::ring::{Process, RingView};
use carom_proto::{GroupId, NodeId};

use crate::findings::Findings;
use crate::rmp::history::{Account, End, FinalState, History};

pub(super) fn check(history: &History, found: &mut Findings) {
    let left = processes_that_left(history);
    for states in &history.final_states {
        for (group, states) in by_group(states) {
            if is_one_ring(&states) || is_stuck(&states, &left) {
                continue;
            }
            let rings: BTreeMap<NodeId, Option<String>> =
                states.iter().map(|it| (it.node, it.view.as_ref().map(describe))).collect();
            found.add("one ring after recovery", format!("{group}: {rings:?}"));
        }
    }
}

/// Returns the processes that left while all members were heard. No ring may wait for them.
fn processes_that_left(history: &History) -> BTreeSet<Process> {
    if !history.are_all_heard {
        return BTreeSet::new();
    }
    let accounts = history.accounts();
    let all = accounts.iter().flat_map(|(group, accounts)| {
        let has_left = |account: &&Account<'_>| {
            history.lives[&(*group, account.node)][account.number].end == Some(End::Left)
        };
        accounts.iter().filter(has_left).filter_map(Account::process)
    });
    all.collect()
}

/// Returns `true` if all members of each group are in one ring without any other members.
pub fn is_whole(states: &[FinalState]) -> bool {
    by_group(states).values().all(|states| is_one_ring(states))
}

pub(super) fn by_group(states: &[FinalState]) -> BTreeMap<GroupId, Vec<&FinalState>> {
    let mut groups: BTreeMap<GroupId, Vec<&FinalState>> = BTreeMap::new();
    for state in states {
        groups.entry(state.group).or_default().push(state);
    }
    groups
}

pub(super) fn is_one_ring(states: &[&FinalState]) -> bool {
    let nodes: BTreeSet<NodeId> = states.iter().map(|it| it.node).collect();
    let first = states.first().and_then(|it| it.view.as_ref());
    let Some(first) = first else { return states.is_empty() };
    let members: BTreeSet<NodeId> = first.processes().map(|process| process.node).collect();
    members == nodes && states.iter().all(|it| it.view.as_ref() == Some(first))
}

/// Returns `true` if there are rings and none of them can continue.
///
/// A ring cannot continue in two cases. Either too many of its members are permanently gone, or
/// some of them are, and the member was notified that it is in a minority. Or too few voters are
/// free for a quorum, because the others are held in rings of the first case.
pub(super) fn is_stuck(states: &[&FinalState], left: &BTreeSet<Process>) -> bool {
    let is_short = |view: &RingView, is_there: &dyn Fn(&Process) -> bool| {
        let lives: Vec<Process> = view.processes().filter(is_there).collect();
        (view.voters_among(&lives) < view.least(), lives.len() < view.len())
    };
    let rings_of = |process: &Process| {
        let rings = states.iter().filter_map(|it| Some((it.node, it.view.as_ref()?)));
        let process = *process;
        rings.filter(move |(node, ring)| ring.process_of(*node) == Some(process))
    };
    let lives = |process: &Process| left.contains(process) || rings_of(process).next().is_some();
    let is_held = |state: &FinalState, view: &RingView| {
        // A member that is held in a later ring does not return to this one.
        let is_there = |process: &Process| {
            let is_free = |ring: &RingView| ring.epoch == view.epoch || !is_short(ring, &lives).0;
            left.contains(process) || rings_of(process).any(|(_, ring)| is_free(ring))
        };
        let (is_too_few, lacks_some) = is_short(view, &is_there);
        is_too_few || (lacks_some && state.is_minority)
    };
    let is_free =
        |it: &&&FinalState| it.is_voter && it.view.as_ref().is_none_or(|view| !is_held(it, view));
    let free = states.iter().filter(is_free).count();
    let mut rings = states.iter().filter_map(|it| Some((it, it.view.as_ref()?))).peekable();
    rings.peek().is_some()
        && rings.all(|(state, view)| {
            is_held(state, view) || view.required_voters().is_some_and(|quorum| free < quorum)
        })
}

fn describe(view: &RingView) -> String {
    let members: Vec<String> = view.processes().map(|it| format!("{it:?}")).collect();
    format!("{:?}+{} of {}", view.epoch, view.version, members.join(" "))
}
