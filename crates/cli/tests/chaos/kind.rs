use carom::Profile;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::run::MEMBERS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
pub(crate) enum Kind {
    Lateral,
    Ordered,
    Bulk,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lateral => "lateral",
            Self::Ordered => "ordered",
            Self::Bulk => "bulk",
        }
    }

    pub(crate) fn profile(self) -> Profile {
        match self {
            Self::Lateral => Profile::time_critical(),
            Self::Ordered => Profile::ordered().quorum_of(MEMBERS),
            Self::Bulk => Profile::bulk(),
        }
    }

    pub(crate) fn has_one_sender(self) -> bool {
        self == Self::Bulk
    }
}
