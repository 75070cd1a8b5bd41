//! The settings of one scenario, and what its engines guarantee.

use core::time::Duration;

use carom_proto::{Engine, Origin, Profile, Rng};

use super::history::OwedFrom;

/// The settings of one scenario, which all its engines share, and what they guarantee.
pub struct Setup {
    /// Settings that differ from the default, for the report of a failure.
    pub description: String,
    /// Profile of every group.
    pub profile: Profile,
    /// Constructor of the engine for a start of a node, from a seed.
    pub engine: Box<dyn Fn(Origin, u64) -> Box<dyn Engine>>,
    /// Maximum bytes that an engine may hold.
    pub limit_bytes: usize,
    /// Maximum bytes of a message. Default: 1200, which every protocol accepts.
    pub most_bytes: usize,
    /// `true` if starts of a node are distinguished, and may share its id. Default: `false`.
    pub distinguishes_starts: bool,
    /// Default: `None`, for engines that no attacker sends datagrams.
    pub forge: Option<Forge>,
    /// Point from which a receiver is owed a sender's messages. Default: the view.
    pub owed_from: OwedFrom,
    /// `true` if everything sent without faults must be delivered. Otherwise a message that is not
    /// delivered must be reported as lost. Default: `true`.
    pub delivers_all: bool,
    /// `true` if [`Engine::confirm`] is answered. Default: `true`.
    pub confirms: bool,
    /// Maximum time for which others may hold a sender back in a healed network: the time for which
    /// the protocol waits for a member that does not answer. Default: zero.
    pub patience: Duration,
    /// Default: no guarantee.
    pub broken_promise: Box<Promise>,
}

/// Crafts an attacker's datagram from one that it has heard, if it can.
pub type Forge = fn(&mut Rng, &[u8]) -> Option<Vec<u8>>;

/// Returns the guarantee that an engine's final counters violate, such as that on redundancy.
pub type Promise = dyn Fn(&[(&'static str, u64)]) -> Option<String>;

impl Setup {
    /// Creates the default settings for these engines.
    pub fn new<E: Engine + 'static>(
        description: String,
        profile: Profile,
        engine: impl Fn(Origin, u64) -> E + 'static,
        limit_bytes: usize,
    ) -> Self {
        Self {
            description,
            profile,
            engine: Box::new(move |origin, seed| Box::new(engine(origin, seed))),
            limit_bytes,
            most_bytes: 1_200,
            distinguishes_starts: false,
            forge: None,
            owed_from: OwedFrom::View,
            delivers_all: true,
            confirms: true,
            patience: Duration::ZERO,
            broken_promise: Box::new(|_| None),
        }
    }
}
