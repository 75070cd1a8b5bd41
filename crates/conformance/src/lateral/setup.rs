use core::time::Duration;

use carom_proto::{Engine, Origin, Profile, Rng};

use super::history::OwedFrom;

/// The settings that all engines of one scenario share, and the guarantees of these engines.
pub struct Setup {
    /// Description of the settings, for the report of a failure.
    pub description: String,
    /// Profile of every group.
    pub profile: Profile,
    /// Constructor of the engine for a start of a node, from a seed.
    pub engine: Box<dyn Fn(Origin, u64) -> Box<dyn Engine>>,
    /// Maximum number of bytes that an engine may hold.
    pub limit_bytes: usize,
    /// Maximum size, in bytes, of a message. Default: 1200, which every protocol accepts.
    pub most_bytes: usize,
    /// `true` if starts of a node are distinguished, and may share an id. Default: `false`.
    pub distinguishes_starts: bool,
    /// Function that crafts an attacker's datagrams. Default: `None`, for engines without attacks.
    pub forge: Option<Forge>,
    /// Point from which a receiver is owed a sender's messages. Default: the view.
    pub owed_from: OwedFrom,
    /// `true` if all messages without a deadline that are sent after the faults must be delivered.
    /// If `false`, they may be reported as lost instead. Default: `true`.
    pub delivers_all: bool,
    /// `true` if the engine answers [`Engine::confirm`]. Default: `true`.
    pub confirms: bool,
    /// Maximum time for which other members may hold a sender back in a healed network. It is the
    /// time for which the protocol waits for a silent member. Default: zero.
    pub patience: Duration,
    /// Function that checks the final counters. Default: no check.
    pub broken_promise: Box<Promise>,
}

/// A function that crafts an attacker's datagram from an overheard one, or returns `None`.
pub type Forge = fn(&mut Rng, &[u8]) -> Option<Vec<u8>>;

/// A function that checks an engine's final counters, and returns the guarantee that they violate.
pub type Promise = dyn Fn(&[(&'static str, u64)]) -> Option<String>;

impl Setup {
    /// Creates the default settings for the engines that `engine` creates. `limit_bytes` is the
    /// maximum number of bytes that an engine may hold.
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
