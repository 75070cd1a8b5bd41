use std::collections::VecDeque;

use carom_proto::node::Node;
use carom_proto::{GroupId, Time};

use super::group_runtime::Progress;
use super::groups::Groups;
use crate::shared::send_queue::ReadyList;

#[derive(Debug, Default)]
pub(crate) struct SendSchedule {
    active: VecDeque<GroupId>,
    held: Vec<GroupId>,
}

impl SendSchedule {
    pub(crate) fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

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

/// Number of messages that a group sends before another group's turn: enough to batch them.
const SHARE: usize = 32;
const MESSAGES_PER_TURN: usize = 256;
