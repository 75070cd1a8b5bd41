//! The rule that confirmed messages are delivered at every member that was a receiver from the
//! start of the stream, unless it was evicted, has paused receipt, or was named in this or an
//! earlier confirmation.

use std::collections::BTreeSet;

use carom_proto::{Confirmed, NodeId, Time};

use super::order;
use crate::findings::Findings;
use crate::rdcm::history::{Account, History, Stream, StreamId};

const RULE: &str = "confirmed messages are delivered";

pub(super) fn check(history: &History, found: &mut Findings) {
    for (id, stream) in &history.streams {
        let mut named = BTreeSet::new();
        for (at, confirmed) in &stream.confirmed {
            named.extend(confirmed.incomplete.iter().map(|(node, _)| *node));
            let owed = history
                .accounts
                .iter()
                .filter(|account| is_owed(account, stream, *at) && !named.contains(&account.node));
            owed.for_each(|account| check_account(history, *id, account, *at, confirmed, found));
            check_members(*id, stream, confirmed, found);
        }
    }
}

pub(super) fn is_owed(account: &Account, stream: &Stream, at: Time) -> bool {
    stream.is_owed_to(account)
        && account.spans(stream.begun, at)
        && !account.has_held
        && !stream.has_left_behind(account.node, at)
}

fn check_account(
    history: &History,
    id: StreamId,
    account: &Account,
    at: Time,
    confirmed: &Confirmed,
    found: &mut Findings,
) {
    let up_to = u64::from(confirmed.up_to.0);
    let had = order::had(history, account, id, at).unwrap_or(0);
    if had <= up_to {
        found.add(RULE, format!("{account}: {id} confirmed up to {up_to}, received up to {had}"));
    }
}

fn check_members(id: StreamId, stream: &Stream, confirmed: &Confirmed, found: &mut Findings) {
    let named: BTreeSet<NodeId> = confirmed.incomplete.iter().map(|(node, _)| *node).collect();
    if named.len() < confirmed.incomplete.len()
        || !stream.asked.contains(&(u64::from(confirmed.up_to.0) + 1))
    {
        found.add(RULE, format!("{id}: invalid confirmation {confirmed:?}"));
    }
}
