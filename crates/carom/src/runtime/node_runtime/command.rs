use std::sync::Arc;
use std::time::Duration;

use carom_proto::ring::{JoinOptions, RingStatus};
use carom_proto::{GroupId, Time};

use super::{Closing, NodeRuntime};
use crate::net::network::Network;
use crate::runtime::group_runtime::GroupRuntime;
use crate::runtime::locks::{LockTable, Ring};
use crate::shared::commands::{NodeCommand, ReplySender};
use crate::shared::error::JoinGroupError;
use crate::shared::group::{GroupParts, GroupShared, PayloadLimits};
use crate::shared::profile::Profile;
use crate::shared::status::{MemberStatus, NetCounters, Stats, Status};

impl<N: Network> NodeRuntime<N> {
    pub(crate) fn command(&mut self, now: Time, command: NodeCommand) {
        self.is_called = true;
        match command {
            NodeCommand::Join { name, profile, reply } => self.join(now, &name, profile, reply),
            NodeCommand::Leave { shared, reply } => {
                self.leave(now, &shared);
                reply.send_if_wanted(());
            }
            NodeCommand::Confirm { shared, message, timeout, reply } => {
                if let Some(group) = self.groups.of_handle(&shared) {
                    let covered = group.own.covered(message);
                    self.confirms.add(shared.id, covered, now + timeout, reply);
                }
            }
            NodeCommand::Request { group, shared, payload, options, reply } => {
                if shared.is_none_or(|shared| self.groups.of_handle(&shared).is_some()) {
                    let rings = self.node.ordered_groups_mut();
                    self.calls.request(now, rings, group, (payload, options), reply);
                }
            }
            NodeCommand::Reply { shared, request, payload, reply } => {
                if self.groups.of_handle(&shared).is_some() {
                    let rings = self.node.ordered_groups_mut();
                    reply.send_if_wanted(rings.reply(now, shared.id, request, payload));
                }
            }
            NodeCommand::Query { group, options, reply } => {
                self.calls.query(now, self.node.ordered_groups_mut(), group, options, reply);
            }
            NodeCommand::ForceQuorum { group, epoch, lost } => {
                self.node.ordered_groups_mut().force_quorum(now, group, epoch, lost);
            }
            NodeCommand::Lock { shared, name, waits, reply } => {
                self.with_locks(now, &shared, |locks, ring| {
                    locks.request(ring, name, waits, reply)
                });
            }
            NodeCommand::WithdrawLock { shared, name } => {
                self.with_locks(now, &shared, |locks, ring| locks.withdraw(ring, name));
            }
            NodeCommand::Unlock { shared, name, grant } => {
                self.with_locks(now, &shared, |locks, ring| locks.release(ring, name, grant));
            }
            NodeCommand::Subscribe { shared, topic, reply } => {
                if let Some(group) = self.groups.of_handle(&shared) {
                    reply.send_if_wanted(group.subscribe(topic));
                }
            }
            NodeCommand::Room { group } => {
                // The backlog is updated now, so that the ring speeds up again without waiting for
                // another message.
                let backlog = self.groups.get_mut(group).and_then(GroupRuntime::on_room);
                if let Some(backlog) = backlog {
                    self.on_backlog(now, group, backlog);
                }
            }
            NodeCommand::Status { reply } => reply.send_if_wanted(self.status()),
            #[cfg(test)]
            NodeCommand::Panic => {}
            NodeCommand::Close { reply } => self.close(now, reply),
        }
    }

