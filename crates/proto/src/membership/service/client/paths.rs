//! The ways to the control processes: which are wanted, opened, lost and tried again.

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
    /// Nobody wants it.
    Idle,
    /// The last attempt failed; a timer runs.
    Pausing,
    Opening(LinkId),
    /// The hello is sent.
    Greeting(LinkId, FrameReader),
    Ready(Ready),
}

/// A link on which requests are taken.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) link: LinkId,
    reader: FrameReader,
    heard: Time,
    lease: Duration,
    /// The owner map that the process sent last, with its number among all maps received.
    pub(super) owners: Option<(u64, Owners)>,
    /// Groups of which something has to be asked here.
    pub(super) queue: VecDeque<GroupId>,
    /// Joins and leaves that wait for their answers.
    pub(super) open: BTreeMap<u32, GroupId>,
    /// Groups whose summary is on its way.
    pub(super) resyncing: BTreeSet<GroupId>,
}

impl Path {
    fn new(pause: Duration) -> Self {
        Self { state: State::Idle, pause }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// Whether there are answers to come, or requests to be made.
    pub(super) fn is_busy(&self) -> bool {
        let State::Ready(ready) = &self.state else { return false };
        let open = ready.open.len() + ready.resyncing.len() + ready.queue.len();
        open > 0
    }

    pub(super) fn ready_link(&self) -> Option<LinkId> {
        self.link().filter(|_| self.is_ready())
    }

    /// The owner map received last on the link there.
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
    /// Opens what is wanted and not on its way.
    pub(super) fn tend(&mut self, now: Time) {
        let mut known: BTreeSet<Endpoint> = self.config.addresses.iter().copied().collect();
        known.extend(self.owners.iter().flat_map(|it| it.owned.iter().map(|(_, at)| *at)));
        known.extend(self.owners_from);
        // What is on its way or has a timer stays until it comes to its end.
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

    /// Whether a link there would be of use: without any, every address may help; otherwise those
    /// of the owners of this node's groups, and of the process that knew best who they are.
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
        // A frame may end this link, and the path may be on its next one.
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

    /// A frame that is about a group with settings of a later version: only this group is not for
    /// this node.
    fn on_unknown(&mut self, now: Time, address: Endpoint, unknown: UnknownSettings) {
        tracing::warn!(node = %self.member.node, %address, ?unknown, "settings that are unknown");
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

    /// The process does not want this node. It is asked again, but rarely: an operator may change
    /// its mind.
    pub(super) fn on_refused(&mut self, now: Time, address: Endpoint, why: Refusal) {
        tracing::warn!(node = %self.member.node, %address, %why, "refused by the service");
        self.counters.links_refused += 1;
        self.last_refusal = Some(why);
        if let Some(path) = self.paths.get_mut(&address) {
            path.pause = self.config.last_pause;
        }
        self.drop_link(now, address);
    }

    /// The link there is of no use any more.
    pub(super) fn drop_link(&mut self, now: Time, address: Endpoint) {
        if let Some(link) = self.paths.get(&address).and_then(Path::link) {
            self.outbox.close(link);
            self.on_closed(now, address, None);
        }
    }

    /// The link there is gone; another attempt follows after a pause, if the address is wanted.
    pub(super) fn on_closed(&mut self, now: Time, address: Endpoint, why: Option<LinkEnd>) {
        let Some(path) = self.paths.get_mut(&address) else { return };
        let was_ready = path.is_ready();
        tracing::debug!(node = %self.member.node, %address, ?why, was_ready, "a link is gone");
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

    /// Says that this node lives, and looks whether the process does.
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

    /// This incarnation is over, everywhere: all links are opened anew, after a short pause.
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

    /// Three to five quarters of `pause`, so that the nodes of a cluster do not come all at once.
    fn jittered(&mut self, pause: Duration) -> Duration {
        let quarter = u64::try_from(pause.as_nanos() / 4).unwrap_or(u64::MAX / 8);
        let random = self.rng.below(2 * quarter as usize + 1) as u64;
        Duration::from_nanos(3 * quarter + random)
    }

    /// Ends all links, with a word to those that listen.
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

    /// Asserts what must hold of the paths.
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
