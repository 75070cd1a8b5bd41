use carom_proto::Class;

/// The counters of a world since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that machines sent. A multicast counts as one datagram.
    pub sent: PerClass,
    /// Datagrams that were delivered to machines.
    pub delivered: PerClass,
    /// Number of datagrams lost by the loss model of the receiving host.
    pub lost_at_host: u64,
    /// Number of datagrams lost by the loss model of a link.
    pub lost_on_link: u64,
    /// Number of datagrams dropped because a link's queue was full.
    pub queue_full: u64,
    /// Number of datagrams dropped at a dead link. A datagram counts once for all receivers behind
    /// it.
    pub dead_link: u64,
    /// Number of datagrams dropped by a partition or a one-way fault.
    pub cut_off: u64,
    /// Number of datagrams that arrived at a host without a machine, or waited at a host whose
    /// machine was killed.
    pub nobody_there: u64,
    /// Datagrams sent to a node or endpoint that does not exist.
    pub unknown_destination: PerClass,
    /// Number of receivers to which a datagram had no path. A datagram that a host sends to itself
    /// counts too.
    pub unreachable: u64,
    /// Number of datagrams dropped because the receive buffer of a host was full.
    pub buffer_full: u64,
    /// Number of datagrams that the network duplicated.
    pub duplicated: u64,
    /// Number of datagrams that the network corrupted.
    pub corrupted: u64,
    /// Number of datagrams that were delayed so that later ones can overtake them.
    pub reordered: u64,
    /// Number of connections that machines requested.
    pub links_asked: u64,
    /// Number of requested connections that a machine accepted.
    pub links_opened: u64,
    /// Number of requested connections refused because the address was unknown, no machine
    /// listened, or a limit was reached.
    pub links_refused: u64,
    /// Number of connection ends notified of an unreachable peer, a break, or a full buffer.
    pub links_broken: u64,
    /// Number of failed attempts to deliver a connection's bytes, repeated until it breaks.
    pub link_stalls: u64,
    /// Bytes of connections that were delivered to machines.
    pub link_bytes: u64,
    /// Number of scheduled or held commands dropped because their machine no longer existed.
    pub commands_missed: u64,
    /// Number of calls to machines.
    pub steps: u64,
}

/// The numbers of datagrams and bytes by class. Only UDP payload bytes are counted, except in a
/// [`Traffic`](crate::Traffic).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClass {
    datagrams: [u64; 4],
    bytes: [u64; 4],
}

impl PerClass {
    /// Returns the number of datagrams of `class`.
    pub fn datagrams(&self, class: Class) -> u64 {
        self.datagrams[class as usize]
    }

    /// Returns the total size, in bytes, of the datagrams of `class`.
    pub fn bytes(&self, class: Class) -> u64 {
        self.bytes[class as usize]
    }

    /// Returns the number of datagrams of all classes.
    pub fn all_datagrams(&self) -> u64 {
        self.datagrams.iter().sum()
    }

    /// Returns the total size, in bytes, of the datagrams of all classes.
    pub fn all_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Returns the difference from `before`, an earlier state of the same counter.
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
