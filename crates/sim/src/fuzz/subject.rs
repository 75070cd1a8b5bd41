//! What is tested: engines of one protocol, made by who knows it.

use core::time::Duration;

pub use crate::checkers::OwedFrom;
use carom_proto::{Engine, GroupSettings, Origin, Rng};

/// A protocol whose engines are tested.
pub trait Subject: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Draws settings for one scenario, all engines of which have them.
    fn set_up(&self, rng: &mut Rng) -> Box<dyn Setup>;
}

/// The settings of one scenario.
pub trait Setup {
    /// The settings that differ from the default, for the reader of a failure.
    fn describe(&self) -> String;

    /// The settings of a group that is called `name`.
    fn group(&self, name: &str) -> GroupSettings;

    /// An engine for a start of a node.
    fn engine(&self, origin: Origin, seed: u64) -> Box<dyn Engine>;

    /// Whether the protocol tells the starts of a node apart, so that they may share its id.
    fn tells_starts(&self) -> bool {
        false
    }

    /// Whether an attacker may take part. The others hear nothing of one.
    fn is_attacked(&self) -> bool {
        false
    }

    /// A datagram that an attacker makes of one that it has heard, if it can make any of that.
    fn forge(&self, _rng: &mut Rng, _heard: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Bytes that an engine with these settings may keep.
    fn limit_bytes(&self) -> usize;

    /// Bytes of the largest message that is sent. Where a scenario has a larger one, it is cut off
    /// there. Default: what every protocol takes.
    fn most_bytes(&self) -> usize {
        1_200
    }

    /// From where on a receiver is owed a sender's messages.
    fn owed_from(&self) -> OwedFrom;

    /// Whether everything that is sent without faults is delivered. Where it is not, it must be
    /// reported lost.
    fn delivers_all(&self) -> bool;

    /// For how long the others may hold a sender back once the network is healed: as long as the
    /// protocol waits for a member that does not answer.
    fn patience(&self) -> Duration;

    /// What an engine's counters say at the end that breaks a promise of the protocol's own, such
    /// as how much redundancy it adds.
    fn broken_promise(&self, counters: &[(&'static str, u64)]) -> Option<String>;

    /// Whether [`Engine::confirm`] is answered.
    fn confirms(&self) -> bool;
}
