//! Quorum of an electorate: reports that too few or too many voters are present.
//!
//! A ring of an electorate is created by a voter and works once a majority of the electorate has
//! taken its token ([`Ring::shortage`]). Until then, members can only join and leave.
//!
//! # Why two rings never both work
//!
//! A process is in one ring at a time, and counts once it has taken that ring's token. Two working
//! rings would need more voters than the electorate has, unless one is forced.
//!
//! This argument holds at one point in time. A restarted voter has no memory of its former ring,
//! and may be counted in another ring that lacks messages which the first ring has acknowledged.
//! Rings therefore follow each other in one line. More than half of the voters of a view must
//! continue ([`RingView::least`]), even if they are not a quorum yet, and every restarted voter
//! joins later.

use super::reformation::TooFew;
use super::session::Session;
use crate::ring::{RingNews, RingView};
use crate::rmp::context::Context;
use crate::rmp::ring::Ring;

#[derive(Debug, Default)]
pub(super) struct QuorumReports {
    voters: Option<usize>,
    is_full: bool,
}

impl QuorumReports {
    // Without a session, no voter is present.
    pub(super) fn report_shortage(
        &mut self,
        cx: &mut Context<'_>,
        session: Option<&Session>,
        quorum: Option<usize>,
    ) {
        let shortage = match session {
            Some(session) if !session.reformation.is_idle() => return,
            Some(session) => session.ring.shortage(),
            None => quorum.map(|needed| (0, needed)),
        };
        match shortage {
            Some((voters, needed)) => {
                let members = session.map_or(0, |session| session.ring.view().len());
                self.report(cx, members, voters, needed);
            }
            None => self.voters = None,
        }
    }

    pub(super) fn report_too_few(
        &mut self,
        cx: &mut Context<'_>,
        ring: &Ring,
        quorum: Option<usize>,
        count: TooFew,
    ) {
        let members = ring.view().len();
        match quorum {
            Some(quorum) => self.report(cx, members, count.voters, quorum),
            None if count.is_first => {
                let needed = ring.view().least();
                cx.report(RingNews::Minority { members, needed, voters: None });
            }
            None => {}
        }
    }

    fn report(&mut self, cx: &mut Context<'_>, members: usize, voters: usize, needed: usize) {
        if self.voters.replace(voters) != Some(voters) {
            cx.counters.quorums_lacked += 1;
            let (node, group) = (cx.node, cx.group);
            tracing::info!(%node, %group, voters, needed, "waits for a quorum");
            cx.report(RingNews::Minority { members, needed, voters: Some(voters) });
        }
    }

    pub(super) fn report_if_full(&mut self, cx: &mut Context<'_>, view: &RingView) {
        let is_out = view.process_of(cx.node).is_none();
        if is_out && view.is_full() && !core::mem::replace(&mut self.is_full, true) {
            let voters = view.voters().count();
            tracing::warn!(node = %cx.node, group = %cx.group, voters, "the electorate is full");
            cx.report(RingNews::ElectorateFull { voters });
        }
    }
}
