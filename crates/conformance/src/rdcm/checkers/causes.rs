//! The rule that losses have a cause.
//!
//! A receiver loses messages only if it was evicted, its sender is gone, or it has another sender.
//! A sender that yields to another one gets a report of all messages that were not confirmed.

use carom_proto::{LossCause, Lost, NodeId, Time};

use super::confirmations::is_owed;
use super::order;
use crate::findings::Findings;
use crate::rdcm::history::{Account, History, Observed, Stream, StreamId};

const RULE: &str = "losses have a cause";

pub(super) fn check(history: &History, found: &mut Findings) {
    for account in &history.accounts {
        for (at, observed) in &account.events {
            let Observed::Lost(lost) = observed else { continue };
            let is_explained = match lost.cause {
                LossCause::TooFarBehind => {
                    is_left_behind(history, account.node, *at, lost)
                        || is_back(history, account)
                        || is_rest(account, lost)
                }
                LossCause::AttemptsSpent => {
                    is_over(history, *at, lost)
                        || is_told_gone(history, *at, lost)
                        || follows_another(history, account, *at, lost)
                }
                _ => false,
            };
            if !is_explained {
                found.add(RULE, format!("{account}: loss without a cause: {lost:?}"));
            }
        }
    }
    for (stream, it) in &history.streams {
        let Some(lost) = it.given_up else {
            check_silent_end(history, *stream, it, found);
            continue;
        };
        let is_to_the_end = u64::from(lost.last.0) + 1 == it.end;
        if lost.cause != LossCause::AnotherSender || !is_to_the_end {
            found.add(RULE, format!("{stream} ends at {}: {lost:?}", it.end));
        }
    }
}

/// Checks a sender that follows another one and got no loss report. It has given up no message, so
/// its whole stream must be at every receiver that is owed it.
fn check_silent_end(history: &History, id: StreamId, stream: &Stream, found: &mut Findings) {
    let is_its = |it: &&Account| it.node == id.sender && it.spans(stream.begun, stream.begun);
    let Some(account) = history.accounts.iter().rfind(is_its) else { return };
    let is_of_another =
        |it: &&(Time, Observed)| it.0 > stream.begun && matches!(it.1, Observed::Message(Ok(_)));
    let Some((at, _)) = account.events.iter().find(is_of_another) else { return };
    for owed in history.accounts.iter().filter(|it| is_owed(it, stream, *at)) {
        let had = order::had(history, owed, id, *at).unwrap_or(0);
        if had < stream.end {
            let what =
                format!("{id} ends at {} without a loss report: {owed} has {had}", stream.end);
            found.add(RULE, what);
        }
    }
}

/// Returns `true` if the node was a member before, and its sender may still count that membership.
fn is_back(history: &History, account: &Account) -> bool {
    let mut others = history.accounts.iter().filter(|other| other.node == account.node);
    others.any(|other| other.begun < account.begun)
}

/// Returns `true` if the loss is the rest of a message of which the member has already lost a part.
fn is_rest(account: &Account, lost: &Lost) -> bool {
    account.events.iter().any(|(_, observed)| match observed {
        Observed::Lost(before) => {
            let is_before = before.sender == lost.sender && before.last.next() == lost.first;
            is_before && before.cause == LossCause::AttemptsSpent
        }
        Observed::Message(_) => false,
    })
}

fn is_left_behind(history: &History, node: NodeId, at: Time, lost: &Lost) -> bool {
    let mut streams = history.streams.iter().filter(|(id, _)| id.sender == lost.sender);
    streams.any(|(_, stream)| stream.has_left_behind(node, at))
}

/// Returns `true` if the sender had left or died shortly before. The report can reach the member
/// after the sender has rejoined or begun to send again, but the stream has ended for the member.
fn is_told_gone(history: &History, at: Time, lost: &Lost) -> bool {
    let before = history.accounts.iter().filter(|account| account.node == lost.sender);
    let mut ends = before.filter_map(|account| account.ended);
    ends.any(|end| end <= at && at.since(end) <= history.over_within)
}

/// Returns `true` if the member had another sender by then, or was a sender. A member that is
/// partitioned from a live sender follows another one, and the lost messages may still arrive.
fn follows_another(history: &History, account: &Account, at: Time, lost: &Lost) -> bool {
    let has_received = |id: StreamId| {
        let mut streams = account.events.iter().filter_map(|(_, observed)| match observed {
            Observed::Message(Ok(number)) => Some(history.sent[number].stream),
            _ => None,
        });
        streams.any(|it| it == id)
    };
    let others = history.streams.iter().filter(|(id, _)| id.sender != lost.sender);
    others.filter(|(_, stream)| stream.begun <= at).any(|(id, stream)| {
        id.sender == account.node || stream.has_placed(account.node) || has_received(*id)
    })
}

fn is_over(history: &History, at: Time, lost: &Lost) -> bool {
    let Some(last) = history.stream_of(lost.sender) else { return false };
    let live = match &history.outcome {
        Some(Ok(healed)) if healed.sender == lost.sender => Some(last),
        _ => None,
    };
    let streams = history.streams.iter().filter(|(id, _)| id.sender == lost.sender);
    streams.filter(|(id, _)| Some(**id) != live).any(|(_, stream)| stream.begun <= at)
}
