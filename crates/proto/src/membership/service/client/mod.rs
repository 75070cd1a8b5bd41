//! A node's side of the protocol: the provider [`Service`].
//!
//! It keeps a connection to every registry process that owns a partition of its groups, and sends
//! its joins there, with many in flight at a time. It derives the node's views from snapshots and
//! updates. While the registry is unreachable, the views do not change. A node that was declared
//! dead, or whose address changed, comes back as a later incarnation without help from the
//! application.
//!
//! # Invariants
//!
//! - A group is requested on at most one connection at a time: the one to its partition's owner.
//! - A view changes only by a complete snapshot, or by an update that follows its version.
//! - A node is reported as met before it is in a view, and as parted after it has left its last
//!   view.

mod config;
mod context;
mod counters;
mod frames;
mod manager_connection;
mod owners;
mod requests;
mod views;

use alloc::collections::BTreeSet;

pub use self::config::ServiceConfig;
use self::context::{Context, Timer};
use self::manager_connection::ManagerConnection;
use self::owners::KnownOwners;
use self::requests::Requests;
use self::views::Views;
use super::connections::Due;
use super::pinger::Pinger;
use super::protocol::frame::{Frame, Member, Refusal};
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::membership::{ManagerNews, Membership, MembershipEvent, Phase, already_joined};
use crate::wire::Datagram;
use crate::{
    Class, Destination, Endpoint, GroupId, GroupSettings, JoinError, NodeId, Origin, Time, Timers,
    Transmit, Wakeup,
};

/// Membership of one node with a registry. The driver must support
/// [connections](crate::membership::link).
///
/// `join` never fails because of other members. A contradiction is reported later with
/// [`MembershipEvent::Refused`]. The node is not settled while a join has no answer.
#[derive(Debug)]
pub struct Service {
    cx: Context,
    owners: KnownOwners,
    requests: Requests,
    views: Views,
    pinger: Pinger,
    manager: ManagerConnection,
    phase: Phase,
    is_welcomed: bool,
    has_settled: bool,
    is_away: bool,
}

impl Service {
    /// Creates the membership of node `origin`, which other nodes reach at `endpoint`.
    ///
    /// If the address of `endpoint` is unspecified, other nodes use the source address of this
    /// node's connections. `seed` is the source of all randomness.
    ///
    /// # Panics
    /// Panics if `config` has no address, a name of more than 255 bytes, or a value of zero.
    pub fn new(
        origin: impl Into<Origin>,
        endpoint: Endpoint,
        config: ServiceConfig,
        seed: u64,
    ) -> Self {
        config.validate();
        let origin = origin.into();
        let (node, start) = (origin.node, origin.incarnation);
        let member = Member { node, incarnation: 0, start, endpoint };
        Self {
            cx: Context::new(config, member, seed),
            owners: KnownOwners::default(),
            requests: Requests::default(),
            views: Views::new(node),
            pinger: Pinger::new(origin),
            manager: ManagerConnection::default(),
            phase: Phase::New,
            is_welcomed: false,
            has_settled: false,
            is_away: false,
        }
    }

    /// Returns the incarnation, which grows when the node is declared dead or its address changes.
    pub fn incarnation(&self) -> u32 {
        self.cx.connections.member().incarnation
    }

