//! What a message is promised (figure 3.2), chosen for each message.

use core::fmt;

use crate::wire::DecodeError;

/// The quality of service of one message. Each gives all that those before it give; between two
/// messages of different levels that of the lower one holds (3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Qos {
    /// Delivered at once, or never, or more than once.
    Unreliable,
    /// Delivered once, at once, whatever is missing before it.
    Unordered,
    /// Delivered after all that its sender sent before it.
    SourceOrdered,
    /// Delivered at the same place of one order at all members.
    #[default]
    TotallyOrdered,
    /// Delivered when it is known that so many other members hold it and its place, or all others
    /// where there are fewer: no more of them may die at once for it to be lost. 1 to 255.
    Resilient(u8),
    /// Delivered when a majority holds it and its place: the order is agreed among all partitions
    /// for ever. Only for groups in which a minority may not go on.
    MajorityResilient,
    /// Delivered when every member holds it and its place ("safe").
    TotallyResilient,
}

impl Qos {
    /// Whether it is delivered in the total order.
    pub fn is_ordered(self) -> bool {
        self >= Self::TotallyOrdered
    }

    /// Level u8 and K u8, as they are on the wire.
    pub(super) fn to_wire(self) -> [u8; 2] {
        match self {
            Self::Unreliable => [0, 0],
            Self::Unordered => [1, 0],
            Self::SourceOrdered => [2, 0],
            Self::TotallyOrdered => [3, 0],
            Self::Resilient(k) => [4, k],
            Self::MajorityResilient => [5, 0],
            Self::TotallyResilient => [6, 0],
        }
    }

    pub(super) fn from_wire(bytes: [u8; 2]) -> Result<Self, DecodeError> {
        match bytes {
            [0, 0] => Ok(Self::Unreliable),
            [1, 0] => Ok(Self::Unordered),
            [2, 0] => Ok(Self::SourceOrdered),
            [3, 0] => Ok(Self::TotallyOrdered),
            [4, k] if k > 0 => Ok(Self::Resilient(k)),
            [5, 0] => Ok(Self::MajorityResilient),
            [6, 0] => Ok(Self::TotallyResilient),
            _ => Err(DecodeError::Value),
        }
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
