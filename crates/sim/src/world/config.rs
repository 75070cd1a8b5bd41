use core::time::Duration;
use std::sync::Arc;

use carom_proto::Class;
use carom_proto::loss::Loss;
use carom_proto::membership::link::MAX_WAITING_BYTES;

use crate::medium::Media;
use crate::topology::Topology;

/// The configuration of a world.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Hosts, switches and links.
    pub topology: Topology,
    /// Seed of all randomness in the world.
    pub seed: u64,
    /// Loss model on receipt, which each host uses with its own seed. Default: no loss.
    pub loss: Loss,
    /// Datagrams that can be lost, by `loss`, `Fault::Loss` or the loss of links. Default: all.
    pub lossy: Lossy,
    /// Maximum number of datagrams that wait at a host, at least 1. Before it would be exceeded, a
    /// random waiting datagram is dropped. Default: 1024.
    pub receive_buffer: usize,
    /// Time that a host needs to process each datagram. Default: zero.
    pub cpu_per_datagram: Duration,
    /// Maximum number of undelivered bytes in each direction of a connection. Default:
    /// [`MAX_WAITING_BYTES`].
    ///
    /// A connection on which a send would exceed it is closed.
    pub link_buffer: usize,
    /// Enables [`World::history`](crate::World::history). Disable it for speed. Default: `true`.
    pub hashes_history: bool,
    /// Enables the machines' own checks after every call. Disable them for speed. Default: `true`.
    pub checks: bool,
    /// Source of the [medium](crate::Medium) that carries the datagrams in real time. Default:
    /// `None`, for a simulated network in virtual time.
    pub media: Option<Arc<dyn Media>>,
}

/// The datagrams to which a loss model applies.
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
            media: None,
        }
    }
}
