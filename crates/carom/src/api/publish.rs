use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use carom_proto::SendOptions;

use super::handle::GroupHandle;
use crate::shared::error::{ConfirmError, DeliveryError, PublishError};
use crate::shared::receipt::Outcome;
use crate::shared::send_queue::{Outgoing, Refused};
use crate::shared::sleep::before;

/// The time for which a message is useful, measured from its multicast.
///
/// After the deadline, the message is no longer repaired, and counts as lost where it has not
/// arrived. Only time-critical groups use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Duration);

impl From<Deadline> for SendOptions {
    fn from(deadline: Deadline) -> Self {
        Self { deadline: Some(deadline.0), ..Self::default() }
    }
}

/// A message that a group has accepted.
///
/// Await [`Published::delivered`] to wait until the message's guarantee is fulfilled, or drop the
/// value.
///
/// * In an ordered group, this node must have delivered the message with its [`Qos`](crate::Qos).
/// * In other groups, the message must be settled at all members, as with
///   [`Group::confirm`](crate::Group::confirm). The guarantee fails if a member has lost messages
///   ([`DeliveryError::Incomplete`]), if the group has no other member
///   ([`DeliveryError::Nobody`]), or if a bulk group gave the message up
///   ([`DeliveryError::GivenUp`]).
#[derive(Debug)]
pub struct Published {
    pub(super) group: Arc<GroupHandle>,
    number: u64,
    outcome: Option<Outcome>,
}

impl Published {
    pub(crate) fn at_once(
        group: &Arc<GroupHandle>,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<Self, PublishError> {
        let (outgoing, outcome) = group.outgoing(payload, options)?;
        match group.shared.queue.try_put(outgoing) {
            Ok(number) => Ok(Self::queued(group, number, outcome)),
            Err(Refused::Full(Outgoing { payload, .. })) => {
                Err(PublishError::Full { held_back_by: group.shared.held_back(), payload })
            }
            Err(Refused::Closed) => Err(PublishError::Closed),
        }
    }

    pub(crate) async fn when_room(
        group: &Arc<GroupHandle>,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<Self, PublishError> {
        let (outgoing, outcome) = group.outgoing(payload, options)?;
        let number = group.shared.queue.put(outgoing).await.map_err(|_| PublishError::Closed)?;
        Ok(Self::queued(group, number, outcome))
    }

    fn queued(group: &Arc<GroupHandle>, number: u64, outcome: Option<Outcome>) -> Self {
        group.wake_driver();
        Self { group: Arc::clone(group), number, outcome }
    }

    /// Waits until the guarantee is fulfilled.
    ///
    /// # Errors
    /// Returns an error if the guarantee cannot be fulfilled, the outcome is unknown, or members
    /// have lost messages.
    pub async fn delivered(self) -> Result<(), DeliveryError> {
        if let Some(outcome) = self.outcome {
            return outcome.wait().await;
        }
        let answer = self.group.confirm(Some(self.number), Duration::MAX);
        let confirmed = answer.recv().await.unwrap_or(Err(ConfirmError::Closed))?;
        match confirmed.incomplete.is_empty() {
            true => Ok(()),
            false => Err(DeliveryError::Incomplete { lost_by: confirmed.incomplete }),
        }
    }

    /// Like [`Published::delivered`], but waits for at most `timeout` by the node's clock.
    ///
    /// # Errors
    /// See [`Published::delivered`]; also if the guarantee is not fulfilled within `timeout`.
    pub async fn delivered_timeout(self, timeout: Duration) -> Result<(), DeliveryError> {
        let sleep = self.group.node.sleep(timeout);
        before(sleep, self.delivered()).await.unwrap_or(Err(DeliveryError::Timeout(timeout)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_application_holds_can_be_shared_between_threads() {
        fn can_be_shared<T: Send + Sync>() {}
        can_be_shared::<crate::Node>();
        can_be_shared::<crate::Group>();
        can_be_shared::<Published>();
    }
}
