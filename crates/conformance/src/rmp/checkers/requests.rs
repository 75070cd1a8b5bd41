//! The rule that every request of a live caller gets one answer.
//!
//! If the request names a handler, the answer is the handler's reply. Otherwise, it is an
//! acknowledgment. After a bounded time, it can also be a report that there is no answer.

use bytes::Bytes;
use carom_proto::ring::Outcome;

use crate::findings::Findings;
use crate::rmp::history::{History, Request};

const RULE: &str = "one answer to each request";

/// Returns the reply of the handlers of a run to this payload.
pub fn reply_to(payload: &Bytes) -> Bytes {
    payload.iter().map(|byte| !byte).collect()
}

pub(super) fn check(history: &History, found: &mut Findings) {
    for ((group, id), request) in &history.requests {
        let is_open = request.answers.is_empty();
        let may_be_open = history.final_states.is_empty() || history.is_caller_dead(*id, request);
        if request.answers.len() > 1 || (is_open && !may_be_open) {
            found.add(RULE, format!("{id:?} in {group} got the answers {:?}", request.answers));
        }
        for outcome in request.answers.iter().filter(|outcome| !is_right(request, outcome)) {
            found.add(RULE, format!("{id:?} in {group} got the wrong answer {outcome:?}"));
        }
    }
}

fn is_right(request: &Request, outcome: &Outcome) -> bool {
    let Some(asked) = &request.payload else { return false };
    match outcome {
        Outcome::Reply { payload, .. } => request.has_handler && *payload == reply_to(asked),
        Outcome::Acknowledged => !request.has_handler,
        Outcome::Unanswered => true,
    }
}
