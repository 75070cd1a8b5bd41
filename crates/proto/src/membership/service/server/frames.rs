use alloc::collections::BTreeMap;
use core::time::Duration;

use super::Server;
use super::commit::{Answer, Origin, Outcome, Request, RequestedChange};
use super::connections::Peer;
use super::context::Timer;
use super::observers::is_among;
use crate::membership::link::LinkId;
use crate::membership::service::partition_state::Change;
use crate::membership::service::protocol::frame::{
    ChangeKind, Frame, FrameError, Hello, JoinRefusal, MANAGER_PARTITION, MemberChange, Refusal,
    Role, UnknownSettings, Unserved, VERSION, Welcome, millis,
};
use crate::{GroupId, GroupSettings, NodeId};

impl Server {
    pub(super) fn on_bytes(&mut self, link: LinkId, bytes: &[u8]) {
        let Some(peer) = self.connections.peer(link) else { return };
        self.connections.push(link, bytes);
        self.cx.counters.bytes_received += bytes.len() as u64;
        self.sessions.hear(&self.cx, peer);
        self.observers.hear(self.cx.now, link);
        while let Some(peer) = self.connections.peer(link) {
            match self.connections.next_frame(link) {
                Ok(Some(frame)) => self.on_frame(link, peer, frame),
                Ok(None) => break,
                Err(FrameError::Version { given }) => {
                    self.refuse(link, Refusal::Version { ours: VERSION, theirs: given });
                }
                Err(FrameError::Settings(UnknownSettings::Join { request, group })) => {
                    self.cx.counters.frames_received += 1;
                    match peer {
                        // Settings of a later version. The node's other groups remain usable.
                        Peer::Node(node) => {
                            self.on_join(Origin { link, request }, node, group, None);
                        }
                        _ => self.refuse(link, Refusal::Nonsense),
                    }
                }
                Err(_) => self.refuse(link, Refusal::Nonsense),
            }
        }
    }

    fn on_frame(&mut self, link: LinkId, peer: Peer, frame: Frame) {
        self.cx.counters.frames_received += 1;
        match (peer, frame) {
            (Peer::Unknown, Frame::Hello(hello)) => self.on_hello(link, hello),
            (Peer::Node(node), Frame::Join { request, group, settings }) => {
                self.on_join(Origin { link, request }, node, group, Some(settings));
            }
            (Peer::Node(node), Frame::Leave { request, group }) => {
                self.on_leave(Origin { link, request }, node, group);
            }
            (Peer::Node(node), Frame::Resync { group, have }) => {
                self.on_resync(link, node, group, have);
            }
            (Peer::Node(node), Frame::Manage(request)) => {
                let here = self.partitions.is_owned(MANAGER_PARTITION);
                if let Some(member) = self.sessions.member(node) {
                    let Self { cx, sessions, manager, .. } = self;
                    manager.on_request(cx, sessions, here, (link, member), &request);
                }
            }
            (Peer::Observer, Frame::Observe { group }) => self.on_observe(link, group),
            (Peer::Node(_) | Peer::Detector(_) | Peer::Observer, Frame::Alive) => {
                self.cx.outbox.send(link, &Frame::Alive);
            }
            (peer, Frame::Goodbye) if peer != Peer::Unknown => self.on_goodbye(link, peer),
            (Peer::Node(_) | Peer::Detector(_), Frame::Report { node, incarnation, silent_ms }) => {
                self.on_report(node, incarnation, silent_ms)
            }
            _ => self.refuse(link, Refusal::Nonsense),
        }
    }

