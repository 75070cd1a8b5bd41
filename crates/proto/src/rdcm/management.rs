//! Management of the multicast of a stream, by the membership service or by the sender itself.
//!
//! The sender uses the service as long as it answers. Its answers arrive later, and places stay as
//! they are until then. The sender uses a manager of its own when the service is lost, does not
//! answer, or refuses. Each manager begins with epochs above all that were assigned before, so that
//! receivers accept the latest place.

use alloc::boxed::Box;
use alloc::vec::Vec;

use core::time::Duration;

use super::around::Around;
use super::asking::{Answer, Asked, MAX_JOINING, Refusal, Told};
use super::multicast_manager::{ManagerError, Patience};
use super::seating::{Seated, Seating};
use super::tree::MulticastTree;
use crate::{GroupId, NodeId, Time};

/// The manager of one stream.
#[derive(Debug)]
pub(super) struct Management {
    group: GroupId,
    at: At,
    /// Highest epoch that was assigned.
    epoch: u32,
    /// When the service is tried again after it did not answer.
    retry_at: Option<Time>,
}

#[derive(Debug)]
enum At {
    /// The sender's own manager.
    Beside(Box<Seating>),
    /// The manager in the membership service.
    Service(Opening),
}

/// State of the group's opening at the service.
#[derive(Clone, Copy, Debug)]
struct Opening {
    opening: u32,
    /// Number of the last request.
    number: u32,
    /// Deadline for the answer to it. `None` if it has arrived.
    answer_by: Option<Time>,
}

impl Management {
    /// Creates the manager of a stream, which initially has no receivers.
    ///
    /// # Errors
    /// Fails if the sender has no place in the network.
    pub(super) fn new(around: &mut Around<'_>) -> Result<Self, ManagerError> {
        let group = around.group;
        let at = At::Beside(Box::new(seating(around, 0)?));
        let mut management = Self { group, at, epoch: 0, retry_at: None };
        if around.line.is_there {
            management.turn_to_service(around, &[]);
        }
        Ok(management)
    }

    /// Returns `true` if the service places the receivers.
    pub(super) fn is_at_service(&self) -> bool {
        matches!(self.at, At::Service(_))
    }

    /// Returns `true` if an answer of the service is pending.
    pub(super) fn waits(&self) -> bool {
        matches!(&self.at, At::Service(Opening { answer_by: Some(_), .. }))
    }

    /// Returns the multicast tree, if it is known here.
    pub(super) fn tree(&self) -> Option<&MulticastTree> {
        match &self.at {
            At::Beside(seating) => seating.tree(self.group),
            At::Service(_) => None,
        }
    }

    /// Uses the service from now on, and opens the group there with these receivers.
    pub(super) fn turn_to_service(&mut self, around: &mut Around<'_>, receivers: &[NodeId]) {
        let opening = around.line.next_opening();
        self.at = At::Service(Opening { opening, number: 0, answer_by: None });
        self.retry_at = None;
        let most_children = around.config.most_children() as u16;
        self.ask(around, Asked::Open { above: self.epoch, most_children });
        self.join(around, receivers);
    }

    /// Uses the sender's own manager from now on, with these receivers.
    pub(super) fn turn_beside(&mut self, around: &mut Around<'_>, receivers: &[NodeId]) {
        if let At::Service(_) = self.at {
            self.ask(around, Asked::Close);
        }
        around.counters.manager_lost += 1;
        match seating(around, self.epoch) {
            Ok(mut seating) => {
                seating.join(&around.config.network, self.group, receivers);
                self.at = At::Beside(Box::new(seating));
            }
            // The sender had a place in the same network when the stream began.
            Err(error) => tracing::error!(group = %self.group, %error, "no local manager"),
        }
    }

    fn ask(&mut self, around: &mut Around<'_>, what: Asked) {
        let At::Service(opening) = &mut self.at else { return };
        opening.number = opening.number.wrapping_add(1);
        opening.answer_by.get_or_insert(around.now + ANSWER_WITHIN);
        around.counters.manager_asked += 1;
        around.line.ask(self.group, opening.opening, opening.number, what);
    }

