//! Connected peers: hellos, frames, leases and ends.

use core::time::Duration;

use super::super::frame::{
    Frame, FrameError, Hello, JoinRefusal, Refusal, Role, UnknownSettings, Unserved, VERSION,
};
use super::super::frame::{Member, Welcome, millis};
use super::ledger::{Origin, Request, Wish};
use super::sessions::{Peer, Session, Standing};
use super::{Server, Timer};
use crate::membership::link::LinkId;
use crate::{GroupId, GroupSettings, NodeId, Time};

impl Server {
    /// Processes received bytes frame by frame, until the connection ends.
    pub(super) fn on_bytes(&mut self, now: Time, link: LinkId, bytes: &[u8]) {
        let Some(peer) = self.sessions.links.get_mut(&link) else { return };
        peer.reader.push(bytes);
        self.counters.bytes_received += bytes.len() as u64;
        if self.sessions.hear(link, now) {
            let grace = now + self.config.adoption_time.max(self.config.detection_time);
            self.sessions.grant(grace);
        }
        while let Some(peer) = self.sessions.links.get_mut(&link) {
            match peer.reader.next_frame() {
                Ok(Some(frame)) => self.on_frame(now, link, frame),
                Ok(None) => break,
                Err(FrameError::Version { given }) => {
                    self.refuse(link, Refusal::Version { ours: VERSION, theirs: given });
                }
                Err(FrameError::Settings(UnknownSettings::Join { request, group })) => {
                    self.on_unknown_join(link, request, group);
                }
                Err(_) => self.on_nonsense(link),
            }
        }
    }

    fn on_frame(&mut self, now: Time, link: LinkId, frame: Frame) {
        self.counters.frames_received += 1;
        let Some(peer) = self.sessions.links.get(&link) else { return };
        match (peer.standing, frame) {
            (Standing::New, Frame::Hello(hello)) => self.on_hello(now, link, hello),
            (Standing::Node(_), Frame::Join { request, group, settings }) => {
                self.on_join(link, request, group, settings);
            }
            (Standing::Node(_), Frame::Leave { request, group }) => {
                self.on_leave(link, request, group);
            }
            (Standing::Node(_), Frame::Resync { group, have }) => self.on_resync(link, group, have),
            (Standing::Node(_), Frame::Manage(request)) => self.on_manage(now, link, &request),
            (Standing::Observer, Frame::Observe { group }) => self.on_observe(link, group),
            (Standing::Observer, Frame::Goodbye) => self.end_link(link),
            (Standing::Node(_) | Standing::Detector(_) | Standing::Observer, Frame::Alive) => {
                self.outbox.send(link, &Frame::Alive);
            }
            (Standing::Node(node), Frame::Goodbye) => self.on_goodbye(link, node),
            (Standing::Detector(node), Frame::Goodbye) => {
                self.sessions.detectors.remove(&node);
                self.end_link(link);
                self.arrange_watch();
            }
            (
                Standing::Node(_) | Standing::Detector(_),
                Frame::Report { node, incarnation, silent_ms },
            ) => self.on_report(now, node, incarnation, silent_ms),
            _ => self.on_nonsense(link),
        }
    }

    fn on_nonsense(&mut self, link: LinkId) {
        self.counters.links_nonsense += 1;
        self.outbox.send(link, &Frame::Refused(Refusal::Nonsense));
        self.end_link(link);
    }

    pub(super) fn refuse(&mut self, link: LinkId, why: Refusal) {
        tracing::debug!(%link, %why, "connection refused");
        self.counters.links_refused += 1;
        self.outbox.send(link, &Frame::Refused(why));
        self.end_link(link);
    }

    /// Closes the connection after its pending data. Its session continues for its lease.
    pub(super) fn end_link(&mut self, link: LinkId) {
        self.forget_link(link);
        self.outbox.close(link);
    }

