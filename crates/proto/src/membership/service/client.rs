//! A node's side of the membership service: the provider [`Service`].
//!
//! It keeps a connection to every control process that owns a partition of its groups, and sends
//! its joins there, many at a time. It derives the node's views from snapshots and updates. While
//! the service is unreachable, the views stay as they are. After that, they are compared. A node
//! that was declared dead, or whose address changed, comes back as a later incarnation without help
//! of the application.
//!
//! # Invariants
//!
//! - A group is requested on at most one connection at a time, that of its partition's owner.
//! - A view changes only by a complete snapshot, or by an update that follows its version.
//! - A node is reported as met before it is in a view, and as parted after it has left the last
//!   one.

mod config;
mod counters;
mod multicast;
mod paths;
mod requests;
mod views;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

pub use self::config::ServiceConfig;
use self::counters::Counters;
use self::multicast::ManagerPath;
use self::paths::Path;
use self::requests::{Own, Standing};
use self::views::Views;
use super::fields::Member;
use super::frame::{Frame, FrameError, Owners, Refusal};
use super::outbox::Outbox;
use super::pinger::Pinger;
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::membership::{ManagerNews, Membership, MembershipEvent};
use crate::{
    Class, Destination, Endpoint, GroupId, GroupSettings, JoinError, NodeId, Origin, Rng, Time,
    Timers, Transmit, Wakeup,
};

/// Membership of one node by a service. Its driver must support connections; see
/// [`crate::membership::link`].
///
/// `join` never fails because of other members, since the service must be queried first. A
/// contradiction is reported later by [`MembershipEvent::Refused`]. [`Membership::is_settled`] is
/// `true` when the service has answered all joins, and `false` again while there are new ones.
#[derive(Debug)]
pub struct Service {
    config: ServiceConfig,
    /// This node, as announced to the service.
    member: Member,
    rng: Rng,
    paths: BTreeMap<Endpoint, Path>,
    owners: Option<Owners>,
    /// Number of owner lists received.
    owners_told: u64,
    /// The process that last sent a list with owners.
    owners_from: Option<Endpoint>,
    groups: BTreeMap<GroupId, Own>,
    /// Groups whose leave the service has not confirmed, with the address and number of the last
    /// request.
    leaving: BTreeMap<GroupId, Option<(Endpoint, u32)>>,
    /// Groups whose join became complete, until the node takes them.
    joined: BTreeSet<GroupId>,
    views: Views,
    pinger: Pinger,
    timers: Timers<Timer>,
    outbox: Outbox,
    outgoing: VecDeque<(Endpoint, Vec<u8>)>,
    manager: ManagerPath,
    counters: Counters,
    next_link: u64,
    next_request: u32,
    phase: Phase,
    is_welcomed: bool,
    has_settled: bool,
    is_away: bool,
    last_refusal: Option<Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// An address may be tried again.
    Connect(Endpoint),
    /// Time limit for opening a connection and receiving the welcome.
    Greeting(Endpoint),
    Alive(Endpoint),
    /// Repetition of requests that a process could not answer.
    Again(Endpoint),
    Away,
}

impl Service {
    /// Creates the membership of node `origin`, which others reach at `endpoint`.
    ///
    /// If its address is unspecified, other nodes use the source address of its connections. `seed`
    /// is the source of all randomness.
    ///
    /// # Panics
    /// `config` is invalid: no address, a name of more than 255 bytes, an interval of zero, or no
    /// open requests.
    pub fn new(
        origin: impl Into<Origin>,
        endpoint: Endpoint,
        config: ServiceConfig,
        seed: u64,
    ) -> Self {
        config.validate();
        let origin = origin.into();
        let (id, start) = (origin.node, origin.incarnation);
        Self {
            member: Member { node: id, incarnation: 0, start, endpoint },
            rng: Rng::new(seed),
            paths: BTreeMap::new(),
            owners: None,
            owners_told: 0,
            owners_from: None,
            groups: BTreeMap::new(),
            leaving: BTreeMap::new(),
            joined: BTreeSet::new(),
            views: Views::new(id),
            pinger: Pinger::new(origin),
            timers: Timers::new(),
            outbox: Outbox::default(),
            outgoing: VecDeque::new(),
            manager: ManagerPath::default(),
            counters: Counters::default(),
            next_link: 0,
            next_request: 0,
            phase: Phase::New,
            is_welcomed: false,
            has_settled: false,
            is_away: false,
            last_refusal: None,
            config,
        }
    }

