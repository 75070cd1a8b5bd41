//! The rule that the end of a stream is reported.
//!
//! A receiver of a stream whose sender has yielded to another gets loss reports for all that it
//! lacks, at least up to the last message that any member received.

use carom_proto::NodeId;

use super::order;
use super::story::{Account, Story, StreamId, Told};
use crate::checkers::Violation;

const RULE: &str = "the end of an abandoned stream is reported";

pub(super) fn check(story: &Story, found: &mut Vec<Violation>) {
    let Some(Ok(healed)) = &story.outcome else { return };
    let given_up = story.streams.iter().filter(|(_, stream)| stream.given_up.is_some());
    for (id, _) in given_up {
        // A later stream has the same numbers, and a loss report does not identify its stream.
        let has_later = story.stream_of(id.sender) != Some(*id);
        let is_member = |node: NodeId| healed.receivers.contains(&node) || healed.sender == node;
        if has_later || !is_member(id.sender) {
            continue;
        }
        let end = story.accounts.iter().filter_map(|it| order::had(story, it, *id, AT_LAST)).max();
        let receivers = story
            .accounts
            .iter()
            .filter(|it| it.ended.is_none() && order::had(story, it, *id, AT_LAST).is_some());
        for account in receivers {
            let told = told_to(story, account, *id);
            if end.is_some_and(|end| told < end) {
                let what =
                    format!("{account}: {id} is reported to {told}, others have it to {end:?}");
                found.push(Violation::new(RULE, what));
            }
        }
    }
}

/// Returns the number up to which a member has received a stream, or a report that it is lost.
fn told_to(story: &Story, account: &Account, id: StreamId) -> u64 {
    let lost = account.told.iter().filter_map(|(_, told)| match told {
        Told::Lost(lost) if lost.sender == id.sender => Some(u64::from(lost.last.0) + 1),
        _ => None,
    });
    lost.chain(order::had(story, account, id, AT_LAST)).max().unwrap_or(0)
}

const AT_LAST: carom_proto::Time = carom_proto::Time::MAX;
