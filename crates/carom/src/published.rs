//! An accepted message, and its outcome.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oneshot::{Receiver, Sender};

use crate::alarms::before;
use crate::blocking::within;
use crate::error::NotDelivered;
use crate::group::Group;

/// A message that a group has accepted.
///
/// Wait on it to learn when the message's guarantee is fulfilled, or drop it if that does not
/// matter.
///
/// * In an ordered group the guarantee is the message's [`Qos`](crate::Qos). It is fulfilled when
///   this node, too, has delivered the message, at its place and with the requested resilience.
/// * In other groups it is fulfilled when all members have the message, or know that they lost it,
///   as with [`Group::confirm`]. Without any other member it fails: [`NotDelivered::Nobody`]. It
///   also fails for a message that a bulk group has given up: [`NotDelivered::GivenUp`].
pub struct Published<'a> {
    group: &'a Group,
    /// Number of the message, in the order of publishing.
    number: u64,
    /// `None` if the group must be queried.
    answer: Option<Mutex<Answer>>,
}

/// Receiver of a message's outcome. It is not [`Sync`] by itself.
pub(crate) type Answer = Receiver<Result<(), NotDelivered>>;

/// Sender of a message's outcome.
#[derive(Debug)]
pub(crate) struct Receipt(Sender<Result<(), NotDelivered>>);

impl<'a> Published<'a> {
    pub(crate) fn new(group: &'a Group, number: u64, answer: Option<Answer>) -> Self {
        Self { group, number, answer: answer.map(Mutex::new) }
    }

    /// Waits until the guarantee is fulfilled, on any async runtime.
    ///
    /// # Errors
    /// The guarantee will not be fulfilled, or its outcome can no longer be determined. In groups
    /// that are not ordered, also if members have lost messages.
    pub async fn delivered(self) -> Result<(), NotDelivered> {
        match self.answer {
            Some(answer) => {
                let answer = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
                answer.await.unwrap_or(Err(NotDelivered::Closed))
            }
            None => {
                let safe = self.group.confirm_message(self.number).await?;
                match safe.incomplete.is_empty() {
                    true => Ok(()),
                    false => Err(NotDelivered::Incomplete { lost_by: safe.incomplete }),
                }
            }
        }
    }

    /// Like [`Published::delivered`], but blocks the thread.
    ///
    /// # Errors
    /// See [`Published::delivered`].
    ///
    /// # Panics
    /// On a simulated node: see [`Published::delivered`].
    #[track_caller]
    pub fn delivered_blocking(self) -> Result<(), NotDelivered> {
        self.delivered_timeout(Duration::MAX)
    }

    /// Like [`Published::delivered_blocking`], but for at most `timeout`.
    ///
    /// # Errors
    /// See [`Published::delivered`]; also if `timeout` has passed.
    ///
    /// # Panics
    /// On a simulated node: see [`Published::delivered_timeout_async`].
    #[track_caller]
    pub fn delivered_timeout(self, timeout: Duration) -> Result<(), NotDelivered> {
        self.group.must_not_block("Published::delivered_timeout", "delivered_timeout_async");
        within(timeout, self.delivered()).unwrap_or(Err(NotDelivered::Timeout(timeout)))
    }

    /// Like [`Published::delivered`], but for at most `timeout` of the node's clock.
    ///
    /// # Errors
    /// See [`Published::delivered`]; also if `timeout` has passed.
    pub async fn delivered_timeout_async(self, timeout: Duration) -> Result<(), NotDelivered> {
        let sleep = self.group.sleep(timeout);
        before(sleep, self.delivered()).await.unwrap_or(Err(NotDelivered::Timeout(timeout)))
    }
}

impl fmt::Debug for Published<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Receipt {
    /// Returns a receipt and the receiver of its outcome.
    pub(crate) fn new() -> (Self, Answer) {
        let (sender, answer) = oneshot::channel();
        (Self(sender), answer)
    }

    /// Returns `true` if a caller still waits for the outcome.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    /// Reports the outcome of the message.
    pub(crate) fn tell(self, what: Result<(), NotDelivered>) {
        // The send fails if the caller no longer waits.
        let _ = self.0.send(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_application_holds_can_be_shared_between_threads() {
        fn can_be_shared<T: Send + Sync>() {}
        can_be_shared::<crate::Node>();
        can_be_shared::<Group>();
        can_be_shared::<Published<'_>>();
    }
}
