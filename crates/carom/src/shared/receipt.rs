use std::sync::{Mutex, PoisonError};

use oneshot::{Receiver, Sender};

use super::error::DeliveryError;

#[derive(Debug)]
pub(crate) struct Receipt(Sender<Result<(), DeliveryError>>);

/// The receiving end of a receipt. The mutex makes it [`Sync`].
#[derive(Debug)]
pub(crate) struct Outcome(Mutex<Receiver<Result<(), DeliveryError>>>);

impl Receipt {
    pub(crate) fn new() -> (Self, Outcome) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), Outcome(Mutex::new(receiver)))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    pub(crate) fn send(self, outcome: Result<(), DeliveryError>) {
        // The send fails if the caller no longer waits.
        let _ = self.0.send(outcome);
    }
}

impl Outcome {
    pub(crate) async fn wait(self) -> Result<(), DeliveryError> {
        let receiver = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        receiver.await.unwrap_or(Err(DeliveryError::Closed))
    }
}
