//! What crossed the network, and what did not.

use carom_proto::Class;

/// Counters of a world since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that machines sent; one multicast counts once.
    pub sent: PerClass,
    /// Datagrams that were handed to machines.
    pub delivered: PerClass,
    /// Datagrams lost by the loss model of the receiving host.
    pub lost_at_host: u64,
    /// Datagrams lost by the loss model of a link.
    pub lost_on_link: u64,
    /// Datagrams that found a link's queue full.
    pub queue_full: u64,
    /// Datagrams that came to a link which was dead; each takes those behind it along.
    pub dead_link: u64,
    /// Datagrams that a partition kept away.
    pub cut_off: u64,
    /// Datagrams that reached a host without a machine.
    pub nobody_there: u64,
    /// Datagrams to a node or endpoint that does not exist.
    pub unknown_destination: PerClass,
    /// Receivers of datagrams to which no links lead: other hosts, or the sender itself.
    pub unreachable: u64,
    /// Datagrams that found the receive buffer of their host full, or made room in it.
    pub buffer_full: u64,
    /// Datagrams that arrived twice.
    pub duplicated: u64,
    /// Datagrams that arrived damaged.
    pub corrupted: u64,
    /// Datagrams that others overtook.
    pub reordered: u64,
    /// Links that machines asked for.
    pub links_asked: u64,
    /// Of these, accepted by a machine.
    pub links_opened: u64,
    /// Of these, to where nobody listened, or for which the opener's host had no room.
    pub links_refused: u64,
    /// Ends of links that their machine saw break, because of the network, a crash or a full
    /// buffer.
    pub links_broken: u64,
    /// Attempts to carry a link's bytes on that failed: they were tried again.
    pub link_stalls: u64,
    /// Bytes of links that were handed to machines.
    pub link_bytes: u64,
    /// Commands whose machine was gone when they were due.
    pub commands_missed: u64,
    /// Calls of machines.
    pub steps: u64,
}

/// Datagrams and bytes by class: bytes of UDP payload, but in a [`Traffic`](crate::Traffic).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClass {
    datagrams: [u64; 4],
    bytes: [u64; 4],
}

impl PerClass {
    /// Datagrams of `class`.
    pub fn datagrams(&self, class: Class) -> u64 {
        self.datagrams[class as usize]
    }

    /// Bytes in the datagrams of `class`.
    pub fn bytes(&self, class: Class) -> u64 {
        self.bytes[class as usize]
    }

    /// Datagrams of all classes.
    pub fn all_datagrams(&self) -> u64 {
        self.datagrams.iter().sum()
    }

    /// Bytes in the datagrams of all classes.
    pub fn all_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// What was counted after `before`, which was read from the same counter.
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for class in 0..4 {
            since.datagrams[class] -= before.datagrams[class];
            since.bytes[class] -= before.bytes[class];
        }
        since
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for class in 0..4 {
            self.datagrams[class] += other.datagrams[class];
            self.bytes[class] += other.bytes[class];
        }
    }

    pub(crate) fn add(&mut self, class: Class, bytes: usize) {
        self.datagrams[class as usize] += 1;
        self.bytes[class as usize] += bytes as u64;
    }
}
