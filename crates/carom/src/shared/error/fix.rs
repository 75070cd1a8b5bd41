//! The fixes of failed publishing, confirming, requesting and locking.

use carom_proto::rmp::{self, Qos};

use super::{
    LockError, LookError, NotAnswered, NotDelivered, NotSafe, PublishError, Timeout,
    TryPublishError,
};

impl TryPublishError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Full { held_back_by: Some(_), .. } => {
                "try again when that member has caught up, or use a publish call that waits".into()
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
                "check whether the other members have it, and publish it again if not".into()
            }
            Self::Incomplete { .. } => {
                "publish it again for those members, or use an ordered group".into()
            }
            Self::GivenUp => "publish it again once the other node has left the group".into(),
            Self::Nobody => "publish when Group::members is not empty".into(),
            Self::Timeout(_) => {
                "wait longer, or run `carom members` to find the slow member".into()
            }
            Self::Closed => "join the group again".into(),
        }
    }
}

impl NotSafe {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Timeout { waiting_for } if waiting_for.is_empty() => "wait longer".into(),
            Self::Timeout { .. } => "wait longer, or check those members".into(),
            Self::GivenUp => {
                "check which messages the other members have, and publish the rest again".into()
            }
            Self::Nobody => "publish when Group::members is not empty".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}

impl Timeout {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        format!("wait longer than {:?}, or continue without an event", self.0)
    }
}

impl LockError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Refused { holder: Some(_) } | Self::HeldHere | Self::Timeout(_) => {
                "wait until it is released".into()
            }
            Self::Refused { holder: None } | Self::TooMany { .. } => {
                "release other locks first, or use other groups".into()
            }
            Self::Lost => "request it again when this node is back in the ring".into(),
            Self::NoLocks => "join the group with an ordered profile".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}

impl LookError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::TooMany { .. } => "wait until earlier queries have finished".into(),
            Self::Closed => "start a new node".into(),
        }
    }
}

impl NotAnswered {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Unanswered => {
                "check that a member serves the handler (`carom members`), or wait longer".into()
            }
            Self::Refused(rmp::RequestError::TooLarge { limit, .. }) => {
                format!("split the request into parts of at most {limit} bytes")
            }
            Self::Refused(rmp::RequestError::Qos { asked: Qos::Resilient(0) }) => {
                "request Resilient(1) to Resilient(255), or TotallyOrdered".into()
            }
            Self::Refused(rmp::RequestError::Qos { .. }) => {
                "join with Partition::Majority or Partition::All".into()
            }
            Self::Refused(_) => "wait for the replies to earlier requests".into(),
            Self::NoRequests => "join the group with an ordered profile".into(),
            Self::Closed => "start a new node".into(),
        }
    }
}

impl PublishError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::TooLarge { limit, .. } => {
                format!("split the message into parts of at most {limit} bytes")
            }
            Self::Qos { asked: Qos::Resilient(0) } => {
                "request Resilient(1) to Resilient(255), or TotallyOrdered".into()
            }
            Self::Qos { asked: Qos::MajorityResilient } => {
                "join with Partition::Majority or Partition::All".into()
            }
            Self::Qos { .. } => "join the group with an ordered profile".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}