    fn on_hello(&mut self, link: LinkId, hello: Hello) {
        if hello.cluster != self.cx.config.cluster {
            let ours = self.cx.config.cluster.clone();
            return self.refuse(link, Refusal::Cluster { ours });
        }
        let Some(from) = self.connections.source(link) else { return };
        let Hello { role, mut member, rack, .. } = hello;
        if member.endpoint.0.ip().is_unspecified() {
            member.endpoint.0.set_ip(from.0.ip());
        }
        let node = member.node;
        if role == Role::Node {
            // The incarnation has ended if it was declared dead, if a later one is known, or if the
            // process was started again. A new start comes back as the next incarnation.
            let later = self.sessions.member(node).filter(|known| member.is_over(known));
            let expired = self.partitions.expired(node).filter(|it| *it >= member.incarnation);
            if let Some(over) = expired.max(later.map(|later| later.incarnation)) {
                return self.expire_link(link, over);
            }
        }
        self.cx.timers.cancel(Timer::Greet(link));
        let welcome = Welcome {
            process: self.process,
            lease_ms: millis(self.cx.config.detection_time),
            owners: self.owners.clone(),
        };
        self.cx.outbox.send(link, &Frame::Welcome(welcome));
        let peer = match role {
            Role::Node => {
                self.cx.counters.sessions_opened += 1;
                Peer::Node(node)
            }
            Role::Detector => {
                self.racks.forget(node);
                Peer::Detector(node)
            }
            Role::Observer => {
                self.connections.identify(link, Peer::Observer);
                return self.observers.open(&mut self.cx, link);
            }
        };
        let former = self.sessions.open(&mut self.cx, (link, peer), (member, rack));
        if let Some(old_link) = former.as_ref().and_then(|former| former.link) {
            self.cx.counters.sessions_replaced += u64::from(role == Role::Node);
            // The session continues on the new connection and must not end with the old one.
            self.connections.identify(old_link, Peer::Unknown);
            self.close(old_link);
        }
        self.connections.identify(link, peer);
        if let Some(former) = former.filter(|it| role == Role::Node && it.member.is_over(&member)) {
            self.partitions.remove_node(node, former.member.incarnation, true);
        }
        self.racks.arrange(&mut self.cx, &self.sessions);
    }

    fn on_join(
        &mut self,
        origin: Origin,
        node: NodeId,
        group: GroupId,
        settings: Option<GroupSettings>,
    ) {
        let Self { cx, partitions, connections, .. } = self;
        cx.counters.joins_received += 1;
        if !partitions.owns(group) {
            return cx.send_elsewhere(origin, group);
        }
        let is_full = partitions.groups_of(node) >= cx.config.max_groups_per_node;
        let unserved = match settings {
            None => Some(Unserved::Settings),
            Some(_) if connections.is_busy(&cx.config, origin.link) => Some(Unserved::Busy),
            Some(_) if is_full && !partitions.is_member(group, node) => {
                Some(Unserved::TooManyGroups)
            }
            Some(_) => None,
        };
        if let Some(why) = unserved {
            return cx.refuse_join(origin, group, JoinRefusal::Unserved(why));
        }
        if let (Some(member), Some(settings)) = (self.sessions.member(node), settings) {
            let change = RequestedChange::Join { settings, member };
            connections.note_request(origin.link);
            partitions.request(Request { group, change, origin: Some(origin) });
        }
    }

    fn on_leave(&mut self, origin: Origin, node: NodeId, group: GroupId) {
        self.cx.counters.leaves_received += 1;
        if !self.partitions.owns(group) {
            return self.cx.send_elsewhere(origin, group);
        }
        if self.connections.is_busy(&self.cx.config, origin.link) {
            // A leave cannot be refused, and a correct node stays far below this limit.
            return self.refuse(origin.link, Refusal::Nonsense);
        }
        if let Some(member) = self.sessions.member(node) {
            self.connections.note_request(origin.link);
            let removal = Request::removal(group, node, member.incarnation, false);
            self.partitions.request(Request { origin: Some(origin), ..removal });
        }
    }

    fn on_resync(&mut self, link: LinkId, node: NodeId, group: GroupId, have: u64) {
        let Self { cx, partitions, subscribers, .. } = self;
        cx.counters.resyncs_received += 1;
        if !partitions.owns(group) {
            return cx.send_elsewhere(Origin { link, request: 0 }, group);
        }
        let Some(member) = self.sessions.member(node) else { return };
        let known = partitions.member(group, node).filter(|known| known.is_same_life(&member));
        let state = partitions.group(group).filter(|_| known.is_some());
        // Another process has removed the node.
        let Some(state) = state else { return self.expire(node) };
        let is_unchanged = subscribers.resync(&mut cx.outbox, link, node, (group, have), state);
        cx.counters.resyncs_unchanged += u64::from(is_unchanged);
    }

    fn on_observe(&mut self, link: LinkId, group: GroupId) {
        self.observers.want(link, group);
        self.subscribers.remove_link(link);
        for partition in 0..self.cx.config.partitions {
            self.show_partition(partition, link, group);
        }
    }

