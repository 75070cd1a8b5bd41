//! Datagrams in: many per system call, split, thinned by injected loss, into the bounded buffer.

use std::io::{self, ErrorKind, IoSliceMut};

use carom_proto::inbox::Inbox;
use carom_proto::loss::{Loss, LossInjector};
use carom_proto::wire::HEADER_BYTES;
use carom_proto::{Endpoint, NodeId};
use quinn_udp::{BATCH_SIZE, RecvMeta};

use crate::sockets::Socket;

/// The memory that system calls fill. One for all sockets of a driver: what is received is copied
/// into the inbox of its node at once.
pub(crate) struct Landing {
    bytes: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl Landing {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; BATCH_SIZE * SLOT_BYTES], meta: [RecvMeta::default(); BATCH_SIZE] }
    }
}

/// The receiving side of one node.
#[derive(Debug)]
pub(crate) struct Receiver {
    own: NodeId,
    inbox: Inbox,
    injector: LossInjector,
    pub(crate) counters: ReceiveCounters,
}

/// What arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiveCounters {
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
    pub(crate) own_echo: u64,
}

impl Receiver {
    pub(crate) fn new(own: NodeId, loss: Loss, seed: u64) -> Self {
        Self {
            own,
            inbox: Inbox::new(INBOX_DATAGRAMS, seed),
            injector: LossInjector::new(loss, seed ^ LOSS_STREAM),
            counters: ReceiveCounters::default(),
        }
    }

    /// Takes what waits in `socket`; says whether something may still be there because a full turn
    /// has been taken.
    pub(crate) fn drain(&mut self, socket: &Socket, landing: &mut Landing) -> io::Result<bool> {
        let mut taken = 0;
        while taken < INBOX_DATAGRAMS {
            let mut slots = landing.bytes.chunks_exact_mut(SLOT_BYTES);
            let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
                IoSliceMut::new(slots.next().expect("as many slots as the batch has places"))
            });
            match socket.state().recv(socket.io(), &mut buffers, &mut landing.meta) {
                Ok(count) => taken += self.take(landing, count),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(false),
                    // What an earlier datagram of ours met with; it says nothing about receiving.
                    ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(true)
    }

    /// The datagram that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<(Endpoint, &[u8])> {
        self.inbox.pop()
    }

    pub(crate) fn inbox_dropped(&self) -> u64 {
        self.inbox.dropped()
    }

    pub(crate) fn losses_injected(&self) -> u64 {
        self.injector.dropped()
    }

    fn take(&mut self, landing: &Landing, count: usize) -> usize {
        let mut taken = 0;
        for (slot, meta) in landing.bytes.chunks_exact(SLOT_BYTES).zip(&landing.meta[..count]) {
            if meta.len == 0 {
                self.accept(Endpoint(meta.addr), &[]);
                taken += 1;
            }
            // The kernel joins datagrams of equal size; the last one may be shorter.
            for datagram in slot[..meta.len].chunks(meta.stride.max(1)) {
                self.accept(Endpoint(meta.addr), datagram);
                taken += 1;
            }
        }
        taken
    }

    fn accept(&mut self, source: Endpoint, datagram: &[u8]) {
        self.counters.datagrams += 1;
        self.counters.bytes += datagram.len() as u64;
        if sender_of(datagram) == Some(self.own) {
            // Not a loss of anybody's: the injector is not asked.
            self.counters.own_echo += 1;
        } else if !self.injector.drops_next() {
            self.inbox.push(source, datagram);
        }
    }
}

/// The sender as the header has it, unchecked.
fn sender_of(datagram: &[u8]) -> Option<NodeId> {
    let bytes = datagram.get(SENDER_OFFSET..SENDER_OFFSET + 8)?;
    let sender = u64::from_be_bytes(bytes.try_into().ok()?);
    (datagram.len() >= HEADER_BYTES).then_some(NodeId(sender))
}

/// Room for the largest train of segments that the kernel can hand over at once.
const SLOT_BYTES: usize = 1 << 16;
/// As many as the kernel's buffer holds if it is granted, so that a pause of the thread costs
/// nothing and only a lasting overload does.
const INBOX_DATAGRAMS: usize = 4 * Inbox::DEFAULT_CAPACITY;
/// Of the sender in [`carom_proto::wire`].
const SENDER_OFFSET: usize = 16;
/// Keeps the draws of losses apart from those of the inbox.
const LOSS_STREAM: u64 = 0x1055;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::GroupId;
    use carom_proto::wire::{Header, Protocol, seal};

    const SOURCE: Endpoint =
        Endpoint(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1));

    fn datagram(sender: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let header = Header {
            protocol: Protocol::Lateral,
            kind: 1,
            flags: 0,
            group: GroupId(1),
            sender: NodeId(sender),
            view: 0,
        };
        let start = header.begin(&mut out);
        seal(&mut out, start);
        out
    }

    #[test]
    fn own_echoes_are_passed_over_before_losses_are_drawn() {
        let mut receiver = Receiver::new(NodeId(7), Loss::Uniform(1.0), 1);
        receiver.accept(SOURCE, &datagram(7));
        assert_eq!((receiver.counters.own_echo, receiver.losses_injected()), (1, 0));
        receiver.accept(SOURCE, &datagram(8));
        assert_eq!((receiver.counters.own_echo, receiver.losses_injected()), (1, 1));
        assert!(receiver.pop().is_none());
    }

    #[test]
    fn what_is_too_short_for_a_header_has_no_sender() {
        assert_eq!(sender_of(&datagram(9)), Some(NodeId(9)));
        assert_eq!(sender_of(&datagram(9)[..27]), None);
        assert_eq!(sender_of(&[]), None);
    }
}
