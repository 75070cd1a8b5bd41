//! Receives datagrams into a bounded buffer: many per system call, and with injected loss.

use std::io::{self, ErrorKind, IoSliceMut};

use carom_proto::inbox::Inbox;
use carom_proto::loss::{Loss, LossInjector};
use carom_proto::node::Node;
use carom_proto::wire::Datagram;
use carom_proto::{Endpoint, LOOK_AHEAD, NodeId};
use quinn_udp::{BATCH_SIZE, RecvMeta};
use smallvec::SmallVec;

use super::sockets::Socket;
use crate::shared::status::NetCounters;

/// The memory into which system calls receive. All sockets of a driver share it, because received
/// datagrams are copied to their node's receive buffer at once.
pub(crate) struct RecvBuffer {
    bytes: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl RecvBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; BATCH_SIZE * SLOT_BYTES], meta: [RecvMeta::default(); BATCH_SIZE] }
    }
}

#[derive(Debug)]
pub(crate) struct Receiver {
    own: NodeId,
    inboxes: [Inbox; 2],
    injector: LossInjector,
    pub(crate) counters: NetCounters,
    pub(crate) unknown: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKind {
    Unicast = 0,
    Multicast = 1,
}

impl Receiver {
    pub(crate) fn new(own: NodeId, loss: Loss, seed: u64) -> Self {
        Self {
            own,
            inboxes: [seed, !seed].map(|seed| Inbox::new(INBOX_DATAGRAMS + BATCH_DATAGRAMS, seed)),
            injector: LossInjector::new(loss, seed ^ LOSS_STREAM),
            counters: NetCounters::default(),
            unknown: 0,
        }
    }

    /// Reads the waiting datagrams from `socket`. Returns `true` if more datagrams may be waiting,
    /// because the limit of one turn was reached.
    ///
    /// Drain the unicast socket first; its datagrams are returned last. The packets that caused a
    /// peer to send a repair were multicast earlier, so they have been read by then. Thus, a packet
    /// still waiting in the multicast socket does not count as missing.
    pub(crate) fn drain(
        &mut self,
        from: SocketKind,
        socket: &Socket,
        buffer: &mut RecvBuffer,
    ) -> io::Result<bool> {
        let mut taken = 0;
        while taken < INBOX_DATAGRAMS {
            let mut slots = buffer.bytes.chunks_exact_mut(SLOT_BYTES);
            let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
                IoSliceMut::new(slots.next().expect("as many slots as the batch has places"))
            });
            match socket.state().recv(socket.io(), &mut buffers, &mut buffer.meta) {
                Ok(count) => taken += self.take(from, buffer, count),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(false),
                    // The error concerns a datagram sent earlier and does not affect receiving.
                    ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(true)
    }

    pub(crate) fn pop(&mut self) -> Option<(Endpoint, Datagram<'_>)> {
        let [unicast, multicast] = &mut self.inboxes;
        multicast.pop().or_else(|| unicast.pop())
    }

    /// Announces to `node` the datagrams that [`Receiver::pop`] will return next.
    pub(crate) fn announce(&self, node: &Node) {
        let waiting = self.waiting().take(LOOK_AHEAD);
        node.look_ahead(&waiting.collect::<SmallVec<[_; LOOK_AHEAD]>>());
    }

    fn waiting(&self) -> impl Iterator<Item = Datagram<'_>> {
        let [unicast, multicast] = &self.inboxes;
        multicast.waiting().chain(unicast.waiting())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inboxes.iter().all(Inbox::is_empty)
    }

    pub(crate) fn inbox_dropped(&self) -> u64 {
        self.inboxes.iter().map(Inbox::dropped).sum()
    }

    pub(crate) fn losses_injected(&self) -> u64 {
        self.injector.dropped()
    }

    fn take(&mut self, from: SocketKind, buffer: &RecvBuffer, count: usize) -> usize {
        let mut taken = 0;
        for (slot, meta) in buffer.bytes.chunks_exact(SLOT_BYTES).zip(&buffer.meta[..count]) {
            if meta.len == 0 {
                self.accept(from, Endpoint(meta.addr), &[]);
                taken += 1;
            }
            // The kernel joins datagrams of equal size. The last one may be shorter.
            for datagram in slot[..meta.len].chunks(meta.stride.max(1)) {
                self.accept(from, Endpoint(meta.addr), datagram);
                taken += 1;
            }
        }
        taken
    }

    fn accept(&mut self, from: SocketKind, source: Endpoint, datagram: &[u8]) {
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += datagram.len() as u64;
        let Ok(datagram) = Datagram::parse(datagram) else {
            self.unknown += 1;
            return;
        };
        if datagram.header().sender == self.own {
            // A node's own datagram is not subject to injected loss, because its loss would affect
            // no node.
            self.counters.own_echo += 1;
        } else if !self.injector.drops_next() {
            self.inboxes[from as usize].push(source, &datagram);
        }
    }
}

/// Size of the largest run of segments that the kernel returns at once.
const SLOT_BYTES: usize = 1 << 16;
/// Maximum number of datagrams that the last system call of a turn adds, as runs of segments.
const BATCH_DATAGRAMS: usize = BATCH_SIZE * 128;
/// Capacity of the receive buffer. It equals the requested capacity of the kernel's buffer, so that
/// only a lasting overload loses datagrams, not a pause of the thread.
const INBOX_DATAGRAMS: usize = 4 * Inbox::DEFAULT_CAPACITY;
/// Separates the random draws of losses from those of the receive buffer.
const LOSS_STREAM: u64 = 0x1055;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::GroupId;
    use carom_proto::wire::{Header, Protocol};

    const SOURCE: Endpoint =
        Endpoint(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1));

    fn datagram(sender: u64) -> Vec<u8> {
        Header::new(Protocol::Lateral, 1, GroupId(1), NodeId(sender)).datagram(&[])
    }

    #[test]
    fn own_echoes_are_passed_over_before_losses_are_drawn() {
        let mut receiver = Receiver::new(NodeId(7), Loss::Uniform(1.0), 1);
        receiver.accept(SocketKind::Multicast, SOURCE, &datagram(7));
        assert_eq!((receiver.counters.own_echo, receiver.losses_injected()), (1, 0));
        receiver.accept(SocketKind::Multicast, SOURCE, &datagram(8));
        assert_eq!((receiver.counters.own_echo, receiver.losses_injected()), (1, 1));
        assert!(receiver.pop().is_none());
    }

    #[test]
    fn multicast_comes_out_before_the_unicast_that_followed_from_it() {
        let mut receiver = Receiver::new(NodeId(7), Loss::None, 1);
        receiver.accept(SocketKind::Unicast, SOURCE, &datagram(1));
        receiver.accept(SocketKind::Multicast, SOURCE, &datagram(2));
        receiver.accept(SocketKind::Unicast, SOURCE, &datagram(3));
        let waiting: Vec<u64> = receiver.waiting().map(|it| it.header().sender.0).collect();
        let mut out = Vec::new();
        while let Some((_, datagram)) = receiver.pop() {
            out.push(datagram.header().sender.0);
        }
        assert_eq!(out, [2, 1, 3]);
        assert_eq!(out, waiting);
        assert!(receiver.is_empty());
    }
}
