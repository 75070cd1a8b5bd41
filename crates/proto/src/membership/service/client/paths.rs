//! Connections to the control processes: which are needed, and their opening, loss and retry.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use super::super::frame::{
    Frame, FrameError, Hello, JoinRefusal, Owners, Refusal, Role, UnknownSettings, Unserved,
    VERSION, Welcome,
};
use super::super::reader::FrameReader;
use super::{Phase, Service, Timer};
use crate::membership::link::{LinkEnd, LinkId};
use crate::{Endpoint, GroupId, Time};

/// One address of a control process.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) state: State,
    pause: Duration,
}

#[derive(Debug)]
pub(super) enum State {
    /// The connection is not needed.
    Idle,
    /// The last attempt failed, and a timer runs.
    Pausing,
    Opening(LinkId),
    /// The hello was sent.
    Greeting(LinkId, FrameReader),
    Ready(Ready),
}

/// A connection that accepts requests.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) link: LinkId,
    reader: FrameReader,
    heard: Time,
    lease: Duration,
    /// Last owner list from the process, with its number among all lists received.
    pub(super) owners: Option<(u64, Owners)>,
    /// Groups with a pending request to this process.
    pub(super) queue: VecDeque<GroupId>,
    /// Joins and leaves in flight.
    pub(super) open: BTreeMap<u32, GroupId>,
    /// Groups whose snapshot is in flight.
    pub(super) resyncing: BTreeSet<GroupId>,
}

impl Path {
    fn new(pause: Duration) -> Self {
        Self { state: State::Idle, pause }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// Returns `true` if requests are pending or in flight.
    pub(super) fn is_busy(&self) -> bool {
        let State::Ready(ready) = &self.state else { return false };
        let open = ready.open.len() + ready.resyncing.len() + ready.queue.len();
        open > 0
    }

    pub(super) fn ready_link(&self) -> Option<LinkId> {
        self.link().filter(|_| self.is_ready())
    }

    /// Returns the last owner list received on the connection.
    pub(super) fn owners(&self) -> Option<&(u64, Owners)> {
        let State::Ready(ready) = &self.state else { return None };
        ready.owners.as_ref()
    }

    fn link(&self) -> Option<LinkId> {
        match &self.state {
            State::Idle | State::Pausing => None,
            State::Opening(link) | State::Greeting(link, _) => Some(*link),
            State::Ready(ready) => Some(ready.link),
        }
    }

    fn reader(&mut self) -> Option<&mut FrameReader> {
        match &mut self.state {
            State::Greeting(_, reader) => Some(reader),
            State::Ready(ready) => Some(&mut ready.reader),
            _ => None,
        }
    }
}

impl Service {
    /// Opens the connections that are needed and not open.
    pub(super) fn tend(&mut self, now: Time) {
        let mut known: BTreeSet<Endpoint> = self.config.addresses.iter().copied().collect();
        known.extend(self.owners.iter().flat_map(|it| it.owned.iter().map(|(_, at)| *at)));
        known.extend(self.owners_from);
        // A path that is in use or has a timer stays until that ends.
        self.paths
            .retain(|address, path| known.contains(address) || !matches!(path.state, State::Idle));
        for address in known {
            let first = self.config.first_pause;
            let path = self.paths.entry(address).or_insert_with(|| Path::new(first));
            if matches!(path.state, State::Idle) && self.is_wanted(address) {
                self.connect(now, address);
            }
        }
    }

    /// Returns `true` if a connection to this address is needed.
    ///
    /// Without any connection, every address is. Otherwise only the owners of this node's groups
    /// are, and the process that sent the last list with owners.
    fn is_wanted(&self, address: Endpoint) -> bool {
        if !self.is_linked() || self.owners_from == Some(address) {
            return true;
        }
        let Some(Owners { owned, .. }) = &self.owners else { return false };
        let needed = self.needed_partitions();
        owned.iter().any(|(partition, at)| *at == address && needed.contains(partition))
    }

    pub(super) fn is_linked(&self) -> bool {
        self.paths.values().any(Path::is_ready)
    }

    pub(super) fn ready(&mut self, address: Endpoint) -> Option<&mut Ready> {
        match &mut self.paths.get_mut(&address)?.state {
            State::Ready(ready) => Some(ready),
            _ => None,
        }
    }

    pub(super) fn address_of(&self, link: LinkId) -> Option<Endpoint> {
        let mut paths = self.paths.iter();
        paths.find(|(_, path)| path.link() == Some(link)).map(|(address, _)| *address)
    }

