//! The order in which the groups of a node publish.

use std::collections::VecDeque;

use carom_proto::node::Node;
use carom_proto::{GroupId, Time};

use super::group_runtime::Progress;
use super::groups::Groups;
use crate::shared::send_queue::ReadyList;

/// Groups with messages to send. They are served in turn, each with a share of messages.
#[derive(Debug, Default)]
pub(crate) struct SendSchedule {
    /// Groups with queued messages, in the order of their turns.
    active: VecDeque<GroupId>,
    /// Groups whose first message the engine did not accept.
    held: Vec<GroupId>,
}

impl SendSchedule {
    /// Returns `true` if a group has had its share and has more messages.
    pub(crate) fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

    /// Passes messages to the engines, up to a limit after which the sockets are drained again.
    pub(crate) fn publish(
        &mut self,
        now: Time,
        ready: &ReadyList,
        groups: &mut Groups,
        node: &mut Node,
    ) {
        ready.take(&mut self.active);
        self.active.extend(self.held.drain(..));
        let mut budget = MESSAGES_PER_TURN;
        while budget > 0 {
            let Some(id) = self.active.pop_front() else { break };
            let Some(group) = groups.get_mut(id) else { continue };
            let (taken, progress) = group.publish(node, now, SHARE.min(budget));
            budget -= taken;
            match progress {
                Progress::Empty => {}
                Progress::More => self.active.push_back(id),
                Progress::Held => self.held.push(id),
            }
        }
    }
}

/// Maximum number of messages that a group publishes before another group's turn: enough to send
/// them together.
const SHARE: usize = 32;
/// Maximum number of messages that are published before the sockets are drained again.
const MESSAGES_PER_TURN: usize = 256;
