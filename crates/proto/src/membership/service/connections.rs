//! Connections of a node, detector or observer to the registry processes of a cluster.
//!
//! A process is identified by its TCP address and has at most one connection at a time. The users
//! of this module decide which processes are needed, and process the frames.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::outbox::Outbox;
use super::protocol::frame::{Frame, FrameError, Hello, Member, Refusal, VERSION, Welcome};
use super::protocol::reader::FrameReader;
use crate::membership::jittered;
use crate::membership::link::{LinkCommand, LinkId};
use crate::{Endpoint, Rng, Time, Timers};

#[derive(Debug)]
pub(super) struct ServiceConnections {
    limits: TimeLimits,
    hello: Hello,
    rng: Rng,
    all: BTreeMap<Endpoint, ServiceConnection>,
    timers: Timers<Timer>,
    outbox: Outbox,
    next_link: u64,
    pub(super) last_refusal: Option<Refusal>,
    pub(super) counters: Counters,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    pub(super) greeting_time: Duration,
    pub(super) first_pause: Duration,
    pub(super) last_pause: Duration,
}

#[derive(Debug)]
struct ServiceConnection {
    state: State,
    pause: Duration,
}

#[derive(Debug)]
enum State {
    Idle,
    Pausing,
    Opening(LinkId),
    Greeting(LinkId, FrameReader),
    Ready(Ready),
}

#[derive(Debug)]
struct Ready {
    link: LinkId,
    reader: FrameReader,
    heard: Time,
    lease: Duration,
    process: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    pub(super) was_ready: bool,
    pub(super) retry_at: Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    Retry(Endpoint),
    Drop(Endpoint),
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Connect(Endpoint),
    Greeting(Endpoint),
    Alive(Endpoint),
}

crate::counters! {
    pub(super) struct Counters {
        tried = "links_tried",
        welcomed = "links_welcomed",
        refused = "links_refused",
        failed = "links_failed",
        lost = "links_lost",
        /// Connections that received no welcome in time, or no bytes for a whole lease.
        silent = "links_silent",
        nonsense = "links_nonsense",
    }
}

impl ServiceConnection {
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

    fn ready(&self) -> Option<&Ready> {
        match &self.state {
            State::Ready(ready) => Some(ready),
            _ => None,
        }
    }
}

impl ServiceConnections {
    pub(super) fn new(limits: TimeLimits, hello: Hello, seed: u64) -> Self {
        Self {
            limits,
            hello,
            rng: Rng::new(seed),
            all: BTreeMap::new(),
            timers: Timers::new(),
            outbox: Outbox::default(),
            next_link: 0,
            last_refusal: None,
            counters: Counters::default(),
        }
    }

    pub(super) fn member(&self) -> Member {
        self.hello.member
    }