    /// Sends the wanted groups of the partition, if it is owned, followed by an end mark.
    pub(super) fn show_partition(&mut self, partition: u16, link: LinkId, wants: GroupId) {
        let Self { cx, partitions, subscribers, .. } = self;
        let is_concerned = wants == GroupId::NONE || partitions.partition_of(wants) == partition;
        if !is_concerned || !partitions.is_owned(partition) {
            return;
        }
        let groups = partitions.state(partition).into_iter().flat_map(|state| state.groups());
        for (group, state) in groups.filter(|(group, _)| is_among(**group, wants)) {
            subscribers.show(&mut cx.outbox, link, None, (*group, state));
        }
        cx.outbox.send(link, &Frame::Observed { partition });
    }

    /// Declares a node or detector dead if it was not heard in the second half of its silence.
    fn on_report(&mut self, node: NodeId, incarnation: u32, silent_ms: u32) {
        self.cx.counters.reports_received += 1;
        let silent = Duration::from_millis(silent_ms.into());
        match self.sessions.silent(self.cx.now, node, incarnation, silent) {
            Some(peer) => self.declare_dead(peer),
            None => self.cx.counters.reports_contradicted += 1,
        }
    }

    fn on_goodbye(&mut self, link: LinkId, peer: Peer) {
        if let Peer::Detector(_) = peer {
            self.sessions.end(&mut self.cx, peer);
        }
        self.close(link);
        if let Peer::Node(node) = peer {
            self.cx.counters.sessions_ended += 1;
            if let Some(session) = self.sessions.end(&mut self.cx, peer) {
                self.partitions.remove_node(node, session.member.incarnation, false);
            }
        }
        if peer != Peer::Observer {
            self.racks.arrange(&mut self.cx, &self.sessions);
        }
    }

    pub(super) fn publish(&mut self, changes: &[Change]) {
        let mut by_group: BTreeMap<GroupId, Vec<MemberChange>> = BTreeMap::new();
        for change in changes {
            let (kind, member) = (change.kind(), change.member());
            by_group.entry(change.group()).or_default().push(MemberChange { kind, member });
        }
        let Self { cx, sessions, observers, partitions, subscribers, .. } = self;
        for (group, changes) in by_group {
            for change in changes.iter().filter(|change| change.kind != ChangeKind::Joined) {
                if let Some(link) = sessions.link(change.member.node) {
                    subscribers.remove(link, group);
                }
            }
            if let Some(state) = partitions.group(group) {
                let (version, members) = (state.version, &state.members);
                subscribers.update(&mut cx.outbox, group, version, members, &changes);
                for (link, wants) in observers.requests() {
                    if is_among(group, wants) && !subscribers.is_subscribed(link, group) {
                        subscribers.show(&mut cx.outbox, link, None, (group, state));
                    }
                }
            } else {
                // Only observers can still be subscribed. If the group comes back, it is a new one.
                let (version, members) = (partitions.version(group), BTreeMap::new());
                subscribers.update(&mut cx.outbox, group, version, &members, &changes);
                subscribers.remove_group(group);
            }
        }
        for change in changes {
            if let Change::Join { group, member, .. } = *change {
                self.hold_lease(group, member);
            }
        }
    }

    pub(super) fn answer(&mut self, Answer { request, outcome }: Answer) {
        let Request { group, change, origin } = request;
        let Some(origin) = origin else { return };
        let Origin { link, request } = origin;
        if !self.connections.note_answer(link) {
            return;
        }
        match (change, outcome) {
            (RequestedChange::Join { member, .. }, Outcome::Done) => {
                let state = self.partitions.group(group);
                let Some(state) = state.filter(|it| it.members.contains_key(&member.node)) else {
                    return;
                };
                let version = state.version;
                self.cx.outbox.send(link, &Frame::Joined { request, group, version });
                let viewer = Some(member.node);
                self.subscribers.show(&mut self.cx.outbox, link, viewer, (group, state));
            }
            (RequestedChange::Part { .. }, Outcome::Done) => {
                self.subscribers.remove(link, group);
                self.cx.outbox.send(link, &Frame::Left { request, group });
            }
            (_, Outcome::Refused(why)) => self.cx.refuse_join(origin, group, why),
            (_, Outcome::Outdated) => {
                if let Some(Peer::Node(node)) = self.connections.peer(link) {
                    self.expire(node);
                }
            }
        }
    }
}
