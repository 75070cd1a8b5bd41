//! Reliable byte streams to services, over TCP: what a membership with a service talks through.
//!
//! The membership says which links it wants and what goes over them
//! ([`carom_proto::membership::link`] has the promises that are kept here). The sockets are
//! non-blocking and belong to the driver's poll, so that a service that does not answer costs the
//! packets nothing.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId, MAX_WAITING_BYTES};
use carom_proto::node::Node;
use carom_proto::{Endpoint, Time};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// The links of one node.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// By the place of their token, those that still have something to write after their end
    /// among them.
    places: [Option<Link>; MAX_LINKS],
    by_id: BTreeMap<LinkId, usize>,
    first_token: usize,
    pub(crate) counters: LinkCounters,
}

/// What crossed the links of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkCounters {
    pub(crate) opened: u64,
    /// Of these, ended by the other side or by the network.
    pub(crate) broken: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

#[derive(Debug)]
struct Link {
    id: LinkId,
    stream: TcpStream,
    state: State,
    /// What the socket has not taken yet, after the first `sent` bytes.
    waiting: Vec<u8>,
    sent: usize,
    /// The poll has said something of it that was not looked at.
    is_ready: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// The membership has closed it; what waits is still written.
    Closing,
}

/// Links of a node at the same time; tokens of the driver are set aside for so many.
pub(crate) const MAX_LINKS: usize = 14;
/// Bytes that are read from a link before it is another's turn: news of a thousand members, after
/// which the sockets may have to be drained and the service told that this node lives.
const BYTES_PER_TURN: usize = 32 << 10;
const BUFFER_BYTES: usize = BYTES_PER_TURN;

impl Links {
    /// `first_token` is the first of [`MAX_LINKS`].
    pub(crate) fn attach(&mut self, first_token: usize) {
        self.first_token = first_token;
    }

    /// A link can be read or written, stands or has ended.
    pub(crate) fn on_socket(&mut self, place: usize) {
        if let Some(link) = self.places.get_mut(place).and_then(Option::as_mut) {
            link.is_ready = true;
        }
    }

    /// Whether there is something to do that the poll has told.
    pub(crate) fn are_ready(&self) -> bool {
        self.places.iter().flatten().any(|link| link.is_ready)
    }

    /// Hands what has come to the node, and writes what waited for room.
    pub(crate) fn receive(&mut self, now: Time, registry: &Registry, node: &mut Node) {
        if !self.are_ready() {
            return;
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        for place in 0..MAX_LINKS {
            let Some(link) = self.places[place].as_mut().filter(|link| link.is_ready) else {
                continue;
            };
            let id = link.id;
            let result = match link.state {
                State::Closing => link.flush(&mut self.counters),
                _ => link.receive(now, node, &mut buffer, &mut self.counters),
            };
            let is_done = link.state == State::Closing && link.waiting.is_empty();
            match result {
                Ok(()) if is_done => self.remove(registry, place),
                Ok(()) => {}
                Err(error) => self.fail(now, registry, node, id, &error),
            }
        }
    }

    /// Does what the node wants done with its links.
    pub(crate) fn carry(&mut self, now: Time, registry: &Registry, node: &mut Node) {
        while let Some(command) = node.poll_link() {
            let (id, result) = match command {
                LinkCommand::Open { link, to } => (link, self.open(registry, link, to)),
                LinkCommand::Send { link, bytes } => (link, self.send(link, &bytes)),
                LinkCommand::Close { link } => {
                    self.close(registry, link);
                    continue;
                }
            };
            if let Err(error) = result {
                self.fail(now, registry, node, id, &error);
            }
        }
    }

    fn open(&mut self, registry: &Registry, id: LinkId, to: Endpoint) -> io::Result<()> {
        let place = self.vacant_place(registry).ok_or(ErrorKind::QuotaExceeded)?;
        let mut stream = TcpStream::connect(to.0)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut stream, Token(self.first_token + place), interest)?;
        self.by_id.insert(id, place);
        self.places[place] = Some(Link {
            id,
            stream,
            state: State::Connecting,
            waiting: Vec::new(),
            sent: 0,
            is_ready: false,
        });
        Ok(())
    }

