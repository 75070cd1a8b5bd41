//! Settings on which all members of a group must agree.

use core::fmt;

use crate::ring::Quorum;
use crate::wire::Protocol;
use crate::{GroupId, NodeId, Unserved};

/// Settings of a group, which are sent with every join. A join with different settings is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct GroupSettings {
    /// The engine that carries the group, and its settings.
    pub profile: Profile,
    /// The [`GroupId::name_check`] of the group's name, which distinguishes names with the same id.
    pub name_check: u32,
}

/// Engine of a group, with the settings on which its members must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
#[non_exhaustive]
pub enum Profile {
    /// The lateral engine (Ricochet, Slingshot).
    TimeCritical(RateOfFire),
    /// The token ring (RMP), with the quorum that a ring needs after a fault.
    Ordered(Quorum),
    /// Bulk delivery (RDCM).
    Bulk,
    /// An engine from outside this crate that was [added to the
    /// node](crate::node::Node::with_guest). Carom does not check its settings.
    Guest,
}

/// The rate-of-fire (r, c) of repairs (Slingshot 3.1, Ricochet 3). For every `r` packets that a
/// node receives, it sends repairs of them to `c` other members on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct RateOfFire {
    /// Packets per repair, 1 to [`RateOfFire::MAX_R`]. It must be the same in all groups of a node.
    #[cfg_attr(test, proptest(strategy = "1..=RateOfFire::MAX_R"))]
    pub r: u8,
    /// Mean number of members that receive a repair containing a given packet. 0 turns repairs off.
    pub c: u8,
}

/// Cause of a failed join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The name is empty or too long. The field is the length of the name in bytes.
    #[error(
        "group name of {0} bytes is invalid: expected 1 to {most} bytes",
        most = GroupSettings::MAX_NAME_BYTES
    )]
    NameLength(usize),
    /// The name contains a control character. The field is the first such character.
    #[error("group name is invalid: it contains the control character {0:?}")]
    NameCharacter(char),
    /// The value of r is out of bounds.
    #[error("rate-of-fire {given} is invalid: expected r from 1 to {}", RateOfFire::MAX_R)]
    RateOfFire {
        /// Requested rate-of-fire.
        given: RateOfFire,
    },
    /// The quorum, or the electorate, is out of bounds.
    #[error(
        "quorum {given:?} is invalid: expected 1 to {} members, or 1 to {} voters",
        Quorum::MAX_AT_LEAST,
        Quorum::MAX_ELECTORATE
    )]
    Quorum {
        /// Requested quorum.
        given: Quorum,
    },
    /// The node is already in as many groups as its membership provider allows.
    #[error("this node is already in {limit} groups, the maximum of its membership")]
    TooManyGroups {
        /// Maximum number of groups.
        limit: usize,
    },
    /// Other groups of this node use another value of r.
    #[error("r = {given} is invalid: expected r = {existing}, as in the other groups of this node")]
    DifferentR {
        /// Requested value of r.
        given: u8,
        /// The value of r in the node's other groups.
        existing: u8,
    },
    /// The node has no engine for groups of this profile.
    #[error("this node has no engine for the profile {profile}")]
    NoEngine {
        /// Requested profile.
        profile: Profile,
    },
    /// The node is already in the group.
    #[error("this node is already in the group")]
    AlreadyJoined,
    /// A group with another name has the same id.
    #[error("the group's id is in use by a group with another name")]
    NameCollision,
    /// The members of the group use other settings.
    #[error("requested {ours}, but the group is {theirs}")]
    Contradiction {
        /// Requested settings.
        ours: GroupSettings,
        /// Settings of the group.
        theirs: GroupSettings,
        /// A member that uses the settings of the group.
        by: NodeId,
    },
    /// The registry did not accept the join.
    #[error("the registry refused the join: {why}")]
    Unserved {
        /// Reason that the registry gave.
        why: Unserved,
    },
}

