//! The fixes of failed publishing, confirming, requesting and locking.

use carom_proto::rmp::{self, Qos};

use super::{
    LockError, NotAnswered, NotDelivered, NotSafe, PublishError, Timeout, TryPublishError,
};

impl TryPublishError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Full { held_back_by: Some(_), .. } => {
                "try again when that member has caught up, or publish and wait".into()
            }
            Self::Full { held_back_by: None, .. } => "publish more slowly, or wait".into(),
            Self::TooLarge { bytes, limit } => {
                PublishError::TooLarge { bytes: *bytes, limit: *limit }.fix()
            }
            Self::Qos { asked } => PublishError::Qos { asked: *asked }.fix(),
            Self::Closed => PublishError::Closed.fix(),
        }
    }
}

impl NotDelivered {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Removed { .. } => {
                "see with the others whether they have it, and publish it again if not".into()
            }
            Self::Incomplete { .. } => {
                "publish it again for those members, or use an ordered group".into()
            }
            Self::GivenUp => "publish it again once the other node has left the group".into(),
            Self::Nobody => "publish once Group::members names somebody".into(),
            Self::Timeout(_) => "wait longer, and see who is slow: carom members".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}

impl NotSafe {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Timeout { waiting_for } if waiting_for.is_empty() => "wait longer".into(),
            Self::Timeout { .. } => "wait longer, or see whether those members are well".into(),
            Self::GivenUp => {
                "see with the others what they have, and publish the rest again".into()
            }
            Self::Nobody => "publish once Group::members names somebody".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}

impl Timeout {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        format!("wait longer than {:?}, or go on without", self.0)
    }
}

impl LockError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Refused { holder: Some(_) } | Self::HeldHere | Self::Timeout(_) => {
                "wait for it to be given back".into()
            }
            Self::Refused { holder: None } | Self::TooMany { .. } => {
                "give others back first, or use other groups".into()
            }
            Self::Lost => "ask again once this node is back in the ring".into(),
            Self::NoLocks => "join the group as an ordered one".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}

impl NotAnswered {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Unanswered => {
                "see that a member serves the handler (carom members), or wait longer".into()
            }
            Self::Refused(rmp::RequestError::TooLarge { limit, .. }) => {
                format!("ask in pieces of {limit} bytes")
            }
            Self::Refused(rmp::RequestError::Qos { asked: Qos::Resilient(0) }) => {
                "ask for Resilient(1) to Resilient(255), or for TotallyOrdered".into()
            }
            Self::Refused(rmp::RequestError::Qos { .. }) => {
                "join with a partition of a majority, or of all".into()
            }
            Self::Refused(_) => "wait for earlier requests to be answered".into(),
            Self::NoRequests => "join the group as an ordered one".into(),
            Self::Closed => "start a new node".into(),
        }
    }
}

impl PublishError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::TooLarge { limit, .. } => format!("send it in pieces of {limit} bytes"),
            Self::Qos { asked: Qos::Resilient(0) } => {
                "ask for Resilient(1) to Resilient(255), or for TotallyOrdered".into()
            }
            Self::Qos { asked: Qos::MajorityResilient } => {
                "join with a partition of a majority, or of all".into()
            }
            Self::Qos { .. } => "join the group as an ordered one".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}
