//! The rules of electorates.
//!
//! A ring of an electorate orders messages and grants locks only with a majority of the voters. Any
//! two rings that have done so therefore have a voter in common, regardless of their history. Rings
//! that an operator has forced to continue are exempt.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::NodeId;
use carom_proto::ring::{Qos, RingView};

use crate::findings::Findings;
use crate::harness::IDS_APART;
use crate::rmp::history::{Account, Period, name};

pub(super) fn check(accounts: &[Account<'_>], found: &mut Findings) {
    let mut rings: BTreeMap<BTreeSet<u64>, &RingView> = BTreeMap::new();
    for account in accounts {
        for (ix, period) in account.periods.iter().enumerate() {
            if !has_worked(period) {
                continue;
            }
            let view = view_of_work(&account.periods[ix..]);
            let Some(quorum) = view.required_voters() else { continue };
            // A dead process and its successor under another id both count until the ring has
            // noticed the death, as for any dead voter.
            let count = view.voters().count();
            if count < quorum {
                let what = format!(
                    "{account}: {} worked with {count} of {quorum} required voters",
                    name(view)
                );
                found.add("no work without a quorum", what);
            }
            let voters = view.voters().map(|voter| host_of(voter.node)).collect();
            rings.insert(voters, view);
        }
    }
    let rings: Vec<_> = rings.into_iter().collect();
    for (at, (voters, view)) in rings.iter().enumerate() {
        for (_, other) in rings[at + 1..].iter().filter(|(others, _)| others.is_disjoint(voters)) {
            let what = format!("{} and {} worked without a common voter", name(view), name(other));
            found.add("one ring per electorate", what);
        }
    }
}

/// Returns the voter of this process. A restarted host is another process of the same voter.
fn host_of(node: NodeId) -> u64 {
    node.0.wrapping_sub(1) % IDS_APART
}

/// Returns the view in which the work of the first of these periods was done. Messages that a
/// reformation without a quorum has ordered are delivered at the instant when there is a quorum,
/// together with the views that came in the meantime.
fn view_of_work<'a>(periods: &[Period<'a>]) -> &'a RingView {
    let first = &periods[0];
    let at_once =
        periods.iter().take_while(|it| first.is_of_one_instant() && it.begun == first.begun);
    let later = at_once.map(|it| &it.event.view).find(|view| view.has_quorum());
    later.unwrap_or(&first.event.view)
}

fn has_worked(period: &Period<'_>) -> bool {
    let is_ordered = period.heard.iter().any(|(_, sent)| sent.qos >= Qos::TotallyOrdered);
    is_ordered || !period.granted.is_empty()
}