    /// Returns `true` between [`MembershipEvent::Away`] and [`MembershipEvent::Returned`].
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Returns the reason for the registry's last refusal, or `None` if a welcome has followed it.
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.cx.connections.last_refusal.as_ref()
    }

    /// Returns the number of connections on which a welcome was received.
    pub fn links(&self) -> usize {
        self.cx.connections.addresses().filter(|(_, is_ready)| *is_ready).count()
    }

    fn begin(&mut self, now: Time) {
        self.cx.now = now;
        if self.phase == Phase::New {
            self.phase = Phase::Running;
            self.open_needed();
            self.cx.timers.set(Timer::Away, now + self.cx.config.away_after);
        }
    }

    /// Opens a connection to every known address if none is open. Otherwise, opens the missing
    /// connections to the owners of this node's groups and to the process that last named owners.
    fn open_needed(&mut self) {
        let Self { cx, owners, requests, .. } = self;
        let mut known: BTreeSet<Endpoint> = cx.config.addresses.iter().copied().collect();
        known.extend(owners.addresses());
        let partitions = requests.partitions(owners.followed());
        let is_linked = cx.connections.is_linked();
        cx.connections.open_wanted(cx.now, &known, |address| {
            !is_linked || owners.is_needed(address, &partitions)
        });
    }

    fn request(&mut self, group: GroupId) {
        let Some(owner) = self.owners.owner_of(group) else { return };
        if !self.requests.request(&mut self.cx, owner, group) {
            self.open_needed();
        }
    }

    fn drop_connection(&mut self, address: Endpoint) {
        if self.cx.connections.close(address) {
            self.on_closed(address);
        }
    }

    fn on_closed(&mut self, address: Endpoint) {
        let Some(closed) = self.cx.connections.on_closed(self.cx.now, address) else { return };
        self.cx.timers.cancel(Timer::Again(address));
        if closed.was_ready {
            self.requests.lose(address);
            self.owners.forget(address);
            self.follow_owners();
        }
        self.open_needed();
        self.watch_absence();
    }

    fn follow_owners(&mut self) {
        let Some(owners) = self.owners.follow() else { return };
        let needed = self.requests.follow(owners);
        self.open_needed();
        for owner in needed {
            self.requests.queue_all(&mut self.cx, &self.owners, owner);
        }
        self.watch_absence();
    }

    fn come_back(&mut self, member: Member) {
        self.requests.lose_all();
        self.owners.forget_all();
        for (address, _) in self.cx.connections.addresses() {
            self.cx.timers.cancel(Timer::Again(address));
        }
        self.cx.connections.set_member(member);
        self.cx.connections.restart(self.cx.now);
        self.watch_absence();
    }

    fn fire(&mut self) -> bool {
        let now = self.cx.now;
        let own = self.cx.timers.next_due();
        let is_link_first =
            self.cx.connections.next_due().is_some_and(|at| own.is_none_or(|own| at <= own));
        if !is_link_first {
            let Some(timer) = self.cx.timers.pop_due(now) else { return false };
            match timer {
                Timer::Again(address) => {
                    self.requests.queue_all(&mut self.cx, &self.owners, address);
                }
                Timer::Away => self.on_away_timer(),
            }
            return true;
        }
        let Some(due) = self.cx.connections.pop_due(now) else { return false };
        match due {
            Due::Retry(_) => self.open_needed(),
            Due::Drop(address) => self.drop_connection(address),
            Due::Nothing => {}
        }
        true
    }

    fn is_current(&self) -> bool {
        self.cx.connections.is_linked() && self.requests.are_current()
    }

    fn watch_absence(&mut self) {
        if self.phase == Phase::Running && !self.is_current() {
            self.cx.timers.set_no_later(Timer::Away, self.cx.now + self.cx.config.away_after);
        }
    }

    fn on_away_timer(&mut self) {
        if self.is_current() || self.is_away {
            return;
        }
        if self.cx.connections.is_linked() && !self.requests.are_pending() {
            // The requests were sent, and their answers are still in flight.
            return self.cx.timers.set(Timer::Away, self.cx.now + self.cx.config.away_after);
        }
        self.is_away = true;
        self.cx.counters.times_away += 1;
        self.cx.events.push_back(MembershipEvent::Away);
    }

    fn check_return(&mut self) {
        // While answers are pending, a later call decides.
        if self.phase != Phase::Running || self.requests.are_busy() {
            return;
        }
        if !self.has_settled && self.is_settled() {
            self.has_settled = true;
            self.cx.events.push_back(MembershipEvent::Settled);
        }
        if (self.is_away || self.cx.timers.is_set(Timer::Away)) && self.is_current() {
            self.cx.timers.cancel(Timer::Away);
            if core::mem::take(&mut self.is_away) {
                self.cx.events.push_back(MembershipEvent::Returned);
            }
        }
    }

    fn send_reports(&mut self) {
        while let Some(report) = self.pinger.reports.pop_front() {
            self.cx.connections.send_to_all(&report);
        }
    }

    fn manager_link(&self) -> Option<(Endpoint, LinkId)> {
        let address = self.owners.manager().filter(|_| self.phase == Phase::Running)?;
        Some((address, self.cx.connections.ready_link(address)?))
    }
}

