use core::time::Duration;

use crate::{Incarnation, Time};

#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    current: Option<Incarnation>,
    /// Previous incarnation, whose datagrams may still be in flight.
    over: Option<Incarnation>,
    heard_at: Time,
}

/// Classification of a datagram by its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The datagram has the current incarnation, or no incarnation of the node is known yet.
    Known,
    /// The datagram has a new incarnation: the node was restarted.
    New,
    /// The datagram has an incarnation that has ended or is not credible.
    Over,
}

impl Incarnations {
    pub(crate) fn current(&self) -> Option<Incarnation> {
        self.current
    }

    /// Classifies a datagram by its incarnation.
    ///
    /// Another incarnation becomes the current one only if it `is_credible`. This includes the
    /// previous incarnation, but only after the current one has been silent for [`LATE_FOR`]: the
    /// datagrams of the current one had only been delayed.
    pub(crate) fn look(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        is_credible: impl FnOnce() -> bool,
    ) -> Start {
        if self.current == Some(incarnation) {
            self.heard_at = now;
            return Start::Known;
        }
        let is_over = self.over == Some(incarnation) && now < self.heard_at + LATE_FOR;
        let is_believed = !is_over && is_credible();
        match self.current {
            None if !is_believed => Start::Known,
            Some(_) if !is_believed => Start::Over,
            before => {
                self.over = before;
                (self.current, self.heard_at) = (Some(incarnation), now);
                before.map_or(Start::Known, |_| Start::New)
            }
        }
    }
}

/// Maximum time for which datagrams of an incarnation that has ended are in flight.
pub(crate) const LATE_FOR: Duration = Duration::from_secs(1);
