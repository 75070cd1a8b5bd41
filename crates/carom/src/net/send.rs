//! Sends datagrams. Consecutive datagrams of the same size to the same destination are sent in one
//! system call.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use carom_proto::Destination;
use nix::errno::Errno;
use quinn_udp::Transmit;

use super::routes::Route;
use super::sockets::Socket;
use crate::shared::status::NetCounters;

/// A sender of datagrams. Call `buffer` and `add` for each one, and `send` for each completed run.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) source: Ipv4Addr,
    buffer: Vec<u8>,
    run: Option<Run>,
    backlog: VecDeque<Waiting>,
    backlog_bytes: usize,
    has_met_limit: bool,
    pub(crate) counters: NetCounters,
}

/// A run of datagrams of the same size to the same destination. The last one may be shorter.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) destination: Destination,
    pub(crate) segment_bytes: usize,
    pub(crate) datagrams: usize,
    pub(crate) bytes: usize,
    is_closed: bool,
}

#[derive(Debug)]
struct Waiting {
    address: SocketAddr,
    segment_bytes: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multicast {
    /// The route has no multicast address, or no error shows that the address is unreachable.
    Fine,
    Unreachable,
}

impl Run {
    pub(crate) fn of(destination: Destination, segment_bytes: usize, bytes: usize) -> Self {
        let datagrams = bytes.div_ceil(segment_bytes);
        Self { destination, segment_bytes, datagrams, bytes, is_closed: true }
    }
}

impl Sender {
    pub(crate) fn new(source: Ipv4Addr) -> Self {
        Self {
            source,
            buffer: Vec::with_capacity(MAX_RUN_BYTES),
            run: None,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            has_met_limit: false,
            counters: NetCounters::default(),
        }
    }

    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    pub(crate) fn add(&mut self, destination: Destination, max_datagrams: usize) -> Option<Run> {
        let before = self.run.as_ref().map_or(0, |run| run.bytes);
        let bytes = self.buffer.len() - before;
        if let Some(run) = &mut self.run {
            let fits = run.destination == destination
                && !run.is_closed
                && bytes <= run.segment_bytes
                && run.datagrams < max_datagrams
                && run.bytes + bytes <= MAX_RUN_BYTES;
            if fits {
                run.is_closed = bytes < run.segment_bytes;
                run.datagrams += 1;
                run.bytes += bytes;
                return None;
            }
        }
        let segment_bytes = bytes;
        self.run.replace(Run { destination, segment_bytes, datagrams: 1, bytes, is_closed: false })
    }

    pub(crate) fn finish(&mut self) -> Option<Run> {
        self.run.take()
    }

    pub(crate) fn send(&mut self, socket: &Socket, run: &Run, route: &Route) -> Multicast {
        let buffer = std::mem::take(&mut self.buffer);
        let multicast = self.send_bytes(socket, run, &buffer[..run.bytes], route);
        self.buffer = buffer;
        self.buffer.drain(..run.bytes);
        multicast
    }

    pub(crate) fn take(&mut self, run: &Run) -> Vec<u8> {
        self.buffer.drain(..run.bytes).collect()
    }

    pub(crate) fn has_met_limit(&mut self) -> bool {
        std::mem::take(&mut self.has_met_limit)
    }

    pub(crate) fn send_bytes(
        &mut self,
        socket: &Socket,
        run: &Run,
        bytes: &[u8],
        route: &Route,
    ) -> Multicast {
        let mut multicast = Multicast::Fine;
        if let Some(address) = route.multicast {
            let sent = self.send_to(socket, address, run.segment_bytes, bytes);
            if sent.is_err_and(|error| leads_nowhere(&error)) {
                multicast = Multicast::Unreachable;
            }
        }
        for address in &route.unicast {
            // The error is already counted. A refused datagram is a loss like any other.
            let _ = self.send_to(socket, *address, run.segment_bytes, bytes);
        }
        if route.is_copied {
            self.counters.unicast_copies += (run.datagrams * route.unicast.len()) as u64;
        }
        if route.multicast.is_none() && route.unicast.is_empty() && !route.is_empty_group {
            self.counters.unroutable += run.datagrams as u64;
        }
        multicast
    }

    pub(crate) fn is_blocked(&self) -> bool {
        !self.backlog.is_empty()
    }

    pub(crate) fn resume(&mut self, socket: &Socket) {
        while let Some(waiting) = self.backlog.pop_front() {
            let Waiting { address, segment_bytes, ref bytes } = waiting;
            match self.try_send(socket, address, segment_bytes, bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.backlog.push_front(waiting);
                    return;
                }
                _ => self.backlog_bytes -= bytes.len(),
            }
        }
    }

