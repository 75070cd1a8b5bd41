//! The rule that a delivered message was sent in this form, by a member of the view in which it is
//! delivered.

use carom_proto::rmp::Qos;

use super::story::{Story, Told};
use crate::checkers::Violation;

const RULE: &str = "no invention";

pub(super) fn check(story: &Story, found: &mut Vec<Violation>) {
    for ((group, node), lives) in &story.lives {
        for told in lives.iter().map(|life| &life.told) {
            let mut view = None;
            for told in told {
                match told {
                    Told::Lock(_) => {}
                    Told::View(_, event) => view = Some(&event.view),
                    Told::Message(heard) => {
                        let (number, sender) = (heard.number, heard.sender);
                        if !heard.is_true {
                            let what = format!(
                                "{node} in {group} received unknown message {number:x} of {sender}"
                            );
                            found.push(Violation::new(RULE, what));
                            continue;
                        }
                        let is_unreliable = story.sent[&number].qos == Qos::Unreliable;
                        let is_in = view.is_some_and(|view| view.process_of(sender).is_some());
                        if !is_in && !is_unreliable {
                            let what = format!(
                                "{node} in {group} received message {number} of {sender}, which \
                                 is not in its view"
                            );
                            found.push(Violation::new(RULE, what));
                        }
                    }
                }
            }
        }
    }
}
