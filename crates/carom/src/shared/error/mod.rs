//! Errors of the public API, each with its cause and a suggested fix.

mod confirm;
mod join;
mod publish;
mod ring;
mod start;
mod system_text;

use std::time::Duration;

pub use confirm::{ConfirmError, DeliveryError};
pub use join::JoinGroupError;
pub use publish::PublishError;
pub use ring::{LockError, QueryError, RequestError};
pub use start::StartError;
pub(crate) use system_text::plain;

/// The error returned by a call to a closed group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the group is closed")]
pub struct GroupClosed;

impl GroupClosed {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        "join the group again".into()
    }
}

/// The error returned when no event arrived within this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no event arrived within {0:?}")]
pub struct Timeout(pub Duration);

impl Timeout {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        format!("wait longer than {:?}, or continue without an event", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use carom_proto::NodeId;

    #[test]
    fn what_became_of_a_message_has_a_fix_of_one_line() {
        let full = |held_back_by| PublishError::Full { held_back_by, payload: Bytes::new() };
        let fixes = [
            full(None).fix(),
            full(Some((NodeId(1), 2))).fix(),
            PublishError::TooLarge { bytes: 9, limit: 4 }.fix(),
            PublishError::Closed.fix(),
            DeliveryError::Nobody.fix(),
            DeliveryError::Incomplete { lost_by: vec![(NodeId(1), 2)] }.fix(),
            DeliveryError::Timeout(Duration::from_secs(1)).fix(),
            DeliveryError::Closed.fix(),
            DeliveryError::GivenUp.fix(),
            ConfirmError::Timeout { waiting_for: vec![NodeId(1)] }.fix(),
            ConfirmError::Timeout { waiting_for: Vec::new() }.fix(),
            ConfirmError::GivenUp.fix(),
            ConfirmError::Nobody.fix(),
            ConfirmError::Closed.fix(),
            Timeout(Duration::from_secs(1)).fix(),
            GroupClosed.fix(),
        ];
        for fix in fixes {
            assert!(!fix.is_empty() && !fix.contains('\n') && !fix.contains("  "), "{fix}");
        }
    }
}