    fn send_to(
        &mut self,
        socket: &Socket,
        address: SocketAddr,
        segment_bytes: usize,
        bytes: &[u8],
    ) -> io::Result<()> {
        if self.is_blocked() {
            self.keep(address, segment_bytes, bytes);
            return Ok(());
        }
        match self.try_send(socket, address, segment_bytes, bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.keep(address, segment_bytes, bytes);
                Ok(())
            }
            result => result,
        }
    }

    /// Sends `bytes` in one call, or datagram by datagram if the system cannot split them.
    fn try_send(
        &mut self,
        socket: &Socket,
        address: SocketAddr,
        segment_bytes: usize,
        bytes: &[u8],
    ) -> io::Result<()> {
        match self.call(socket, address, Some(segment_bytes), bytes) {
            Err(error) if cannot_split(&error) && bytes.len() > segment_bytes => {
                bytes.chunks(segment_bytes).try_for_each(|datagram| {
                    let sent = self.call(socket, address, None, datagram);
                    self.count(&sent, 1, datagram.len());
                    // Without segmentation, the remaining datagrams may be dropped.
                    sent.or_else(|error| match error.kind() {
                        ErrorKind::WouldBlock => {
                            self.counters.send_dropped += 1;
                            Ok(())
                        }
                        _ => Err(error),
                    })
                })
            }
            result => {
                self.count(&result, bytes.len().div_ceil(segment_bytes), bytes.len());
                result
            }
        }
    }

    fn call(
        &mut self,
        socket: &Socket,
        destination: SocketAddr,
        segment_size: Option<usize>,
        contents: &[u8],
    ) -> io::Result<()> {
        self.counters.send_calls += 1;
        // Other nodes know this one by its interface's address. Between loopback and other
        // networks, the operating system selects a source address that works.
        let same_side = destination.ip().is_loopback() == self.source.is_loopback();
        let stays = destination.ip().is_multicast() || !same_side;
        let src_ip = (!stays).then_some(IpAddr::V4(self.source));
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip };
        socket.state().try_send(socket.io(), &transmit)
    }

    fn count(&mut self, sent: &io::Result<()>, datagrams: usize, bytes: usize) {
        match sent {
            Ok(()) => {
                self.counters.datagrams_out += datagrams as u64;
                self.counters.bytes_out += bytes as u64;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::trace!("a datagram was refused: {error}");
                self.counters.send_errors += datagrams as u64;
                if is_one_of(error, &[Errno::EMSGSIZE]) {
                    self.counters.send_too_large += datagrams as u64;
                    self.has_met_limit = true;
                }
            }
        }
    }

    fn keep(&mut self, address: SocketAddr, segment_bytes: usize, bytes: &[u8]) {
        if self.backlog_bytes + bytes.len() > BACKLOG_BYTES {
            self.counters.send_dropped += bytes.len().div_ceil(segment_bytes) as u64;
            return;
        }
        self.backlog_bytes += bytes.len();
        self.backlog.push_back(Waiting { address, segment_bytes, bytes: bytes.to_vec() });
    }
}

fn cannot_split(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::EIO, Errno::EINVAL])
}

fn leads_nowhere(error: &io::Error) -> bool {
    let errnos = [
        Errno::ENETUNREACH,
        Errno::EHOSTUNREACH,
        Errno::ENETDOWN,
        Errno::ENODEV,
        Errno::EPERM,
        Errno::EACCES,
        Errno::EADDRNOTAVAIL,
    ];
    is_one_of(error, &errnos)
}

fn is_one_of(error: &io::Error, errnos: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|raw| errnos.contains(&Errno::from_raw(raw)))
}

