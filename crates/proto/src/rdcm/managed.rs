//! Reactions of a sender to news of the manager in the membership service.

use alloc::vec::Vec;

use super::Rdcm;
use super::around::Around;
use super::asking::Answer;
use super::group::Role;
use super::sending::Sending;
use crate::membership::ManagerNews;
use crate::{GroupId, Time};

/// News of the manager for a group.
#[derive(Clone, Debug)]
pub(super) enum GroupNews {
    /// The manager can be reached.
    Reached,
    /// The manager can no longer be reached.
    Lost,
    /// The manager has answered a request.
    Answer(Answer),
}

/// Location of the manager of a stream's multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedBy {
    /// The membership service.
    Service,
    /// The sender itself.
    Sender,
}

impl Sending {
    /// Returns the location of the manager.
    pub(super) fn managed_by(&self) -> ManagedBy {
        match self.placing.is_at_service() {
            true => ManagedBy::Service,
            false => ManagedBy::Sender,
        }
    }

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
    /// Handles news of the multicast manager in the membership service. Senders use it while it can
    /// be reached, and managers of their own otherwise.
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

    /// Returns the next request to the multicast manager in the membership service, encoded.
    pub fn poll_request(&mut self) -> Option<Vec<u8>> {
        self.line.poll().map(|request| request.encode())
    }

    /// Returns the next group in which this node sends and has lost the manager in the membership
    /// service. The node then uses a manager of its own.
    pub fn poll_manager_lost(&mut self) -> Option<GroupId> {
        self.line.poll_lost()
    }

    /// Returns the location of the manager of this node's stream in a group. Returns `None` if it
    /// sends nothing there.
    pub fn managed_by(&self, group: GroupId) -> Option<ManagedBy> {
        match &self.groups.get(&group)?.role {
            Role::Sending(sending) => Some(sending.managed_by()),
            Role::Waiting | Role::Receiving(_) => None,
        }
    }
}
