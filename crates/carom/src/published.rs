//! A message that was accepted: what becomes of it.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oneshot::{Receiver, Sender};

use crate::alarms::before;
use crate::blocking::within;
use crate::error::NotDelivered;
use crate::group::Group;

/// A message that a group has accepted. Whoever wants to know when its promise is kept asks for
/// that here; others drop this.
///
/// * In an ordered group the promise is the message's [`Qos`](crate::Qos): it is kept when this
///   node, too, has been given the message, at its place and with the resilience asked for.
/// * In other groups it is kept when all members have the message, or know that they lost it, as
///   with [`Group::confirm`]. Without any other member it is not: [`NotDelivered::Nobody`]. Nor is
///   it for a message that a bulk group has given up: [`NotDelivered::GivenUp`].
pub struct Published<'a> {
    group: &'a Group,
    /// The number of the message, in the order in which they were published.
    number: u64,
    /// `None` where the group has to be asked.
    answer: Option<Mutex<Answer>>,
}

/// Where what became of a message comes. It is not [`Sync`] by itself.
pub(crate) type Answer = Receiver<Result<(), NotDelivered>>;

/// Who tells what became of a message.
#[derive(Debug)]
pub(crate) struct Receipt(Sender<Result<(), NotDelivered>>);

impl<'a> Published<'a> {
    pub(crate) fn new(group: &'a Group, number: u64, answer: Option<Answer>) -> Self {
        Self { group, number, answer: answer.map(Mutex::new) }
    }

    /// Waits until the promise is kept, on any async runtime.
    ///
    /// # Errors
    /// It will not be, or nobody can tell any more; in groups that are not ordered, members have
    /// lost messages.
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

    /// As [`Published::delivered`], blocking the thread.
    ///
    /// # Errors
    /// As [`Published::delivered`].
    ///
    /// # Panics
    /// On a simulated node: see [`Published::delivered`].
    #[track_caller]
    pub fn delivered_blocking(self) -> Result<(), NotDelivered> {
        self.delivered_timeout(Duration::MAX)
    }

    /// As [`Published::delivered_blocking`], for no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Published::delivered`], or the time was over before.
    ///
    /// # Panics
    /// On a simulated node: see [`Published::delivered_timeout_async`].
    #[track_caller]
    pub fn delivered_timeout(self, timeout: Duration) -> Result<(), NotDelivered> {
        self.group.must_not_block("Published::delivered_timeout", "delivered_timeout_async");
        within(timeout, self.delivered()).unwrap_or(Err(NotDelivered::Timeout(timeout)))
    }

    /// As [`Published::delivered`], for no longer than `timeout` of the node's clock.
    ///
    /// # Errors
    /// As [`Published::delivered`], or the time was over before.
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
    /// A receipt, and where its answer comes.
    pub(crate) fn new() -> (Self, Answer) {
        let (sender, answer) = oneshot::channel();
        (Self(sender), answer)
    }

    /// Whether anybody waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    /// Tells what became of the message.
    pub(crate) fn tell(self, what: Result<(), NotDelivered>) {
        // Whoever does not wait any more does not want to know.
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