    /// Returns the node's incarnation: the number of times that it came back because the service
    /// declared it dead or its address changed.
    pub fn incarnation(&self) -> u32 {
        self.member.incarnation
    }

    /// Returns `true` if the service is unreachable, and the views are those last known.
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Returns the reason of the last refusal by the service, unless a welcome was received since.
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.last_refusal.as_ref()
    }

    /// Returns the number of connections that are welcomed.
    pub fn links(&self) -> usize {
        self.paths.values().filter(|path| path.is_ready()).count()
    }

    fn begin(&mut self, now: Time) {
        if self.phase == Phase::New {
            self.phase = Phase::Running;
            self.tend(now);
            self.timers.set(Timer::Away, now + self.config.away_after);
        }
    }

    fn on_frame(&mut self, now: Time, address: Endpoint, frame: Frame) {
        self.counters.frames_received += 1;
        match frame {
            Frame::Welcome(welcome) => self.on_welcome(now, address, welcome),
            Frame::Refused(why) => self.on_refused(now, address, why),
            Frame::Joined { request, group, .. } => self.on_joined(address, request, group),
            Frame::JoinRefused { request, group, why } => {
                self.on_join_refused(now, address, (request, group), why);
            }
            Frame::Left { request, group } => self.on_left(address, request, group),
            Frame::Unchanged { group, version } => {
                self.on_unchanged(now, address, group, version);
            }
            Frame::Snapshot(snapshot) => self.on_snapshot(address, snapshot),
            Frame::Update(update) => self.on_update(now, address, &update),
            Frame::Alive => {}
            Frame::Owners(owners) => self.on_owners(now, address, owners),
            Frame::Expired { incarnation } => self.on_expired(now, incarnation),
            Frame::Elsewhere { request, group } => {
                self.on_elsewhere(now, address, request, group);
            }
            Frame::Successor { next, within_ms } => self.on_successor(now, next, within_ms),
            Frame::Managed(answer) => self.manager.on_answer(address, answer),
            Frame::Hello(_)
            | Frame::Join { .. }
            | Frame::Leave { .. }
            | Frame::Resync { .. }
            | Frame::Goodbye
            | Frame::Report { .. }
            | Frame::Watch(_)
            | Frame::Observe { .. }
            | Frame::Manage(_)
            | Frame::Observed { .. } => self.on_nonsense(now, address, FrameError::Kind),
        }
    }

    /// Sets the node that this node pings in the ring.
    fn on_successor(&mut self, now: Time, next: Option<Member>, within_ms: u32) {
        self.pinger.set_detection_time(Duration::from_millis(within_ms.into()));
        let others: Vec<NodeId> = self.pinger.targets().collect();
        for node in others.into_iter().filter(|node| next.is_none_or(|next| next.node != *node)) {
            self.pinger.unwatch(node);
        }
        if let Some(next) = next.filter(|next| !self.pinger.watches(*next)) {
            self.pinger.watch(now, next);
        }
    }

    fn fire(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Connect(address) => self.on_connect_timer(now, address),
            Timer::Greeting(address) => {
                self.counters.links_silent += 1;
                self.drop_link(now, address);
            }
            Timer::Alive(address) => self.on_alive_timer(now, address),
            Timer::Again(address) => self.on_again_timer(address),
            Timer::Away => self.on_away_timer(now),
        }
    }

    /// Returns `true` if all groups of this node are up to date.
    fn is_current(&self) -> bool {
        let is_known = |own: &Own| own.standing == Standing::Current;
        self.is_linked() && self.groups.values().all(is_known)
    }

    fn look_whether_away(&mut self, now: Time) {
        if self.phase == Phase::Running && !self.is_current() {
            self.timers.set_no_later(Timer::Away, now + self.config.away_after);
        }
    }

    fn on_away_timer(&mut self, now: Time) {
        if self.is_current() || self.is_away {
            return;
        }
        let is_left_alone = |own: &Own| matches!(own.standing, Standing::Wanted | Standing::Stale);
        if self.is_linked() && !self.groups.values().any(is_left_alone) {
            // The answers are still in flight.
            return self.timers.set(Timer::Away, now + self.config.away_after);
        }
        self.is_away = true;
        self.counters.times_away += 1;
        self.views.events.push_back(MembershipEvent::Away);
    }

    fn look_whether_back(&mut self) {
        // While answers are pending, a later call makes the decision.
        if self.phase != Phase::Running || self.paths.values().any(Path::is_busy) {
            return;
        }
        if !self.has_settled && self.is_settled() {
            self.has_settled = true;
            self.views.events.push_back(MembershipEvent::Settled);
        }
        if (self.is_away || self.timers.is_set(Timer::Away)) && self.is_current() {
            self.timers.cancel(Timer::Away);
            if core::mem::take(&mut self.is_away) {
                self.views.events.push_back(MembershipEvent::Returned);
            }
        }
    }

    /// Sends the pinger's reports to all processes.
    fn take_reports(&mut self) {
        while let Some(report) = self.pinger.reports.pop_front() {
            for link in self.paths.values().filter_map(Path::ready_link) {
                self.outbox.send(link, &report);
            }
        }
        while let Some(datagram) = self.pinger.poll_datagram() {
            self.outgoing.push_back(datagram);
        }
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
        if let Some(own) = self.groups.get(&group) {
            let same_name = own.settings.name_check == settings.name_check;
            return Err(if same_name {
                JoinError::AlreadyJoined
            } else {
                JoinError::NameCollision
            });
        }
        self.groups.insert(group, Own::new(settings));
        self.views.join(group);
        if self.phase == Phase::Running {
            self.request(now, group);
            self.look_whether_away(now);
        }
        Ok(())
    }

    fn set_endpoint(&mut self, now: Time, endpoint: Endpoint) -> bool {
        self.begin(now);
        if self.phase == Phase::Running && endpoint != self.member.endpoint {
            self.member.endpoint = endpoint;
            self.leaving.values_mut().for_each(|asked| *asked = None);
            self.come_back(now, self.member.incarnation);
        }
        self.phase == Phase::Running
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        self.begin(now);
        let Some(own) = self.groups.remove(&group) else { return };
        self.joined.remove(&group);
        self.views.leave(group);
        if self.phase == Phase::Running {
            if own.standing != Standing::Wanted || own.was_asked {
                self.leaving.insert(group, None);
                self.request(now, group);
            }
            self.look_whether_back();
        }
    }

    fn shut_down(&mut self, _now: Time) {
        if self.phase != Phase::Stopped {
            self.say_goodbye();
            self.timers = Timers::new();
        }
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.begin(now);
        if !self.pinger.handle_datagram(now, source, datagram) {
            self.counters.datagrams_malformed += 1;
        }
        self.take_reports();
    }

    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        // Connections that were given up are no longer known.
        let Some(address) = self.address_of(link) else { return };
        match event {
            LinkEvent::Opened => self.on_opened(address),
            LinkEvent::Received(bytes) => self.on_bytes(now, address, link, bytes),
            LinkEvent::Closed { why } => {
                self.outbox.forget(link);
                self.on_closed(now, address, Some(why));
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.begin(now);
        while let Some(timer) = self.timers.pop_due(now) {
            self.fire(now, timer);
        }
        self.pinger.handle_timeout(now);
        self.take_reports();
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (to, datagram) = self.outgoing.pop_front()?;
        out.extend_from_slice(&datagram);
        Some(Transmit { destination: Destination::Endpoint(to), class: Class::Control })
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        self.outbox.poll()
    }

    fn ask_manager(&mut self, request: Vec<u8>) {
        if let Some(link) = self.manager_link() {
            self.outbox.send(link, &Frame::Manage(request));
        }
    }

    fn poll_manager(&mut self) -> Option<ManagerNews> {
        let now_at = self.manager_address();
        self.manager.poll(now_at)
    }

    fn poll_event(&mut self) -> Option<MembershipEvent> {
        self.views.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.timers.next_due().map(|at| Wakeup { at, reason: "membership service" });
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
        self.last_refusal.as_ref().map(ToString::to_string)
    }

    fn is_settled(&self) -> bool {
        self.is_welcomed && self.groups.values().all(|own| own.was_current)
    }

    fn has_joined(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|own| own.was_current)
    }

    fn poll_joined(&mut self) -> Option<GroupId> {
        self.joined.pop_first()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let Outbox { frames_sent, bytes_sent, .. } = self.outbox;
        let sent = [("frames_sent", frames_sent), ("bytes_sent", bytes_sent)];
        let incarnation = self.member.incarnation.into();
        let state = [("incarnation", incarnation), ("is_away", u64::from(self.is_away))];
        let stats = self.counters.by_name().chain(sent).chain(self.pinger.counters.by_name());
        stats.chain(state).collect()
    }

    fn check(&self) {
        self.views.check();
        if self.phase == Phase::Running {
            self.check_paths();
            self.check_requests();
            let is_watched = self.is_current() || self.is_away || self.timers.is_set(Timer::Away);
            assert!(is_watched, "nobody would notice that the service is away");
        }
    }
}
