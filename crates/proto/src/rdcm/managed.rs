//! What a sender does when the membership service's manager is there, is lost, or answers.

use alloc::vec::Vec;

use super::Rdcm;
use super::around::Around;
use super::asking::Answer;
use super::group::Role;
use super::sending::Sending;
use crate::membership::ManagerNews;
use crate::{GroupId, Time};

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

impl Rdcm {
    /// Something is known of the multicast manager in the membership service. Senders ask it as
    /// long as it is reached, and have managers of their own otherwise.
    pub fn handle_manager(&mut self, now: Time, news: &ManagerNews) {
        let news = match news {
            ManagerNews::Reached => GroupNews::Reached,
            ManagerNews::Lost => GroupNews::Lost,
            ManagerNews::Answered(bytes) => match Answer::decode(bytes) {
                Ok(answer) => {
                    let group = answer.group;
                    let news = GroupNews::Answer(answer);
                    let known = self.with(now, group, |it, around| it.on_manager(around, news));
                    self.counters.manager_late += u64::from(known.is_none());
                    return;
                }
                Err(_) => {
                    self.counters.manager_malformed += 1;
                    return;
                }
            },
        };
        match news {
            GroupNews::Reached => self.line.is_there = true,
            _ => self.line.lose(),
        }
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.with(now, group, |state, around| state.on_manager(around, news.clone()));
        }
    }

    /// What the multicast manager in the membership service is to be asked next.
    pub fn poll_request(&mut self) -> Option<Vec<u8>> {
        self.line.poll().map(|request| request.encode())
    }

    /// A group in which this node sends whose manager in the membership service was lost: the node
    /// has one of its own.
    pub fn poll_manager_lost(&mut self) -> Option<GroupId> {
        self.line.poll_lost()
    }

    /// Who manages the multicast of this node's stream in a group; `None` if it sends nothing
    /// there.
    pub fn managed_by(&self, group: GroupId) -> Option<ManagedBy> {
        match &self.groups.get(&group)?.role {
            Role::Sending(sending) => Some(sending.managed_by()),
            Role::Waiting | Role::Receiving(_) => None,
        }
    }
}
