//! The rule that every request of a live caller gets one answer.
//!
//! The answer is the handler's reply if the request names a handler, otherwise an acknowledgment,
//! or, after a bounded time, a report that there is none.

use bytes::Bytes;
use carom_proto::rmp::Outcome;

use super::story::{Call, Story};
use crate::checkers::Violation;

const RULE: &str = "one answer to each request";

/// Returns the reply of a run's handlers to this payload.
pub fn reply_to(payload: &Bytes) -> Bytes {
    payload.iter().map(|byte| !byte).collect()
}

pub(super) fn check(story: &Story, found: &mut Vec<Violation>) {
    for ((group, id), call) in &story.calls {
        let is_open = call.answers.is_empty();
        let may_be_open = story.roll_calls.is_empty() || story.is_caller_dead(*id, call);
        if call.answers.len() > 1 || (is_open && !may_be_open) {
            let what = format!("{id:?} in {group} got the answers {:?}", call.answers);
            found.push(Violation::new(RULE, what));
        }
        for outcome in call.answers.iter().filter(|outcome| !is_right(call, outcome)) {
            let what = format!("{id:?} in {group} got the wrong answer {outcome:?}");
            found.push(Violation::new(RULE, what));
        }
    }
}

fn is_right(call: &Call, outcome: &Outcome) -> bool {
    let Some(asked) = &call.payload else { return false };
    match outcome {
        Outcome::Reply { payload, .. } => call.has_handler && *payload == reply_to(asked),
        Outcome::Acknowledged => !call.has_handler,
        Outcome::Unanswered => true,
    }
}
