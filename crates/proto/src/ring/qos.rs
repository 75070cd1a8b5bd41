//! Delivery guarantees of messages (figure 3.2), selected for each message.

use core::fmt;

/// Delivery guarantee of one message.
///
/// Each level orders messages at least as strictly as the levels before it. Between two messages of
/// different levels, the guarantee of the lower level applies (3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub enum Qos {
    /// Delivered immediately or never, possibly twice.
    Unreliable,
    /// Delivered exactly once and immediately, even if earlier messages are missing.
    Unordered,
    /// Delivered after all earlier messages of its sender.
    SourceOrdered,
    /// Delivered at the same place in the total order at all members.
    #[default]
    TotallyOrdered,
    /// Delivered once this number of other members, from 1 to 255, are known to hold the message
    /// and its place. If there are fewer members, all of them must hold it. The message then
    /// survives the simultaneous failure of that many members.
    Resilient(#[cfg_attr(test, proptest(strategy = "1_u8.."))] u8),
    /// Delivered once a majority holds the message and its place. The order is then final across
    /// all partitions. Refused in groups with [`AtLeast`](super::Quorum::AtLeast).
    MajorityResilient,
    /// Delivered once every member holds the message and its place ("safe").
    TotallyResilient,
}

impl Qos {
    /// Returns `true` if the message is delivered in the total order.
    pub fn is_ordered(self) -> bool {
        self >= Self::TotallyOrdered
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreliable => f.write_str("unreliable"),
            Self::Unordered => f.write_str("unordered"),
            Self::SourceOrdered => f.write_str("source ordered"),
            Self::TotallyOrdered => f.write_str("totally ordered"),
            Self::Resilient(k) => write!(f, "{k} resilient"),
            Self::MajorityResilient => f.write_str("majority resilient"),
            Self::TotallyResilient => f.write_str("totally resilient"),
        }
    }
}