/// Maximum payload, in bytes, of one UDP datagram that the kernel splits.
const MAX_RUN_BYTES: usize = 65_000;
const BACKLOG_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::receive::{Receiver, RecvBuffer, SocketKind};
    use crate::net::sockets::{Bindings, Sockets};
    use carom_proto::loss::Loss;
    use carom_proto::wire::{Header, Protocol};
    use carom_proto::{GroupId, NodeId};

    const MANY: usize = 64;

    fn sockets() -> Sockets {
        let bindings =
            Bindings { interface: Ipv4Addr::LOCALHOST, port: Some(0), multicast_port: None };
        Sockets::open(bindings).expect("sockets")
    }

    fn add(sender: &mut Sender, destination: &Destination, bytes: usize) -> Option<Run> {
        let end = sender.buffer.len() + bytes;
        Header::new(Protocol::Lateral, 1, GroupId(1), NodeId(1)).begin(sender.buffer());
        sender.buffer().resize(end, bytes as u8);
        sender.add(destination.clone(), MANY)
    }

    #[test]
    fn run_ends_at_another_destination_or_size_of_datagram() {
        let (a, b) = (Destination::Group(GroupId(1)), Destination::Node(NodeId(2)));
        let mut sender = Sender::new(Ipv4Addr::LOCALHOST);
        let mut runs: Vec<Run> = Vec::new();
        for (destination, bytes) in [(&a, 40), (&a, 40), (&b, 40), (&b, 50), (&b, 30), (&b, 30)] {
            if let Some(run) = add(&mut sender, destination, bytes) {
                sender.buffer.drain(..run.bytes);
                runs.push(run);
            }
        }
        runs.extend(sender.finish());
        let shape: Vec<(usize, usize)> = runs.iter().map(|it| (it.datagrams, it.bytes)).collect();
        assert_eq!(shape, [(2, 80), (1, 40), (2, 80), (1, 30)]);
    }

    #[test]
    fn a_train_of_segments_leaves_in_one_call_and_arrives_split() {
        let (here, there) = (sockets(), sockets());
        let mut sender = Sender::new(Ipv4Addr::LOCALHOST);
        let destination = Destination::Node(NodeId(2));
        for _ in 0..9 {
            assert!(add(&mut sender, &destination, 1000).is_none());
        }
        assert!(add(&mut sender, &destination, 300).is_none());
        let run = sender.finish().expect("a run");
        let route = Route { unicast: vec![there.endpoint], ..Route::default() };
        assert_eq!(sender.send(&here.unicast, &run, &route), Multicast::Fine);
        assert_eq!((sender.counters.send_calls, sender.counters.datagrams_out), (1, 10));
        assert!(sender.buffer.is_empty());

        let mut receiver = Receiver::new(NodeId(2), Loss::None, 1);
        let drained = receiver.drain(SocketKind::Unicast, &there.unicast, &mut RecvBuffer::new());
        assert!(!drained.expect("received"));
        let mut sizes = Vec::new();
        while let Some((source, datagram)) = receiver.pop() {
            assert_eq!(source.0, here.endpoint);
            sizes.push(datagram.bytes().len());
        }
        assert_eq!(sizes, [[1000; 9].as_slice(), &[300]].concat());
    }

    #[test]
    fn datagrams_without_room_stay_in_the_socket() {
        let (here, there) = (sockets(), sockets());
        let mut sender = Sender::new(Ipv4Addr::LOCALHOST);
        let route = Route { unicast: vec![there.endpoint], ..Route::default() };
        for _ in 0..120 {
            for _ in 0..60 {
                assert!(add(&mut sender, &Destination::Node(NodeId(2)), 1000).is_none());
            }
            let run = sender.finish().expect("a run");
            sender.send(&here.unicast, &run, &route);
        }
        let mut receiver = Receiver::new(NodeId(2), Loss::None, 1);
        let (mut buffer, mut has_more) = (RecvBuffer::new(), true);
        while has_more {
            let drained = receiver.drain(SocketKind::Unicast, &there.unicast, &mut buffer);
            has_more = drained.expect("received");
            while receiver.pop().is_some() {}
        }
        assert_eq!(receiver.inbox_dropped(), 0);
    }

    #[test]
    fn refused_multicast_is_reported_and_counted() {
        let here = sockets();
        let mut sender = Sender::new(Ipv4Addr::LOCALHOST);
        assert!(add(&mut sender, &Destination::Group(GroupId(1)), 40).is_none());
        let run = sender.finish().expect("a run");
        // Broadcast from a socket without permission for it is refused in the same way as multicast
        // can be.
        let multicast = Some(SocketAddr::new(Ipv4Addr::BROADCAST.into(), 9));
        let route = Route { multicast, unicast: vec![here.endpoint], ..Route::default() };
        assert_eq!(sender.send(&here.unicast, &run, &route), Multicast::Unreachable);
        assert_eq!((sender.counters.send_errors, sender.counters.datagrams_out), (1, 1));
    }

    #[test]
    fn blocked_datagrams_wait_up_to_a_bound_and_others_are_counted() {
        let (here, there) = (sockets(), sockets());
        let mut sender = Sender::new(Ipv4Addr::LOCALHOST);
        sender.keep(there.endpoint, 1000, &[1; 2500]);
        assert!(sender.is_blocked());
        let rest = vec![2; BACKLOG_BYTES - 2000];
        sender.keep(there.endpoint, 1000, &rest);
        assert_eq!(sender.counters.send_dropped, rest.len().div_ceil(1000) as u64);
        sender.resume(&here.unicast);
        assert!(!sender.is_blocked());
        assert_eq!((sender.counters.datagrams_out, sender.backlog_bytes), (3, 0));
    }
}
