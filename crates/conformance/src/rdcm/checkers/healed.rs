//! The rule that, after the faults, there is one sender and all members receive its messages.

use super::order;
use crate::findings::Findings;
use crate::rdcm::history::{FinalState, History, Position};

const RULE: &str = "complete recovery";

pub(super) fn check(history: &History, found: &mut Findings) {
    let mut complain = |what: String| found.add(RULE, what);
    history.refused.iter().for_each(|what| complain(what.clone()));
    let healed = match &history.outcome {
        Some(Ok(healed)) => healed,
        Some(Err(who)) => return complain(format!("no member can send: {who}")),
        None => return,
    };
    let FinalState { sender, senders, receivers, unconfirmed, waiting, .. } = healed;
    if senders != &[*sender] {
        complain(format!("the senders are {senders:?}, but only node {sender} is expected"));
    }
    if *waiting > 0 {
        complain(format!("the engines have not accepted {waiting} bytes"));
    }
    if !unconfirmed.is_empty() {
        complain(format!("node {sender} lacks confirmations from {unconfirmed:?}"));
    }
    let Some(end) = history.end_of(*sender) else {
        return complain(format!("node {sender} has sent nothing"));
    };
    for node in receivers {
        let position = order::position(history, *node);
        if position != Position::At(end) {
            complain(format!("node {node} is at {position:?}, but the end is {end:?}"));
        }
    }
    let stream = &history.streams[&end.stream];
    if let Some(asked) = stream.unanswered() {
        complain(format!("{}: no confirmation up to {asked}", end.stream));
    }
    if let Some((_, confirmed)) = stream.confirmed.last()
        && confirmed.members != receivers.len()
    {
        complain(format!("{confirmed:?}, but there are {} receivers", receivers.len()));
    }
}
