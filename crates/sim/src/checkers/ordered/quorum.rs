//! A ring of an electorate orders messages and grants locks only with a majority of the voters; so
//! any two rings that have done so have a voter in common, however their members have met. What an
//! operator has forced is excepted.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::NodeId;
use carom_proto::rmp::{Qos, RingView};

use super::story::{Account, Chapter, name};
use crate::checkers::Violation;

pub(super) fn check(accounts: &[Account<'_>], found: &mut Vec<Violation>) {
    let mut rings: BTreeMap<BTreeSet<u64>, &RingView> = BTreeMap::new();
    for account in accounts {
        for (ix, chapter) in account.chapters.iter().enumerate() {
            if !has_worked(chapter) {
                continue;
            }
            let view = view_of_work(&account.chapters[ix..]);
            let Some(quorum) = view.quorum() else { continue };
            // A dead process and the one that follows it under another id both count until the ring
            // has found out, as any dead voter does.
            let count = view.voters().count();
            if count < quorum {
                let what =
                    format!("{account}: {} worked with {count} of {quorum} voters", name(view));
                found.push(Violation::new("no work without a quorum", what));
            }
            let voters = view.voters().map(|voter| host_of(voter.node)).collect();
            rings.insert(voters, view);
        }
    }
    let rings: Vec<_> = rings.into_iter().collect();
    for (at, (voters, view)) in rings.iter().enumerate() {
        for (_, other) in rings[at + 1..].iter().filter(|(others, _)| others.is_disjoint(voters)) {
            let what = format!("{} and {} worked without a common voter", name(view), name(other));
            found.push(Violation::new("one ring of an electorate", what));
        }
    }
}

/// The voter whose process this is: a host that is started again is another process of the same
/// voter.
fn host_of(node: NodeId) -> u64 {
    node.0.wrapping_sub(1) % PROCESSES_APART
}

/// The view in which the work of the first of these chapters was done. What a reformation without a
/// quorum has given a place is delivered when there is a quorum, with views that came meanwhile:
/// all at that instant.
fn view_of_work<'a>(chapters: &[Chapter<'a>]) -> &'a RingView {
    let first = &chapters[0];
    let at_once =
        chapters.iter().take_while(|it| first.is_of_one_instant() && it.begun == first.begun);
    let later = at_once.map(|it| &it.event.view).find(|view| view.has_quorum());
    later.unwrap_or(&first.event.view)
}

/// Whether something was ordered, or a lock granted, in this view.
fn has_worked(chapter: &Chapter<'_>) -> bool {
    let is_ordered = chapter.heard.iter().any(|(_, sent)| sent.qos >= Qos::TotallyOrdered);
    is_ordered || !chapter.granted.is_empty()
}

/// The ids of a host's processes are so far apart.
pub(crate) const PROCESSES_APART: u64 = 1000;
