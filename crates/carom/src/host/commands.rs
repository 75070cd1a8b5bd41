//! What the handles ask of one node.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_channel::Sender;
use carom_proto::{GroupId, Time};

use super::Host;
use crate::command::NodeCommand;
use crate::error::JoinGroupError;
use crate::group::{GroupParts, GroupShared};
use crate::hosted_group::HostedGroup;
use crate::network::Network;
use crate::profile::Profile;
use crate::status::{GroupStatus, MemberStatus, Stats, Status};
use crate::waiting::{JOIN_WAIT, PendingConfirm, PendingJoin, SEED_WAIT, SERVICE_WAIT};

impl<N: Network> Host<N> {
    /// Does what a handle asks. If that was the node's end, returns whom to tell once it is gone.
    pub(crate) fn command(&mut self, now: Time, command: NodeCommand) -> Option<Sender<()>> {
        self.state.is_called = true;
        match command {
            NodeCommand::Join { name, profile, reply } => match self.join(now, &name, profile) {
                Ok((group, parts)) => {
                    let wait = match (self.controls.is_empty(), self.seeds.is_empty()) {
                        (false, _) => SERVICE_WAIT,
                        (true, false) => SEED_WAIT,
                        (true, true) => JOIN_WAIT,
                    };
                    let deadline = now + wait;
                    self.state.joins.push(PendingJoin { group, parts, deadline, reply });
                    self.take_events(now);
                    self.answer_those_who_wait(now);
                }
                Err(error) => {
                    let _ = reply.try_send(Err(error));
                }
            },
            NodeCommand::Leave { shared } => self.leave(now, &shared),
            NodeCommand::Confirm { group, timeout, reply } => {
                // For a group that is gone the reply is dropped, which says so.
                if let Some(hosted) = self.state.groups.get(&group) {
                    let (after, deadline) = (hosted.accepted_with_queue(), now + timeout);
                    let confirm = PendingConfirm { group, after, up_to: None, deadline, reply };
                    self.state.confirms.push(confirm);
                }
            }
            NodeCommand::Room { group } => {
                if let Some(hosted) = self.state.groups.get_mut(&group) {
                    hosted.delivery.flush();
                }
            }
            NodeCommand::Status { reply } => {
                let _ = reply.try_send(self.status());
            }
            #[cfg(test)]
            NodeCommand::Panic => {}
            NodeCommand::Close { reply } => {
                self.close(now);
                return Some(reply);
            }
        }
        None
    }

    fn join(
        &mut self,
        now: Time,
        name: &str,
        profile: Profile,
    ) -> Result<(GroupId, GroupParts), JoinGroupError> {
        let group = self.node.join(now, name, profile.settings())?;
        let address = self.network.listen_to(group);
        let limit = self.node.payload_limit(group).unwrap_or(0);
        let shared = GroupShared::new(name, group, profile, limit);
        shared.set_members(self.members_of(group));
        let (hosted, parts) = HostedGroup::new(shared, address, self.queue_events);
        self.state.groups.insert(group, hosted);
        Ok((group, parts))
    }

    /// Leaves the group of this handle. A handle whose group was refused later on may outlive it
    /// and must not end another membership in the same group.
    pub(super) fn leave(&mut self, now: Time, handle: &Arc<GroupShared>) {
        let group = handle.id;
        let Some(hosted) = self.state.groups.get_mut(&group) else { return };
        if Arc::ptr_eq(&hosted.shared, handle) {
            hosted.publish_rest(&mut self.node, now);
            self.transmit();
            self.node.leave(now, group);
            self.forget_group(group);
        }
    }

    /// Closes the group's queues, which wakes whoever waits on them.
    pub(super) fn forget_group(&mut self, group: GroupId) {
        self.network.forget_views();
        let Some(hosted) = self.state.groups.remove(&group) else { return };
        self.state.left.publish_dropped += hosted.unsent();
        self.state.left.queue_dropped += hosted.delivery.dropped();
        self.network.stop_listening(group, hosted.address);
        let of_group = |it: &mut PendingConfirm| it.group == group;
        for confirm in self.state.confirms.extract_if(.., of_group) {
            confirm.fail(Vec::new(), true);
        }
    }

    /// Sends what the engines still take, says good-bye, and flushes.
    fn close(&mut self, now: Time) {
        for hosted in self.state.groups.values_mut() {
            hosted.publish_rest(&mut self.node, now);
        }
        self.transmit();
        self.node.shut_down(now);
        self.transmit();
    }

    fn status(&self) -> Status {
        let nodes = self.node.membership().nodes();
        let mut members: Vec<MemberStatus> = nodes
            .into_iter()
            .map(|(node, endpoint)| MemberStatus {
                node,
                endpoint: endpoint.0,
                path: self.network.path(node),
            })
            .collect();
        members.sort_unstable_by_key(|it| it.node);
        Status {
            settled: self.settled.load(Ordering::SeqCst),
            is_away: self.away.load(Ordering::SeqCst),
            members,
            groups: self.state.groups.values().map(|it| self.status_of(it)).collect(),
            stats: self.stats(),
            ..self.first_status.clone()
        }
    }

    fn status_of(&self, hosted: &HostedGroup) -> GroupStatus {
        let address = hosted.address.and_then(|address| self.network.group_endpoint(address));
        hosted.status(address)
    }

    fn stats(&self) -> Stats {
        let groups = self.state.groups.values();
        let queue_dropped: u64 = groups.clone().map(|it| it.delivery.dropped()).sum();
        let publish_dropped: u64 = groups.map(HostedGroup::dropped).sum();
        let mut stats = Stats {
            lateral: self.node.lateral().counters(),
            guest: self.node.guest().map_or_else(Vec::new, |guest| guest.stats()),
            node: self.node.counters(),
            queue_dropped: self.state.left.queue_dropped + queue_dropped,
            publish_dropped: self.state.left.publish_dropped + publish_dropped,
            ..Stats::default()
        };
        self.network.count(&mut stats);
        stats
    }
}