/// Encoded size of [`GroupSettings`] in bytes.
pub const SETTINGS_BYTES: usize = 8;

impl RateOfFire {
    /// Maximum value of r. With more packets per repair, a receiver would rarely hold all but one
    /// of them.
    pub const MAX_R: u8 = 32;

    /// Creates the rate-of-fire (`r`, `c`).
    pub const fn new(r: u8, c: u8) -> Self {
        Self { r, c }
    }

    /// Checks that r is within its bounds.
    ///
    /// # Errors
    /// Returns [`JoinError::RateOfFire`] if r is not from 1 to [`RateOfFire::MAX_R`].
    pub fn validate(self) -> Result<(), JoinError> {
        if self.r == 0 || self.r > Self::MAX_R {
            return Err(JoinError::RateOfFire { given: self });
        }
        Ok(())
    }
}

impl Profile {
    /// Returns the protocol of the engine that carries the group.
    pub fn protocol(self) -> Protocol {
        match self {
            Self::TimeCritical(_) => Protocol::Lateral,
            Self::Ordered(_) => Protocol::Ordered,
            Self::Bulk => Protocol::Bulk,
            Self::Guest => Protocol::Guest,
        }
    }

    /// Checks the bounds of the engine's settings.
    ///
    /// # Errors
    /// Returns [`JoinError::RateOfFire`] or [`JoinError::Quorum`].
    pub fn validate(self) -> Result<(), JoinError> {
        match self {
            Self::TimeCritical(rate) => rate.validate(),
            Self::Ordered(given) if !given.is_valid() => Err(JoinError::Quorum { given }),
            Self::Ordered(_) | Self::Bulk | Self::Guest => Ok(()),
        }
    }
}

impl Default for RateOfFire {
    /// Returns (8, 5), which the papers use.
    fn default() -> Self {
        Self::new(8, 5)
    }
}

impl fmt::Display for RateOfFire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.r, self.c)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeCritical(rate) => write!(f, "time-critical {rate}"),
            Self::Ordered(quorum) => write!(f, "ordered ({quorum})"),
            Self::Bulk => f.write_str("bulk"),
            Self::Guest => f.write_str("guest"),
        }
    }
}

impl fmt::Display for GroupSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.profile.fmt(f)
    }
}

impl GroupSettings {
    /// Maximum length of a group's name in bytes.
    pub const MAX_NAME_BYTES: usize = 255;

    /// Checks that `name` can be the name of a group.
    ///
    /// A name must be 1 to [`GroupSettings::MAX_NAME_BYTES`] bytes long. It must not contain
    /// control characters, so that it can be printed on one line.
    ///
    /// # Errors
    /// Returns [`JoinError::NameLength`] or [`JoinError::NameCharacter`].
    pub fn check_name(name: &str) -> Result<(), JoinError> {
        let bytes = name.len();
        if bytes == 0 || bytes > Self::MAX_NAME_BYTES {
            return Err(JoinError::NameLength(bytes));
        }
        match name.chars().find(|character| character.is_control()) {
            Some(character) => Err(JoinError::NameCharacter(character)),
            None => Ok(()),
        }
    }

    /// Creates the settings of the group called `name`.
    pub fn new(name: &str, profile: Profile) -> Self {
        Self { profile, name_check: GroupId::name_check(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_255_bytes_and_no_control_characters() {
        for name in ["a", "prices.*", "Kurse \u{fc}ber alles", &"x".repeat(255)] {
            assert_eq!(GroupSettings::check_name(name), Ok(()), "{name}");
        }
        let length = |bytes| Err(JoinError::NameLength(bytes));
        assert_eq!(GroupSettings::check_name(""), length(0));
        assert_eq!(GroupSettings::check_name(&"x".repeat(256)), length(256));
        for character in ['\n', '\0', '\u{7f}', '\u{85}'] {
            let refused = Err(JoinError::NameCharacter(character));
            assert_eq!(GroupSettings::check_name(&format!("a{character}b")), refused);
        }
    }
}
