//! Decides which of two rings of one group remains when they meet.

use crate::ring::{RingView, Timestamp};
use crate::rmp::ring::{Ring, Snapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    Ignore,
    /// The ring has another origin and no known node. It probably belongs to another network.
    Foreign,
    Removed,
    /// Members of this ring have continued in another ring. An idle ring may not have noticed.
    Missed,
    /// The other ring has to join this one.
    Announce,
    /// This member joins the other ring immediately, because its own ring does not work.
    Join,
    /// This member leaves in order, because the other members may need it for their majority.
    Leave,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Standpoint<'a> {
    pub(super) ring: &'a Ring,
    pub(super) is_working: bool,
    pub(super) is_minority: bool,
    pub(super) is_patient: bool,
    pub(super) is_unused: bool,
    pub(super) is_leaving: bool,
    pub(super) is_merging: bool,
    pub(super) is_known: bool,
}

impl Standpoint<'_> {
    pub(super) fn meet(&self, snapshot: &Snapshot) -> Meeting {
        let (ours, theirs) = (self.ring.view(), &snapshot.view);
        let is_descendant = theirs.origin == ours.origin;
        let is_newer = theirs.epoch.version > ours.epoch.version;
        if !is_descendant && !self.is_known {
            return Meeting::Foreign;
        }
        if is_descendant && is_newer && !self.is_working {
            return Meeting::Removed;
        }
        let has_ours = || theirs.processes().any(|process| ours.contains(process));
        if is_descendant && is_newer && has_ours() {
            return Meeting::Missed;
        }
        if self.is_leaving {
            return Meeting::Ignore;
        }
        // One of the rings may not have detected yet that its members are in the other one.
        let (rest, own_rest) = (theirs.without_moved(ours), ours.without_moved(theirs));
        let is_larger = is_larger((&rest, snapshot.ordered), (&own_rest, self.ring.ordered()));
        let has_electorate = ours.electorate().is_some();
        if !snapshot.is_working {
            // A ring that may not continue has to join this one. However, a ring of an electorate
            // that has ordered messages waits for its voters. A ring without messages yields to it.
            let waits = has_electorate && snapshot.ordered > Timestamp(0) && is_larger;
            return if waits && self.is_unused { Meeting::Join } else { Meeting::Ignore };
        }
        let is_stronger = is_descendant || is_larger;
        if self.is_minority && has_electorate && !is_stronger && !theirs.has_quorum() {
            Meeting::Announce
        } else if self.is_minority && (is_stronger || !self.is_patient) {
            Meeting::Join
        } else if self.is_working && is_larger && !self.is_merging {
            Meeting::Leave
        } else {
            Meeting::Ignore
        }
    }
}

/// Returns `true` if `theirs` remains when two rings meet. The ring with more members remains. With
/// an electorate, quorum, last order and voters count first. Of equal rings, the one with the
/// smaller epoch remains.
fn is_larger(theirs: (&RingView, Timestamp), ours: (&RingView, Timestamp)) -> bool {
    let size = |(view, ordered): (&RingView, Timestamp)| {
        let has_electorate = view.electorate().is_some();
        let is_whole = view.has_quorum() && !view.is_forced;
        let rank = (is_whole, view.is_forced, ordered, view.voters().count());
        let of_electorate = has_electorate.then_some(rank);
        (of_electorate, view.len())
    };
    match size(theirs).cmp(&size(ours)) {
        core::cmp::Ordering::Equal => theirs.0.epoch < ours.0.epoch,
        order => order.is_gt(),
    }
}