    pub(super) fn join(&mut self, around: &mut Around<'_>, nodes: &[NodeId]) {
        match &mut self.at {
            At::Beside(seating) => seating.join(&around.config.network, self.group, nodes),
            At::Service(_) => {
                for nodes in nodes.chunks(MAX_JOINING) {
                    let nodes = nodes.iter().map(|node| around.line.with_address(*node)).collect();
                    self.ask(around, Asked::Join(nodes));
                }
            }
        }
    }

    pub(super) fn leave(&mut self, around: &mut Around<'_>, node: NodeId) {
        match &mut self.at {
            At::Beside(seating) => seating.leave(&around.config.network, self.group, node),
            At::Service(_) => self.ask(around, Asked::Leave(node)),
        }
    }

    /// Handles a report that the tree does not reach a receiver. Returns `true` if links are now
    /// believed dead. The service reports this later, in its answer.
    pub(super) fn on_cut(&mut self, around: &mut Around<'_>, ring: u32, successor: NodeId) -> bool {
        match &mut self.at {
            At::Beside(seating) => seating.report(around.now, self.group, ring, successor) > 0,
            At::Service(_) => {
                self.ask(around, Asked::Cut { ring, successor });
                false
            }
        }
    }

    pub(super) fn close(&mut self, around: &mut Around<'_>) {
        self.ask(around, Asked::Close);
    }

    /// Returns the places that the sender's own manager has changed.
    pub(super) fn poll(&mut self) -> Vec<Seated> {
        let At::Beside(seating) = &mut self.at else { return Vec::new() };
        let mut seated = Vec::new();
        while let Some(place) = seating.poll() {
            seated.push(place);
        }
        self.note_epochs(&seated);
        seated
    }

    fn note_epochs(&mut self, seated: &[Seated]) {
        let epochs = seated.iter().filter_map(|it| it.place.as_ref()).map(|place| place.epoch);
        self.epoch = epochs.fold(self.epoch, u32::max);
    }

    /// Handles an answer of the service. Returns the places that have changed, or `None` if the
    /// answer refers to an earlier opening.
    ///
    /// # Errors
    /// Fails if the service does not place the receivers.
    pub(super) fn on_answer(&mut self, answer: Answer) -> Option<Result<Vec<Seated>, Refusal>> {
        let At::Service(opening) = &mut self.at else { return None };
        if opening.opening != answer.opening {
            return None;
        }
        if opening.number == answer.number {
            opening.answer_by = None;
        }
        match answer.what {
            Told::Refused(why) => Some(Err(why)),
            Told::Placed(seated) => {
                self.note_epochs(&seated);
                Some(Ok(seated))
            }
        }
    }

    /// Schedules another attempt to use the service.
    pub(super) fn retry_later(&mut self, now: Time) {
        self.retry_at = Some(now + RETRY_AFTER);
    }

    /// Handles due timers. Returns the manager to use from now on, if it changes.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Option<Turn> {
        match &mut self.at {
            At::Beside(seating) => {
                seating.handle_timeout(now);
                let is_due = self.retry_at.is_some_and(|at| at <= now);
                is_due.then(|| {
                    self.retry_at = None;
                    Turn::ToService
                })
            }
            At::Service(opening) => {
                opening.answer_by.is_some_and(|at| at <= now).then_some(Turn::Beside)
            }
        }
    }

    /// Returns when [`Management::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Time {
        let due = match &self.at {
            At::Beside(seating) => {
                let times = [seating.poll_timeout(), self.retry_at];
                times.into_iter().flatten().min()
            }
            At::Service(opening) => opening.answer_by,
        };
        due.unwrap_or(Time::MAX)
    }
}

/// Manager to use from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    ToService,
    Beside,
}

/// Creates the sender's own manager and opens the group there.
fn seating(around: &mut Around<'_>, above: u32) -> Result<Seating, ManagerError> {
    let patience = Patience {
        retry_after: around.config.retry_link_after,
        settle: around.config.cut_after * 2,
    };
    let network = &around.config.network;
    let seed = around.rng.next_u64();
    let mut seating = Seating::new(network, around.config.most_children(), patience, seed);
    seating.open(network, around.group, around.node, above)?;
    Ok(seating)
}

/// Maximum time for an answer of the service, before the sender continues with a manager of its
/// own. It is less than the time that receivers have to take their first places.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);
/// Time after which a service that did not answer is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
#[path = "management_tests.rs"]
mod tests;
