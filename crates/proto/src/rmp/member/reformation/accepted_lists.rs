use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::NodeId;
use crate::ring::{Epoch, RingView};
use crate::rmp::ring::{Accepted, Proposal};

#[derive(Debug, Default)]
pub(super) struct AcceptedLists {
    accepted: Vec<Proposal>,
    /// Lists that this member does not commit, so that it can reach the other members' position.
    pub(super) released: Vec<Epoch>,
    pub(super) refuted: Vec<Epoch>,
}

impl AcceptedLists {
    pub(super) fn contains(&self, ballot: Epoch) -> bool {
        self.accepted.iter().any(|proposal| proposal.view.epoch == ballot)
    }

    // There must be room for the list. Otherwise, it must not be acknowledged.
    pub(super) fn accept(&mut self, proposal: Proposal) {
        self.accepted.push(proposal);
    }

    // Only the last accepted list is committed, unless the member was released from it.
    pub(super) fn committable(&self, ballot: Epoch) -> Option<&Proposal> {
        let last = self.accepted.last().filter(|proposal| proposal.view.epoch == ballot);
        last.filter(|_| !self.released.contains(&ballot))
    }

    /// Releases the lists of `ballots`. Returns the number of new ones, or `None` if 0 or too many.
    pub(super) fn release_voters(&mut self, ballots: BTreeSet<Epoch>) -> Option<u64> {
        let new = ballots.into_iter().filter(|ballot| !self.released.contains(ballot));
        let new: Vec<Epoch> = new.collect();
        if new.is_empty() || self.released.len() + new.len() > MAX_ACCEPTED {
            return None;
        }
        let count = new.len() as u64;
        self.released.extend(new);
        Some(count)
    }

    pub(super) fn last(&self) -> Option<&Proposal> {
        self.accepted.iter().rfind(|proposal| !self.released.contains(&proposal.view.epoch))
    }

    pub(super) fn release(&mut self, ballots: &[Epoch]) {
        let accepted = self.accepted.iter().map(|proposal| proposal.view.epoch);
        let new = accepted.filter(|it| ballots.contains(it) && !self.released.contains(it));
        let new: Vec<Epoch> = new.collect();
        self.released.extend(new);
    }

    /// Returns `true` if a vote has no room for another list. No list is then accepted until one is
    /// refuted.
    pub(super) fn is_full(&self) -> bool {
        let listed: usize = self.accepted.iter().map(|proposal| proposal.view.len()).sum();
        self.accepted.len() >= MAX_ACCEPTED || listed >= MAX_LISTED
    }

    pub(super) fn to_wire(&self) -> Vec<Accepted> {
        let lists = self.accepted.iter().map(|proposal| Accepted {
            ballot: proposal.view.epoch,
            least: proposal.view.least() as u16,
            members: proposal.view.processes().collect(),
        });
        lists.collect()
    }

    /// Refutes later lists with `node`, which has continued with the list of `ballot`.
    pub(super) fn refute_after(&mut self, ballot: Epoch, node: NodeId) {
        let later = self.accepted.iter().skip_while(|it| it.view.epoch != ballot).skip(1);
        let theirs = later.filter(|it| it.view.process_of(node).is_some());
        let refuted: Vec<Epoch> = theirs.map(|it| it.view.epoch).collect();
        self.refute(&refuted);
    }

    pub(super) fn refute(&mut self, refuted: &[Epoch]) {
        self.accepted.retain(|proposal| !refuted.contains(&proposal.view.epoch));
        self.released.retain(|ballot| !refuted.contains(ballot));
        for epoch in refuted {
            if self.refuted.contains(epoch) {
                continue;
            }
            if self.refuted.len() == MAX_ACCEPTED {
                // By now, promises exclude the oldest ballot. They do not yet exclude this one.
                self.refuted.remove(0);
            }
            self.refuted.push(*epoch);
        }
    }
}

const MAX_ACCEPTED: usize = 32;
const MAX_LISTED: usize = 3 * RingView::MAX_MEMBERS;
