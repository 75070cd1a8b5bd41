//! The rules of delivery after the faults have ended.
//!
//! All but unreliable messages are delivered to their sender. Those sent after the faults are also
//! delivered to all nodes that were members when the faults ended. A removed member gets a report
//! of its messages with unknown outcomes.

use std::collections::BTreeSet;

use carom_proto::ring::Qos;
use carom_proto::{GroupId, SeqNo};

use super::liveness::{by_group, is_one_ring};
use crate::findings::Findings;
use crate::rmp::history::{End, FinalState, History, Life, Observed, Sent};

pub(super) fn check(history: &History, found: &mut Findings) {
    let Some(states) = history.final_states.last() else { return };
    let groups = by_group(states);
    let has_quorum = |state: &&FinalState| state.view.as_ref().is_some_and(|it| it.has_quorum());
    let works = |group: GroupId| {
        let states = groups.get(&group);
        states.is_some_and(|it| is_one_ring(it) && it.iter().copied().all(|it| has_quorum(&it)))
    };
    for ((group, node), lives) in &history.lives {
        for (ix, life) in lives.iter().enumerate() {
            let received = numbers(life);
            let owed = history.sent.iter().filter(|(number, sent)| {
                let is_own = (sent.group, sent.sender, sent.life) == (*group, *node, ix);
                sent.group == *group
                    && sent.qos > Qos::Unreliable
                    && !received.contains(number)
                    && (is_own || is_for_all(history, sent, life))
            });
            for (number, sent) in owed {
                let is_own = sent.sender == *node && sent.life == ix;
                let rule = match life.end {
                    None if works(*group) => "delivered after recovery",
                    Some(End::Removed(unsent)) if is_own && !is_in(sent, unsent) => {
                        "delivered or reported"
                    }
                    _ => continue,
                };
                found.add(rule, format!(
                    "{node} in life {ix} did not receive message {number} ({}) of {} in life {}",
                    sent.qos, sent.sender, sent.life
                ));
            }
        }
    }
}

fn is_for_all(history: &History, sent: &Sent, life: &Life) -> bool {
    let is_after = history.healed.is_some_and(|healed| sent.at >= healed && life.begun < healed);
    let lives = &history.lives[&(sent.group, sent.sender)];
    is_after && lives[sent.life].end.is_none() && life.end.is_none()
}

fn is_in(sent: &Sent, unsent: Option<(SeqNo, SeqNo)>) -> bool {
    unsent.is_some_and(|(first, last)| !first.is_after(sent.seqno) && !sent.seqno.is_after(last))
}

fn numbers(life: &Life) -> BTreeSet<u64> {
    let messages = life.events.iter().filter_map(|observed| match observed {
        Observed::Message(heard) => Some(heard.number),
        Observed::View(..) | Observed::Lock(_) => None,
    });
    messages.collect()
}