    fn connect(&mut self, now: Time, address: Endpoint) {
        let Some(path) = self.paths.get_mut(&address) else { return };
        self.next_link += 1;
        let link = LinkId(self.next_link);
        path.state = State::Opening(link);
        self.counters.links_tried += 1;
        self.outbox.open(link, address);
        self.timers.set(Timer::Greeting(address), now + self.config.greeting_time);
    }

    pub(super) fn on_opened(&mut self, address: Endpoint) {
        let Some(path) = self.paths.get_mut(&address) else { return };
        let State::Opening(link) = path.state else { return };
        path.state = State::Greeting(link, FrameReader::default());
        let (cluster, rack) = (self.config.cluster.clone(), self.config.rack.clone());
        let hello = Hello { role: Role::Node, cluster, member: self.member, rack };
        self.outbox.send(link, &Frame::Hello(hello));
    }

    pub(super) fn on_bytes(&mut self, now: Time, address: Endpoint, link: LinkId, bytes: &[u8]) {
        let Some(path) = self.paths.get_mut(&address) else { return };
        if let State::Ready(ready) = &mut path.state {
            ready.heard = now;
        }
        if let Some(reader) = path.reader() {
            reader.push(bytes);
        }
        // A frame may end this connection, and the path may then have another one.
        while let Some(path) = self.paths.get_mut(&address).filter(|it| it.link() == Some(link)) {
            let Some(reader) = path.reader() else { break };
            match reader.next_frame() {
                Ok(Some(frame)) => self.on_frame(now, address, frame),
                Ok(None) => break,
                Err(FrameError::Settings(unknown)) => self.on_unknown(now, address, unknown),
                Err(error) => self.on_nonsense(now, address, error),
            }
        }
        self.look_whether_back();
    }

    /// Processes a frame about a group with settings of a later version. Only this group is
    /// unusable.
    fn on_unknown(&mut self, now: Time, address: Endpoint, unknown: UnknownSettings) {
        tracing::warn!(node = %self.member.node, %address, ?unknown, "unknown group settings");
        self.counters.frames_received += 1;
        self.counters.settings_unknown += 1;
        match unknown {
            UnknownSettings::JoinRefused { request, group } => {
                let why = JoinRefusal::Unserved(Unserved::Settings);
                self.on_join_refused(now, address, (request, group), why);
            }
            UnknownSettings::Snapshot { .. } => {}
            UnknownSettings::Join { .. } => self.on_nonsense(now, address, FrameError::Kind),
        }
    }

    pub(super) fn on_nonsense(&mut self, now: Time, address: Endpoint, error: FrameError) {
        tracing::warn!(node = %self.member.node, %address, %error, "not the membership protocol");
        self.counters.links_nonsense += 1;
        if let FrameError::Version { given } = error {
            self.last_refusal = Some(Refusal::Version { ours: given, theirs: VERSION });
        }
        self.drop_link(now, address);
    }

    pub(super) fn on_welcome(&mut self, now: Time, address: Endpoint, welcome: Welcome) {
        let Some(path) = self.paths.get_mut(&address) else { return };
        let State::Greeting(link, reader) = &mut path.state else {
            return self.on_nonsense(now, address, FrameError::Value);
        };
        let (link, reader) = (*link, core::mem::take(reader));
        let lease = Duration::from_millis(welcome.lease_ms.into());
        let (queue, open, resyncing) = (VecDeque::new(), BTreeMap::new(), BTreeSet::new());
        path.state = State::Ready(Ready {
            link,
            reader,
            heard: now,
            lease,
            owners: None,
            queue,
            open,
            resyncing,
        });
        path.pause = self.config.first_pause;
        self.counters.links_welcomed += 1;
        self.is_welcomed = true;
        self.last_refusal = None;
        self.timers.cancel(Timer::Greeting(address));
        self.timers.set(Timer::Alive(address), now + lease / 3);
        self.on_owners(now, address, welcome.owners);
        self.queue_all(address);
    }

    /// Processes a refusal. The process is tried again at the longest interval, because an operator
    /// may change its configuration.
    pub(super) fn on_refused(&mut self, now: Time, address: Endpoint, why: Refusal) {
        tracing::warn!(node = %self.member.node, %address, %why, "refused by the service");
        self.counters.links_refused += 1;
        self.last_refusal = Some(why);
        if let Some(path) = self.paths.get_mut(&address) {
            path.pause = self.config.last_pause;
        }
        self.drop_link(now, address);
    }