    /// Removes a connection, without closing it.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.timers.cancel(Timer::Greet(link));
        self.timers.cancel(Timer::Observer(link));
        let Some(peer) = self.sessions.remove_link(link) else { return };
        if let Standing::Detector(_) = peer.standing {
            // Without a connection it watches no nodes for this process.
            self.arrange_watch();
        }
        if let Standing::Node(node) = peer.standing {
            self.forget_managed(node);
        }
        peer.groups.iter().for_each(|group| self.audience.remove(link, *group));
        if peer.open_requests > 0 {
            self.ledgers.iter_mut().for_each(|ledger| ledger.forget_link(link));
        }
    }

    fn on_hello(&mut self, now: Time, link: LinkId, hello: Hello) {
        if hello.cluster != self.config.cluster {
            let ours = self.config.cluster.clone();
            return self.refuse(link, Refusal::Cluster { ours });
        }
        let Some(peer) = self.sessions.links.get_mut(&link) else { return };
        let mut member = hello.member;
        if member.endpoint.0.ip().is_unspecified() {
            member.endpoint.0.set_ip(peer.from.0.ip());
        }
        self.timers.cancel(Timer::Greet(link));
        self.sessions.new_links.remove(&link);
        let welcome = Welcome {
            process: self.process,
            lease_ms: millis(self.config.detection_time),
            owners: self.owners.clone(),
        };
        match hello.role {
            Role::Node => {
                if let Some(over) = self.over(member) {
                    return self.expire_link_of(link, over);
                }
                self.outbox.send(link, &Frame::Welcome(welcome));
                self.open_session(now, link, member, hello.rack);
            }
            Role::Detector => {
                self.outbox.send(link, &Frame::Welcome(welcome));
                self.open_detector(now, link, member, hello.rack);
            }
            Role::Observer => {
                self.outbox.send(link, &Frame::Welcome(welcome));
                return self.open_observer(now, link);
            }
        }
        self.arrange_watch();
    }

    /// Returns the last incarnation of the node that has ended, if `member` is not later than it.
    ///
    /// `member` has ended if it was declared dead, if a later incarnation is known, or if the node
    /// was started again, so that the new start must continue with the next incarnation.
    fn over(&self, member: Member) -> Option<u32> {
        let known = self.sessions.nodes.get(&member.node).map(|it| it.member);
        let other = known.filter(|known| member.is_over(known));
        let later = other.map(|other| other.incarnation);
        let over = self.expired.get(&member.node).copied();
        later.max(over.filter(|over| *over >= member.incarnation))
    }

    fn open_session(&mut self, now: Time, link: LinkId, member: Member, rack: String) {
        self.counters.sessions_opened += 1;
        let node = member.node;
        let session = Session { member, rack, link: Some(link), heard: now, grace: now };
        let old = self.sessions.nodes.insert(node, session);
        if let Some(old_link) = old.as_ref().and_then(|session| session.link) {
            self.counters.sessions_replaced += 1;
            self.end_link_of_replaced(old_link);
        }
        if let Some(peer) = self.sessions.links.get_mut(&link) {
            peer.standing = Standing::Node(node);
        }
        let earlier = old.filter(|old| old.member.is_over(&member));
        if let Some(earlier) = earlier {
            self.wish_out(node, earlier.member.incarnation, true);
        }
        self.timers.set_no_later(Timer::Lease(node), now + self.config.detection_time);
    }

    fn end_link_of_replaced(&mut self, link: LinkId) {
        if let Some(peer) = self.sessions.links.get_mut(&link) {
            peer.standing = Standing::New;
        }
        self.end_link(link);
    }

    /// Starts a lease for a stored member, or removes the member if its session has ended.
    pub(super) fn hold_lease(&mut self, now: Time, group: GroupId, member: Member) {
        let Member { node, incarnation, start, .. } = member;
        let session = self.sessions.nodes.get(&node);
        let known = session.map(|session| (session.member, session.link));
        if known.is_some_and(|(known, _)| known.is_same_life(&member)) {
            return;
        }
        let has_later = known.is_some_and(|(known, _)| member.is_over(&known));
        if has_later || self.expired.get(&node).is_some_and(|over| *over >= incarnation) {
            // A later start of the node may have requested to join meanwhile.
            let start = Some(start);
            let wish = Wish::Part { node, incarnation, start, has_failed: true };
            return self.wish(Request { group, wish, origin: None });
        }
        if let Some((earlier, Some(link))) = known {
            self.expire_link_of(link, earlier.incarnation);
        }
        let grace = now + self.config.adoption_time.max(self.config.detection_time);
        let (rack, link, heard) = (String::new(), None, Time::ZERO);
        self.sessions.nodes.insert(node, Session { member, rack, link, heard, grace });
        self.timers.set(Timer::Lease(node), grace);
        if let Some((earlier, _)) = known.filter(|(known, _)| known.is_over(&member)) {
            self.wish_life_out(earlier);
        }
    }

    /// Removes an ended incarnation of a node from the groups in which it is stored. A process may
    /// have stopped before it stored an earlier request for this.
    fn wish_life_out(&mut self, over: Member) {
        let groups = self.memberships.get(&over.node).cloned().unwrap_or_default();
        for group in groups {
            let ledger = &self.ledgers[usize::from(self.partition(group))];
            let stored = ledger.state.member(group, over.node);
            if stored.is_some_and(|stored| stored.is_same_life(&over)) {
                let Member { node, incarnation, start, .. } = over;
                let start = Some(start);
                let wish = Wish::Part { node, incarnation, start, has_failed: true };
                self.wish(Request { group, wish, origin: None });
            }
        }
    }

    fn on_join(&mut self, link: LinkId, request: u32, group: GroupId, settings: GroupSettings) {
        self.counters.joins_received += 1;
        if !self.is_owned(self.partition(group)) {
            return self.send_elsewhere(link, request, group);
        }
        let Some(member) = self.sessions.member_on(link) else { return };
        let groups = self.memberships.get(&member.node).map_or(0, |groups| groups.len());
        if self.is_busy(link) {
            let why = JoinRefusal::Unserved(Unserved::Busy);
            return self.refuse_join(link, request, group, why);
        }
        let is_member = self.memberships.get(&member.node).is_some_and(|it| it.contains(&group));
        if groups >= self.config.max_groups_per_node && !is_member {
            let why = JoinRefusal::Unserved(Unserved::TooManyGroups);
            return self.refuse_join(link, request, group, why);
        }
        let (wish, origin) = (Wish::Join { settings, member }, Some(Origin { link, request }));
        self.wish(Request { group, wish, origin });
    }

    /// Refuses a join with settings of a later version. Other groups of the node are not affected.
    fn on_unknown_join(&mut self, link: LinkId, request: u32, group: GroupId) {
        self.counters.frames_received += 1;
        let is_of = |it: &Peer| matches!(it.standing, Standing::Node(_));
        if !self.sessions.links.get(&link).is_some_and(is_of) {
            return self.on_nonsense(link);
        }
        self.counters.joins_received += 1;
        match self.is_owned(self.partition(group)) {
            true => {
                let why = JoinRefusal::Unserved(Unserved::Settings);
                self.refuse_join(link, request, group, why);
            }
            false => self.send_elsewhere(link, request, group),
        }
    }

    fn on_leave(&mut self, link: LinkId, request: u32, group: GroupId) {
        self.counters.leaves_received += 1;
        if !self.is_owned(self.partition(group)) {
            return self.send_elsewhere(link, request, group);
        }
        let Some(Member { node, incarnation, .. }) = self.sessions.member_on(link) else { return };
        if self.is_busy(link) {
            // A leave cannot be refused, and a correct node stays far below this limit.
            return self.on_nonsense(link);
        }
        let wish = Wish::Part { node, incarnation, start: None, has_failed: false };
        self.wish(Request { group, wish, origin: Some(Origin { link, request }) });
    }

    fn on_resync(&mut self, link: LinkId, group: GroupId, have: u64) {
        self.counters.resyncs_received += 1;
        let partition = self.partition(group);
        if !self.is_owned(partition) {
            return self.send_elsewhere(link, 0, group);
        }
        let Some(asking) = self.sessions.member_on(link) else { return };
        let ledger = &self.ledgers[usize::from(partition)];
        let known = ledger.state.member(group, asking.node);
        let state = ledger.state.group(group);
        let (Some(known), Some(state)) = (known, state) else { return self.expire_link(link) };
        if !known.is_same_life(&asking) {
            return self.expire_link(link);
        }
        if let Some(peer) = self.sessions.links.get_mut(&link) {
            peer.groups.insert(group);
        }
        let (outbox, node) = (&mut self.outbox, asking.node);
        let is_unchanged = self.audience.resync(outbox, link, node, (group, have), state);
        self.counters.resyncs_unchanged += u64::from(is_unchanged);
    }

    fn is_busy(&self, link: LinkId) -> bool {
        let open = self.sessions.links.get(&link).map_or(0, |peer| peer.open_requests);
        open >= self.config.max_requests_per_link
    }

    pub(super) fn send_elsewhere(&mut self, link: LinkId, request: u32, group: GroupId) {
        self.counters.requests_elsewhere += 1;
        self.outbox.send(link, &Frame::Elsewhere { request, group });
    }

    /// Removes a node that stops from all its groups.
    fn on_goodbye(&mut self, link: LinkId, node: NodeId) {
        self.counters.sessions_ended += 1;
        self.end_link(link);
        self.timers.cancel(Timer::Lease(node));
        if let Some(session) = self.sessions.nodes.remove(&node) {
            self.wish_out(node, session.member.incarnation, false);
        }
        self.arrange_watch();
    }

    /// Postpones the ends of all leases if this process was stalled.
    ///
    /// A call that comes much later than requested shows a stall, and data that nodes sent
    /// meanwhile is still unread. The stall does not count for any lease, nor does the time until
    /// the next sign of life of a node.
    pub(super) fn mind_stall(&mut self, now: Time) {
        let lease = self.config.detection_time;
        let late = self.timers.next_due().map_or(Duration::ZERO, |due| now.since(due));
        if late > lease / 6 {
            tracing::warn!(late_ms = late.as_millis() as u64, "the service was stalled");
            self.counters.stalls += 1;
            self.sessions.put_off_ends(now, lease, late + lease / 3);
        }
    }

    /// Processes the end of a node's lease, unless it was extended.
    pub(super) fn on_lease(&mut self, now: Time, node: NodeId) {
        let Some(session) = self.sessions.nodes.get(&node) else { return };
        let end = session.grace.max(session.heard + self.config.detection_time);
        if end > now {
            self.timers.set(Timer::Lease(node), end);
        } else if self.is_cut_off(now) {
            self.timers.set(Timer::Lease(node), now + self.config.detection_time / 3);
        } else {
            self.expire(node);
            self.arrange_watch();
        }
    }

    /// Returns `true` if this process appears to be disconnected, rather than its nodes being dead.
    ///
    /// Several nodes are connected, and none was heard for half a lease, in which each would have
    /// sent a sign of life. No node is declared dead until one is heard again.
    fn is_cut_off(&mut self, now: Time) -> bool {
        let peers = self.sessions.links.values();
        let linked = peers.filter(|peer| matches!(peer.standing, Standing::Node(_))).take(2);
        let is_silent = now.since(self.sessions.last_heard) * 2 >= self.config.detection_time;
        let is_cut_off = is_silent && linked.count() == 2;
        if is_cut_off && !self.sessions.is_cut_off {
            tracing::warn!("received nothing from any node: this process may be disconnected");
            self.counters.times_cut_off += 1;
            self.sessions.is_cut_off = true;
        }
        is_cut_off
    }

    /// Declares the node dead: removes it from all groups, and notifies it if it is connected.
    pub(super) fn expire(&mut self, node: NodeId) {
        let Some(session) = self.sessions.nodes.get(&node) else { return };
        let (incarnation, link) = (session.member.incarnation, session.link);
        tracing::info!(%node, incarnation, "the lease of a node has expired");
        self.counters.sessions_expired += 1;
        if let Some(link) = link {
            self.outbox.send(link, &Frame::Expired { incarnation });
            self.end_link(link);
        }
        self.timers.cancel(Timer::Lease(node));
        self.sessions.nodes.remove(&node);
        self.wish_out(node, incarnation, true);
    }

    /// Declares the node of this connection dead, because another process has removed it.
    pub(super) fn expire_link(&mut self, link: LinkId) {
        if let Some(member) = self.sessions.member_on(link) {
            self.expire(member.node);
        }
    }

    fn expire_link_of(&mut self, link: LinkId, incarnation: u32) {
        self.outbox.send(link, &Frame::Expired { incarnation });
        self.end_link(link);
    }

    /// Requests the removal of the node, in this or an earlier incarnation, from all its groups.
    fn wish_out(&mut self, node: NodeId, incarnation: u32, has_failed: bool) {
        let mut groups = self.memberships.get(&node).cloned().unwrap_or_default();
        if has_failed && !groups.is_empty() {
            // A removal is not requested twice, since the store may fail for a long time.
            let wished = self.expired.get(&node).copied();
            self.expired.insert(node, wished.unwrap_or(0).max(incarnation));
            if let Some(wished) = wished {
                groups.retain(|group| {
                    let ledger = &self.ledgers[usize::from(self.partition(*group))];
                    let member = ledger.state.member(*group, node);
                    member.is_none_or(|it| it.incarnation > wished)
                });
            }
        }
        let wish = Wish::Part { node, incarnation, start: None, has_failed };
        for group in groups {
            self.wish(Request { group, wish, origin: None });
        }
    }
}
