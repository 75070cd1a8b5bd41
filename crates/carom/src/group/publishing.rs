//! Messages out: published, with what each of them needs.

use std::time::Duration;

use bytes::Bytes;
use carom_proto::SendOptions;

use super::Group;
use crate::error::{PublishError, TryPublishError};
use crate::outgoing::{Outgoing, Refused};
use crate::published::{Answer, Published, Receipt};

/// How long after its multicast a message is still of use: nobody repairs it after that, and who
/// has not got it by then is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Duration);

impl From<Deadline> for SendOptions {
    fn from(deadline: Deadline) -> Self {
        Self { deadline: Some(deadline.0), ..Self::default() }
    }
}

impl Group {
    /// Multicasts `payload` to the other members. Blocks while a member that is too far behind
    /// holds the group back and its queue of 1024 messages is full, of which 4 may be larger than
    /// 64 KiB; who has blocked goes on when half of it is free.
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

    /// As [`Group::publish`], with what this message needs: a [`Deadline`], in an ordered group a
    /// [`Qos`](crate::Qos), or both.
    ///
    /// # Errors
    /// As [`Group::publish`].
    ///
    /// # Panics
    /// As [`Group::publish`].
    #[track_caller]
    pub fn publish_with(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_blocking(payload.into(), options.into())
    }

    /// As [`Group::publish`], on any async runtime.
    ///
    /// # Errors
    /// As [`Group::publish`].
    pub async fn publish_async(
        &self,
        payload: impl Into<Bytes>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_waiting(payload.into(), SendOptions::default()).await
    }

    /// As [`Group::publish_with`], on any async runtime.
    ///
    /// # Errors
    /// As [`Group::publish`].
    pub async fn publish_with_async(
        &self,
        payload: impl Into<Bytes>,
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        self.publish_waiting(payload.into(), options.into()).await
    }

    /// As [`Group::publish`], without ever blocking.
    ///
    /// # Errors
    /// As [`Group::publish`], or the queue is full; the error has the message and tells who holds
    /// the group back.
    pub fn try_publish(&self, payload: impl Into<Bytes>) -> Result<Published<'_>, TryPublishError> {
        self.try_publish_with(payload, SendOptions::default())
    }

    /// As [`Group::publish_with`], without ever blocking.
    ///
    /// # Errors
    /// As [`Group::try_publish`].
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

    /// The message as the driver gets it, and in an ordered group where its answer comes, if the
    /// group can take it.
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
