//! The rule that, once the faults have ended, there is one sender and all members receive
//! everything.

use super::story::{Healed, Position, Story};
use crate::checkers::Violation;

const RULE: &str = "complete recovery";

pub(super) fn check(story: &Story, found: &mut Vec<Violation>) {
    let mut complain = |what: String| found.push(Violation::new(RULE, what));
    story.refused.iter().for_each(|what| complain(what.clone()));
    let healed = match &story.outcome {
        Some(Ok(healed)) => healed,
        Some(Err(who)) => return complain(format!("no member can send: {who}")),
        None => return,
    };
    let Healed { sender, senders, receivers, unconfirmed, waiting, .. } = healed;
    if senders != &[*sender] {
        complain(format!("the senders are {senders:?} instead of only node {sender}"));
    }
    if *waiting > 0 {
        complain(format!("{waiting} bytes are not taken by applications"));
    }
    if !unconfirmed.is_empty() {
        complain(format!("node {sender} has no full confirmation from {unconfirmed:?}"));
    }
    let Some(end) = story.end_of(*sender) else {
        return complain(format!("node {sender} has sent nothing"));
    };
    for node in receivers {
        let position = story.position(*node);
        if position != Position::At(end) {
            complain(format!("node {node} is at {position:?}, but the end is {end:?}"));
        }
    }
    let stream = &story.streams[&end.stream];
    if let Some(asked) = stream.unanswered() {
        complain(format!("{}: no confirmation up to {asked}", end.stream));
    }
    if let Some((_, safe)) = stream.confirmed.last()
        && safe.members != receivers.len()
    {
        complain(format!("{safe:?}, but there are {} receivers", receivers.len()));
    }
}