impl Membership for Service {
    fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.begin(now);
        if let Some(existing) = self.requests.settings(group) {
            return Err(already_joined(existing, settings));
        }
        self.requests.add(group, settings);
        self.views.join(group);
        if self.phase == Phase::Running {
            self.request(group);
            self.watch_absence();
        }
        Ok(())
    }

    fn set_endpoint(&mut self, now: Time, endpoint: Endpoint) -> bool {
        self.begin(now);
        let member = self.cx.connections.member();
        if self.phase == Phase::Running && endpoint != member.endpoint {
            let incarnation = member.incarnation.saturating_add(1);
            self.come_back(Member { incarnation, endpoint, ..member });
        }
        self.phase == Phase::Running
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        self.begin(now);
        let Some(must_leave) = self.requests.leave(group) else { return };
        self.views.leave(&mut self.cx, group);
        if self.phase == Phase::Running {
            if must_leave {
                self.request(group);
            }
            self.check_return();
        }
    }

    fn shut_down(&mut self, _now: Time) {
        if self.phase != Phase::Stopped {
            self.phase = Phase::Stopped;
            self.cx.connections.shut_down();
            self.cx.timers = Timers::new();
        }
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &Datagram<'_>) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.begin(now);
        if !self.pinger.handle_datagram(now, source, datagram) {
            self.cx.counters.datagrams_malformed += 1;
        }
        self.send_reports();
    }

    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.cx.now = now;
        // An abandoned connection no longer has an address.
        let Some(address) = self.cx.connections.address_of(link) else { return };
        match event {
            LinkEvent::Opened => self.cx.connections.on_opened(address),
            LinkEvent::Received(bytes) => self.on_bytes(address, link, bytes),
            LinkEvent::Closed { why } => {
                tracing::debug!(%address, %why, "the connection has ended");
                self.cx.connections.forget(link);
                self.on_closed(address);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.begin(now);
        while self.fire() {}
        self.pinger.handle_timeout(now);
        self.send_reports();
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (to, datagram) = self.pinger.poll_datagram()?;
        out.extend_from_slice(&datagram);
        Some(Transmit { destination: Destination::Endpoint(to), class: Class::Control })
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        self.cx.connections.poll_link()
    }

    fn ask_manager(&mut self, request: Vec<u8>) {
        if let Some((address, _)) = self.manager_link() {
            self.cx.connections.send(address, &Frame::Manage(request));
        }
    }

    fn poll_manager(&mut self) -> Option<ManagerNews> {
        let reached = self.manager_link();
        self.manager.poll(reached)
    }

    fn poll_event(&mut self) -> Option<MembershipEvent> {
        self.cx.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let links = self.cx.connections.next_due();
        let own = links.into_iter().chain(self.cx.timers.next_due()).min();
        let own = own.map(|at| Wakeup { at, reason: "registry" });
        let ping = self.pinger.next_due().map(|at| Wakeup { at, reason: "ping the next node" });
        match self.phase {
            Phase::New => Some(Wakeup { at: Time::ZERO, reason: "first link" }),
            Phase::Running => Wakeup::earlier(own, ping),
            Phase::Stopped => None,
        }
    }

    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        self.views.nodes()
    }

    fn trouble(&self) -> Option<String> {
        self.last_refusal().map(ToString::to_string)
    }

    fn is_settled(&self) -> bool {
        self.is_welcomed && self.requests.have_joined()
    }

    fn has_joined(&self, group: GroupId) -> bool {
        self.requests.has_joined(group)
    }

    fn poll_joined(&mut self) -> Option<GroupId> {
        self.requests.pop_joined()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let state =
            [("incarnation", self.incarnation().into()), ("is_away", u64::from(self.is_away))];
        let connections = self.cx.connections.counters.by_name();
        let stats = connections.chain(self.cx.counters.by_name());
        let stats = stats.chain(self.cx.connections.sent());
        stats.chain(self.pinger.counters.by_name()).chain(state).collect()
    }

    fn check(&self) {
        self.views.check();
        if self.phase == Phase::Running {
            self.cx.connections.check();
            self.requests.check(&self.cx);
            let is_watched =
                self.is_current() || self.is_away || self.cx.timers.is_set(Timer::Away);
            assert!(is_watched, "no timer would detect that the registry is unreachable");
        }
    }
}
