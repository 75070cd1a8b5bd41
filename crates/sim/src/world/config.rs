//! Configuration of a world.

use core::time::Duration;

use carom_proto::Class;
use carom_proto::loss::Loss;
use carom_proto::membership::link::MAX_WAITING_BYTES;

use crate::topology::Topology;

/// Configuration of a world.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Hosts, switches and links.
    pub topology: Topology,
    /// Source of all randomness of the world.
    pub seed: u64,
    /// Loss model of each host on receipt, with a seed for each host. Default: none.
    pub loss: Loss,
    /// Datagrams that `loss`, `Fault::Loss` and the loss of links apply to. Default: all.
    pub lossy: Lossy,
    /// Maximum number of datagrams that wait at a host. More drop a random one. Default: 1024.
    pub receive_buffer: usize,
    /// Processing time of a host for each datagram. Default: zero.
    pub cpu_per_datagram: Duration,
    /// Maximum number of unsent bytes in each direction of a connection. Default:
    /// [`MAX_WAITING_BYTES`].
    ///
    /// A connection that exceeds it, because the peer does not read, is closed.
    pub link_buffer: usize,
    /// `true` if [`World::history`](crate::World::history) is computed. Default: on.
    pub hashes_history: bool,
    /// `true` if each machine's invariants are checked after every step. Default: on.
    pub checks: bool,
}

/// The datagrams that a loss model applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lossy {
    /// All datagrams, as in the papers of the lateral family.
    Everything,
    /// The datagrams of one class.
    Only(Class),
}

impl WorldConfig {
    /// Creates the default configuration for this topology and seed.
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
