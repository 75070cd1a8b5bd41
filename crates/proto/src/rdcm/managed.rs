//! What a sender does when the membership service's manager is there, is lost, or answers.

use super::around::Around;
use super::asking::Answer;
use super::sending::Sending;

/// What a group is told of the manager.
#[derive(Clone, Debug)]
pub(super) enum GroupNews {
    /// It can be asked.
    Reached,
    /// It cannot be asked any more.
    Lost,
    /// It has answered.
    Answer(Answer),
}

/// Who manages the multicast of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedBy {
    /// The membership service.
    Service,
    /// The sender itself.
    Sender,
}

impl Sending {
    /// Who manages the multicast.
    pub(super) fn managed_by(&self) -> ManagedBy {
        match self.placing.is_at_service() {
            true => ManagedBy::Service,
            false => ManagedBy::Sender,
        }
    }

    /// Something is known of the manager in the membership service.
    pub(super) fn on_manager(&mut self, around: &mut Around<'_>, news: GroupNews) {
        match news {
            GroupNews::Reached => self.placing.turn_to_service(around),
            GroupNews::Lost => {
                if self.placing.is_at_service() {
                    around.line.note_lost(around.group);
                }
                self.placing.turn_beside(around);
            }
            GroupNews::Answer(answer) => {
                self.placing.on_answer(around, answer);
            }
        }
        self.take_children(around.config);
    }
}
