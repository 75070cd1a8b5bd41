use carom_terminal::units;

use crate::node::NodeArgs;

/// The flags that the sender and its receivers have in common.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct GroupArgs {
    /// Group name, the same at all nodes of the benchmark
    #[arg(default_value = "bench", value_parser = units::name)]
    pub(super) group: String,
    /// Profile of the group, the same at all nodes of the benchmark
    #[arg(long, default_value = "time-critical")]
    pub(super) profile: Profile,
    #[command(flatten)]
    pub(super) node: NodeArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Profile {
    /// Lowest latency, no order
    TimeCritical,
    /// One order at all members
    Ordered,
    /// Large amounts of data from one sender
    Bulk,
}

impl Profile {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TimeCritical => "time-critical",
            Self::Ordered => "ordered",
            Self::Bulk => "bulk",
        }
    }
}

impl From<Profile> for carom::Profile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::TimeCritical => Self::time_critical(),
            Profile::Ordered => Self::ordered(),
            Profile::Bulk => Self::bulk(),
        }
    }
}
