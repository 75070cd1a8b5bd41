//! The rule that each delivered message was sent exactly as delivered and, unless it is unreliable,
//! by a member of the view in which it is delivered.

use carom_proto::ring::Qos;

use crate::findings::Findings;
use crate::rmp::history::{History, Observed};

const RULE: &str = "no invention";

pub(super) fn check(history: &History, found: &mut Findings) {
    for ((group, node), lives) in &history.lives {
        for events in lives.iter().map(|life| &life.events) {
            let mut view = None;
            for observed in events {
                match observed {
                    Observed::Lock(_) => {}
                    Observed::View(_, event) => view = Some(&event.view),
                    Observed::Message(heard) => {
                        let (number, sender) = (heard.number, heard.sender);
                        if !heard.is_true {
                            found.add(RULE, format!(
                                "{node} in {group} received unknown message {number:x} of {sender}"
                            ));
                            continue;
                        }
                        let is_unreliable = history.sent[&number].qos == Qos::Unreliable;
                        let is_in = view.is_some_and(|view| view.process_of(sender).is_some());
                        if !is_in && !is_unreliable {
                            found.add(RULE, format!(
                                "{node} in {group} received message {number} of {sender}, which \
                                 is not in its view"
                            ));
                        }
                    }
                }
            }
        }
    }
}
