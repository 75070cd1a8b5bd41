//! How a world is made.

use core::time::Duration;

use carom_proto::Class;
use carom_proto::loss::Loss;
use carom_proto::membership::link::MAX_WAITING_BYTES;

use crate::topology::Topology;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// What is connected to what.
    pub topology: Topology,
    /// The source of all randomness of the world.
    pub seed: u64,
    /// What each host loses on receipt, each from a seed of its own. Default none.
    pub loss: Loss,
    /// Which datagrams `loss`, [`Fault::Loss`](crate::Fault::Loss) and the loss of links concern.
    /// Default all.
    pub lossy: Lossy,
    /// Datagrams that wait at a busy or paused host at most; beyond that a random one is dropped.
    /// Default 1024.
    pub receive_buffer: usize,
    /// How long a host is busy with each datagram. Default zero: it is handled as it arrives.
    pub cpu_per_datagram: Duration,
    /// Bytes that may wait to be written to a link, in each direction: who writes more to a peer
    /// that does not read is cut off. Default: [`MAX_WAITING_BYTES`].
    pub link_buffer: usize,
    /// Whether [`World::history`](crate::World::history) hashes all that happens. Default on.
    pub hashes_history: bool,
    /// Whether each machine's invariants are checked after every step. Default on.
    pub checks: bool,
}

/// Which datagrams a loss model concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lossy {
    /// All of them, as the papers of the lateral family have it.
    Everything,
    /// Those of one class.
    Only(Class),
}

impl WorldConfig {
    /// The default world of this topology and seed.
    pub fn new(topology: Topology, seed: u64) -> Self {
        Self {
            topology,
            seed,
            loss: Loss::None,
            lossy: Lossy::Everything,
            receive_buffer: 1024,
            cpu_per_datagram: Duration::ZERO,
            link_buffer: MAX_WAITING_BYTES,
            hashes_history: true,
            checks: true,
        }
    }
}

impl Lossy {
    pub(super) fn concerns(self, class: Class) -> bool {
        match self {
            Self::Everything => true,
            Self::Only(only) => only == class,
        }
    }
}
