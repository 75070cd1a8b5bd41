//! The rule that the end of a stream is reported.
//!
//! A receiver of a stream whose sender has yielded to another gets loss reports for all packets
//! that it lacks, at least up to the last message that any member received.

use carom_proto::NodeId;

use super::order;
use crate::findings::Findings;
use crate::rdcm::history::{Account, History, Observed, StreamId};

const RULE: &str = "the end of an abandoned stream is reported";

pub(super) fn check(history: &History, found: &mut Findings) {
    let Some(Ok(healed)) = &history.outcome else { return };
    let given_up = history.streams.iter().filter(|(_, stream)| stream.given_up.is_some());
    for (id, _) in given_up {
        // A later stream has the same numbers, and a loss report does not identify its stream.
        let has_later = history.stream_of(id.sender) != Some(*id);
        let is_member = |node: NodeId| healed.receivers.contains(&node) || healed.sender == node;
        if has_later || !is_member(id.sender) {
            continue;
        }
        let end =
            history.accounts.iter().filter_map(|it| order::had(history, it, *id, AT_LAST)).max();
        let receivers = history
            .accounts
            .iter()
            .filter(|it| it.ended.is_none() && order::had(history, it, *id, AT_LAST).is_some());
        for account in receivers {
            let reported = reported_to(history, account, *id);
            if end.is_some_and(|end| reported < end) {
                let what = format!("{account}: {id} ends at {reported}, others have {end:?}");
                found.add(RULE, what);
            }
        }
    }
}

fn reported_to(history: &History, account: &Account, id: StreamId) -> u64 {
    let lost = account.events.iter().filter_map(|(_, observed)| match observed {
        Observed::Lost(lost) if lost.sender == id.sender => Some(u64::from(lost.last.0) + 1),
        _ => None,
    });
    lost.chain(order::had(history, account, id, AT_LAST)).max().unwrap_or(0)
}

const AT_LAST: carom_proto::Time = carom_proto::Time::MAX;
