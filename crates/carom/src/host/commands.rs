//! Commands of the handles to one node.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_channel::Sender;
use bytes::Bytes;
use carom_proto::rmp::{JoinOptions, LookOptions, RequestOptions};
use carom_proto::{GroupId, Time};

use super::{Closing, Host, State};
use crate::call::Caller;
use crate::command::NodeCommand;
use crate::error::{JoinGroupError, NotSafe};
use crate::group::{GroupParts, GroupShared, PayloadLimits};
use crate::hosted_group::HostedGroup;
use crate::lock::{Locks, Ring};
use crate::look::Looker;
use crate::network::Network;
use crate::pending_joins::{JOIN_WAIT, Joiner, PendingJoin, SEED_WAIT, SERVICE_WAIT};
use crate::profile::Profile;
use crate::status::{GroupStatus, MemberStatus, RingStatus, Stats, Status};
use crate::waiting::{CLOSE_WAIT, PendingConfirm};

impl<N: Network> Host<N> {
    /// Executes a command of a handle.
    pub(crate) fn command(&mut self, now: Time, command: NodeCommand) {
        self.state.is_called = true;
        match command {
            NodeCommand::Join { name, profile, reply } => self.seek(now, &name, profile, reply),
            NodeCommand::Leave { shared } => self.leave(now, &shared),
            NodeCommand::Confirm { shared, message, timeout, reply } => {
                if let Some(hosted) = self.state.hosted(&shared) {
                    let (covered, deadline) = (hosted.covered(message), now + timeout);
                    let (group, up_to) = (shared.id, None);
                    let confirm = PendingConfirm { group, covered, up_to, deadline, reply };
                    self.state.confirms.push(confirm);
                }
            }
            NodeCommand::Request { group, shared, payload, options, reply } => {
                if shared.is_none_or(|shared| self.state.hosted(&shared).is_some()) {
                    self.request(now, group, payload, options, reply);
                }
            }
            NodeCommand::Reply { shared, request, payload, reply } => {
                if self.state.hosted(&shared).is_some() {
                    let group = shared.id;
                    let replied = self.node.ordered_mut().reply(now, group, request, payload);
                    let _ = reply.try_send(replied);
                }
            }
            NodeCommand::Look { group, options, reply } => self.look(now, group, options, reply),
            NodeCommand::ForceQuorum { group, epoch, lost } => {
                self.node.ordered_mut().force_quorum(now, group, epoch, lost);
            }
            NodeCommand::Lock { shared, name, waits, reply } => {
                self.with_locks(now, &shared, |locks, ring| locks.ask(ring, name, waits, reply));
            }
            NodeCommand::GiveUpLock { shared, name } => {
                self.with_locks(now, &shared, |locks, ring| locks.give_up(ring, name));
            }
            NodeCommand::Unlock { shared, name, grant } => {
                self.with_locks(now, &shared, |locks, ring| locks.give_back(ring, name, grant));
            }
            NodeCommand::Room { group } => {
                if let Some(hosted) = self.state.groups.get_mut(&group) {
                    hosted.delivery.flush();
                    hosted.hand_over();
                    // Updates the backlog now, so that the ring need not wait for another message
                    // to regain its speed.
                    if let Some(backlog) = hosted.changed_backlog() {
                        self.on_backlog(now, group, backlog);
                    }
                }
            }
            NodeCommand::Status { reply } => {
                let _ = reply.try_send(self.status());
            }
            #[cfg(test)]
            NodeCommand::Panic => {}
            NodeCommand::Close { reply } => self.close(now, reply),
        }
    }

    fn request(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: RequestOptions,
        reply: Caller,
    ) {
        match self.node.ordered_mut().request(now, group, payload, options) {
            Ok(id) => {
                self.state.calls.insert((group, id.number), reply);
            }
            Err(error) => {
                let _ = reply.try_send(Err(error.into()));
            }
        }
    }

    fn look(&mut self, now: Time, group: GroupId, options: LookOptions, reply: Looker) {
        match self.node.ordered_mut().look(now, group, options) {
            Ok(id) => {
                self.state.looks.insert(id, reply);
                // A ring of this node is reported without a query.
                self.tell_looked();
            }
            Err(error) => {
                let _ = reply.try_send(Err(error.into()));
            }
        }
    }

