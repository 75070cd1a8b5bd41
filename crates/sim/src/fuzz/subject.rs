//! The protocols under test, whose engines their crates create.

use core::time::Duration;

pub use crate::checkers::OwedFrom;
use carom_proto::{Engine, GroupSettings, Origin, Rng};

/// A protocol under test.
pub trait Subject: Sync {
    /// Returns its name on the command line.
    fn name(&self) -> &'static str;

    /// Draws the settings of one scenario, which all its engines share.
    fn set_up(&self, rng: &mut Rng) -> Box<dyn Setup>;
}

/// The settings of one scenario.
pub trait Setup {
    /// Returns the settings that differ from the default, for the report of a failure.
    fn describe(&self) -> String;

    /// Returns the settings of the group `name`.
    fn group(&self, name: &str) -> GroupSettings;

    /// Creates an engine for a start of a node.
    fn engine(&self, origin: Origin, seed: u64) -> Box<dyn Engine>;

    /// Returns `true` if the protocol distinguishes the starts of a node, which may then share its
    /// id.
    fn tells_starts(&self) -> bool {
        false
    }

    /// Returns `true` if an attacker may take part. Protocols that return `false` receive none of
    /// its datagrams.
    fn is_attacked(&self) -> bool {
        false
    }

    /// Crafts an attacker's datagram from one that it has heard, if it can.
    fn forge(&self, _rng: &mut Rng, _heard: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Returns the maximum bytes that an engine with these settings may hold.
    fn limit_bytes(&self) -> usize;

    /// Returns the maximum bytes of a message. Larger messages of a scenario are truncated to it.
    /// Default: 1200, which every protocol accepts.
    fn most_bytes(&self) -> usize {
        1_200
    }

    /// Returns the point from which a receiver is owed a sender's messages.
    fn owed_from(&self) -> OwedFrom;

    /// Returns `true` if everything sent without faults must be delivered. Otherwise a message that
    /// is not delivered must be reported as lost.
    fn delivers_all(&self) -> bool;

    /// Returns the maximum time for which others may hold a sender back in a healed network: the
    /// time for which the protocol waits for a member that does not answer.
    fn patience(&self) -> Duration;

    /// Returns the guarantee of the protocol that an engine's final counters violate, if any. An
    /// example is the share of redundancy.
    fn broken_promise(&self, counters: &[(&'static str, u64)]) -> Option<String>;

    /// Returns `true` if [`Engine::confirm`] is answered.
    fn confirms(&self) -> bool;
}
