//! TCP connections to registries, with the guarantees of [`carom_proto::membership::link`].
//!
//! The driver polls these sockets too, so that an unresponsive registry delays no packets.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId, MAX_WAITING_BYTES};
use carom_proto::node::Node;
use carom_proto::{Endpoint, Time};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::shared::status::NetCounters;

#[derive(Debug, Default)]
pub(crate) struct Links {
    places: [Option<Link>; MAX_LINKS],
    by_id: BTreeMap<LinkId, usize>,
    first_token: usize,
    pub(crate) counters: NetCounters,
}

#[derive(Debug)]
struct Link {
    id: LinkId,
    stream: TcpStream,
    state: State,
    /// Bytes for the socket, of which the first `sent` have been written.
    waiting: Vec<u8>,
    sent: usize,
    is_ready: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// The membership has closed the link. Unsent bytes are still written.
    Closing,
}

pub(crate) const MAX_LINKS: usize = 14;
/// Number of bytes after which a link reads no more in one turn, enough for a thousand view
/// changes. Then the sockets must be drained, and a keepalive may be due.
const BYTES_PER_TURN: usize = 32 << 10;
const BUFFER_BYTES: usize = BYTES_PER_TURN;

impl Links {
    pub(crate) fn attach(&mut self, first_token: usize) {
        self.first_token = first_token;
    }

    pub(crate) fn on_socket(&mut self, place: usize) {
        if let Some(link) = self.places.get_mut(place).and_then(Option::as_mut) {
            link.is_ready = true;
        }
    }

    pub(crate) fn are_ready(&self) -> bool {
        self.places.iter().flatten().any(|link| link.is_ready)
    }

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

    /// Returns a free place. If there is none, frees that of a closing link with unsent bytes.
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
        // The link may have ended while the membership wrote to it.
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
            self.counters.links_broken += u64::from(link.state == State::Open);
            self.by_id.retain(|_, other| *other != place);
            // An error is harmless, because the registration ends with the socket.
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
        counters: &mut NetCounters,
    ) -> io::Result<()> {
        if self.state == State::Connecting {
            if !self.is_connected()? {
                self.is_ready = false;
                return Ok(());
            }
            self.state = State::Open;
            // Without this option, the link is only slower.
            let _ = self.stream.set_nodelay(true);
            counters.links_opened += 1;
            node.handle_link(now, self.id, LinkEvent::Opened);
        }
        self.flush(counters)?;
        let mut taken = 0;
        while taken < BYTES_PER_TURN {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    taken += count;
                    counters.link_bytes_in += count as u64;
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

    fn flush(&mut self, counters: &mut NetCounters) -> io::Result<()> {
        while self.state != State::Connecting && self.sent < self.waiting.len() {
            match self.stream.write(&self.waiting[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    counters.link_bytes_out += count as u64;
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
