use carom_proto::{GroupSettings, JoinError};

/// The error returned when a group could not be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinGroupError {
    /// The settings are out of bounds, or conflict with those of the node or of the group.
    #[error(transparent)]
    Refused(#[from] JoinError),
    /// Seeds were given, and no other node was found.
    #[error("no seed answered: {}", seeds.join(", "))]
    NoSeedAnswered {
        /// The seeds, as given.
        seeds: Vec<String>,
    },
    /// The registry has not confirmed the join in time.
    #[error("no answer from the registry at {}{}", addresses.join(", "), because(why))]
    ServiceAway {
        /// Addresses of the registries, as given.
        addresses: Vec<String>,
        /// Cause, if it is known.
        why: Option<String>,
    },
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

impl JoinGroupError {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        match self {
            Self::Refused(error) => refused_fix(error),
            Self::NoSeedAnswered { .. } => {
                "start a node there, or check the address, the port, the firewall (UDP), and that \
                 all nodes use the same multicast port; omit the seeds to find nodes by multicast"
                    .into()
            }
            Self::ServiceAway { .. } => {
                "start `carom registry` there, or check its address, port, cluster and firewall"
                    .into()
            }
            Self::Closed => "start a new node".into(),
        }
    }
}

fn because(why: &Option<String>) -> String {
    why.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
}

fn refused_fix(error: &JoinError) -> String {
    match error {
        JoinError::NameLength { .. } => {
            format!("use a name of 1 to {} bytes", GroupSettings::MAX_NAME_BYTES)
        }
        JoinError::NameCharacter { .. } => "use a name of printable characters".into(),
        JoinError::RateOfFire { .. } => "choose r from 1 to 32, such as (8,5)".into(),
        JoinError::Quorum { .. } => {
            "choose a number of members or voters in this range, or a majority".into()
        }
        JoinError::TooManyGroups { .. } => {
            "leave another group first, or join from another node".into()
        }
        JoinError::DifferentR { existing, .. } => {
            format!("use r = {existing} in all groups of this node, or join from another node")
        }
        JoinError::NoEngine { .. } => {
            "give the node an engine for this profile with Builder::guest".into()
        }
        JoinError::AlreadyJoined => "use the existing handle of the group".into(),
        JoinError::NameCollision => "choose another name for the group".into(),
        JoinError::Contradiction { theirs, .. } => format!("join with {theirs}"),
        JoinError::Unserved { .. } => "check the log of the registry, and try again".into(),
        _ => "check the settings of the group and of the node".into(),
    }
}