    fn with_locks(
        &mut self,
        now: Time,
        shared: &Arc<GroupShared>,
        call: impl FnOnce(&mut LockTable, &mut Ring<'_>),
    ) {
        if let Some(group) = self.groups.of_handle(shared) {
            let mut ring = Ring { now, group: shared.id, engine: self.node.ordered_groups_mut() };
            call(&mut group.locks, &mut ring);
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    pub(crate) fn closed(&mut self, now: Time) -> Option<ReplySender<()>> {
        let is_leaving = self.node.is_leaving();
        let closing = self.closing.take_if(|it| !is_leaving || it.deadline <= now)?;
        self.node.shut_down(now);
        self.transmit(now);
        Some(closing.reply)
    }

    fn join(
        &mut self,
        now: Time,
        name: &str,
        profile: Profile,
        reply: ReplySender<Result<GroupParts, JoinGroupError>>,
    ) {
        match self.begin_join(now, name, profile) {
            Ok((group, parts)) => {
                self.joins.insert(now, group, parts, reply);
                self.dispatch_events(now);
                self.answer_callers(now);
            }
            Err(error) => {
                reply.send_if_wanted(Err(error));
                // A group that was being left may have been left in the meantime.
                self.dispatch_events(now);
            }
        }
    }

    fn begin_join(
        &mut self,
        now: Time,
        name: &str,
        profile: Profile,
    ) -> Result<(GroupId, GroupParts), JoinGroupError> {
        let (rejoin, is_voter) = (profile.rejoins(), profile.is_voter());
        let options = JoinOptions { rejoin, is_voter, ..JoinOptions::default() };
        let group = self.node.join_with(now, name, profile.settings(), options)?;
        // The address of a group that is still being left is already joined.
        let address = match self.groups.take_leaving(group) {
            Some(address) => address,
            None => self.network.listen_to(group),
        };
        let limits = PayloadLimits {
            message: self.node.payload_limit(group).unwrap_or(0),
            unreliable: self.node.engines().ordered.unreliable_limit(),
        };
        let shared = GroupShared::new(name, group, profile, limits);
        shared.set_members(self.node.members(group));
        let (joined, parts) = GroupRuntime::new(shared, address, self.queue_events);
        self.groups.insert(joined);
        Ok((group, parts))
    }

    /// Leaves the group of `handle`. A handle whose join was refused later must not end another
    /// membership in the same group.
    pub(super) fn leave(&mut self, now: Time, handle: &Arc<GroupShared>) {
        if self.groups.of_handle(handle).is_some() {
            self.leave_group(now, handle.id);
        }
    }

    pub(super) fn leave_group(&mut self, now: Time, group: GroupId) {
        if let Some(group) = self.groups.get_mut(group) {
            group.publish_rest(&mut self.node, now);
        }
        self.transmit(now);
        self.node.leave(now, group);
        self.close_group(group);
        self.dispatch_events(now);
    }

    pub(super) fn close_group(&mut self, group: GroupId) {
        self.network.forget_views();
        // The queues of the group close at the end of this function, after all callers have their
        // replies.
        let Some(_closed) = self.groups.remove(group) else { return };
        if let Some(join) = self.joins.remove(group) {
            // The caller receives a group whose queues are closed and contain the reason.
            let _ = join.succeed();
        }
        self.confirms.close(group);
    }

    fn close(&mut self, now: Time, reply: ReplySender<()>) {
        let groups: Vec<GroupId> = self.groups.iter().map(GroupRuntime::id).collect();
        for group in groups {
            self.leave_group(now, group);
        }
        self.transmit(now);
        self.closing = Some(Closing { deadline: now + CLOSE_WAIT, reply });
    }

    fn status(&self) -> Status {
        let nodes = self.node.membership().nodes();
        let mut members: Vec<MemberStatus> = nodes
            .into_iter()
            .map(|(node, endpoint)| MemberStatus {
                node,
                endpoint: endpoint.0,
                path: self.network.path(node),
                path_mtu: self.network.path_mtu_to(node),
            })
            .collect();
        members.sort_unstable_by_key(|it| it.node);
        let rings = &self.node.engines().ordered;
        let ring_of = |group: GroupId| {
            let (view, token) = rings.view(group).zip(rings.token(group))?;
            Some(RingStatus { view: view.clone(), token, is_working: rings.is_working(group) })
        };
        let groups = self.groups.iter().map(|group| {
            let address = group.address.and_then(|address| self.network.group_endpoint(address));
            group.status(address, ring_of(group.id()))
        });
        Status {
            settled: self.state.is_settled(),
            is_away: self.state.is_away(),
            path_mtu: self.network.path_mtu(),
            members,
            groups: groups.collect(),
            stats: self.stats(),
            ..self.state.first_status()
        }
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats {
            lateral: self.node.engines().lateral.counters(),
            ordered: self.node.engines().ordered.counters(),
            bulk: self.node.engines().bulk.counters(),
            guest: self.node.engines().guest.as_ref().map_or_else(Vec::new, |guest| guest.stats()),
            node: self.node.counters(),
            net: NetCounters::default(),
        };
        stats.net.queue_dropped = self.groups.dropped_events();
        stats.net.publish_dropped = self.groups.unsent();
        self.network.count(&mut stats);
        stats
    }
}

const CLOSE_WAIT: Duration = Duration::from_secs(3);