    /// A place without a link; one whose last bytes nobody takes makes room for another.
    fn vacant_place(&mut self, registry: &Registry) -> Option<usize> {
        let vacant = self.places.iter().position(Option::is_none);
        vacant.or_else(|| {
            let is_closing = |place: &Option<Link>| {
                place.as_ref().is_some_and(|link| link.state == State::Closing)
            };
            let place = self.places.iter().position(is_closing)?;
            self.remove(registry, place);
            Some(place)
        })
    }

    fn send(&mut self, id: LinkId, bytes: &[u8]) -> io::Result<()> {
        // It may have ended while the membership wrote.
        let place = self.by_id.get(&id).copied();
        let Some(link) = place.and_then(|place| self.places[place].as_mut()) else {
            return Ok(());
        };
        if link.waiting.len() - link.sent + bytes.len() > MAX_WAITING_BYTES {
            return Err(ErrorKind::StorageFull.into());
        }
        link.waiting.extend_from_slice(bytes);
        link.flush(&mut self.counters)
    }

    /// The membership has no use for it any more: it goes when all is written.
    fn close(&mut self, registry: &Registry, id: LinkId) {
        let Some(place) = self.by_id.remove(&id) else { return };
        let Some(link) = &mut self.places[place] else { return };
        let was_open = link.state == State::Open;
        link.state = State::Closing;
        if !was_open || link.waiting.is_empty() {
            self.remove(registry, place);
        }
    }

    fn fail(
        &mut self,
        now: Time,
        registry: &Registry,
        node: &mut Node,
        id: LinkId,
        error: &io::Error,
    ) {
        let place = self.by_id.get(&id).copied();
        if let Some(place) = place {
            self.remove(registry, place);
        }
        tracing::debug!(link = %id, %error, "link ended");
        node.handle_link(now, id, LinkEvent::Closed { why: end_of(error) });
    }

    fn remove(&mut self, registry: &Registry, place: usize) {
        if let Some(mut link) = self.places[place].take() {
            self.counters.broken += u64::from(link.state == State::Open);
            self.by_id.retain(|_, other| *other != place);
            // What cannot be deregistered goes with its socket.
            let _ = registry.deregister(&mut link.stream);
        }
    }
}

impl Link {
    fn receive(
        &mut self,
        now: Time,
        node: &mut Node,
        buffer: &mut [u8],
        counters: &mut LinkCounters,
    ) -> io::Result<()> {
        if self.state == State::Connecting {
            if !self.is_connected()? {
                self.is_ready = false;
                return Ok(());
            }
            self.state = State::Open;
            // It is only slower where that is refused.
            let _ = self.stream.set_nodelay(true);
            counters.opened += 1;
            node.handle_link(now, self.id, LinkEvent::Opened);
        }
        self.flush(counters)?;
        let mut taken = 0;
        while taken < BYTES_PER_TURN {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    taken += count;
                    counters.bytes_in += count as u64;
                    node.handle_link(now, self.id, LinkEvent::Received(&buffer[..count]));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_ready = false;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the connection stands.
    ///
    /// # Errors
    /// It was refused, or nobody is there.
    fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes as much as the socket takes.
    fn flush(&mut self, counters: &mut LinkCounters) -> io::Result<()> {
        while self.state != State::Connecting && self.sent < self.waiting.len() {
            match self.stream.write(&self.waiting[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    counters.bytes_out += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_ready = false;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if self.sent >= self.waiting.len() / 2 {
            self.waiting.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}

fn end_of(error: &io::Error) -> LinkEnd {
    match error.kind() {
        ErrorKind::ConnectionRefused => LinkEnd::Refused,
        ErrorKind::UnexpectedEof => LinkEnd::ByPeer,
        ErrorKind::StorageFull => LinkEnd::TooSlow,
        ErrorKind::QuotaExceeded => LinkEnd::NoRoom,
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            LinkEnd::Unreachable
        }
        _ => LinkEnd::Broken,
    }
}
