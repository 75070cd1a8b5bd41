//! Publishing of messages, with the options of each message.

use std::time::Duration;

use bytes::Bytes;
use carom_proto::SendOptions;

use super::Group;
use crate::error::{PublishError, TryPublishError};
use crate::outgoing::{Outgoing, Refused};
use crate::published::{Answer, Published, Receipt};

/// Time for which a message is useful, from its multicast on.
///
/// After it, the message is no longer repaired, and members that have not received it report it to
/// their applications as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Duration);

impl From<Deadline> for SendOptions {
    fn from(deadline: Deadline) -> Self {
        Self { deadline: Some(deadline.0), ..Self::default() }
    }
}

impl Group {
    /// Multicasts `payload` to the other members.
    ///
    /// The outgoing queue holds 1024 messages, of which 4 may be larger than 64 KiB. The call
    /// blocks while the queue is full, because a member lags too far behind, or because messages
    /// are published faster than they can be sent. A blocked call continues when half of the queue
    /// is free.
    ///
    /// # Errors
    /// The message is too large, or the group is closed. Nothing was sent then.
    ///
    /// # Panics
    /// On a simulated node, if it would have to block: see [`Group::publish_async`].
    #[track_caller]
    pub fn publish(&self, payload: impl Into<Bytes>) -> Result<Published<'_>, PublishError> {
        self.publish_blocking(payload.into(), SendOptions::default())
    }

    /// Like [`Group::publish`], but with options for this message: a [`Deadline`], a
    /// [`Qos`](crate::Qos) in an ordered group, or both.
    ///
    /// # Errors
    /// See [`Group::publish`]; also if the group does not offer the requested quality of service.
    ///
    /// # Panics
    /// See [`Group::publish`].
    #[track_caller]
    pub fn publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_blocking(payload.into(), options.into())
    }

    /// Like [`Group::publish`], but on any async runtime.
    ///
    /// # Errors
    /// See [`Group::publish`].
    pub async fn publish_async(
        &self,
        payload: impl Into<Bytes>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_waiting(payload.into(), SendOptions::default()).await
    }

    /// Like [`Group::publish_with`], but on any async runtime.
    ///
    /// # Errors
    /// See [`Group::publish_with`].
    pub async fn publish_with_async(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_waiting(payload.into(), options.into()).await
    }

    /// Like [`Group::publish`], but never blocks.
    ///
    /// # Errors
    /// See [`Group::publish`]; also if the queue is full. The error then contains the message, and
    /// the member that holds the group back.
    pub fn try_publish(&self, payload: impl Into<Bytes>) -> Result<Published<'_>, TryPublishError> {
        self.try_publish_with(payload, SendOptions::default())
    }

    /// Like [`Group::publish_with`], but never blocks.
    ///
    /// # Errors
    /// See [`Group::publish_with`] and [`Group::try_publish`].
    pub fn try_publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, TryPublishError> {
        let (outgoing, answer) = self.outgoing(payload.into(), options.into())?;
        match self.shared.queue.try_put(outgoing) {
            Ok(number) => {
                self.wake_driver();
                Ok(Published::new(self, number, answer))
            }
            Err(Refused::Full(Outgoing { payload, .. })) => {
                Err(TryPublishError::Full { held_back_by: self.shared.held_back(), payload })
            }
            Err(Refused::Closed) => Err(TryPublishError::Closed),
        }
    }

    #[track_caller]
    fn publish_blocking(
        &self,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<Published<'_>, PublishError> {
        let (outgoing, answer) = self.outgoing(payload, options)?;
        let queue = &self.shared.queue;
        let number = match queue.try_put(outgoing) {
            Ok(number) => number,
            Err(Refused::Closed) => return Err(PublishError::Closed),
            Err(Refused::Full(outgoing)) => {
                self.must_not_block("Group::publish", "publish_async");
                queue.put_blocking(outgoing).map_err(|_| PublishError::Closed)?
            }
        };
        self.wake_driver();
        Ok(Published::new(self, number, answer))
    }

    async fn publish_waiting(
        &self,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<Published<'_>, PublishError> {
        let (outgoing, answer) = self.outgoing(payload, options)?;
        let number = self.shared.queue.put(outgoing).await.map_err(|_| PublishError::Closed)?;
        self.wake_driver();
        Ok(Published::new(self, number, answer))
    }

    /// Returns the message for the driver, and in an ordered group the receiver of its outcome, if
    /// the group accepts the message.
    fn outgoing(
        &self,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<(Outgoing, Option<Answer>), PublishError> {
        let limit = self.shared.limit(options.qos)?;
        let bytes = payload.len();
        if bytes > limit {
            return Err(PublishError::TooLarge { bytes, limit });
        }
        let tracked = self.shared.profile.is_ordered().then(Receipt::new);
        let (receipt, answer) = tracked.unzip();
        Ok((Outgoing { payload, options, receipt }, answer))
    }
}
