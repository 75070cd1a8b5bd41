//! Which incarnation of a node is the current one.

use core::time::Duration;

use crate::{Incarnation, Time};

/// The current and the former incarnation of one node, as its datagrams show them.
#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    current: Option<Incarnation>,
    /// The one before, whose last datagrams may still be in flight.
    over: Option<Incarnation>,
    /// When the current one was heard last.
    heard_at: Time,
}

/// What the incarnation in a datagram tells of the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is the current one, or nothing is known of the node.
    Known,
    /// The node was started again.
    New,
    /// It is over, or cannot be believed.
    Over,
}

impl Incarnations {
    /// The current one, once it is known.
    pub(crate) fn current(&self) -> Option<Incarnation> {
        self.current
    }

    /// Returns which start of the node a datagram comes from. Another one than the current is not
    /// believed unless it `is_credible`. One that was taken for over is the current one after all
    /// if the other is silent: what was heard of that came late.
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

/// Datagrams of a start that is over are in flight no longer than this.
pub(crate) const LATE_FOR: Duration = Duration::from_secs(1);