    pub(super) fn set_member(&mut self, member: Member) {
        self.hello.member = member;
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains(&self, address: Endpoint) -> bool {
        self.all.contains_key(&address)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = (Endpoint, bool)> {
        self.all.iter().map(|(address, it)| (*address, it.ready().is_some()))
    }

    pub(super) fn ready_link(&self, address: Endpoint) -> Option<LinkId> {
        self.all.get(&address)?.ready().map(|ready| ready.link)
    }

    pub(super) fn is_linked(&self) -> bool {
        self.all.values().any(|it| it.ready().is_some())
    }

    pub(super) fn address_of(&self, link: LinkId) -> Option<Endpoint> {
        let mut all = self.all.iter();
        all.find(|(_, it)| it.link() == Some(link)).map(|(address, _)| *address)
    }

    pub(super) fn other_addresses(&self, address: Endpoint) -> Vec<Endpoint> {
        let process_at = |it: &ServiceConnection| it.ready().map(|ready| ready.process);
        let Some(process) = self.all.get(&address).and_then(process_at) else { return Vec::new() };
        let others = self.all.iter();
        others
            .filter(|(other, it)| **other != address && process_at(it) == Some(process))
            .map(|(other, _)| *other)
            .collect()
    }

    pub(super) fn sent(&self) -> [(&'static str, u64); 2] {
        [("frames_sent", self.outbox.frames_sent), ("bytes_sent", self.outbox.bytes_sent)]
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.timers.next_due()
    }

    pub(super) fn pop_due(&mut self, now: Time) -> Option<Due> {
        Some(match self.timers.pop_due(now)? {
            Timer::Connect(address) => {
                if let Some(it) = self.all.get_mut(&address) {
                    it.state = State::Idle;
                }
                Due::Retry(address)
            }
            Timer::Alive(address) if self.send_alive(now, address) => Due::Nothing,
            Timer::Greeting(address) | Timer::Alive(address) => {
                self.counters.silent += 1;
                Due::Drop(address)
            }
        })
    }

    pub(super) fn poll_link(&mut self) -> Option<LinkCommand> {
        self.outbox.poll()
    }

    pub(super) fn add(&mut self, at: Time, address: Endpoint) {
        let pause = self.limits.first_pause;
        self.all.insert(address, ServiceConnection { state: State::Pausing, pause });
        self.timers.set(Timer::Connect(address), at);
    }

    pub(super) fn remove(&mut self, address: Endpoint) {
        if let Some(link) = self.all.remove(&address).and_then(|it| it.link()) {
            self.outbox.close(link);
        }
        for timer in [Timer::Connect, Timer::Greeting, Timer::Alive] {
            self.timers.cancel(timer(address));
        }
    }

    pub(super) fn open_wanted(
        &mut self,
        now: Time,
        known: &BTreeSet<Endpoint>,
        wanted: impl Fn(Endpoint) -> bool,
    ) {
        self.all.retain(|address, it| known.contains(address) || !matches!(it.state, State::Idle));
        for address in known.iter().copied() {
            let pause = self.limits.first_pause;
            let new = ServiceConnection { state: State::Idle, pause };
            let it = self.all.entry(address).or_insert(new);
            if matches!(it.state, State::Idle) && wanted(address) {
                self.open(now, address);
            }
        }
    }

    pub(super) fn open(&mut self, now: Time, address: Endpoint) {
        let Some(it) = self.all.get_mut(&address) else { return };
        self.next_link += 1;
        let link = LinkId(self.next_link);
        it.state = State::Opening(link);
        self.counters.tried += 1;
        self.outbox.open(link, address);
        self.timers.set(Timer::Greeting(address), now + self.limits.greeting_time);
    }

    pub(super) fn on_opened(&mut self, address: Endpoint) {
        let Some(it) = self.all.get_mut(&address) else { return };
        let State::Opening(link) = it.state else { return };
        it.state = State::Greeting(link, FrameReader::default());
        self.outbox.send(link, &Frame::Hello(self.hello.clone()));
    }

    pub(super) fn push(&mut self, now: Time, address: Endpoint, bytes: &[u8]) {
        let Some(it) = self.all.get_mut(&address) else { return };
        if let State::Ready(ready) = &mut it.state {
            ready.heard = now;
        }
        if let Some(reader) = it.reader() {
            reader.push(bytes);
        }
    }

    pub(super) fn next_frame(
        &mut self,
        address: Endpoint,
        link: LinkId,
    ) -> Result<Option<Frame>, FrameError> {
        // A frame may have ended this connection, and the address may already have another one.
        let it = self.all.get_mut(&address).filter(|it| it.link() == Some(link));
        it.and_then(ServiceConnection::reader).map_or(Ok(None), FrameReader::next_frame)
    }

    pub(super) fn on_welcome(&mut self, now: Time, address: Endpoint, welcome: &Welcome) -> bool {
        let Some(it) = self.all.get_mut(&address) else { return false };
        let State::Greeting(link, reader) = &mut it.state else { return false };
        let (link, reader) = (*link, core::mem::take(reader));
        let lease = Duration::from_millis(welcome.lease_ms.into());
        let process = welcome.process;
        it.state = State::Ready(Ready { link, reader, heard: now, lease, process });
        it.pause = self.limits.first_pause;
        self.counters.welcomed += 1;
        self.last_refusal = None;
        self.timers.cancel(Timer::Greeting(address));
        self.timers.set(Timer::Alive(address), now + lease / 3);
        true
    }

    /// Delays the next attempt by the longest pause, because it can succeed only after a change at
    /// the registry. The caller must drop the connection.
    pub(super) fn on_refused(&mut self, address: Endpoint, why: Refusal) {
        tracing::warn!(node = %self.hello.member.node, %address, %why, "refused by the registry");
        self.counters.refused += 1;
        self.last_refusal = Some(why);
        if let Some(it) = self.all.get_mut(&address) {
            it.pause = self.limits.last_pause;
        }
    }

    pub(super) fn on_nonsense(&mut self, address: Endpoint, error: FrameError) {
        let node = self.hello.member.node;
        tracing::warn!(%node, %address, %error, "closing a connection after an invalid frame");
        self.counters.nonsense += 1;
        if let FrameError::Version { given } = error {
            self.last_refusal = Some(Refusal::Version { ours: given, theirs: VERSION });
        }
    }

    pub(super) fn close(&mut self, address: Endpoint) -> bool {
        let link = self.all.get(&address).and_then(ServiceConnection::link);
        link.map(|link| self.outbox.close(link)).is_some()
    }

    pub(super) fn forget(&mut self, link: LinkId) {
        self.outbox.forget(link);
    }

    pub(super) fn on_closed(&mut self, now: Time, address: Endpoint) -> Option<Closed> {
        let it = self.all.get_mut(&address)?;
        let was_ready = it.ready().is_some();
        let node = self.hello.member.node;
        tracing::debug!(%node, %address, was_ready, "connection closed");
        it.state = State::Pausing;
        let pause = it.pause;
        it.pause = (pause * 3 / 2).min(self.limits.last_pause);
        self.counters.lost += u64::from(was_ready);
        self.counters.failed += u64::from(!was_ready);
        self.timers.cancel(Timer::Greeting(address));
        self.timers.cancel(Timer::Alive(address));
        let retry_at = now + jittered(&mut self.rng, pause);
        self.timers.set(Timer::Connect(address), retry_at);
        Some(Closed { was_ready, retry_at })
    }

    pub(super) fn restart(&mut self, now: Time) {
        let pause = jittered(&mut self.rng, self.limits.first_pause);
        for (address, it) in &mut self.all {
            if let Some(link) = it.link() {
                self.outbox.close(link);
            }
            (it.state, it.pause) = (State::Pausing, self.limits.first_pause);
            for timer in [Timer::Greeting, Timer::Alive] {
                self.timers.cancel(timer(*address));
            }
            self.timers.set(Timer::Connect(*address), now + pause);
        }
    }

    pub(super) fn shut_down(&mut self) {
        for it in self.all.values_mut() {
            if let Some(ready) = it.ready() {
                self.outbox.send(ready.link, &Frame::Goodbye);
            }
            if let Some(link) = it.link() {
                self.outbox.close(link);
            }
            it.state = State::Idle;
        }
        self.timers = Timers::new();
    }

    pub(super) fn send(&mut self, address: Endpoint, frame: &Frame) {
        if let Some(link) = self.ready_link(address) {
            self.outbox.send(link, frame);
        }
    }

    pub(super) fn send_to_all(&mut self, frame: &Frame) {
        for ready in self.all.values().filter_map(ServiceConnection::ready) {
            self.outbox.send(ready.link, frame);
        }
    }

    pub(super) fn check(&self) {
        for (address, it) in &self.all {
            let timer = match &it.state {
                State::Idle => continue,
                State::Pausing => Timer::Connect(*address),
                State::Opening(_) | State::Greeting(..) => Timer::Greeting(*address),
                State::Ready(_) => Timer::Alive(*address),
            };
            assert!(self.timers.is_set(timer), "the connection to {address} has no timer");
        }
    }

    fn send_alive(&mut self, now: Time, address: Endpoint) -> bool {
        let ready = self.all.get(&address).and_then(ServiceConnection::ready);
        let Some(ready) = ready.filter(|ready| now.since(ready.heard) <= ready.lease) else {
            return false;
        };
        self.outbox.send(ready.link, &Frame::Alive);
        self.timers.set(Timer::Alive(address), now + ready.lease / 3);
        true
    }
}