    /// Closes a connection that is of no further use.
    pub(super) fn drop_link(&mut self, now: Time, address: Endpoint) {
        if let Some(link) = self.paths.get(&address).and_then(Path::link) {
            self.outbox.close(link);
            self.on_closed(now, address, None);
        }
    }

    /// Processes the end of a connection. Another attempt follows after an interval, if the address
    /// is needed.
    pub(super) fn on_closed(&mut self, now: Time, address: Endpoint, why: Option<LinkEnd>) {
        let Some(path) = self.paths.get_mut(&address) else { return };
        let was_ready = path.is_ready();
        tracing::debug!(node = %self.member.node, %address, ?why, was_ready, "connection closed");
        path.state = State::Pausing;
        let pause = path.pause;
        path.pause = (pause * 3 / 2).min(self.config.last_pause);
        self.counters.links_lost += u64::from(was_ready);
        self.counters.links_failed += u64::from(!was_ready);
        self.timers.cancel(Timer::Greeting(address));
        self.timers.cancel(Timer::Alive(address));
        self.timers.cancel(Timer::Again(address));
        let pause = self.jittered(pause);
        self.timers.set(Timer::Connect(address), now + pause);
        if was_ready {
            self.lose_groups_at(address);
            self.follow_owners(now);
        }
        self.tend(now);
        self.look_whether_away(now);
    }

    pub(super) fn on_connect_timer(&mut self, now: Time, address: Endpoint) {
        if let Some(path) = self.paths.get_mut(&address)
            && matches!(path.state, State::Pausing)
        {
            path.state = State::Idle;
            self.tend(now);
        }
    }

    /// Sends a sign of life, and checks that the process has sent one.
    pub(super) fn on_alive_timer(&mut self, now: Time, address: Endpoint) {
        let Some(Ready { link, heard, lease, .. }) = self.ready(address) else { return };
        let (link, heard, lease) = (*link, *heard, *lease);
        if now.since(heard) > lease {
            self.counters.links_silent += 1;
            return self.drop_link(now, address);
        }
        self.outbox.send(link, &Frame::Alive);
        self.timers.set(Timer::Alive(address), now + lease / 3);
    }

    /// Reopens all connections after a short interval, because this incarnation has ended
    /// everywhere.
    pub(super) fn restart_links(&mut self, now: Time) {
        let pause = self.jittered(self.config.first_pause);
        for (address, path) in &mut self.paths {
            if let Some(link) = path.link() {
                self.outbox.close(link);
            }
            path.state = State::Pausing;
            path.pause = self.config.first_pause;
            for timer in [Timer::Greeting, Timer::Alive, Timer::Again] {
                self.timers.cancel(timer(*address));
            }
            self.timers.set(Timer::Connect(*address), now + pause);
        }
    }

    /// Returns three to five quarters of `pause`, so that the nodes of a cluster do not connect at
    /// the same time.
    fn jittered(&mut self, pause: Duration) -> Duration {
        let quarter = u64::try_from(pause.as_nanos() / 4).unwrap_or(u64::MAX / 8);
        let random = self.rng.below(2 * quarter as usize + 1) as u64;
        Duration::from_nanos(3 * quarter + random)
    }

    /// Closes all connections, with a goodbye on those that were welcomed.
    pub(super) fn say_goodbye(&mut self) {
        for path in self.paths.values_mut() {
            if let State::Ready(ready) = &path.state {
                self.outbox.send(ready.link, &Frame::Goodbye);
            }
            if let Some(link) = path.link() {
                self.outbox.close(link);
            }
            path.state = State::Idle;
        }
        self.phase = Phase::Stopped;
    }

    /// Asserts the invariants of the paths.
    pub(super) fn check_paths(&self) {
        for (address, path) in &self.paths {
            let timer = match &path.state {
                State::Idle => continue,
                State::Pausing => Timer::Connect(*address),
                State::Opening(_) | State::Greeting(..) => Timer::Greeting(*address),
                State::Ready(_) => Timer::Alive(*address),
            };
            assert!(self.timers.is_set(timer), "nothing will happen to {address}");
            if let State::Ready(ready) = &path.state {
                let open = ready.open.len() + ready.resyncing.len();
                assert!(open <= 2 * self.config.max_open_requests, "{open} open requests");
            }
        }
    }
}
