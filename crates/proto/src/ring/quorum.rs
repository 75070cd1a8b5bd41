//! Quorum of an ordered group: which part of a ring may continue after a fault (4.4).

use core::fmt;

/// Condition under which a part of a ring may continue after a fault (4.4). [`Quorum::QuorumOf`]
/// also sets the quorum that the ring needs to work at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub enum Quorum {
    /// At least this number of members of the last view, from 1 to [`Quorum::MAX_AT_LEAST`]. If the
    /// view has no more members than this, all of them.
    AtLeast(#[cfg_attr(test, proptest(strategy = "1..=Quorum::MAX_AT_LEAST"))] u16),
    /// An electorate of this number of voters, from 1 to [`Quorum::MAX_ELECTORATE`]. From the first
    /// member on, a ring with fewer voters than a majority of the electorate orders nothing and
    /// grants no lock. Unless an operator [forces](crate::rmp::Rmp::force_quorum) a ring to
    /// continue, two rings therefore never work at the same time, even if they were created
    /// separately. The other members are [clients](super::JoinOptions::is_voter).
    QuorumOf(#[cfg_attr(test, proptest(strategy = "1..=Quorum::MAX_ELECTORATE"))] u16),
    /// More than half of the members of the last view.
    Majority,
    /// Only the complete ring: any failure stops it.
    All,
}

impl Quorum {
    /// Maximum size of an electorate.
    pub const MAX_ELECTORATE: u16 = 4096;

    /// Maximum value of [`Quorum::AtLeast`]: the maximum number of members of a ring.
    pub const MAX_AT_LEAST: u16 = 4096;

    /// Returns `true` if the number of members or voters is within its bounds.
    pub fn is_valid(self) -> bool {
        match self {
            Self::AtLeast(least) => (1..=Self::MAX_AT_LEAST).contains(&least),
            Self::QuorumOf(voters) => (1..=Self::MAX_ELECTORATE).contains(&voters),
            Self::Majority | Self::All => true,
        }
    }

    /// Returns the number of voters that form a majority, or `None` if there is no electorate.
    pub fn required_voters(self) -> Option<usize> {
        match self {
            Self::QuorumOf(voters) => Some(usize::from(voters) / 2 + 1),
            Self::AtLeast(_) | Self::Majority | Self::All => None,
        }
    }

    /// Returns the wire form. It is a number of members, one of two numbers that no ring reaches,
    /// or the size of an electorate with the highest bit set.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::AtLeast(least) => least,
            Self::QuorumOf(voters) => QUORUM_OF | voters,
            Self::Majority => MAJORITY,
            Self::All => ALL,
        }
    }

    /// Decodes the wire form. Returns `None` for a number of members or voters out of bounds.
    pub fn from_wire(value: u16) -> Option<Self> {
        let quorum = match value {
            MAJORITY => Self::Majority,
            ALL => Self::All,
            least if least < QUORUM_OF => Self::AtLeast(least),
            electorate => Self::QuorumOf(electorate & !QUORUM_OF),
        };
        Some(quorum).filter(|quorum| quorum.is_valid())
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(1) => f.write_str("no quorum"),
            Self::AtLeast(least) => write!(f, "at least {least} members"),
            Self::QuorumOf(voters) => write!(f, "quorum of {voters}"),
            Self::Majority => f.write_str("majority"),
            Self::All => f.write_str("all members"),
        }
    }
}

const QUORUM_OF: u16 = 1 << 15;
const MAJORITY: u16 = u16::MAX - 1;
const ALL: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_of_a_quorum_is_read_back() {
        for value in 0..=u16::MAX {
            if let Some(quorum) = Quorum::from_wire(value) {
                assert_eq!(quorum.to_wire(), value);
            }
        }
        assert_eq!(Quorum::from_wire(0), None, "no member");
        assert_eq!(Quorum::from_wire(Quorum::MAX_AT_LEAST + 1), None, "more than a ring has");
        assert_eq!(Quorum::from_wire(QUORUM_OF), None, "an electorate of nobody");
    }
}