    /// Calls the locks of this handle's group, if it is still the handle in use.
    fn with_locks(
        &mut self,
        now: Time,
        shared: &Arc<GroupShared>,
        call: impl FnOnce(&mut Locks, &mut Ring<'_>),
    ) {
        if let Some(hosted) = self.state.hosted(shared) {
            let mut ring = Ring { now, group: shared.id, engine: self.node.ordered_mut() };
            call(&mut hosted.locks, &mut ring);
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.state.closing.is_some()
    }

    /// Shuts the node down if it has left its groups, or has run out of time. Returns the sender to
    /// notify once the node is gone.
    pub(crate) fn closed(&mut self, now: Time) -> Option<Sender<()>> {
        let is_leaving = self.node.is_leaving();
        let closing = self.state.closing.take_if(|it| !is_leaving || it.deadline <= now)?;
        self.node.shut_down(now);
        self.transmit(now);
        Some(closing.reply)
    }

    /// Joins a group. The reply is sent once the members are known, or when the wait is over.
    fn seek(&mut self, now: Time, name: &str, profile: Profile, reply: Joiner) {
        match self.join(now, name, profile) {
            Ok((group, parts)) => {
                let wait = match (self.controls.is_empty(), self.seeds.is_empty()) {
                    (false, _) => SERVICE_WAIT,
                    (true, false) => SEED_WAIT,
                    (true, true) => JOIN_WAIT,
                };
                let deadline = now + wait;
                self.state.joins.insert(PendingJoin { group, parts, deadline, reply });
                self.take_events(now);
                self.answer_those_who_wait(now);
            }
            Err(error) => {
                let _ = reply.try_send(Err(error));
                // A group that was still being left may be out by now.
                self.take_events(now);
            }
        }
    }

    fn join(
        &mut self,
        now: Time,
        name: &str,
        profile: Profile,
    ) -> Result<(GroupId, GroupParts), JoinGroupError> {
        let (rejoin, is_voter) = (profile.rejoins(), profile.is_voter());
        let options = JoinOptions { rejoin, is_voter, ..JoinOptions::default() };
        let group = self.node.join_with(now, name, profile.settings(), options)?;
        // The address of a group that is still being left is already received.
        let address = match self.state.leaving.remove(&group) {
            Some(address) => address,
            None => self.network.listen_to(group),
        };
        let limits = PayloadLimits {
            message: self.node.payload_limit(group).unwrap_or(0),
            unreliable: self.node.ordered().unreliable_limit(),
        };
        let shared = GroupShared::new(name, group, profile, limits);
        shared.set_members(self.members_of(group));
        let (hosted, parts) = HostedGroup::new(shared, address, self.queue_events);
        self.state.groups.insert(group, hosted);
        Ok((group, parts))
    }

    /// Leaves the group of this handle. A handle whose group was refused later may outlive it, and
    /// must not end another membership in the same group.
    pub(super) fn leave(&mut self, now: Time, handle: &Arc<GroupShared>) {
        if self.state.hosted(handle).is_some() {
            self.leave_group(now, handle.id);
        }
    }

    /// Sends what the engine still accepts, leaves, and closes the group's queues.
    pub(super) fn leave_group(&mut self, now: Time, group: GroupId) {
        if let Some(hosted) = self.state.groups.get_mut(&group) {
            hosted.publish_rest(&mut self.node, now);
        }
        self.transmit(now);
        self.node.leave(now, group);
        self.forget_group(group);
        self.take_events(now);
    }

    /// Closes the group's queues, which wakes their waiting callers.
    pub(super) fn forget_group(&mut self, group: GroupId) {
        self.network.forget_views();
        let Some(hosted) = self.state.groups.remove(&group) else { return };
        self.state.left.publish_dropped += hosted.unsent();
        self.state.left.queue_dropped += hosted.delivery.dropped();
        self.state.leaving.insert(group, hosted.address);
        if let Some(join) = self.state.joins.remove(group) {
            // The caller receives a group whose queues are closed and contain the reason.
            let _ = join.succeed();
        }
        let of_group = |it: &mut PendingConfirm| it.group == group;
        for confirm in self.state.confirms.extract_if(.., of_group) {
            confirm.fail(NotSafe::Closed);
        }
    }

    /// Leaves all groups. The node is gone once it is out of their rings.
    fn close(&mut self, now: Time, reply: Sender<()>) {
        let groups: Vec<GroupId> = self.state.groups.keys().copied().collect();
        for group in groups {
            self.leave_group(now, group);
        }
        self.transmit(now);
        self.state.closing = Some(Closing { deadline: now + CLOSE_WAIT, reply });
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
        Status {
            settled: self.settled.load(Ordering::SeqCst),
            is_away: self.away.load(Ordering::SeqCst),
            path_mtu: self.network.path_mtu(),
            members,
            groups: self.state.groups.values().map(|it| self.status_of(it)).collect(),
            stats: self.stats(),
            ..self.first_status.clone()
        }
    }

    fn status_of(&self, hosted: &HostedGroup) -> GroupStatus {
        let address = hosted.address.and_then(|address| self.network.group_endpoint(address));
        let group = hosted.id();
        let rings = self.node.ordered();
        let (ring, is_working) =
            (rings.view(group).zip(rings.token(group)), rings.is_working(group));
        let ring = ring.map(|(view, token)| RingStatus { view: view.clone(), token, is_working });
        hosted.status(address, ring)
    }

    fn stats(&self) -> Stats {
        let groups = self.state.groups.values();
        let queue_dropped: u64 = groups.clone().map(|it| it.delivery.dropped()).sum();
        let publish_dropped: u64 = groups.map(HostedGroup::dropped).sum();
        let mut stats = Stats {
            lateral: self.node.lateral().counters(),
            ordered: self.node.ordered().counters(),
            bulk: self.node.bulk().counters(),
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

impl State {
    /// Returns the group of this handle, if it is still the handle in use. After leaving and
    /// joining a group again, another handle is in use.
    fn hosted(&mut self, handle: &Arc<GroupShared>) -> Option<&mut HostedGroup> {
        let hosted = self.groups.get_mut(&handle.id);
        hosted.filter(|hosted| Arc::ptr_eq(&hosted.shared, handle))
    }
}
